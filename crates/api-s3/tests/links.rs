//! Presigned links: a header in the query means what it means as a header.

use larder_testkit::http::HttpResponse;
use larder_testkit::{SplitMix64, case_seeds};

use crate::support::{S3TestServer, admin, signed_v2};

/// Random requests of a test run, and of a soak.
const CASES: (u64, u64) = (300, 100_000);
const PAST: &str = "Thu, 01 Jan 2015 00:00:00 GMT";
const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
/// The entity tag of the body `first`.
const TAG: &str = "\"8b04d5e3775d298e78455efc5ca404d5\"";
const OTHER_TAG: &str = "\"00000000000000000000000000000000\"";
/// Headers that change what a request does or answers, among them some that are refused by name.
const HEADERS: &[(&str, &str)] = &[
    ("If-None-Match", "*"),
    ("If-None-Match", TAG),
    ("If-None-Match", OTHER_TAG),
    ("If-Match", "*"),
    ("If-Match", TAG),
    ("If-Match", OTHER_TAG),
    ("If-Modified-Since", PAST),
    ("If-Modified-Since", FUTURE),
    ("If-Unmodified-Since", PAST),
    ("If-Unmodified-Since", FUTURE),
    ("x-amz-expected-bucket-owner", "nobody"),
    ("x-amz-source-expected-bucket-owner", "nobody"),
    ("x-amz-copy-source", "/box/first"),
    ("x-amz-copy-source", "/box/absent"),
    ("x-amz-copy-source-if-match", OTHER_TAG),
    ("x-amz-copy-source-if-none-match", "*"),
    ("x-amz-copy-source-if-unmodified-since", PAST),
    ("x-amz-metadata-directive", "REPLACE"),
    ("x-amz-meta-colour", "dark blue & green"),
    ("x-amz-acl", "public-read"),
    ("x-amz-acl", "nonsense"),
    ("x-amz-storage-class", "STANDARD"),
    ("x-amz-storage-class", "GLACIER"),
    ("x-amz-tagging", "a=b&c=d"),
    ("x-amz-checksum-mode", "ENABLED"),
    ("x-amz-object-attributes", "ETag,ObjectSize"),
    ("x-amz-server-side-encryption", "aws:kms"),
    ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-object-lock-mode", "GOVERNANCE"),
    ("x-amz-object-lock-legal-hold", "ON"),
    ("x-amz-write-offset-bytes", "5"),
    ("x-amz-website-redirect-location", "/elsewhere"),
    ("x-amz-mfa", "1 2"),
    ("x-amz-bypass-governance-retention", "true"),
];

/// A request without its signature.
#[derive(Debug)]
struct LinkCase {
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    is_v4: bool,
}

impl LinkCase {
    fn random(random: &mut SplitMix64) -> Self {
        let mut below = |bound: usize| random.below(bound);
        let method = ["PUT", "PUT", "PUT", "GET", "GET", "HEAD", "DELETE"][below(7)];
        let paths: &[&str] = if method == "GET" {
            &["/box/first", "/box/absent", "/box"]
        } else {
            &["/box/first", "/box/second", "/box/absent"]
        };
        let path = paths[below(paths.len())];
        let mut headers: Vec<(&str, &str)> = Vec::new();
        for _ in 0..below(4) {
            let header = HEADERS[below(HEADERS.len())];
            if headers.iter().all(|(name, _)| *name != header.0) {
                headers.push(header);
            }
        }
        Self { method, path, headers, is_v4: below(2) == 0 }
    }

    fn body(&self) -> &'static [u8] {
        if self.method == "PUT" { b"other" } else { b"" }
    }

    fn with_headers(&self, server: &S3TestServer) -> HttpResponse {
        server.ask(self.method, self.path, &self.headers, self.body())
    }

    fn as_link(&self, server: &S3TestServer) -> HttpResponse {
        let target = match self.is_v4 {
            true => admin().v4_link(self.method, self.path, &self.headers),
            false => admin().v2_link(self.method, self.path, &self.headers),
        };
        let length = self.body().len();
        let head = format!("{} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n", self.method);
        server.ask_text(&head, self.body())
    }
}

/// Everything of an answer but ids and times.
#[derive(Debug, PartialEq, Eq)]
struct AnswerEssence {
    status: u16,
    code: Option<String>,
    message: Option<String>,
    headers: Vec<(String, String)>,
    /// Empty for a document, which has times.
    body: Vec<u8>,
}

fn essence(answer: &HttpResponse) -> AnswerEssence {
    let element = |name: &str| answer.element(name).map(str::to_owned);
    let changing = ["x-amz-request-id", "x-amz-id-2", "date", "last-modified", "content-length", "connection"];
    let headers = answer.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut headers: Vec<(String, String)> = headers.filter(|(name, _)| !changing.contains(&name.as_str())).collect();
    headers.sort();
    let body = if answer.text().starts_with("<?xml") { Vec::new() } else { answer.body.clone() };
    AnswerEssence { status: answer.status, code: element("Code"), message: element("Message"), headers, body }
}

#[test]
fn a_link_means_what_its_headers_would_mean() {
    // Two servers with the same history: one is asked with headers, the other with links.
    let servers = [S3TestServer::start(), S3TestServer::start()];
    for server in &servers {
        assert_eq!(server.ask("PUT", "/box", &[], b"").status, 200);
    }
    let mut refused = 0;
    for seed in case_seeds(CASES.0, CASES.1) {
        let mut random = SplitMix64::new(seed);
        for server in &servers {
            server.ask("PUT", "/box/first", &[], b"first");
            server.ask("PUT", "/box/second", &[], b"second");
        }
        let case = LinkCase::random(&mut random);
        let (headers, link) = (case.with_headers(&servers[0]), case.as_link(&servers[1]));
        assert_eq!(essence(&link), essence(&headers), "LARDER_TEST_SEED={seed} LARDER_TEST_CASES=1: {case:?}");
        refused += usize::from(headers.status >= 400);
        for key in ["/box/first", "/box/second", "/box/absent"] {
            let [left, right] = [0, 1].map(|at| servers[at].ask("GET", key, &[], b""));
            assert_eq!(essence(&right), essence(&left), "{key} after LARDER_TEST_SEED={seed}: {case:?}");
        }
        servers.iter().for_each(|server| drop(server.ask("DELETE", "/box/absent", &[], b"")));
    }
    assert!(refused > 0, "no random request was refused");
    servers.into_iter().for_each(S3TestServer::stop);
}

#[test]
fn a_condition_in_a_link_once_did_nothing() {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", &[], b"").status, 200);
    assert_eq!(server.ask("PUT", "/box/k", &[], b"first").status, 200);
    let put = |target: &str, headers: &str| {
        let head = format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 5\r\n\r\n");
        let answer = server.ask_text(&head, b"other");
        (answer.status, answer.element("Code").unwrap_or_default().to_owned())
    };
    for target in [
        admin().v4_link("PUT", "/box/k", &[("If-None-Match", "*")]),
        admin().v2_link("PUT", "/box/k", &[("If-None-Match", "*")]),
    ] {
        assert_eq!(put(&target, ""), (412, "PreconditionFailed".into()), "{target}");
        assert_eq!(put(&target, "If-None-Match: *\r\n"), (412, "PreconditionFailed".into()));
        // A header takes no condition of the link away.
        assert_eq!(put(&target, &format!("If-None-Match: {OTHER_TAG}\r\n")), (403, "AccessDenied".into()));
    }
    let other = admin().v4_link("PUT", "/box/k", &[("x-amz-expected-bucket-owner", "nobody")]);
    assert_eq!(put(&other, ""), (403, "AccessDenied".into()));
    // The checksum of an empty body, as signers put it there.
    let checksum = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "CRC32")];
    assert_eq!(put(&admin().v4_link("PUT", "/box/k", &checksum), "").0, 200);
    // Without a signature in the query the parameters stand for no headers.
    let plain = server.ask_text(&signed_v2("PUT", "/box/k?If-None-Match=*", &[], Some(5)), b"third");
    assert_eq!(plain.status, 200);
    server.stop();
}
