//! The addressing style of a request: path style, or virtual-hosted style with the bucket in front of a root host.

use std::net::IpAddr;

/// The root host of clients that reach this server as their HTTP proxy.
const AMAZON: &str = "s3.amazonaws.com";

/// Where a request names its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressingStyle {
    /// In the path.
    PathStyle,
    /// In the host: this bucket.
    VirtualHosted(String),
}

impl AddressingStyle {
    /// Reads a host, with or without a port, against the root hosts; the longest matching root wins. An IP address or
    /// an unknown host means path style.
    #[must_use]
    pub fn of_host(host: Option<&str>, roots: &[String]) -> Self {
        let Some(name) = host.map(without_port).filter(|name| !is_address(name)) else { return Self::PathStyle };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let fits = |root: &&String| {
            let root = root.to_ascii_lowercase();
            name == root || name.strip_suffix(&root).is_some_and(|front| front.ends_with('.'))
        };
        let amazon = || roots.iter().any(|root| root.eq_ignore_ascii_case(AMAZON)).then(|| regional(&name)).flatten();
        let root = roots.iter().filter(fits).map(String::len).max().or_else(amazon);
        let Some(root) = root else { return Self::PathStyle };
        match name.len().checked_sub(root + 1) {
            Some(end) if end > 0 => Self::VirtualHosted(name[..end].to_owned()),
            _ => Self::PathStyle,
        }
    }
}

/// The length of the `s3.REGION.amazonaws.com` or `s3-REGION.amazonaws.com` suffix of a host. Clients with a configured
/// region write it into Amazon's root. Read as path style, the object's key would become a bucket name.
fn regional(name: &str) -> Option<usize> {
    let front = name.strip_suffix(".amazonaws.com")?;
    let (before, last) = front.rsplit_once('.').unwrap_or(("", front));
    let root = match last.strip_prefix("s3-") {
        Some(region) if !region.is_empty() => last.len(),
        _ if before == "s3" || before.ends_with(".s3") => "s3.".len() + last.len(),
        _ => return None,
    };
    Some(root + ".amazonaws.com".len())
}

/// A host without its port.
#[must_use]
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_root_wins() {
        let roots = ["localhost", "s3.localhost", "S3.Amazonaws.com", "eu.s3.amazonaws.com"].map(String::from);
        let cases = [
            ("localhost:8080", None),
            ("s3.localhost", None),
            ("LOCALHOST.", None),
            ("b.localhost:8080", Some("b")),
            ("b.s3.localhost", Some("b")),
            ("a.b.c.s3.amazonaws.com", Some("a.b.c")),
            ("B.eu.s3.AMAZONAWS.com:443", Some("b")),
            ("eu.s3.amazonaws.com", None),
            ("notlocalhost", None),
            (".localhost", None),
            ("127.0.0.1:8080", None),
            ("[::1]:8080", None),
            ("::1", None),
            ("example.org", None),
            ("", None),
        ];
        for (host, bucket) in cases {
            let expected =
                bucket.map_or(AddressingStyle::PathStyle, |bucket| AddressingStyle::VirtualHosted(bucket.into()));
            assert_eq!(AddressingStyle::of_host(Some(host), &roots), expected, "{host}");
        }
        assert_eq!(AddressingStyle::of_host(None, &roots), AddressingStyle::PathStyle);
        for (host, bucket) in [
            ("s3.eu-west-1.amazonaws.com", None),
            ("a.b.s3.eu-west-1.amazonaws.com", Some("a.b")),
            ("b.s3-eu-west-1.amazonaws.com:80", Some("b")),
            ("s3-eu-west-1.amazonaws.com", None),
            ("b.ec2.eu-west-1.amazonaws.com", None),
            ("amazonaws.com", None),
        ] {
            let expected =
                bucket.map_or(AddressingStyle::PathStyle, |bucket| AddressingStyle::VirtualHosted(bucket.into()));
            assert_eq!(AddressingStyle::of_host(Some(host), &roots), expected, "{host}");
            assert_eq!(
                AddressingStyle::of_host(Some(host), &roots[..2]),
                AddressingStyle::PathStyle,
                "{host}: Amazon's root is none of ours"
            );
        }
        let address = [String::from("10.0.0.1")];
        assert_eq!(AddressingStyle::of_host(Some("10.0.0.1:80"), &address), AddressingStyle::PathStyle);
    }
}
