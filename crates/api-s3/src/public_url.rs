//! The address at which clients reach the S3 interface, where it is another than the server's own.

use std::fmt;

use crate::target;

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
        let host = target::without_port(&authority);
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
        target::without_port(&self.authority)
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
