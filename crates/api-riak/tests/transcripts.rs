//! Golden wire transcripts. Each file under `tests/transcripts` runs against one gateway over one connection, from top to
//! bottom, through the real server. A case is a request and its answer, with a line between them:
//!
//! ```text
//! ### a title, `x100` at its end repeats the request
//! PUT /buckets/b/keys/k
//! Content-Type: text/plain
//!
//! hello
//! --
//! 204
//! Content-Type: text/plain
//! ```
//! Headers come in any order. All must be named except `Date`, `Content-Length`, `X-Riak-Vclock`, `ETag` and `Last-Modified`.
//! `{name}` matches any text the first time and the same text from then on; `{_}` matches any text. Escapes in bodies: `\n`,
//! `\r`, `\\`, `\xNN`. `@type NAME JSON` creates a bucket type and activates it; `@created` only creates it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::collections::HashMap;

use crate::support::RiakServer;
use larder_testkit::http::{HttpClient, HttpResponse};

/// Headers that a transcript may leave out.
const OPTIONAL: [&str; 6] = ["date", "content-length", "x-riak-vclock", "etag", "last-modified", "x-request-id"];

macro_rules! transcripts {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                walk(stringify!($name), include_str!(concat!("transcripts/", stringify!($name), ".txt")));
            }
        )+
    };
}

transcripts!(
    conditional,
    counters,
    counters_as_objects,
    datatype_parameters,
    datatypes,
    hlls_and_gsets,
    indexes,
    keys_and_buckets,
    links,
    mapred,
    maps,
    methods,
    negotiation,
    not_built,
    objects,
    parameters,
    props,
    sets,
    siblings,
    types
);

struct TranscriptCase<'a> {
    line: usize,
    title: &'a str,
    request: Vec<&'a str>,
    answer: Vec<&'a str>,
}

fn walk(file: &str, text: &str) {
    let server = RiakServer::start();
    let mut client = server.client();
    let mut names = HashMap::new();
    for case in cases(text) {
        let place = format!("{file}.txt:{}: {}", case.line, case.title);
        let times = case.title.rsplit_once(" x").and_then(|(_, times)| times.parse().ok()).unwrap_or(1);
        for _ in 0..times {
            run(&server, &mut client, &case, &mut names, &place);
        }
    }
    server.stop();
}

fn cases(text: &str) -> Vec<TranscriptCase<'_>> {
    let mut cases = Vec::<TranscriptCase<'_>>::new();
    let mut answering = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("### ") {
            cases.push(TranscriptCase { line: number + 1, title, request: Vec::new(), answer: Vec::new() });
            answering = false;
        } else if let Some(case) = cases.last_mut() {
            match line {
                "--" if !answering => answering = true,
                line if answering => case.answer.push(line),
                line => case.request.push(line),
            }
        }
    }
    for case in &mut cases {
        while case.answer.last().is_some_and(|line| line.is_empty()) {
            case.answer.pop();
        }
    }
    cases
}

fn run(
    server: &RiakServer,
    client: &mut HttpClient,
    case: &TranscriptCase<'_>,
    names: &mut HashMap<String, String>,
    place: &str,
) {
    if let Some(made) = case.request.first().and_then(|line| line.strip_prefix('@')) {
        let mut words = made.splitn(3, ' ');
        let (verb, name) = (words.next().unwrap(), words.next().unwrap());
        server.make_type(name, words.next().unwrap_or("{}"), verb == "type");
        return;
    }
    let (head, body) = parts(&case.request);
    let head: Vec<String> = head.iter().map(|line| filled(line, names)).collect();
    let request = request(&head, body.map(|body| unescaped(&filled(&body, names))));
    let response = client.exchange(&request).expect("no answer");
    check(&response, &case.answer, names).unwrap_or_else(|difference| panic!("{place}\n{difference}\n\n{response:?}"));
}

/// Lines before the empty line, and the text after it.
fn parts<'a>(lines: &[&'a str]) -> (Vec<&'a str>, Option<String>) {
    match lines.iter().position(|line| line.is_empty()) {
        Some(end) => (lines[..end].to_vec(), Some(lines[end + 1..].join("\n"))),
        None => (lines.to_vec(), None),
    }
}

fn request(head: &[String], body: Option<Vec<u8>>) -> Vec<u8> {
    let mut request = format!("{} HTTP/1.1\r\n", head[0]).into_bytes();
    for line in &head[1..] {
        // Transcripts are UTF-8; the wire carries bytes.
        request.extend([line.as_bytes(), b"\r\n"].concat());
    }
    let has = |name: &str| head.iter().any(|line| line.to_ascii_lowercase().starts_with(name));
    if !has("host:") {
        request.extend(b"Host: test\r\n");
    }
    let body = body.unwrap_or_default();
    if !has("content-length:") && !has("transfer-encoding:") {
        request.extend(format!("Content-Length: {}\r\n", body.len()).into_bytes());
    }
    request.extend(b"\r\n");
    request.extend(body);
    request
}

fn check(response: &HttpResponse, expected: &[&str], names: &mut HashMap<String, String>) -> Result<(), String> {
    let (head, body) = parts(expected);
    let status = head.first().copied().unwrap_or_default();
    if response.status.to_string() != status {
        return Err(format!("status {} and not {status}", response.status));
    }
    let is_kept = |header: &&(String, String)| !header.0.eq_ignore_ascii_case("connection");
    let mut left: Vec<&(String, String)> = response.headers.iter().filter(is_kept).collect();
    for line in &head[1..] {
        let (name, pattern) = line.split_once(':').ok_or_else(|| format!("no header: {line}"))?;
        let fits = |(one, value): &(String, String), names: &mut _| {
            one.eq_ignore_ascii_case(name) && matches(pattern.trim(), value, names)
        };
        let place = left.iter().position(|header| fits(header, names)).ok_or_else(|| format!("missing {line}"))?;
        left.remove(place);
    }
    if let Some((name, value)) = left.iter().find(|(name, _)| !OPTIONAL.contains(&name.to_ascii_lowercase().as_str())) {
        return Err(format!("unexpected {name}: {value}"));
    }
    let wanted = String::from_utf8_lossy(&unescaped(&body.unwrap_or_default())).into_owned();
    let found = String::from_utf8_lossy(&response.body).into_owned();
    if matches(&wanted, &found, names) { Ok(()) } else { Err(format!("body\n{found:?}\nand not\n{wanted:?}")) }
}

/// Whether `text` matches `pattern`; a match binds the pattern's names.
fn matches(pattern: &str, text: &str, names: &mut HashMap<String, String>) -> bool {
    let Some((before, rest)) = pattern.split_once('{').filter(|(_, rest)| is_name(rest)) else {
        // A brace without a name belongs to the text.
        return match pattern.split_once('{') {
            Some((before, rest)) => {
                let before = format!("{before}{{");
                text.strip_prefix(&before).is_some_and(|text| matches(rest, text, names))
            }
            None => pattern == text,
        };
    };
    let (name, rest) = rest.split_once('}').unwrap_or_default();
    let Some(text) = text.strip_prefix(before) else { return false };
    if let Some(known) = names.get(name).cloned() {
        return text.strip_prefix(known.as_str()).is_some_and(|text| matches(rest, text, names));
    }
    let ends = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    for end in ends.skip(1) {
        let mut more = names.clone();
        if name != "_" {
            more.insert(name.to_owned(), text[..end].to_owned());
        }
        if matches(rest, &text[end..], &mut more) {
            *names = more;
            return true;
        }
    }
    false
}

fn is_name(text: &str) -> bool {
    let name = text.split_once('}').map(|(name, _)| name).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn filled(text: &str, names: &HashMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        (rest, _) = match (byte, after) {
            (b'\\', [b'n', after @ ..]) => (after, out.push(b'\n')),
            (b'\\', [b'r', after @ ..]) => (after, out.push(b'\r')),
            (b'\\', [b'\\', after @ ..]) => (after, out.push(b'\\')),
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let text = std::str::from_utf8(&digits).unwrap();
                (after, out.push(u8::from_str_radix(text, 16).unwrap()))
            }
            _ => (after, out.push(*byte)),
        };
    }
    out
}
