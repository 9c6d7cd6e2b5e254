//! Which addresses a delivery may go to: those of the internet, and beside them only networks that a route names.
//!
//! What is refused would let whoever can name a host reach what only this machine can: other services here and in the network around it, and
//! the cloud's own that hands out credentials.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use mainstay_core::{Error, Result};

/// What an address is for, if it is not one of the internet. Addresses of version 4 that are wrapped in one of version 6 count as what they
/// are inside.
pub(super) fn special_use(address: IpAddr) -> Option<&'static str> {
    match plain(address) {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// The address of version 4 inside one of version 6, where there is one: mapped (`::ffff:a.b.c.d`), or as a translator to version 4 has it
/// (`64:ff9b::a.b.c.d`).
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => IpAddr::V4(v4_of(high, low)),
        _ => address.to_canonical(),
    }
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "unspecified",
        [127, ..] => "loopback",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "shared by a provider's customers",
        [169, 254, ..] => "link-local",
        // Azure's own, which every machine there reaches: metadata, certificates and settings of the machine.
        [168, 63, 129, 16] => "of the cloud's host",
        [192, 0, 0, _] => "for protocols",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "for documentation",
        [192, 88, 99, _] => "a 6to4 relay",
        [198, 18..=19, ..] => "for measurements",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        // The rest of ::/8, with ::a.b.c.d that nobody uses any more.
        [0..=0xff, ..] if !matches!(address.segments(), [0x64, 0xff9b, ..]) => "reserved",
        [0x64, 0xff9b, ..] => "a translation to IPv4 within a network",
        [0x100, ..] => "to be discarded",
        // Tunnels carry an address of version 4 that nobody would check.
        [0x2001, 0, ..] => "a Teredo tunnel",
        [0x2001, 0x0..=0x1ff, ..] => "for protocols",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "for documentation",
        [0x2002, ..] => "a 6to4 tunnel",
        [0x5f00, ..] => "for segment routing",
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        // The internet is 2000::/3; what lies outside is reserved.
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    })
}

/// A network, as `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address is in it.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, plain(address)) {
            (IpAddr::V4(network), IpAddr::V4(address)) => same(
                u128::from(network.to_bits()),
                u128::from(address.to_bits()),
                32 - u32::from(self.prefix),
            ),
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same(network.to_bits(), address.to_bits(), 128 - u32::from(self.prefix))
            }
            _ => false,
        }
    }
}

/// Whether two numbers are the same but for so many bits at their end.
fn same(one: u128, other: u128, bits: u32) -> bool {
    (one ^ other).checked_shr(bits).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(
                "webhook.route",
                "allow_networks",
                format_args!("must be networks like \"10.0.0.0/8\" or single addresses; {text:?} {why}"),
            )
        };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong("is none"))?;
        // What is compared with it has been taken out of its wrapping, too.
        let inside = plain(address);
        let most = if inside.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            Some(_) if inside != address => {
                return Err(wrong("wraps an address of version 4; write that one"));
            }
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= most).ok_or_else(|| {
                wrong(if most == 32 {
                    "has a prefix that is not 0 to 32"
                } else {
                    "has a prefix that is not 0 to 128"
                })
            })?,
        };
        Ok(Self { address: inside, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_of(text: &str) -> Option<&'static str> {
        special_use(text.parse().unwrap())
    }

    #[test]
    fn only_addresses_of_the_internet_have_no_special_use() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "168.63.129.15",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450:4001:830::200e",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(use_of(address), None, "{address}");
        }
    }

    #[test]
    fn what_only_this_machine_reaches_is_known() {
        for (address, wanted) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("10.0.0.1", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "shared by a provider's customers"),
            ("100.127.255.255", "shared by a provider's customers"),
            ("169.254.169.254", "link-local"),
            ("168.63.129.16", "of the cloud's host"),
            ("192.0.0.192", "for protocols"),
            ("192.0.2.1", "for documentation"),
            ("192.88.99.1", "a 6to4 relay"),
            ("198.18.0.1", "for measurements"),
            ("198.19.255.255", "for measurements"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:a9fe:a9fe", "link-local"),
            ("::127.0.0.1", "reserved"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::1", "a translation to IPv4 within a network"),
            ("100::1", "to be discarded"),
            ("2001::1", "a Teredo tunnel"),
            ("2001:2::1", "for protocols"),
            ("2001:db8::1", "for documentation"),
            ("3fff::1", "for documentation"),
            ("2002:7f00:1::1", "a 6to4 tunnel"),
            ("2002:808:808::1", "a 6to4 tunnel"),
            ("5f00::1", "for segment routing"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("1::1", "reserved"),
        ] {
            assert_eq!(use_of(address), Some(wanted), "{address}");
        }
    }

    #[test]
    fn a_network_has_what_begins_like_it() {
        let has = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.1.2.3/8", "10.9.9.9"), "what lies behind the prefix does not matter");
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("127.0.0.1", "::ffff:127.0.0.1"), "however it is written");
        assert!(has("::ffff:127.0.0.1", "127.0.0.1"));
        assert!(has("0.0.0.0/0", "169.254.169.254") && !has("0.0.0.0/0", "::1"));
        assert!(has("::1", "::1") && has("fd00::/8", "fd12::1") && !has("fd00::/8", "fc00::1"));
        assert!(has("::/0", "fe80::1"));
    }

    #[test]
    fn what_is_no_network_is_told() {
        for text in
            ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "localhost", "10.0.0.0/x", "::ffff:10.0.0.0/104"]
        {
            let error = text.parse::<Network>().unwrap_err();
            assert_eq!(error.field(), Some("allow_networks"), "{text}: {error}");
        }
    }
}
