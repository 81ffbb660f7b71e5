//! The address of a source: `riak://HOST:PORT[,HOST:PORT…]`, `s3://KEY@HOST:PORT`, and both with an `s` for TLS.

use std::net::SocketAddr;

use percent_encoding::{percent_decode_str, percent_encode};

use super::json_documents::ESCAPED;

/// Most hosts of one source.
const HOSTS_MAX: usize = 256;
/// Riak's HTTP port.
const RIAK_PORT: u16 = 8098;
/// The port of S3 in clear.
const HTTP_PORT: u16 = 80;
/// The port of S3 over TLS.
const HTTPS_PORT: u16 = 443;
/// Most bytes of an access key id.
const KEY_BYTES_MAX: usize = 256;

/// The place of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceAddress {
    /// The nodes of a Riak, or a Larder.
    Riak(RiakAddress),
    /// A store that speaks S3.
    S3(S3Address),
}

/// The nodes of a Riak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiakAddress {
    /// Whether it is read over TLS.
    pub is_secure: bool,
    /// Each node as `HOST:PORT`.
    pub hosts: Vec<String>,
}

/// A store that speaks S3, as one of its users sees it. Buckets are in its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Address {
    /// Whether it is read over TLS.
    pub is_secure: bool,
    /// `HOST:PORT`.
    pub host: String,
    /// The access key id; its secret is no part of the address.
    pub key: String,
}

impl SourceAddress {
    /// Reads the address that an operator gave.
    ///
    /// # Errors
    /// A line that says what is wrong, or not offered. It never shows a secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("the source is an address like riak://HOST:8098")?;
        match scheme {
            "riak" | "riaks" => RiakAddress::parse(scheme == "riaks", rest).map(Self::Riak),
            "s3" | "s3s" => S3Address::parse(scheme == "s3s", rest).map(Self::S3),
            _ => Err(format!(
                "{}:// is no source: a move reads riak://HOST:8098 or s3://KEY@HOST:PORT",
                scheme.escape_debug()
            )),
        }
    }

    /// The host that is one of these listeners, as far as its text tells: a server that reads itself counts everything anew with each pass.
    #[must_use]
    pub fn host_among(&self, listeners: &[SocketAddr]) -> Option<&str> {
        let hosts = match self {
            Self::Riak(address) => &address.hosts[..],
            Self::S3(address) => std::slice::from_ref(&address.host),
        };
        let is_own = |host: &&String| listeners.iter().any(|listener| is_at(host, *listener));
        hosts.iter().find(is_own).map(String::as_str)
    }

    /// Its canonical text, which parses to it: each host has its port.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Riak(RiakAddress { is_secure, hosts }) => {
                format!("{}://{}", if *is_secure { "riaks" } else { "riak" }, hosts.join(","))
            }
            Self::S3(S3Address { is_secure, host, key }) => {
                format!(
                    "{}://{}@{host}",
                    if *is_secure { "s3s" } else { "s3" },
                    percent_encode(key.as_bytes(), ESCAPED)
                )
            }
        }
    }
}

impl RiakAddress {
    fn parse(is_secure: bool, rest: &str) -> Result<Self, String> {
        let hosts = rest.trim_end_matches('/').split(',');
        let hosts = hosts.map(|text| host(text, RIAK_PORT)).collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(format!("a source has at most {HOSTS_MAX} hosts"));
        }
        Ok(Self { is_secure, hosts })
    }
}

impl S3Address {
    fn parse(is_secure: bool, rest: &str) -> Result<Self, String> {
        // From the right: a secret that does not belong here may hold an @.
        let (key, place) = rest.rsplit_once('@').ok_or("the source has no access key id: it is s3://KEY@HOST:PORT")?;
        if key.contains(':') {
            return Err("an address has no secret: name a file that holds it with --secret-file FILE".to_owned());
        }
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains(['/', '?', '#']) || key.contains(['/', '?', '#']) {
            return Err("the address of an S3 source ends after HOST:PORT: it has no path and no query".to_owned());
        }
        let port = if is_secure { HTTPS_PORT } else { HTTP_PORT };
        Ok(Self { is_secure, host: host(place, port)?, key: access_key(key)? })
    }

    /// The host as requests name it: without the port that the scheme implies.
    #[must_use]
    pub fn authority(&self) -> &str {
        let implied = if self.is_secure { ":443" } else { ":80" };
        self.host.strip_suffix(implied).unwrap_or(&self.host)
    }
}

/// The access key id in an address. It has no characters that end it in a header with a signature.
fn access_key(text: &str) -> Result<String, String> {
    let key = percent_decode_str(text).decode_utf8().map_err(|_| "the access key id is not UTF-8")?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(format!("an access key id has 1 to {KEY_BYTES_MAX} bytes"));
    }
    if key.chars().any(|char| char.is_control() || char.is_whitespace() || char == ',') {
        return Err("an access key id has no blanks, commas and control characters".to_owned());
    }
    Ok(key.into_owned())
}

fn host(text: &str, default_port: u16) -> Result<String, String> {
    let wrong = || format!("`{}` is not HOST:PORT", text.escape_debug());
    let text = text.trim();
    let end_of_literal = text.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match text[end_of_literal..].rfind(':') {
        Some(at) => (&text[..end_of_literal + at], text[end_of_literal + at + 1..].parse().map_err(|_| wrong())?),
        None => (text, default_port),
    };
    let is_literal = name.starts_with('[') && name.ends_with(']');
    let is_name_letter = |char: char| char.is_ascii_alphanumeric() || "-._".contains(char);
    let is_literal_letter = |char: char| char.is_ascii_hexdigit() || "[]:.".contains(char);
    let is_valid = match is_literal {
        true => name.chars().all(is_literal_letter),
        false => !name.is_empty() && name.chars().all(is_name_letter),
    };
    if is_valid && port > 0 { Ok(format!("{name}:{port}")) } else { Err(wrong()) }
}

/// Whether a `HOST:PORT` is this listener. Of names only `localhost` is known.
fn is_at(host: &str, listener: SocketAddr) -> bool {
    let host = host.strip_prefix("localhost:").map_or_else(|| host.to_owned(), |port| format!("127.0.0.1:{port}"));
    let Ok(address) = host.parse::<SocketAddr>() else { return false };
    let (given, own) = (address.ip().to_canonical(), listener.ip().to_canonical());
    let is_here = own == given || given.is_loopback() && own.is_unspecified();
    is_here && address.port() == listener.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_once_took_itself_as_the_source() {
        let listeners = ["127.0.0.1:8098", "0.0.0.0:8099", "192.0.2.7:8100"].map(|text| text.parse().unwrap());
        let own = |text: &str| SourceAddress::parse(text).unwrap().host_among(&listeners).map(str::to_owned);
        for text in ["riak://127.0.0.1", "riak://a,localhost:8099", "riaks://[::1]:8099", "s3://k@192.0.2.7:8100"] {
            assert!(own(text).is_some(), "{text}");
        }
        for text in ["riak://127.0.0.1:8097", "riak://a", "riak://192.0.2.8:8100", "riak://127.0.0.1:8100"] {
            assert_eq!(own(text), None, "{text}");
        }
    }

    fn hosts(text: &str) -> Result<Vec<String>, String> {
        match SourceAddress::parse(text)? {
            SourceAddress::Riak(address) => Ok(address.hosts),
            SourceAddress::S3(address) => Ok(vec![address.host]),
        }
    }

    #[test]
    fn addresses_have_hosts_with_their_ports() {
        assert_eq!(hosts("riak://a"), Ok(vec!["a:8098".into()]));
        assert_eq!(hosts("riak://a:1,b.c:2/"), Ok(vec!["a:1".into(), "b.c:2".into()]));
        assert_eq!(hosts("riak://[::1]:1,[::2]"), Ok(vec!["[::1]:1".into(), "[::2]:8098".into()]));
        assert_eq!(hosts("s3://k@a"), Ok(vec!["a:80".into()]));
        assert_eq!(hosts("s3s://k@a/"), Ok(vec!["a:443".into()]));
        assert_eq!(hosts("s3s://k@[::1]:9000"), Ok(vec!["[::1]:9000".into()]));
        for wrong in [
            "a:1",
            "riak://",
            "riak://a:x",
            "riak://a:0",
            "riak://a/b",
            "riak://u@a",
            "riak://a:1,",
            "ftp://a",
            "s3://",
            "s3://a",
            "s3://@a",
            "s3://k@",
            "s3://k@a,b",
            "s3://k@a:0",
            "s3://k@a:65536",
            "s3://k@a//",
            "s3://k@a/b",
            "s3://k@a?b",
            "s3://k@a#b",
            "s3://k/@a",
            "s3://a b@c",
            "s3://%ff@a",
            "s3://%0a@a",
            "s3://a%2cb@c",
        ] {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
        assert!(hosts(&format!("s3://{}@a", "k".repeat(256))).is_ok());
        assert!(hosts(&format!("s3://{}@a", "k".repeat(257))).is_err());
    }

    #[test]
    fn an_address_is_canonical_and_parses_to_itself() {
        for (text, canonical) in [
            ("riak://a", "riak://a:8098"),
            ("riaks://a,b:1", "riaks://a:8098,b:1"),
            ("s3://AKIA%2b%40%3A+~@h/", "s3://AKIA%2B%40%3A%2B~@h:80"),
            ("s3s://%C3%A9@[::1]", "s3s://%C3%A9@[::1]:443"),
        ] {
            let address = SourceAddress::parse(text).unwrap();
            assert_eq!(address.to_text(), canonical);
            assert_eq!(SourceAddress::parse(canonical), Ok(address));
        }
    }

    #[test]
    fn a_secret_in_an_address_is_refused_and_not_shown() {
        for text in ["s3://KEY:hidden@a", "s3s://KEY:hid/den@a:1", "s3://KEY:hid@hidden@a", "s3://KEY:hidden?@a/b"] {
            let refusal = hosts(text).unwrap_err();
            assert!(refusal.contains("--secret-file FILE") && !refusal.contains("hid@") && !refusal.contains("hidden"));
        }
        // Without a host nothing of it is shown either.
        assert!(!hosts("s3://KEY:hidden").unwrap_err().contains("hidden"));
    }

    #[test]
    fn requests_name_no_port_that_the_scheme_implies() {
        let authority = |text: &str| match SourceAddress::parse(text) {
            Ok(SourceAddress::S3(address)) => address.authority().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(authority("s3://k@a:80"), "a");
        assert_eq!(authority("s3://k@a:443"), "a:443");
        assert_eq!(authority("s3s://k@a:443"), "a");
        assert_eq!(authority("s3s://k@[::443]"), "[::443]");
        assert_eq!(authority("s3://k@[::1]:8080"), "[::1]:8080");
    }
}
