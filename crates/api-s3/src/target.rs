//! The target of a request: the bucket and the key that host and path name, and the query.
//!
//! A host names its bucket (virtual-hosted style) or leaves it to the path (path style). The path is decoded once and
//! never normalised: `//`, `.` and `..` are bytes of a key. The query is kept as decoded pairs; signatures are computed
//! over the raw text instead.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use larder_rows::limits::S3_KEY_BYTES_MAX;
use larder_s3::Error;
use percent_encoding::percent_decode_str;

use crate::errors::{Code, S3Error};

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
    pub fn from_host(host: Option<&str>, roots: &[String]) -> Self {
        let Some(name) = host.and_then(host_name) else { return Self::PathStyle };
        let Some(root) = root_length(&name, roots) else { return Self::PathStyle };
        match name.len().checked_sub(root + 1) {
            Some(end) if end > 0 => Self::VirtualHosted(name[..end].to_owned()),
            _ => Self::PathStyle,
        }
    }
}

/// Whether a host has a name of several parts and fits no root: a client may have put a bucket in front of it.
#[must_use]
pub(crate) fn is_unknown_host(host: &str, roots: &[String]) -> bool {
    host_name(host).is_some_and(|name| name.contains('.') && root_length(&name, roots).is_none())
}

/// The name of a host in lower case, without its port; `None` for an address.
pub(crate) fn host_name(host: &str) -> Option<String> {
    let name = Some(without_port(host)).filter(|name| !is_address(name))?;
    // A fully qualified host ends with a dot.
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

/// The length of the longest root that the name is, or ends with.
pub(crate) fn root_length(name: &str, roots: &[String]) -> Option<usize> {
    let fits = |root: &&String| {
        let root = root.to_ascii_lowercase();
        name == root || name.strip_suffix(&root).is_some_and(|front| front.ends_with('.'))
    };
    let amazon = || roots.iter().any(|root| root.eq_ignore_ascii_case(AMAZON)).then(|| regional(name)).flatten();
    roots.iter().filter(fits).map(String::len).max().or_else(amazon)
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
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

/// The bucket and the key that a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    /// The bucket; empty for the service.
    pub bucket: String,
    /// The key, UTF-8; empty for the bucket.
    pub key: Bytes,
}

impl ResourcePath {
    /// Parses a raw path under the given addressing style.
    ///
    /// # Errors
    /// `InvalidURI` if a name is not UTF-8 once decoded or the path does not begin with a slash; `InvalidBucketName` if
    /// a key has no bucket.
    pub fn parse(addressing: &AddressingStyle, path: &str) -> Result<Self, S3Error> {
        // `OPTIONS *` has no path.
        let rest = path.strip_prefix('/').ok_or(Code::InvalidURI)?;
        let (bucket, key) = match addressing {
            AddressingStyle::VirtualHosted(bucket) => (bucket.clone(), rest),
            AddressingStyle::PathStyle => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                (text(bucket)?, key)
            }
        };
        if bucket.is_empty() && !key.is_empty() {
            return Err(Code::InvalidBucketName.into());
        }
        Ok(Self { bucket, key: text(key)?.into() })
    }

    /// The decoded path with its bucket, as error documents show it.
    #[must_use]
    pub fn resource(&self) -> String {
        let mut resource = format!("/{}", self.bucket);
        if !self.key.is_empty() {
            resource.push('/');
            resource.push_str(&String::from_utf8_lossy(&self.key));
        }
        resource
    }
}

/// No object has a longer key: a delete of one once left a marker.
///
/// # Errors
/// `KeyTooLongError`.
pub(crate) fn check_key(key: &[u8]) -> Result<(), S3Error> {
    if key.len() > S3_KEY_BYTES_MAX { Err(Error::KeyTooLong(key.len()).into()) } else { Ok(()) }
}

/// Decodes percent escapes; an invalid escape stays as it is.
pub(crate) fn decode(raw: &str) -> Cow<'_, [u8]> {
    percent_decode_str(raw).into()
}

fn text(raw: &str) -> Result<String, S3Error> {
    percent_decode_str(raw).decode_utf8().map(Cow::into_owned).map_err(|_| Code::InvalidURI.into())
}

/// Most parameters of a request. The largest known requests, presigned by boto, have some dozens.
pub const PARAMETERS_MAX: usize = 512;

/// The parameters of a request, in order. The first of a repeated name counts.
#[derive(Debug, Clone, Default)]
pub struct S3Query {
    pairs: Vec<(String, String)>,
}

impl S3Query {
    /// Splits a query at `&`. A name without `=` has an empty value; `+` is a space. Invalid UTF-8 is replaced, and
    /// parameters after the first [`PARAMETERS_MAX`] are ignored.
    #[must_use]
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = pairs(query.unwrap_or_default()).take(PARAMETERS_MAX);
        let text = |raw: &str| String::from_utf8_lossy(&decode_plus(raw)).into_owned();
        Self { pairs: pairs.map(|(name, value)| (text(name), text(value.unwrap_or_default()))).collect() }
    }

    /// The value of the first parameter of this name; empty if it has none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The value of the first parameter of this name, if it is not empty.
    #[must_use]
    pub fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Whether the parameter is present.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// The raw pairs of a query. The value is `None` without `=`.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (pair, None),
    })
}

/// Decodes a name or value of a query: escapes, and `+` for a space.
#[must_use]
pub fn decode_plus(raw: &str) -> Cow<'_, [u8]> {
    // The plus becomes a space before the escapes are decoded: `%2B` stays a plus.
    if raw.contains('+') { Cow::Owned(decode(&raw.replace('+', " ")).into_owned()) } else { decode(raw) }
}

/// Longest host with its port, in bytes.
const AUTHORITY_BYTES_MAX: usize = 261;

/// An address without a path, such as `https://s3.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    /// The host, in small letters, and its port unless the scheme implies it: as clients sign it.
    authority: String,
}

impl PublicUrl {
    /// Parses `http://HOST[:PORT]` or `https://HOST[:PORT]`, with or without a slash at the end.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || "http:// or https:// with a host and no path, such as https://s3.example.com".to_owned();
        let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(expected()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest).to_ascii_lowercase();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
        let host = without_port(&authority);
        let port = authority.strip_prefix(host).and_then(|port| port.strip_prefix(':'));
        let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
        let has_bare_colon = host.contains(':') && !host.starts_with('[');
        if host.is_empty()
            || has_bare_colon
            || !is_port
            || !authority.chars().all(is_plain)
            || authority.len() > AUTHORITY_BYTES_MAX
        {
            return Err(expected());
        }
        let implied = if is_https { "443" } else { "80" };
        let authority = if port == Some(implied) { host.to_owned() } else { authority };
        Ok(Self { is_https, authority })
    }

    /// The host with its port, as a client writes it into `Host`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The host alone.
    #[must_use]
    pub fn host(&self) -> &str {
        without_port(&self.authority)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_https { "https" } else { "http" }, self.authority)
    }
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
            assert_eq!(AddressingStyle::from_host(Some(host), &roots), expected, "{host}");
        }
        assert_eq!(AddressingStyle::from_host(None, &roots), AddressingStyle::PathStyle);
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
            assert_eq!(AddressingStyle::from_host(Some(host), &roots), expected, "{host}");
            assert_eq!(
                AddressingStyle::from_host(Some(host), &roots[..2]),
                AddressingStyle::PathStyle,
                "{host}: Amazon's root is none of ours"
            );
        }
        let address = [String::from("10.0.0.1")];
        assert_eq!(AddressingStyle::from_host(Some("10.0.0.1:80"), &address), AddressingStyle::PathStyle);
    }

    fn target(addressing: AddressingStyle, path: &str) -> Option<(String, String)> {
        let target = ResourcePath::parse(&addressing, path).ok()?;
        Some((target.bucket, String::from_utf8(target.key.to_vec()).unwrap()))
    }

    #[test]
    fn keys_are_decoded_once_and_never_normalised() {
        let cases = [
            ("/", "", ""),
            ("/b", "b", ""),
            ("/b/", "b", ""),
            ("/b/k", "b", "k"),
            ("/b//k/./../", "b", "/k/./../"),
            ("/b/a%2Fb%252F+%20c%zz", "b", "a/b%2F+ c%zz"),
            ("/b/%C3%a9", "b", "é"),
        ];
        for (path, bucket, key) in cases {
            assert_eq!(target(AddressingStyle::PathStyle, path), Some((bucket.into(), key.into())), "{path}");
        }
        let host = AddressingStyle::VirtualHosted("v.h".into());
        assert_eq!(target(host.clone(), "/"), Some(("v.h".into(), String::new())));
        assert_eq!(target(host, "//k"), Some(("v.h".into(), "/k".into())));
        for path in ["", "b", "/b/%ff", "/%ff", "//k"] {
            assert_eq!(target(AddressingStyle::PathStyle, path), None, "{path}");
        }
    }

    #[test]
    fn the_first_parameter_of_a_name_counts() {
        let query = S3Query::parse(Some("a=1&a=2&x=a+b%26%2B&flag&=v&&e="));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("x"), Some("a b&+"));
        assert_eq!((query.get("flag"), query.non_empty("flag"), query.get("e")), (Some(""), None, Some("")));
        assert!(query.has("") && !query.has("y"));
        assert_eq!(query.iter().count(), 6);
        assert!(S3Query::parse(None).iter().next().is_none());
    }
}

#[cfg(test)]
mod public_url_tests {
    use super::*;

    #[test]
    fn an_address_is_kept_as_clients_sign_it() {
        for (text, shown, host) in [
            ("https://S3.Example.com/", "https://s3.example.com", "s3.example.com"),
            ("https://s3.example.com:443", "https://s3.example.com", "s3.example.com"),
            ("http://h:80", "http://h", "h"),
            ("http://h:443", "http://h:443", "h"),
            ("http://[::1]:9000", "http://[::1]:9000", "[::1]"),
        ] {
            let url = PublicUrl::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.host()), (shown, host), "{text}");
        }
        for text in [
            "",
            "h",
            "ftp://h",
            "https://",
            "https://h/path",
            "https://h:",
            "https://h:0",
            "http://h:99999",
            "http://a b",
            "http://::1",
        ] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
        }
    }
}
