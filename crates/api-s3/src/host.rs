//! The host a request came to: the service itself, or a bucket in front of one of its root hosts.

use std::net::IpAddr;

/// The root host whose clients have the server as their proxy.
const AMAZON: &str = "s3.amazonaws.com";

/// What the host names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The service: the bucket is in the path.
    Service,
    /// This bucket.
    Bucket(String),
}

impl Place {
    /// Reads a host, which may have a port, against the root hosts, of which the longest that fits counts. A host that is none
    /// of ours, or an address, is the service.
    #[must_use]
    pub fn of(host: Option<&str>, roots: &[String]) -> Self {
        let Some(name) = host.map(without_port).filter(|name| !is_address(name)) else { return Self::Service };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let fits = |root: &&String| {
            let root = root.to_ascii_lowercase();
            name == root || name.strip_suffix(&root).is_some_and(|front| front.ends_with('.'))
        };
        let amazon = || roots.iter().any(|root| root.eq_ignore_ascii_case(AMAZON)).then(|| regional(&name)).flatten();
        let root = roots.iter().filter(fits).map(String::len).max().or_else(amazon);
        let Some(root) = root else { return Self::Service };
        match name.len().checked_sub(root + 1) {
            Some(end) if end > 0 => Self::Bucket(name[..end].to_owned()),
            _ => Self::Service,
        }
    }
}

/// The length of `s3.REGION.amazonaws.com` or `s3-REGION.amazonaws.com` at the end of a host: clients that have a region write
/// it into Amazon's root. Taken for the path alone, the key of an object would be a bucket.
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
    fn the_longest_root_that_fits_decides() {
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
            let expected = bucket.map_or(Place::Service, |bucket| Place::Bucket(bucket.into()));
            assert_eq!(Place::of(Some(host), &roots), expected, "{host}");
        }
        assert_eq!(Place::of(None, &roots), Place::Service);
        for (host, bucket) in [
            ("s3.eu-west-1.amazonaws.com", None),
            ("a.b.s3.eu-west-1.amazonaws.com", Some("a.b")),
            ("b.s3-eu-west-1.amazonaws.com:80", Some("b")),
            ("s3-eu-west-1.amazonaws.com", None),
            ("b.ec2.eu-west-1.amazonaws.com", None),
            ("amazonaws.com", None),
        ] {
            let expected = bucket.map_or(Place::Service, |bucket| Place::Bucket(bucket.into()));
            assert_eq!(Place::of(Some(host), &roots), expected, "{host}");
            assert_eq!(Place::of(Some(host), &roots[..2]), Place::Service, "{host}: Amazon's root is none of ours");
        }
        let address = [String::from("10.0.0.1")];
        assert_eq!(Place::of(Some("10.0.0.1:80"), &address), Place::Service);
    }
}
