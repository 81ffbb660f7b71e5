//! Parsers of the settings' texts. An error states the expected form.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use larder_api_s3::PublicUrl;
use larder_core::DeleteMode;
use larder_core::rules::props::WebhookHost;
use larder_net::AllowedOrigins;
use larder_rows::ip_network::IpNetwork;
use larder_rows::text::{parse_size, split_unit};
use larder_s3_rules::bucket::is_valid_bucket_name;

use super::{AuditTarget, Listener, LogLevel, StartBucket, choice_word};

/// Least memory for the server.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// A value, or the expected form.
pub(super) type ParseResult<T> = Result<T, String>;

const NAME_BYTES_MAX: usize = 255;
const CASSANDRA_PORT: u16 = 9042;
/// Cassandra's limit of 48 leaves room for the suffix.
const KEYSPACE_BYTES_MAX: usize = 40;
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) fn name(text: &str) -> ParseResult<String> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
    if fits && !text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {NAME_BYTES_MAX} bytes without blanks"))
    }
}

/// Host names, in lower case.
pub(super) fn hosts(text: &str) -> ParseResult<Vec<String>> {
    let is_host = |host: &str| {
        let label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        !host.is_empty() && host.len() <= NAME_BYTES_MAX && host.split('.').all(label)
    };
    let hosts: Vec<String> = text.split(',').map(|host| host.trim().to_ascii_lowercase()).collect();
    if hosts.iter().all(|host| is_host(host)) {
        Ok(hosts)
    } else {
        Err("host names without ports, with commas between them, such as s3.example.com,localhost".into())
    }
}

/// Host names as [`hosts`]; `*` is any, which gives `None`.
pub(super) fn other_hosts(text: &str) -> ParseResult<Option<Vec<String>>> {
    match text {
        "*" => Ok(None),
        "" => Ok(Some(Vec::new())),
        _ => hosts(text).map(Some),
    }
}

/// Origins of pages, in lower case; `*` is any.
pub(super) fn origins(text: &str) -> ParseResult<AllowedOrigins> {
    let is_origin = |origin: &String| {
        let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        authority.is_some_and(|authority| !authority.is_empty() && authority.chars().all(is_of_authority))
    };
    let origins: Vec<String> = text.split(',').map(|origin| origin.trim().to_ascii_lowercase()).collect();
    match text {
        "*" => Ok(AllowedOrigins::Any),
        "" => Ok(AllowedOrigins::Listed(Vec::new())),
        _ if origins.iter().all(is_origin) => Ok(AllowedOrigins::Listed(origins)),
        _ => Err("* or origins without paths, with commas between them, such as https://app.example.com".into()),
    }
}

fn is_of_authority(c: char) -> bool {
    is_of_host(c) || matches!(c, ':' | '[' | ']')
}

/// Nodes of a cluster, each `host:port`; an empty text has none.
pub(super) fn nodes(text: &str) -> ParseResult<Vec<String>> {
    let node = |node: &str| {
        let (host, port) = match node.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => (format!("[{address}]"), port),
            Some(_) => return None,
            None => match node.split_once(':') {
                Some((host, _)) => (host.to_owned(), &node[host.len()..]),
                None => (node.to_owned(), ""),
            },
        };
        let named = host.starts_with('[') || (!host.is_empty() && host.chars().all(is_of_host));
        let port = if port.is_empty() { Some(CASSANDRA_PORT) } else { port.strip_prefix(':')?.parse().ok() };
        port.filter(|_| named).map(|port: u16| format!("{host}:{port}"))
    };
    let nodes = text.split(',').map(|part| node(part.trim())).collect::<Option<Vec<_>>>();
    match nodes {
        _ if text.is_empty() => Ok(Vec::new()),
        Some(nodes) => Ok(nodes),
        None => Err("HOST:PORT with commas between them, such as 10.0.0.1:9042,10.0.0.2".into()),
    }
}

/// Hosts of webhooks, each with its port; an empty text has none.
pub(super) fn webhook_hosts(text: &str) -> ParseResult<Vec<WebhookHost>> {
    let hosts = text.split(',').map(|part| WebhookHost::parse(part.trim())).collect::<Option<Vec<_>>>();
    match hosts {
        _ if text.is_empty() => Ok(Vec::new()),
        Some(hosts) => Ok(hosts),
        None => Err("HOST or HOST:PORT with commas between them, such as hooks.example.com:8080,10.0.0.2".into()),
    }
}

fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// Names with commas between them; an empty text has none.
pub(super) fn names(text: &str) -> ParseResult<Vec<String>> {
    if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(|part| name(part.trim())).collect() }
}

/// Addresses and networks with commas between them; an empty text has none.
pub(super) fn networks(text: &str) -> ParseResult<Vec<IpNetwork>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let networks = text.split(',').map(|part| IpNetwork::parse(part.trim())).collect::<Option<Vec<_>>>();
    networks.ok_or_else(|| "addresses and networks with commas between them, such as 10.0.0.0/8,::1".into())
}

/// Buckets that the start makes; an empty text has none.
pub(super) fn start_buckets(text: &str) -> ParseResult<Vec<StartBucket>> {
    let bucket = |part: &str| {
        let (name, rule) = part.split_once(':').map_or((part, None), |(name, rule)| (name, Some(rule)));
        let is_public = match rule {
            None => false,
            Some("public") => true,
            Some(_) => return None,
        };
        is_valid_bucket_name(name).then(|| StartBucket { name: name.to_owned(), is_public })
    };
    let buckets = text.split(',').map(|part| bucket(part.trim())).collect::<Option<Vec<_>>>();
    match buckets {
        _ if text.is_empty() => Ok(Vec::new()),
        Some(buckets) => Ok(buckets),
        None => {
            Err("names of buckets with commas between them, :public behind some, such as teas,leaflets:public".into())
        }
    }
}

/// The address of S3 for clients; an empty text is none.
pub(super) fn public_url(text: &str) -> ParseResult<Option<PublicUrl>> {
    if text.is_empty() { Ok(None) } else { PublicUrl::parse(text).map(Some) }
}

/// The prefix of a keyspace's name, with room for the suffix.
pub(super) fn keyspace(text: &str) -> ParseResult<String> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    let fits = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if begins && fits && text.len() <= KEYSPACE_BYTES_MAX {
        Ok(text.to_owned())
    } else {
        Err(format!("a letter, then letters, digits and _, all small, at most {KEYSPACE_BYTES_MAX}"))
    }
}

/// A name; an empty text is none.
pub(super) fn optional_name(text: &str) -> ParseResult<Option<String>> {
    if text.is_empty() { Ok(None) } else { name(text).map(Some) }
}

/// A path; an empty text is none.
pub(super) fn optional_path(text: &str) -> ParseResult<Option<PathBuf>> {
    if text.is_empty() { Ok(None) } else { path(text).map(Some) }
}

/// The place of the audit log; an empty text is none.
pub(super) fn audit_target(text: &str) -> ParseResult<Option<AuditTarget>> {
    match text {
        "stderr" => Ok(Some(AuditTarget::StandardError)),
        _ => Ok(optional_path(text)?.map(AuditTarget::File)),
    }
}

/// A key or a secret; an empty text is none.
pub(super) fn key(text: &str) -> ParseResult<Option<String>> {
    match text.len() {
        0 => Ok(None),
        3..=128 if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(text.to_owned())),
        _ => Err("3 to 128 visible ASCII characters".into()),
    }
}

pub(super) fn path(text: &str) -> ParseResult<PathBuf> {
    if text.is_empty() || text.contains('\0') { Err("a path".into()) } else { Ok(text.into()) }
}

pub(super) fn listener(text: &str) -> ParseResult<Listener> {
    if text == "off" {
        return Ok(Listener::Off);
    }
    let at = text.rsplit_once(':').filter(|(host, port)| {
        let bare = host.contains(':') && !host.starts_with('[');
        !host.is_empty() && !bare && port.parse::<u16>().is_ok()
    });
    match at {
        Some(_) => Ok(Listener::At(text.to_owned())),
        None => Err("HOST:PORT, such as 127.0.0.1:8098 or [::1]:8098, or off".into()),
    }
}

/// The oldest version of TLS: whether it is 1.3.
pub(super) fn is_tls13(text: &str) -> ParseResult<bool> {
    match text {
        "1.2" => Ok(false),
        "1.3" => Ok(true),
        _ => Err("1.2 or 1.3".into()),
    }
}

/// Bytes, as [`parse_size`] reads them.
pub(crate) fn size(text: &str) -> ParseResult<u64> {
    parse_size(text).ok_or_else(size_expected)
}

/// Bytes of memory; an empty text is none. With less than the minimum the server could serve no request.
pub(super) fn memory(text: &str) -> ParseResult<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let bytes = size(text).ok().filter(|&bytes| bytes >= MEMORY_BYTES_MIN);
    bytes.map(Some).ok_or_else(|| format!("{}, 64MiB at least", size_expected()))
}

fn size_expected() -> String {
    "a number of bytes, such as 1048576, 64KiB, 256MiB or 1GiB".into()
}

pub(super) fn count(text: &str, least: u64, most: u64) -> ParseResult<usize> {
    let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| format!("a number from {least} to {most}"))
}

pub(super) fn time(text: &str) -> ParseResult<Duration> {
    let time = duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "a time with its unit, such as 500ms, 60s, 5m or 1h".into())
}

/// A time; `off` is none.
pub(super) fn time_or_off(text: &str) -> ParseResult<Option<Duration>> {
    if text == "off" { Ok(None) } else { time(text).map(Some).map_err(|expected| format!("off, or {expected}")) }
}

/// Riak's three modes; a number without unit is milliseconds, as in riak.conf.
pub(super) fn delete_mode(text: &str) -> ParseResult<DeleteMode> {
    let after = match text {
        "keep" => return Ok(DeleteMode::Keep),
        "immediate" => Some(Duration::ZERO),
        _ => text.parse::<u64>().ok().map(Duration::from_millis).or_else(|| duration(text)),
    };
    let after = after.filter(|&after| after <= TIME_MAX);
    after.map(DeleteMode::After).ok_or_else(|| "keep, immediate or a time such as 3s".into())
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let time = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?);
    (time <= TIME_MAX).then_some(time)
}

pub(super) fn switch(text: &str) -> ParseResult<bool> {
    text.parse().map_err(|_| "true or false".into())
}

/// A choice by its word.
pub(super) fn choice<T: ValueEnum>(text: &str) -> ParseResult<T> {
    T::from_str(text, false).map_err(|_| {
        let words: Vec<String> = T::value_variants().iter().map(choice_word).collect();
        let (last, others) = words.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
        format!("{} or {last}", others.join(", "))
    })
}

pub(super) fn log_level(text: &str) -> ParseResult<LogLevel> {
    match text {
        "error" => Ok(LogLevel::ERROR),
        "warn" => Ok(LogLevel::WARN),
        "info" => Ok(LogLevel::INFO),
        "debug" => Ok(LogLevel::DEBUG),
        "trace" => Ok(LogLevel::TRACE),
        _ => Err("error, warn, info, debug or trace".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::EngineKind;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1", Some(1)),
            ("64KiB", Some(65_536)),
            ("50MB", Some(50 << 20)),
            ("256 MiB", Some(256 << 20)),
            ("1g", Some(1 << 30)),
            ("2TiB", Some(2 << 40)),
            ("0", None),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, millis) in
            [("500ms", Some(500)), ("60s", Some(60_000)), ("5m", Some(300_000)), ("1h", Some(3_600_000))]
        {
            assert_eq!(time(text).ok(), millis.map(Duration::from_millis), "{text}");
        }
        for text in ["60", "", "s", "0s", "-1s", "1d", "999999999999h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn delete_modes() {
        for (text, mode) in [
            ("keep", Some(DeleteMode::Keep)),
            ("immediate", Some(DeleteMode::After(Duration::ZERO))),
            ("3s", Some(DeleteMode::After(Duration::from_secs(3)))),
            ("3000", Some(DeleteMode::After(Duration::from_secs(3)))),
            ("0", Some(DeleteMode::After(Duration::ZERO))),
            ("never", None),
            ("", None),
        ] {
            assert_eq!(delete_mode(text).ok(), mode, "{text}");
        }
    }

    #[test]
    fn listeners() {
        assert_eq!(listener("off"), Ok(Listener::Off));
        for text in ["127.0.0.1:8098", "localhost:0", "[::1]:8098", "0.0.0.0:80"] {
            assert_eq!(listener(text), Ok(Listener::At(text.into())));
        }
        for text in ["", "8098", ":8098", "host:", "host:99999", "::1:8098", "Off"] {
            assert!(listener(text).is_err(), "{text}");
        }
    }

    #[test]
    fn origins_have_a_scheme_and_no_path() {
        let listed = |names: &[&str]| AllowedOrigins::Listed(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(origins(""), Ok(listed(&[])));
        assert_eq!(origins("*"), Ok(AllowedOrigins::Any));
        assert_eq!(origins("https://A.b:1, http://[::1]:80"), Ok(listed(&["https://a.b:1", "http://[::1]:80"])));
        for text in ["a.b", "https://", "https://a/", "null", "*,https://a", ",", "ftp://a", "https://a b"] {
            assert!(origins(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_without_a_port_get_cassandras_default() {
        let parsed = nodes("a, B.example.com:19042,[::1],[::1]:1,10.0.0.1");
        let expected = ["a:9042", "B.example.com:19042", "[::1]:9042", "[::1]:1", "10.0.0.1:9042"];
        assert_eq!(parsed, Ok(expected.map(str::to_owned).to_vec()));
        assert_eq!(nodes(""), Ok(vec![]));
        for text in [",", "a,", ":9042", "a:", "a:b", "a:99999", "a b", "::1", "a/b", "http://a"] {
            assert!(nodes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn buckets_of_the_start_are_names_and_some_are_public() {
        let bucket = |name: &str, is_public| StartBucket { name: name.into(), is_public };
        assert_eq!(start_buckets(""), Ok(vec![]));
        assert_eq!(start_buckets("teas, cups:public"), Ok(vec![bucket("teas", false), bucket("cups", true)]));
        for text in [",", "teas,", "teas:", "teas:rw", ":public", "no/slash", "teas:public:public"] {
            assert!(start_buckets(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keyspaces_need_no_quotes_in_cql() {
        for (text, holds) in [("larder", true), ("a_1", true), ("", false), ("1a", false), ("A", false), ("a-b", false)]
        {
            assert_eq!(keyspace(text).is_ok(), holds, "{text}");
        }
        assert!(keyspace(&"k".repeat(40)).is_ok() && keyspace(&"k".repeat(41)).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_parses_or_fails_without_a_panic(text: String) {
            let _ = (name(&text), path(&text), listener(&text), size(&text), count(&text, 1, 100));
            let _ = (time(&text), delete_mode(&text), switch(&text), choice::<EngineKind>(&text));
            let _ = (other_hosts(&text), origins(&text), networks(&text), nodes(&text), names(&text), keyspace(&text), optional_name(&text), optional_path(&text));
            let _ = (start_buckets(&text), public_url(&text));
        }
    }
}
