//! The layers below the operations, over the wire: signatures, bodies, errors, connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use larder_api_s3::S3Settings;
use larder_core::Config;
use larder_net::{ConnectionLimit, ConnectionSettings};
use larder_s3_rules::Algorithm;
use larder_s3_rules::checksum::ChecksumHasher;
use larder_testkit::SplitMix64;
use larder_testkit::http::HttpResponse;

use crate::support::{S3TestServer, signed_v2, signed_v4};

const NOTHING: &[(&str, &str)] = &[];

fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    let made = server.ask("PUT", "/box", NOTHING, b"");
    assert_eq!(made.status, 200, "{made:?}");
    server
}

#[test]
fn an_error_document_has_the_request_id_of_its_header() {
    let server = with_bucket();
    let response = server.ask_text("GET /box/k%20%3C HTTP/1.1\r\nHost: localhost\r\n\r\n", b"");
    assert_eq!((response.status, response.element("Code")), (403, Some("AccessDenied")));
    assert_eq!(response.element("RequestId"), response.header("x-amz-request-id"));
    assert_eq!(response.element("Resource"), Some("/box/k &lt;"));
    assert!(response.header("date").is_some() && response.header("x-amz-id-2").is_some());
    let response = server.ask("GET", "/box/none", NOTHING, b"");
    assert_eq!(
        (response.status, response.element("Code"), response.element("Key")),
        (404, Some("NoSuchKey"), Some("none"))
    );
    let response = server.ask("HEAD", "/box/none", NOTHING, b"");
    assert_eq!((response.status, response.text().as_str()), (404, ""));
    let response = server.ask("GET", "/box/k?uploadId=none", NOTHING, b"");
    assert_eq!((response.status, response.element("UploadId")), (404, Some("none")));
    server.stop();
}

#[test]
fn objects_are_written_and_read_under_both_signature_versions() {
    let server = with_bucket();
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let put = server.ask_text(&signed_v4("PUT", "/box/k", hello, &[("x-amz-meta-a", "b")], Some(5)), b"hello");
    assert_eq!((put.status, put.header("etag")), (200, Some("\"5d41402abc4b2a76b9719d911017c592\"")), "{put:?}");
    let got = server.ask("GET", "/box/k", &[("range", "bytes=1-3")], b"");
    assert_eq!((got.status, got.text().as_str()), (206, "ell"));
    assert_eq!((got.header("content-range"), got.header("x-amz-meta-a")), (Some("bytes 1-3/5"), Some("b")));
    let head = server.ask("HEAD", "/box/k", NOTHING, b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
    // Virtual-hosted style, and the absolute target of a proxy client.
    let signed = signed_v2("GET", "/box/k", NOTHING, None);
    let hosted = signed.replace("GET /box/k", "GET /k").replace("Host: localhost", "Host: box.localhost:80");
    assert_eq!(server.ask_text(&hosted, b"").text(), "hello");
    let absolute = hosted.replace("GET /k", "GET http://box.localhost/k");
    assert_eq!(server.ask_text(&absolute, b"").text(), "hello");
    server.stop();
}

#[test]
fn a_range_of_a_replaced_object_returns_the_whole_new_object() {
    let server = with_bucket();
    let put = server.ask("PUT", "/box/k", NOTHING, b"hello");
    let tag = put.header("etag").unwrap();
    for (if_range, status, body) in
        [(tag, 206, "lo"), ("\"0\"", 200, "hello"), ("Thu, 01 Jan 1970 00:00:07 GMT", 200, "hello")]
    {
        let got = server.ask("GET", "/box/k", &[("range", "bytes=3-"), ("if-range", if_range)], b"");
        assert_eq!((got.status, got.text().as_str()), (status, body), "{if_range}");
    }
    server.stop();
}

#[test]
fn a_bucket_of_another_owner_than_expected_is_not_touched() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"kept").status, 200);
    let list = server.ask("GET", "/", NOTHING, b"");
    let owner = list.element("ID").unwrap();
    for (expected, status) in [(owner, 200), ("111122223333", 403)] {
        let headers = [("x-amz-expected-bucket-owner", expected)];
        assert_eq!(server.ask("GET", "/box/k", &headers, b"").status, status, "{expected}");
        assert_eq!(server.ask("PUT", "/box/other", &headers, b"new").status, status, "{expected}");
        let headers = [("x-amz-copy-source", "box/k"), ("x-amz-source-expected-bucket-owner", expected)];
        assert_eq!(server.ask("PUT", "/box/copy", &headers, b"").status, status, "{expected}");
    }
    server.stop();
}

#[test]
fn a_body_that_differs_from_its_headers_stores_nothing() {
    let server = with_bucket();
    let other = "0cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let streaming = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let trailer = [("x-amz-decoded-content-length", "5"), ("x-amz-trailer", "x-amz-checksum-crc32")];
    let no_length = [("x-amz-trailer", "x-amz-checksum-crc32")];
    let right = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    let long = right.replacen('5', "6", 1);
    let wrong = right.replace("NhCmhg", "AAAAAA");
    let cases = [
        (other, NOTHING, "hello", "XAmzContentSHA256Mismatch"),
        (streaming, &no_length, right, "MissingContentLength"),
        (streaming, &trailer, "5\r\nhello\r\n0\r\n\r\n", "MalformedTrailerError"),
        (streaming, &trailer, &long, "IncompleteBody"),
        (streaming, &trailer, &wrong, "BadDigest"),
    ];
    for (payload, headers, body, code) in cases {
        let head = signed_v4("PUT", "/box/k", payload, headers, Some(body.len()));
        let response = server.ask_text(&head, body.as_bytes());
        assert_eq!(response.element("Code"), Some(code), "{response:?}");
        assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").status, 404, "{code}");
    }
    let chunked = signed_v4("PUT", "/box/k", streaming, &trailer, None)
        .replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = format!("{:x}\r\n{right}\r\n0\r\n\r\n", right.len());
    let put = server.ask_text(&chunked, body.as_bytes());
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "hello");
    for (headers, body) in [(&[("transfer-encoding", "chunked")][..], "0\r\n\r\n"), (NOTHING, "")] {
        let without = server.ask_text(&signed_v2("PUT", "/box/k", headers, None), body.as_bytes());
        assert_eq!((without.status, without.element("Code")), (411, Some("MissingContentLength")));
        assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "hello");
    }
    server.stop();
}

#[test]
fn continue_is_sent_only_after_the_headers_are_accepted() {
    let server = with_bucket();
    let expect = [("expect", "100-continue")];
    let mut client = server.connect();
    client.write(signed_v2("PUT", "/box/k", &expect, Some(5))).unwrap();
    assert_eq!(client.receive().unwrap().status, 100);
    client.write(b"hello").unwrap();
    assert_eq!(client.receive().unwrap().status, 200);

    let huge = (5usize << 30) + 1;
    for (head, status) in [
        (signed_v2("PUT", "/box/k", &expect, Some(5)).replace("ADMIN-KEY:", "ADMIN-KEY:x"), 403),
        (signed_v2("PUT", "/box/k", &expect, Some(huge)), 400),
    ] {
        let mut client = server.connect();
        client.write(head).unwrap();
        assert_eq!(client.receive().unwrap().status, status, "the refusal comes first");
    }
    server.stop();
}

#[test]
fn unsupported_operations_change_nothing() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"kept").status, 200);
    for (method, target, status, code) in [
        ("PUT", "/box/k?website", 501, "NotImplemented"),
        ("PUT", "/box?replication", 501, "NotImplemented"),
        ("PUT", "/box?inventory&id=x", 501, "NotImplemented"),
        ("GET", "/box?inventory&id=x", 404, "NoSuchConfiguration"),
        ("DELETE", "/box?metrics&id=x", 404, "NoSuchConfiguration"),
        ("DELETE", "/none?encryption", 404, "NoSuchBucket"),
        ("POST", "/box/k", 405, "MethodNotAllowed"),
        ("GET", "/box?replication", 404, "ReplicationConfigurationNotFoundError"),
        ("GET", "/none?logging", 404, "NoSuchBucket"),
    ] {
        let response = server.ask(method, target, NOTHING, b"");
        assert_eq!((response.status, response.element("Code")), (status, Some(code)), "{method} {target}");
    }
    let suspended = b"<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>";
    let enabled = b"<AccelerateConfiguration><Status>Enabled</Status></AccelerateConfiguration>";
    for (method, target, document, status) in [
        ("DELETE", "/box?encryption", &b""[..], 204),
        ("DELETE", "/box?replication", b"", 204),
        ("PUT", "/box?logging", b"<BucketLoggingStatus/>", 200),
        ("PUT", "/box?accelerate", suspended, 200),
        ("PUT", "/box?accelerate", enabled, 501),
        ("GET", "/box?analytics", b"", 200),
    ] {
        let response = server.ask(method, target, NOTHING, document);
        assert_eq!(response.status, status, "{method} {target} {response:?}");
    }
    let logging = server.ask("GET", "/box?logging", NOTHING, b"");
    assert!(logging.status == 200 && logging.text().contains("<BucketLoggingStatus xmlns="), "{logging:?}");
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "kept");
    server.stop();
}

#[test]
fn browsers_get_the_cors_rules_of_the_bucket() {
    let server = with_bucket();
    let preflight = "OPTIONS /box/k HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page\r\nAccess-Control-Request-Method: PUT\r\n\
                     Access-Control-Request-Headers: content-type\r\n\r\n";
    let without = server.ask_text(preflight, b"");
    assert_eq!((without.status, without.element("Code")), (403, Some("AccessForbidden")));
    let bare = server.ask_text("OPTIONS /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n", b"");
    assert_eq!((bare.status, bare.element("Code")), (400, Some("BadRequest")));
    let rules =
        b"<CORSConfiguration><CORSRule><AllowedOrigin>http://p*</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
        <AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule>\
        </CORSConfiguration>";
    let put = server.ask("PUT", "/box?cors", NOTHING, rules);
    assert_eq!(put.status, 200, "{put:?}");
    let response = server.ask_text(preflight, b"");
    assert_eq!((response.status, response.header("access-control-allow-origin")), (200, Some("http://page")));
    assert_eq!(response.header("access-control-max-age"), Some("60"));
    let refused = server.ask_text("GET /box/k HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page\r\n\r\n", b"");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, Some("http://page")));
    server.stop();
}

#[test]
fn mutated_requests_never_end_the_server() {
    let server = with_bucket();
    let good = signed_v2("GET", "/box?uploads", NOTHING, None).into_bytes();
    // A fixed generator, so that every run sends the same requests.
    let mut random = SplitMix64::new(1);
    for _ in 0..300 {
        let mut request = good.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(request.len());
            match random.below(3) {
                0 => request[at] = u8::try_from(random.below(256)).unwrap(),
                1 => drop(request.drain(at..(at + random.below(20)).min(request.len()))),
                _ => request.insert(at, b"%&?/\r\n: =\0"[random.below(10)]),
            }
        }
        let mut client = server.connect();
        client.write(&request).unwrap();
        drop(client);
    }
    assert_eq!(server.ask("GET", "/box?uploads", NOTHING, b"").status, 200);
    server.stop();
}

#[test]
fn connections_are_limited_and_kept_alive() {
    let connection = ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() };
    let settings = S3Settings { connection, ..S3Settings::default() };
    let server = S3TestServer::start_with(Config::default(), settings);
    let mut first = server.connect();
    for _ in 0..3 {
        first.write(signed_v2("GET", "/", NOTHING, None)).unwrap();
        assert_eq!(first.receive().unwrap().status, 200);
    }
    let mut second = server.connect();
    let response = second.receive().unwrap();
    assert_eq!((response.status, response.element("Code")), (503, Some("SlowDown")));
    assert!(second.is_closed());
    server.stop();
    assert!(first.is_closed());
}

#[test]
fn requests_above_the_limit_get_503_with_retry_after() {
    let config = Config { requests_max: 1, ..Config::default() };
    let server = S3TestServer::start_with(config, S3Settings::default());
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    let mut first = server.connect();
    first.write(signed_v2("PUT", "/box/k", &[("expect", "100-continue")], Some(5))).unwrap();
    // The server asked for the body, so the request holds its admission slot.
    assert_eq!(first.receive().unwrap().status, 100);
    let refused = server.ask("GET", "/box/k", NOTHING, b"");
    assert_eq!((refused.status, refused.element("Code")), (503, Some("SlowDown")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let ping = "GET /riak-cs/ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(server.ask_text(ping, b"").status, 200);
    first.write(b"hello").unwrap();
    assert_eq!(first.receive().unwrap().status, 200);
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "hello");
    server.stop();
}

#[test]
fn every_request_is_counted_in_the_metrics() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").status, 200);
    let missing = server.ask("GET", "/box/none", NOTHING, b"");
    assert_eq!(missing.status, 404);
    let anonymous = server.ask_text("GET /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n", b"");
    assert_eq!(anonymous.status, 403);
    assert_eq!(server.ask("POST", "/box/k", NOTHING, b"").status, 405);
    let preflight = "OPTIONS /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(server.ask_text(preflight, b"").status, 400);
    let gateway = server.gateway.clone();
    // After shutdown all responses are sent and counted.
    server.stop();
    let text = gateway.metrics_text();
    let sent = 5 + missing.text().len() + anonymous.text().len();
    for line in [
        "larder_s3_requests_total{op=\"PutObject\",outcome=\"ok\"} 1",
        "larder_s3_requests_total{op=\"GetObject\",outcome=\"ok\"} 1",
        "larder_s3_requests_total{op=\"GetObject\",outcome=\"refused\"} 2",
        "larder_s3_requests_total{op=\"GetObject\",outcome=\"failed\"} 0",
        "larder_s3_requests_total{op=\"Unknown\",outcome=\"refused\"} 1",
        "larder_s3_requests_total{op=\"Preflight\",outcome=\"refused\"} 1",
        "larder_s3_requests_active{op=\"GetObject\"} 0",
        "larder_s3_request_seconds_count{op=\"GetObject\"} 1",
        "larder_s3_received_bytes_total{op=\"PutObject\"} 5",
        &format!("larder_s3_sent_bytes_total{{op=\"GetObject\"}} {sent}"),
        "larder_s3_damaged_reads_total 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_request_with_two_hosts_was_served_by_the_first() {
    let server = with_bucket();
    for hosts in ["Host: localhost\r\nHost: box.localhost", "Host: localhost\r\nHost: localhost"] {
        let response = server.ask_text(&format!("GET /box HTTP/1.1\r\n{hosts}\r\n\r\n"), b"");
        assert_eq!((response.status, response.element("Code")), (400, Some("BadRequest")));
    }
    server.stop();
}

#[test]
fn a_delete_of_a_key_that_is_too_long_once_left_a_marker() {
    let server = with_bucket();
    let enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/box?versioning", NOTHING, enabled).status, 200);
    let target = format!("/box/{}", "k".repeat(1025));
    for (method, query) in [("DELETE", ""), ("GET", ""), ("PUT", ""), ("GET", "?acl"), ("POST", "?uploads")] {
        let response = server.ask(method, &format!("{target}{query}"), NOTHING, b"");
        assert_eq!((response.status, response.element("Code")), (400, Some("KeyTooLongError")), "{method} {query}");
    }
    let listed = server.ask("GET", "/box?versions", NOTHING, b"").text();
    assert!(!listed.contains("<DeleteMarker>"), "{listed}");
    server.stop();
}

#[test]
fn a_read_that_names_an_encryption_was_answered_as_if_the_object_had_it() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"plain").status, 200);
    for (header, value, code) in [
        ("x-amz-server-side-encryption", "AES256", "InvalidArgument"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256", "InvalidRequest"),
    ] {
        let response = server.ask("GET", "/box/k", &[(header, value)], b"");
        assert_eq!((response.status, response.element("Code")), (400, Some(code)), "{header}");
        assert_eq!(server.ask("HEAD", "/box/k", &[(header, value)], b"").status, 400, "{header}");
        let attributes = [(header, value), ("x-amz-object-attributes", "ETag")];
        assert_eq!(server.ask("GET", "/box/k?attributes", &attributes, b"").status, 400, "{header}");
        assert_eq!(server.ask("GET", "/box/none", &[(header, value)], b"").status, 404, "{header}");
    }
    server.stop();
}

#[test]
fn an_object_is_encrypted_on_request_and_by_default() {
    let server = with_bucket();
    let asks = [("x-amz-server-side-encryption", "AES256")];
    let way = |response: &HttpResponse| response.header("x-amz-server-side-encryption").map(str::to_owned);
    let is = Some("AES256".to_owned());
    assert_eq!(way(&server.ask("PUT", "/box/plain", NOTHING, b"tea")), None);
    assert_eq!(way(&server.ask("PUT", "/box/k", &asks, b"tea")), is);
    for method in ["GET", "HEAD"] {
        let read = server.ask(method, "/box/k", NOTHING, b"");
        assert_eq!((read.status, way(&read), read.header("content-length")), (200, is.clone(), Some("3")));
    }
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "tea");
    let copied = server.ask("PUT", "/box/copy", &[("x-amz-copy-source", "box/k")], b"");
    assert_eq!((copied.status, way(&copied)), (200, None), "a copy has the encryption of its own request");
    assert_eq!(server.ask("GET", "/box?encryption", NOTHING, b"").status, 404);
    let default = b"<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>\
        <SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
    assert_eq!(server.ask("PUT", "/box?encryption", NOTHING, default).status, 200);
    assert!(server.ask("GET", "/box?encryption", NOTHING, b"").text().contains("<SSEAlgorithm>AES256<"));
    assert_eq!(way(&server.ask("PUT", "/box/k", NOTHING, b"milk")), is);
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "milk");
    assert_eq!(server.ask("DELETE", "/box?encryption", NOTHING, b"").status, 204);
    assert_eq!(way(&server.ask("PUT", "/box/k", NOTHING, b"tea")), None);
    let key = [
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-server-side-encryption-customer-key", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="),
        ("x-amz-server-side-encryption-customer-key-MD5", "ESESESESESESESESESESEQ=="),
    ];
    let refused = server.ask("PUT", "/box/k", &key, b"tea");
    assert_eq!((refused.status, refused.element("Code")), (400, Some("InvalidRequest")), "in clear");
    server.stop();
}

#[test]
fn buckets_of_another_region_are_none() {
    let server = with_bucket();
    let here = server.ask("GET", "/?bucket-region=us-east-1", NOTHING, b"").text();
    let elsewhere = server.ask("GET", "/?bucket-region=eu-west-1", NOTHING, b"").text();
    assert_eq!([&here, &elsewhere].map(|listed| listed.contains("<Name>box</Name>")), [true, false], "{here}");
    server.stop();
}

#[test]
fn the_order_of_headers_once_chose_the_refusal() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    for (method, mut headers) in [
        (
            "GET",
            [
                ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
                ("x-amz-server-side-encryption", "aws:kms"),
            ],
        ),
        ("PUT", [("x-amz-write-offset-bytes", "5"), ("x-amz-server-side-encryption", "AES256")]),
        ("PUT", [("x-amz-checksum-sha1", "?"), ("x-amz-checksum-crc32", "?")]),
        ("PUT", [("x-amz-checksum-xyz", "?"), ("x-amz-checksum-abc", "?")]),
    ] {
        let mut essence = || {
            let answer = server.ask(method, "/box/k", &headers, if method == "PUT" { b"hello" } else { b"" });
            headers.reverse();
            (answer.status, answer.element("Message").map(str::to_owned), answer.element("Header").map(str::to_owned))
        };
        let first = essence();
        assert_eq!(essence(), first);
        assert!(first.0 >= 400, "{first:?}");
    }
    server.stop();
}

#[test]
fn a_bucket_in_front_of_an_unknown_host_once_got_no_word_of_the_setting() {
    let server = with_bucket();
    for (host, hinted) in [("box.s3.example.org", true), ("localhost", false), ("127.0.0.1", false), ("gateway", false)]
    {
        for target in ["/key?uploadId=x", "/key"] {
            let response = server.ask_text(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"), b"");
            let hint = response.element("Hint").is_some_and(|hint| hint.contains("--s3-host"));
            assert_eq!(hint, hinted, "{host} {target}: {}", response.text());
        }
    }
    server.stop();
}

/// Its parts may have any checksum, or none.
#[test]
fn an_upload_without_an_algorithm_once_made_an_object_without_a_checksum() {
    let server = with_bucket();
    let begun = server.ask("POST", "/box/k?uploads", NOTHING, b"");
    assert_eq!(begun.header("x-amz-checksum-algorithm"), None);
    let upload = begun.element("UploadId").unwrap().to_owned();
    let (first, last) = (vec![b'a'; 5 << 20], b"123456789".to_vec());
    let mut listed = String::new();
    for (number, body) in [(1, &first), (2, &last)] {
        let crc = ChecksumHasher::digest(Algorithm::Crc32, body).text();
        let headers = [("x-amz-checksum-crc32", &*crc)];
        let headers = if number == 1 { NOTHING } else { &headers };
        let part = server.ask("PUT", &format!("/box/k?partNumber={number}&uploadId={upload}"), headers, body);
        assert_eq!(part.status, 200, "{}", part.text());
        let etag = part.header("etag").unwrap();
        listed += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    let document = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    let complete = |kind: &str| {
        let kind = [("x-amz-checksum-type", kind)];
        let headers = if kind[0].1.is_empty() { NOTHING } else { &kind };
        server.ask("POST", &format!("/box/k?uploadId={upload}"), headers, document.as_bytes())
    };
    let refused = complete("COMPOSITE");
    assert_eq!((refused.status, refused.element("Code")), (400, Some("InvalidRequest")));
    assert!(refused.text().contains("using the null checksum mode"), "{}", refused.text());
    let done = complete("");
    let whole = ChecksumHasher::digest(Algorithm::Crc64Nvme, &[first, last].concat());
    let whole = whole.text();
    assert_eq!(done.element("ChecksumCRC64NVME"), Some(&*whole), "{}", done.text());
    assert_eq!(done.element("ChecksumType"), Some("FULL_OBJECT"));
    let got = server.ask("HEAD", "/box/k", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert_eq!(got.header("x-amz-checksum-crc64nvme"), Some(&*whole));
    let attributes =
        server.ask("GET", "/box/k?attributes", &[("x-amz-object-attributes", "Checksum,ObjectParts")], b"");
    assert_eq!(attributes.element("ChecksumCRC64NVME"), Some(&*whole));
    assert!(
        attributes.text().contains("<ObjectParts><PartsCount>2</PartsCount></ObjectParts>"),
        "{}",
        attributes.text()
    );
    server.stop();
}

#[test]
fn metadata_that_is_not_ascii_travels_as_encoded_words() {
    let server = with_bucket();
    let given = [("x-amz-meta-a", "=?UTF-8?B?YWJj?="), ("x-amz-meta-b", "=?UTF-8?Q?caf=C3=A9?=")];
    assert_eq!(server.ask("PUT", "/box/k", &given, b"").status, 200);
    let got = server.ask("HEAD", "/box/k", NOTHING, b"");
    assert_eq!(got.header("x-amz-meta-a"), Some("abc"));
    assert_eq!(got.header("x-amz-meta-b"), Some("=?UTF-8?Q?caf=C3=A9?="));
    server.stop();
}

#[test]
fn an_object_tells_when_its_lifecycle_removes_it() {
    let server = with_bucket();
    let rule = b"<LifecycleConfiguration><Rule><ID>old</ID><Filter><Prefix>logs/</Prefix></Filter>\
        <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
    let crc = ChecksumHasher::digest(Algorithm::Crc32, rule).text();
    let put = server.ask("PUT", "/box?lifecycle", &[("x-amz-checksum-crc32", &crc)], rule);
    assert_eq!(put.status, 200, "{}", put.text());
    let expiry = |response: &larder_testkit::http::HttpResponse| response.header("x-amz-expiration").map(str::to_owned);
    let put = server.ask("PUT", "/box/logs/1", NOTHING, b"");
    assert!(expiry(&put).unwrap().ends_with(" 00:00:00 GMT\", rule-id=\"old\""), "{:?}", expiry(&put));
    let copied = server.ask("PUT", "/box/logs/2", &[("x-amz-copy-source", "/box/logs/1")], b"");
    assert_eq!(expiry(&copied), expiry(&put));
    assert_eq!(expiry(&server.ask("HEAD", "/box/logs/1", NOTHING, b"")), expiry(&put));
    assert_eq!(expiry(&server.ask("GET", "/box/logs/1?versionId=null", NOTHING, b"")), None);
    assert_eq!(expiry(&server.ask("PUT", "/box/other", NOTHING, b"")), None);
    server.stop();
}
