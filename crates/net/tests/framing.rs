//! Requests that follow each other on a connection: their bodies arrive unchanged, and none hides in another's head.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::fmt::Write as _;

use larder_net::ConnectionSettings;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as Runs, RngSeed, TestRunner};

use crate::edge::EchoServer;

/// A request with a body of line ends.
#[derive(Debug, Clone)]
struct EchoedRequest {
    /// Lines before the one that frames the body.
    lines: Vec<&'static str>,
    body: Vec<u8>,
    /// The length of a chunk; `None`: the body has a length.
    chunk: Option<usize>,
}

impl EchoedRequest {
    fn any() -> impl Strategy<Value = Self> {
        let line = select(vec!["Host: h", "X-A:", "content-type: a:b", "Accept: Content-Length: 7"]);
        let body = vec(select(b"\n\r0a".to_vec()), 0..40);
        let chunk = proptest::option::of(1_usize..20);
        (vec(line, 0..3), body, chunk).prop_map(|(lines, body, chunk)| Self { lines, body, chunk })
    }

    /// The bytes up to the body.
    fn head(&self) -> String {
        let mut head = "\r\nPUT / HTTP/1.1\r\n".to_owned();
        for line in &self.lines {
            write!(head, "{line}\r\n").unwrap();
        }
        let framing = match self.chunk {
            Some(_) => "Transfer-Encoding: chunked".to_owned(),
            None => format!("Content-Length: {}", self.body.len()),
        };
        head + &framing + "\r\n\r\n"
    }

    /// The body as it is sent.
    fn sent_body(&self) -> Vec<u8> {
        let Some(chunk) = self.chunk else { return self.body.clone() };
        let mut sent = Vec::new();
        for chunk in self.body.chunks(chunk) {
            sent.extend(format!("{:x};n=\"1\"\r\n", chunk.len()).bytes());
            sent.extend(chunk);
            sent.extend(b"\r\n");
        }
        sent.extend(b"00\r\nX-Trailer: t\r\n\r\n");
        sent
    }
}

#[test]
fn a_refused_head_that_seems_to_go_on_is_answered_at_once() {
    let server = EchoServer::start(ConnectionSettings::default());
    let (begun, rests) = ("GET / HTTP/1.1\r\nHost: h\r\n", ["\n", "Content-Length: x\r\n", "A: b\n"]);
    for rest in rests {
        let mut client = server.connect();
        client.write(begun).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        client.write(rest).unwrap();
        assert_eq!(client.receive().unwrap().status, 400, "{rest:?}");
    }
}

#[test]
fn a_bare_line_feed_once_ended_a_line_of_a_head() {
    let server = EchoServer::start(ConnectionSettings::default());
    let mut runner = TestRunner::new(Runs { rng_seed: RngSeed::Fixed(5), ..Runs::default() });
    let case = (vec(EchoedRequest::any(), 1..6), proptest::option::of(any::<Index>()), any::<Index>());
    let run = runner.run(&case, |(requests, spoiled, line)| {
        let spoiled = spoiled.map(|index| index.index(requests.len()));
        let mut sent = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            let head = request.head();
            // A line of the head loses its CR: an empty one before the request, the request line, a header or the last.
            let ends: Vec<usize> = head.match_indices("\r\n").map(|(at, _)| at).collect();
            match spoiled == Some(number) {
                true => {
                    let at = ends[line.index(ends.len())];
                    sent.extend_from_slice(&head.as_bytes()[..at]);
                    sent.extend_from_slice(&head.as_bytes()[at + 1..]);
                }
                false => sent.extend_from_slice(head.as_bytes()),
            }
            sent.extend(request.sent_body());
        }
        let mut client = server.connect();
        client.write(&sent).unwrap();
        for request in &requests[..spoiled.unwrap_or(requests.len())] {
            let answer = client.receive().unwrap();
            assert_eq!((answer.status, &answer.body[..]), (200, &request.body[..]));
        }
        if spoiled.is_some() {
            assert_eq!(client.receive().unwrap().status, 400);
            assert_eq!(client.read_to_close().unwrap(), "");
        }
        Ok(())
    });
    run.unwrap();
}
