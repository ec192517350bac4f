//! Which addresses the server may call.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::options::values::AllowedNetworks;

/// Globally reachable addresses may be called; others only where the operator has said so.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allowed: AllowedNetworks,
}

impl AddressPolicy {
    /// The policy with these exceptions.
    pub fn new(allowed: AllowedNetworks) -> Self {
        Self { allowed }
    }

    /// Whether this address may be called.
    pub fn allows(&self, address: IpAddr) -> bool {
        match &self.allowed {
            AllowedNetworks::Any => true,
            AllowedNetworks::PublicOnly => is_global(address),
            AllowedNetworks::Listed(ranges) => is_global(address) || ranges.iter().any(|range| range.contains(address)),
        }
    }
}

/// Whether an address is reachable from everywhere, by the registries of special-purpose addresses.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) => is_global_v6(address),
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [169, 254, ..] | [192, 168, ..] => true,
        [172, second, ..] => second & 0xf0 == 16,
        [192, 0, 0, last] => !matches!(last, 9 | 10),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        [198, second, ..] => second & 0xfe == 18,
        [first, ..] => first >= 240,
    };
    !special
}

fn is_global_v6(address: Ipv6Addr) -> bool {
    let special = match address.segments() {
        // Unspecified, loopback, and IPv4 in disguise.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] | [0, 0, 0, 0, 0, 0xffff, _, _] => true,
        // Translation for local use; discard-only.
        [0x64, 0xff9b, 1, ..] | [0x100, 0, 0, 0, ..] => true,
        [0x2001, second, rest @ ..] if second < 0x200 => !is_global_2001(second, rest),
        [0x2002, ..] | [0x2001, 0xdb8, ..] | [0x5f00, ..] => true,
        [0x3fff, second, ..] => second & 0xf000 == 0,
        [first, ..] => first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80,
    };
    !special
}

/// The parts of 2001::/23 that are reachable all the same: anycast services, AMT, AS112, ORCHIDv2 and drone identities.
fn is_global_2001(second: u16, rest: [u16; 6]) -> bool {
    match (second, rest) {
        (1, [0, 0, 0, 0, 0, last]) => (1..=3).contains(&last),
        (3, _) => true,
        (4, [0x112, ..]) => true,
        (0x20..=0x3f, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(policy: &AddressPolicy, address: &str) -> bool {
        policy.allows(address.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_called_by_themselves() {
        let policy = AddressPolicy::default();
        let blocked = "0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255 127.0.0.1 \
            127.255.0.1 169.254.169.254 192.0.0.1 192.0.0.8 192.0.2.1 198.51.100.7 203.0.113.9 198.18.0.1 198.19.255.255 \
            240.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 ::ffff:127.0.0.1 64:ff9b:1::1 100::1 2001::1 2001:2::1 \
            2001:1::4 2001:1ff::1 2002::1 2001:db8::1 3fff::1 3fff:fff::1 5f00::1 fc00::1 fdff::1 fe80::1 febf::1";
        for address in blocked.split_whitespace() {
            assert!(!allows(&policy, address), "{address}");
        }
        let public = "1.1.1.1 8.8.8.8 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 192.0.0.9 192.0.0.10 192.0.1.1 \
            198.17.0.1 198.20.0.1 223.255.255.255 2606:4700::1111 64:ff9b::1 2001:1::1 2001:1::3 2001:3::1 2001:4:112::1 \
            2001:20::1 2001:3f::1 2001:200::1 3fff:1000::1 2a00::1";
        for address in public.split_whitespace() {
            assert!(allows(&policy, address), "{address}");
        }
    }

    #[test]
    fn listed_ranges_are_exceptions() {
        let listed = AddressPolicy::new("127.0.0.0/8,fc00::/7".parse().unwrap());
        assert!(allows(&listed, "127.0.0.1") && allows(&listed, "fd00::1") && allows(&listed, "9.9.9.9"));
        assert!(!allows(&listed, "10.0.0.1") && !allows(&listed, "::1") && !allows(&listed, "::ffff:127.0.0.1"));
        let any = AddressPolicy::new(AllowedNetworks::Any);
        assert!(allows(&any, "10.0.0.1") && allows(&any, "::1"));
    }
}
