//! The PROXY protocol, versions 1 and 2: the header with which a proxy that passes bytes on names its client. It is read from
//! trusted proxies alone, and may be absent. No request of HTTP or protocol buffers begins like it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::request_source::RequestSource;

/// The begin of a header of version 1, a line of text.
const SIGNATURE_1: &[u8] = b"PROXY ";
/// The longest such line with its end, by the specification.
const LINE_BYTES_MAX: usize = 107;
/// The begin of a header of version 2, in binary.
const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of it before the addresses: signature, version and command, family, length.
const FIXED_BYTES: usize = 16;
/// Most bytes after them: addresses and the proxy's extensions.
const REST_BYTES_MAX: usize = 2048;
/// The extension about TLS, and the bit in it of a client that used TLS.
const TYPE_SSL: u8 = 0x20;
const CLIENT_SSL: u8 = 0x01;
/// How long a header may take once it has begun.
const HEADER_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause before the next look at a header of which a part is there.
const PART_PAUSE: Duration = Duration::from_millis(5);

/// The reason for which a header names no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyHeaderError {
    /// It breaks the protocol.
    #[error("it breaks the protocol: {0}")]
    Malformed(&'static str),
    /// It, or the first byte of the connection, did not come in time.
    #[error("it did not arrive in time")]
    Late,
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The begin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParsedHeader {
    /// It is no header.
    Absent,
    /// More bytes decide.
    Partial,
    /// A header of this length. Without a source, the proxy speaks for itself, or hides its client.
    Whole(usize, Option<RequestSource>),
}

/// Takes the header off the connection of a trusted proxy; `None`: there is none, or it names no client. The first byte may take
/// `idle_timeout`.
///
/// # Errors
/// The connection is of no use.
pub(crate) async fn take_proxy_header(
    stream: &mut TcpStream,
    idle_timeout: Duration,
) -> Result<Option<RequestSource>, ProxyHeaderError> {
    // On the heap: the futures of all other connections stay small.
    let mut space = vec![0; FIXED_BYTES + REST_BYTES_MAX];
    // Bound: a pool of a proxy may open connections early, and not for ever.
    let mut count = timeout(idle_timeout, stream.peek(&mut space)).await.map_err(|_| ProxyHeaderError::Late)??;
    let deadline = Instant::now() + HEADER_TIME_MAX;
    while count > 0 {
        match parse(&space[..count])? {
            ParsedHeader::Absent => return Ok(None),
            ParsedHeader::Whole(bytes, source) => {
                stream.read_exact(&mut space[..bytes]).await?;
                return Ok(source);
            }
            ParsedHeader::Partial if Instant::now() > deadline => return Err(ProxyHeaderError::Late),
            // The bytes stay in the socket, so it is readable all the time: a wait for readiness would spin.
            ParsedHeader::Partial => sleep(PART_PAUSE).await,
        }
        count = stream.peek(&mut space).await?;
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Result<ParsedHeader, ProxyHeaderError> {
    let begins_as = |signature: &[u8]| {
        let both = bytes.len().min(signature.len());
        bytes[..both] == signature[..both]
    };
    match (begins_as(SIGNATURE_1), begins_as(SIGNATURE_2)) {
        (true, _) if bytes.len() >= SIGNATURE_1.len() => parse_line(bytes),
        (_, true) if bytes.len() >= FIXED_BYTES => parse_binary(bytes),
        (false, false) => Ok(ParsedHeader::Absent),
        _ => Ok(ParsedHeader::Partial),
    }
}

/// Parses a header of version 1.
fn parse_line(bytes: &[u8]) -> Result<ParsedHeader, ProxyHeaderError> {
    use ProxyHeaderError::Malformed;
    let head = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = head.windows(2).position(|two| two == b"\r\n") else {
        let is_long = bytes.len() >= LINE_BYTES_MAX;
        return if is_long { Err(Malformed("the line has no end")) } else { Ok(ParsedHeader::Partial) };
    };
    let line = std::str::from_utf8(&head[..end]).map_err(|_| Malformed("the line is no text"))?;
    let words: Vec<&str> = line.split(' ').collect();
    let address = match words[1..] {
        ["UNKNOWN", ..] => None,
        [family @ ("TCP4" | "TCP6"), source, target, port, target_port] => {
            let parse =
                |text: &str| text.parse().ok().filter(|address: &IpAddr| address.is_ipv4() == (family == "TCP4"));
            let has_ports = [port, target_port].iter().all(|port| port.parse::<u16>().is_ok());
            let source = parse(source).filter(|_| has_ports && parse(target).is_some());
            Some(source.ok_or(Malformed("two addresses and two ports must follow the family"))?)
        }
        _ => return Err(Malformed("TCP4 or TCP6 with two addresses and two ports, or UNKNOWN, must follow PROXY")),
    };
    Ok(ParsedHeader::Whole(end + 2, address.map(RequestSource::plain)))
}

/// Parses a header of version 2.
fn parse_binary(bytes: &[u8]) -> Result<ParsedHeader, ProxyHeaderError> {
    use ProxyHeaderError::Malformed;
    let (version_and_command, family) = (bytes[12], bytes[13]);
    let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    // Bound: the length is a claim of the proxy, and is in the buffer as a whole.
    if length > REST_BYTES_MAX {
        return Err(Malformed("it is too long"));
    }
    let is_of_client = match version_and_command {
        0x20 => false,
        0x21 => true,
        _ => return Err(Malformed("the version or the command is unknown")),
    };
    let Some(rest) = bytes.get(FIXED_BYTES..FIXED_BYTES + length) else { return Ok(ParsedHeader::Partial) };
    let short = || Malformed("its addresses are cut off");
    let (address, extensions): (IpAddr, _) = match family {
        // TCP over IPv4: two addresses and two ports.
        0x11 => {
            let source: &[u8; 4] = rest.first_chunk().ok_or_else(short)?;
            (Ipv4Addr::from(*source).into(), rest.get(12..).ok_or_else(short)?)
        }
        // TCP over IPv6.
        0x21 => {
            let source: &[u8; 16] = rest.first_chunk().ok_or_else(short)?;
            (Ipv6Addr::from(*source).into(), rest.get(36..).ok_or_else(short)?)
        }
        // Sockets of Unix and the like: the client has no address here.
        _ => return Ok(ParsedHeader::Whole(FIXED_BYTES + length, None)),
    };
    let secure = has_tls(extensions)?;
    let source = RequestSource { secure, ..RequestSource::plain(address) };
    Ok(ParsedHeader::Whole(FIXED_BYTES + length, is_of_client.then_some(source)))
}

/// Whether the extensions say that the client used TLS.
fn has_tls(mut extensions: &[u8]) -> Result<bool, ProxyHeaderError> {
    let mut secure = false;
    while let [kind, high, low, rest @ ..] = extensions {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let value = rest.get(..length).ok_or(ProxyHeaderError::Malformed("an extension is cut off"))?;
        secure |= *kind == TYPE_SSL && value.first().is_some_and(|bits| bits & CLIENT_SSL != 0);
        extensions = &rest[length..];
    }
    if extensions.is_empty() { Ok(secure) } else { Err(ProxyHeaderError::Malformed("an extension is cut off")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE_2, &[command, family], &length, rest].concat()
    }

    fn named(bytes: &[u8]) -> Option<(usize, String, bool)> {
        match parse(bytes) {
            Ok(ParsedHeader::Whole(bytes, Some(source))) => Some((bytes, source.address.to_string(), source.secure)),
            _ => None,
        }
    }

    #[test]
    fn a_header_names_its_client_and_its_own_length() {
        let v4 = b"PROXY TCP4 1.2.3.4 10.0.0.1 5 80\r\n";
        assert_eq!(named(&[v4, &b"GET / HTTP/1.1\r\n"[..]].concat()), Some((v4.len(), "1.2.3.4".into(), false)));
        let v6 = b"PROXY TCP6 2001:db8::1 ::1 65535 80\r\n";
        assert_eq!(named(v6), Some((v6.len(), "2001:db8::1".into(), false)));
        let v4 = [&[1, 2, 3, 4, 10, 0, 0, 1, 0, 5, 0, 80][..], &[4, 0, 1, 9]].concat();
        assert_eq!(named(&[binary(0x21, 0x11, &v4), vec![7; 9]].concat()), Some((32, "1.2.3.4".into(), false)));
        let tls = [&v4[..], &[TYPE_SSL, 0, 5, 1, 0, 0, 0, 0]].concat();
        assert_eq!(named(&binary(0x21, 0x11, &tls)), Some((40, "1.2.3.4".into(), true)));
        let v6 = [&"::ffff:1.2.3.4".parse::<Ipv6Addr>().unwrap().octets()[..], &[0; 20]].concat();
        assert_eq!(named(&binary(0x21, 0x21, &v6)), Some((52, "1.2.3.4".into(), false)));
    }

    #[test]
    fn a_proxy_may_speak_for_itself() {
        for bytes in
            [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN a b\r\n", &binary(0x20, 0, &[]), &binary(0x21, 0x31, &[0; 216])]
        {
            assert!(matches!(parse(bytes), Ok(ParsedHeader::Whole(_, None))), "{bytes:?}");
        }
    }

    #[test]
    fn requests_are_no_headers() {
        for bytes in
            [&b"PUT / HTTP/1.1"[..], b"POST ", b"PROXIES", b"\r\nGET", b"\r\n\r\n\r\n", b"\0\0\0\x01\x01", b"G"]
        {
            assert_eq!(parse(bytes).unwrap(), ParsedHeader::Absent, "{bytes:?}");
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(200));
        for bytes in [
            &b"PROXY TCP4 1.2.3.4 10.0.0.1 5\r\n"[..],
            b"PROXY TCP4 ::1 ::1 5 80\r\n",
            b"PROXY TCP4 1.2.3.4 10.0.0.1 5 80000\r\n",
            b"PROXY TCP4 1.2.3.4 10.0.0.1 5 80 7\r\n",
            b"PROXY tcp4 1.2.3.4 10.0.0.1 5 80\r\n",
            b"PROXY \r\n",
            b"PROXY \xff\r\n",
            long.as_bytes(),
            &binary(0x31, 0x11, &[0; 12]),
            &binary(0x22, 0x11, &[0; 12]),
            &binary(0x21, 0x11, &[0; 11]),
            &binary(0x21, 0x21, &[0; 35]),
            &binary(0x21, 0x11, &[0; 14]),
            &binary(0x21, 0x11, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 9, 1]),
            &binary(0x21, 0x11, &[0; REST_BYTES_MAX + 1]),
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_without_a_panic(
            begin in prop_oneof![Just(SIGNATURE_1), Just(SIGNATURE_2), Just(&b""[..])],
            rest in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = parse(&[begin, &rest].concat());
        }

        #[test]
        fn every_part_of_a_header_is_partial(cut in 1_usize..33) {
            let line = b"PROXY TCP4 1.2.3.4 10.0.0.1 5 80\r\n";
            prop_assert_eq!(parse(&line[..cut]).unwrap(), ParsedHeader::Partial);
            let binary = binary(0x21, 0x11, &[1; 19]);
            prop_assert_eq!(parse(&binary[..cut]).unwrap(), ParsedHeader::Partial);
        }
    }
}
