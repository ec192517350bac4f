#!/bin/sh
# Prints which recommended settings this host has and which are missing; changes nothing. Exit code 1 if the kernel would not
# let the server start; what a container's seccomp profile refuses is not seen here.
bad=0
say() { printf '%-9s %s\n' "$1" "$2"; }
kernel=$(uname -r)
major=${kernel%%.*}; rest=${kernel#*.}; minor=${rest%%.*}; minor=${minor%%[!0-9]*}
if [ "$major" -gt 5 ] || { [ "$major" -eq 5 ] && [ "$minor" -ge 8 ]; }; then say ok "kernel $kernel"
else say missing "kernel $kernel: io_uring needs 5.8 or later"; bad=1; fi
disabled=$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0)
# With 1, root and the members of a group may use it.
group=$(cat /proc/sys/kernel/io_uring_group 2>/dev/null || echo -1)
if [ "$disabled" = 1 ]; then
  case " $(id -u) $(id -G) " in " 0 "*|*" $group "*) disabled=0;; esac
fi
case $disabled in 0) say ok "io_uring allowed";; *) say missing "kernel.io_uring_disabled is $disabled: sysctl kernel.io_uring_disabled=0"; bad=1;; esac
lock=$(ulimit -l)
if [ "$lock" = unlimited ] || [ "$lock" -ge 65536 ]; then say ok "memory that may be locked: $lock KiB"
else say low "memory that may be locked: $lock KiB (LimitMEMLOCK=infinity, or ulimit -l unlimited)"; fi
files=$(ulimit -Hn)
if [ "$files" = unlimited ] || [ "$files" -ge 65536 ]; then say ok "open files: $files"
else say low "open files: $files (LimitNOFILE=1048576)"; fi
backlog=$(cat /proc/sys/net/core/somaxconn)
if [ "$backlog" -ge 4096 ]; then say ok "backlog: $backlog"; else say low "backlog: $backlog (net.core.somaxconn=4096)"; fi
huge=$(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || echo none)
case $huge in
  *'[madvise]'*) say ok "huge pages: madvise";;
  *'[always]'*) if [ "$major" -gt 6 ] || { [ "$major" -eq 6 ] && [ "$minor" -ge 18 ]; }; then say ok "huge pages"
    else say low "huge pages: always (use madvise: before 6.18 the server cannot use huge pages with always)"; fi;;
  *) say low "huge pages: $huge (madvise)";;
esac
for governor in /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; do
  [ -r "$governor" ] && { g=$(cat "$governor"); [ "$g" = performance ] && say ok "governor $g" || say low "governor $g (cpupower frequency-set -g performance)"; }
done
for poll in /sys/block/nvme*/queue/io_poll; do
  [ -r "$poll" ] && say info "$poll is $(cat "$poll") (nvme.poll_queues on the kernel's command line)"
done
say info "isolated cores: $(cat /sys/devices/system/cpu/isolated 2>/dev/null || echo none)"
exit $bad
