//! The address of a webhook. It is a strict subset of URLs: this check and the client that sends must see the same host.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// Longest address, in bytes.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2048;
/// Longest name of a host, in bytes.
const HOST_BYTES_MAX: usize = 255;
/// The port of an address that names none.
const HTTP_PORT: u16 = 80;
/// The same with TLS.
const HTTPS_PORT: u16 = 443;

/// A host with its port, in one spelling: `hooks.example.com:80`, `[::1]:8080`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WebhookHost(String);

impl WebhookHost {
    /// Reads `HOST` or `HOST:PORT`; the port is 80 unless given. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::with_port(text, HTTP_PORT)
    }

    /// The same with another port unless given.
    fn with_port(text: &str, usual: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) => (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port),
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let (host, port) = text.split_at(end);
                is_name(host).then(|| (host.to_ascii_lowercase(), port))?
            }
        };
        let port = match port {
            "" => usual,
            port => port
                .strip_prefix(':')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?
                .parse()
                .ok()?,
        };
        (port != 0).then(|| Self(format!("{host}:{port}")))
    }
}

impl fmt::Display for WebhookHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(host: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(is_part)
}

/// A checked address: `http://HOST[:PORT][/PATH][?QUERY]`, or the same with `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    host: WebhookHost,
}

impl WebhookUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str) -> Result<Self, WebhookUrlFault> {
        if text.len() > WEBHOOK_URL_BYTES_MAX {
            return Err(WebhookUrlFault::TooLong);
        }
        let (rest, port) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, HTTP_PORT),
            (_, Some(rest)) => (rest, HTTPS_PORT),
            (None, None) => return Err(WebhookUrlFault::NotHttp),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(WebhookUrlFault::UserInfo);
        }
        if target.contains('#') {
            return Err(WebhookUrlFault::Fragment);
        }
        let host = WebhookHost::with_port(authority, port).ok_or(WebhookUrlFault::BadHost)?;
        if !is_target(target) {
            return Err(WebhookUrlFault::BadCharacter);
        }
        Ok(Self { text: text.to_owned(), host })
    }

    /// The address as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it takes TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// The host that it names.
    #[must_use]
    pub fn host(&self) -> &WebhookHost {
        &self.host
    }
}

/// Whether a path and a query have only characters of URLs. Blanks, controls and bytes beyond ASCII have to be `%XX`.
fn is_target(target: &str) -> bool {
    let bytes = target.as_bytes();
    let is_escape = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => is_escape(at),
        byte => byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=".contains(byte),
    })
}

/// Why a text is no address of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookUrlFault {
    /// It has more than [`WEBHOOK_URL_BYTES_MAX`] bytes.
    TooLong,
    /// It begins neither with `http://` nor with `https://`.
    NotHttp,
    /// It has a user or a password.
    UserInfo,
    /// It has a fragment.
    Fragment,
    /// Its host or its port is missing or malformed.
    BadHost,
    /// Its path or its query has a character that URLs do not have.
    BadCharacter,
}

impl WebhookUrlFault {
    /// The end of a sentence that begins with the function.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::TooLong => format!("has a URL of more than {WEBHOOK_URL_BYTES_MAX} bytes").into(),
            Self::NotHttp => "has a URL that begins neither with http:// nor with https://".into(),
            Self::UserInfo => "has a URL with a user or a password".into(),
            Self::Fragment => "has a URL with a fragment".into(),
            Self::BadHost => "has a URL without a host and a port in the form HOST[:PORT]".into(),
            Self::BadCharacter => "has a URL with a character that must be %XX".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_host_however_it_is_spelled() {
        for (text, host) in [
            ("http://Hooks.Example.com/a/b?c=d&e=%20@", "hooks.example.com:80"),
            ("http://127.0.0.1:9000", "127.0.0.1:9000"),
            ("http://h:080?x", "h:80"),
            ("http://[0:0::1]:8080/", "[::1]:8080"),
            ("https://h/", "h:443"),
            ("https://h:80/", "h:80"),
        ] {
            assert_eq!(WebhookUrl::parse(text).unwrap().host().to_string(), host, "{text}");
        }
    }

    #[test]
    fn an_address_that_may_lead_elsewhere_is_refused() {
        let long = format!("http://h/{}", "x".repeat(WEBHOOK_URL_BYTES_MAX));
        for (text, fault) in [
            (&*long, WebhookUrlFault::TooLong),
            ("https:h", WebhookUrlFault::NotHttp),
            ("https://allowed@other/", WebhookUrlFault::UserInfo),
            ("https://h:/", WebhookUrlFault::BadHost),
            ("ftp://h/", WebhookUrlFault::NotHttp),
            ("HTTP://h/", WebhookUrlFault::NotHttp),
            ("http:h", WebhookUrlFault::NotHttp),
            ("http://allowed@other/", WebhookUrlFault::UserInfo),
            ("http://user:secret@h/", WebhookUrlFault::UserInfo),
            ("http://h/#part", WebhookUrlFault::Fragment),
            ("http://h#@other/", WebhookUrlFault::Fragment),
            ("http://", WebhookUrlFault::BadHost),
            ("http:///path", WebhookUrlFault::BadHost),
            ("http://h:/", WebhookUrlFault::BadHost),
            ("http://h:0/", WebhookUrlFault::BadHost),
            ("http://h:+80/", WebhookUrlFault::BadHost),
            ("http://h:65536/", WebhookUrlFault::BadHost),
            ("http://h\\other/", WebhookUrlFault::BadHost),
            ("http://h%2eother/", WebhookUrlFault::BadHost),
            ("http://h\r\nX: y/", WebhookUrlFault::BadHost),
            ("http://[::1/", WebhookUrlFault::BadHost),
            ("http://[::1]x/", WebhookUrlFault::BadHost),
            ("http://hö/", WebhookUrlFault::BadHost),
            ("http://h/a b", WebhookUrlFault::BadCharacter),
            ("http://h/\r\nX-Other: y", WebhookUrlFault::BadCharacter),
            ("http://h/%2", WebhookUrlFault::BadCharacter),
            ("http://h/ö", WebhookUrlFault::BadCharacter),
        ] {
            assert_eq!(WebhookUrl::parse(text), Err(fault), "{text:?}");
        }
    }
}
