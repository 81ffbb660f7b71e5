//! Unsigned requests that browsers send for pages of other sites to a server on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use larder_api_s3::S3Settings;
use larder_core::Config;

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const OPEN: &str = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject","s3:DeleteObject"],
    "Resource":"arn:aws:s3:::box/*"}]}"#;
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>https://app.example.com</AllowedOrigin>\
    <AllowedMethod>PUT</AllowedMethod></CORSRule></CORSConfiguration>";

/// A server with a bucket that everyone may read and write, and an object in it.
fn with_open_bucket(is_on_loopback: bool) -> S3TestServer {
    let server = S3TestServer::start_with(Config::default(), S3Settings { is_on_loopback, ..S3Settings::default() });
    for (target, body) in [("/box", ""), ("/box?policy", OPEN), ("/box?cors", CORS), ("/box/k", "public")] {
        let put = server.ask("PUT", target, NOTHING, body.as_bytes());
        assert!(matches!(put.status, 200 | 204), "{target}: {put:?}");
    }
    server
}

/// The status of an unsigned request and the text of its refusal.
fn send(server: &S3TestServer, request: &str, host: &str, headers: &str) -> (u16, String) {
    let answer =
        server.ask_text(&format!("{request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{headers}\r\n"), b"");
    (answer.status, answer.element("Message").unwrap_or_default().to_owned())
}

#[test]
fn a_page_whose_host_was_pointed_here_read_and_wrote_public_buckets() {
    let server = with_open_bucket(true);
    for request in ["GET /box/k", "PUT /box/n", "DELETE /box/n"] {
        let (status, text) = send(&server, request, "evil.example:8080", "");
        assert!(status == 403 && text.contains("the setting s3-host"), "{request}: {status} {text}");
        for host in ["localhost:8080", "127.0.0.1", "[::1]:8080", "gateway"] {
            assert_ne!(send(&server, request, host, "").0, 403, "{request} at {host}");
        }
    }
    assert_eq!(send(&server, "GET /k", "box.s3.localhost", "").0, 200);
    // A proxy that is not trusted hides no host.
    assert_eq!(send(&server, "GET /box/k", "evil.example", "X-Forwarded-Host: localhost\r\n").0, 403);
    server.stop();
    let public = with_open_bucket(false);
    assert_eq!(send(&public, "GET /box/k", "s3.example.com", "").0, 200, "another address has names of its own");
    public.stop();
}

#[test]
fn a_page_of_another_origin_wrote_to_public_buckets() {
    let server = with_open_bucket(true);
    for (headers, may_write) in [
        ("Origin: https://evil.example\r\n", false),
        ("Origin: null\r\n", false),
        ("Referer: https://evil.example/page\r\n", false),
        ("Sec-Fetch-Site: cross-site\r\n", false),
        ("Origin: https://app.example.com\r\n", true),
        ("Origin: http://localhost\r\n", true),
        ("", true),
    ] {
        let (status, text) = send(&server, "PUT /box/n", "localhost", headers);
        assert_eq!(status, if may_write { 200 } else { 403 }, "{headers}: {text}");
        assert_eq!(send(&server, "GET /box/k", "localhost", headers).0, 200, "pages everywhere show public objects");
    }
    let form = "--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nf\r\n\
        --B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhello\r\n--B--\r\n";
    let head = format!(
        "POST /box HTTP/1.1\r\nHost: localhost\r\nOrigin: https://site.example\r\nContent-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary=B\r\n\r\n",
        form.len()
    );
    assert_eq!(server.ask_text(&head, form.as_bytes()).status, 204, "forms are made for pages of other origins");
    server.stop();
}
