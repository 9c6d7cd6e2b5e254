//! Where a route's deliveries go: its URL, taken apart and checked.

use std::fmt;
use std::net::IpAddr;

use axum::http::Uri;
use mainstay_core::{Error, Result};

/// A URL that deliveries go to. What is shown of it is where it leads, never its path: that may be what lets one in.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) secure: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// As the header `Host` has it.
    pub(super) authority: String,
    pub(super) path: String,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(
                "webhook.route",
                "url",
                format_args!("must be like https://shop.example/hooks; {why}"),
            )
        };
        if url.contains('#') {
            return Err(wrong("a fragment (#…) is never sent, leave it out"));
        }
        let uri: Uri = url.parse().map_err(|_| {
            wrong("this is no URL; write a name with other letters as xn--…, and a space in the path as %20")
        })?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("it must begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(
                "a user and a password (…@) don't belong here: receivers know a delivery by its signature",
            ));
        }
        let host = authority.host();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if host.is_empty() || host.starts_with('[') && !address.as_ref().is_ok_and(IpAddr::is_ipv6) {
            return Err(wrong("the host is missing, or is no address of version 6 in its brackets"));
        }
        // Systems read 127.1, 0x7f000001 or 2130706433 as addresses, too.
        if address.is_err() && is_number(host.trim_end_matches('.').rsplit('.').next().unwrap_or_default()) {
            return Err(wrong("an address of version 4 has four decimal numbers, as in 192.0.2.7"));
        }
        // `Uri` reads a port that is no number, or too large, as none.
        let port = match authority.as_str().strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
            None => {
                if secure {
                    443
                } else {
                    80
                }
            }
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("its port must be 1 to 65535"))?,
        };
        let mut path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        // A query right behind the host.
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        Ok(Self {
            secure,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path,
        })
    }

    /// The host, if it is an address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether it is said to be this very machine.
    pub(super) fn is_local(&self) -> bool {
        let name = self.host.trim_end_matches('.');
        name.eq_ignore_ascii_case("localhost")
            || self.address().is_some_and(|address| address.to_canonical().is_loopback())
    }
}

/// Whether a system would read the last part of a name as a number.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("https://shop.example:8443/hooks/in?key=1").unwrap();
        assert_eq!((target.secure, target.host.as_str(), target.port), (true, "shop.example", 8443));
        assert_eq!(
            (target.authority.as_str(), target.path.as_str()),
            ("shop.example:8443", "/hooks/in?key=1")
        );
        assert_eq!(format!("{target} {target:?}"), "https://shop.example:8443 https://shop.example:8443");
        let target = Target::parse("http://[::1]:80").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 80, "/"));
        assert!(target.is_local());
        assert_eq!(Target::parse("https://1.2.3.4/x").unwrap().address(), Some([1, 2, 3, 4].into()));
        assert_eq!(Target::parse("http://shop.example?x=1").unwrap().path, "/?x=1");
    }

    #[test]
    fn what_is_no_url_to_deliver_to_is_refused() {
        for url in [
            "",
            "shop.example",
            "/hooks",
            "ftp://shop.example",
            "https://",
            "https:///x",
            "https://user:s3cret@shop.example",
            "https://shop.example/#x",
            "https://shop.example:0",
            "https://shop.example:99999",
            "https://shop.example:x",
            "https://shop.example:",
            "https://[fe80::1%eth0]/",
            "https://[shop.example]/",
            "https://bücher.example/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://127.0.0.0x1/",
            "https://127.0.0.1./",
            "https://1.2.3.4.5/",
            "https://shop.example/a b",
        ] {
            let error = Target::parse(url).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.field(), Some("url"));
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for url in
            ["http://localhost", "http://LOCALHOST.:1", "http://127.9.9.9", "http://[::ffff:127.0.0.1]"]
        {
            assert!(Target::parse(url).unwrap().is_local(), "{url}");
        }
        for url in ["http://localhost.example", "http://10.0.0.1", "http://[::2]"] {
            assert!(!Target::parse(url).unwrap().is_local(), "{url}");
        }
    }
}
