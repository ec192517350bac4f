#!/bin/sh
# irq.sh CPULIST: moves every movable interrupt to these cores (such as 0-1), so that the others are the server's own.
# Run as root; undone by a restart of the host. Stop irqbalance first, or it moves them back.
[ $# -eq 1 ] || { echo "usage: $0 CPULIST" >&2; exit 2; }
moved=0
for irq in /proc/irq/[0-9]*; do
  if echo "$1" > "$irq/smp_affinity_list" 2>/dev/null; then moved=$((moved + 1)); fi
done
echo "$moved interrupts moved to $1"
