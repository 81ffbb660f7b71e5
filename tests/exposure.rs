//! A server that is exposed: behind proxies, to the pages of browsers, to the probes of orchestrators, and
//! watched by its logs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use crate::harness::{HttpClient, HttpRequest, LarderNode, Process, S3_KEY, S3_SECRET, S3Client, connect, wait};

/// A proxy of the settings, and a client that is none.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PING: &[u8] = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// A ping of protocol buffers, and its answer.
const PB_PING: &[u8] = &[0, 0, 0, 1, 1];
const PB_PONG: &[u8] = &[0, 0, 0, 1, 2];

/// Sends these pieces with a pause between them, and reads until the server closes or `enough` bytes are there.
fn talk(server: SocketAddr, from: IpAddr, pieces: &[&[u8]], enough: usize) -> Vec<u8> {
    let mut stream = connect(server, Some(from)).unwrap();
    for piece in pieces {
        let _ = stream.write_all(piece);
        thread::sleep(Duration::from_millis(20));
    }
    let (mut answer, mut space) = (Vec::new(), [0; 4096]);
    while answer.len() < enough {
        match stream.read(&mut space) {
            Ok(count) if count > 0 => answer.extend_from_slice(&space[..count]),
            _ => break,
        }
    }
    answer
}

fn header_2(rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], rest].concat()
}

#[test]
fn only_a_trusted_proxy_names_the_client() {
    let node = LarderNode::s3(&[
        "--durability",
        "buffered",
        "--pb",
        "127.0.0.1:0",
        "--proxy",
        "127.0.0.2,10.0.0.1/32,10.0.0.3",
    ]);
    let (pb, s3) = (node.pb(), node.s3_at());

    // A header in pieces, in both versions, and a connection without one.
    let line = b"PROXY TCP4 203.0.113.9 10.0.0.1 5 80\r\n";
    let binary = header_2(&[203, 0, 113, 9, 10, 0, 0, 1, 0, 5, 0, 80]);
    for pieces in [&[&line[..3], &line[3..20], &line[20..], PING][..], &[&binary[..14], &binary[14..], PING], &[PING]] {
        let answer = talk(node.http(), PROXY, pieces, usize::MAX);
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    }
    for header in [&line[..], &binary, &[]] {
        assert_eq!(talk(pb, PROXY, &[header, PB_PING], PB_PONG.len()), PB_PONG);
        let answer = talk(node.http(), STRANGER, &[header, PING], 12);
        let status = if header.is_empty() { "HTTP/1.1 200" } else { "HTTP/1.1 400" };
        assert_eq!(String::from_utf8_lossy(&answer[..12]), status);
        let answer = talk(pb, STRANGER, &[header, PB_PING], PB_PONG.len());
        assert_eq!(answer == PB_PONG, header.is_empty(), "{answer:?}");
    }
    let long = header_2(&[0; 4096]);
    for bad in [&b"PROXY TCP4 nonsense\r\n"[..], &long] {
        assert_eq!(talk(node.http(), PROXY, &[bad, PING], usize::MAX), b"");
    }

    // The policy that is usual: nothing without TLS. Its owner gets in through the proxy alone.
    let user = node.admin().output(&["s3", "user", "create", "owner@example.com", "Owner", "--json"]);
    let user: serde_json::Value = serde_json::from_str(&user).unwrap();
    let owner = || S3Client::new(s3, user["key_id"].as_str().unwrap(), user["key_secret"].as_str().unwrap());
    let (mut direct, mut proxied) = (owner(), owner().from(PROXY, s3));
    direct.put("/bucket", "").expect(200);
    let policy = |effect: &str, action: &str, condition: &str| {
        format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"{effect}","Principal":"*","Action":"{action}",
            "Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"],"Condition":{condition}}}]}}"#
        )
    };
    let json = [("Content-Type", "application/json")];
    let deny = policy("Deny", "s3:*Object*", r#"{"Bool":{"aws:SecureTransport":"false"}}"#);
    direct.call("PUT", "/bucket?policy", &json, deny).expect(204);
    let https = [("X-Forwarded-Proto", "https"), ("X-Forwarded-For", "198.51.100.1")];
    direct.call("PUT", "/bucket/key", &https, "x").expect(403);
    proxied.call("PUT", "/bucket/key", &[("X-Forwarded-Proto", "http")], "x").expect(403);
    proxied.call("PUT", "/bucket/key", &https, "x").expect(200);

    // The addresses of clients, which come through two proxies.
    let allow = policy("Allow", "s3:GetObject", r#"{"IpAddress":{"aws:SourceIp":"203.0.113.0/24"}}"#);
    direct.call("PUT", "/bucket?policy", &json, allow).expect(204);
    for (from, forwarded, status) in [
        (PROXY, "203.0.113.9", 200),
        (PROXY, "6.6.6.6, 203.0.113.9:80, 10.0.0.3", 200),
        (PROXY, "203.0.113.9, 6.6.6.6", 403),
        (PROXY, "203.0.113.9, unknown, 10.0.0.3", 403),
        (STRANGER, "203.0.113.9", 403),
    ] {
        let get = HttpRequest::get("/bucket/key").header("Host", "localhost").header("Connection", "close");
        let answer = talk(s3, from, &[&get.header("X-Forwarded-For", forwarded).bytes()], usize::MAX);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{forwarded}: {answer}");
    }
    // A client that a PROXY header names is no proxy.
    let get = HttpRequest::get("/bucket/key").header("Host", "localhost").header("Connection", "close").bytes();
    let forged = HttpRequest::get("/bucket/key").header("Host", "localhost").header("Connection", "close");
    let forged = forged.header("X-Forwarded-For", "203.0.113.9").bytes();
    let other = b"PROXY TCP4 6.6.6.6 10.0.0.1 5 80\r\n";
    for (header, request, status) in [(&line[..], &get, "200"), (other, &forged, "403")] {
        let answer = talk(s3, PROXY, &[header, request], 12);
        assert_eq!(String::from_utf8_lossy(&answer[9..12]), status);
    }
}

#[test]
fn pages_of_other_origins_reach_nothing_through_a_browser() {
    const APP: &str = "https://app.example.com";
    let node =
        LarderNode::start(&["--durability", "buffered", "--http-origins", APP, "--http-hosts", "kv.example.com"]);
    let mut client = node.client();
    let target = "/buckets/b/keys/k";
    let post = |headers: &[(&str, &str)]| HttpRequest::new("POST", target).headers(headers).body("x");
    for foreign in [
        &[("Origin", "https://evil.example")][..],
        // `no-cors` with `no-referrer`: the browser sends these alone.
        &[("Origin", "null"), ("Content-Type", "text/plain")],
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Content-Type", "text/plain")],
        &[("Origin", "http://evil.example:8098"), ("Host", "evil.example:8098")],
        &[("Host", "evil.example:8098")],
    ] {
        let refused = client.send(&post(foreign)).expect(403).text();
        let setting = if foreign.iter().any(|(name, _)| *name == "Host") { "http-hosts" } else { "http-origins" };
        assert!(refused.contains(setting), "{foreign:?}: {refused}");
    }
    client.get(target).expect(404);
    for own in ["localhost", "127.0.0.1:8098", "[::1]", "kv.example.com"] {
        client.send(&post(&[("Host", own), ("Content-Type", "text/plain")])).expect(204);
    }

    // An allowed page asks first, then sends, and reads all of the answer.
    let ask = |origin| {
        let ask = HttpRequest::new("OPTIONS", target).header("Origin", origin);
        ask.header("Access-Control-Request-Method", "PUT").header("Access-Control-Request-Headers", "x-riak-vclock")
    };
    let allowed = client.send(&ask(APP)).expect(204);
    assert_eq!(allowed.header("Access-Control-Allow-Origin"), Some(APP));
    assert_eq!(allowed.header("Access-Control-Allow-Headers"), Some("x-riak-vclock"));
    assert!(allowed.header("Access-Control-Allow-Methods").unwrap().contains("PUT"));
    let page = [("Origin", APP), ("Sec-Fetch-Site", "cross-site")];
    let read = client.send(&HttpRequest::get(target).headers(&page)).expect(200);
    assert_eq!(
        (read.header("Access-Control-Allow-Origin"), read.header("Access-Control-Expose-Headers")),
        (Some(APP), Some("*"))
    );
    let refused = client.send(&ask("https://evil.example")).expect(405);
    assert_eq!(refused.header("Access-Control-Allow-Origin"), None);
    assert_eq!(client.get(target).expect(200).header("Access-Control-Allow-Origin"), None);
}

#[test]
fn probes_are_answered_without_the_store_and_shadow_no_signed_request() {
    let mut node = LarderNode::s3(&["--durability", "buffered"]);
    let (mut riak, mut s3, mut admin) = (node.client(), HttpClient::new(node.s3_at()), node.s3_admin());
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(riak.get(path).expect(200).header("Content-Type"), Some("text/plain"));
        s3.get(path).expect(200);
        s3.get(&format!("/minio{path}")).expect(200);
        s3.send(&HttpRequest::new("HEAD", path)).expect(200);
    }
    s3.get("/minio/health/cluster").expect(200);
    riak.send(&HttpRequest::put("/health/live", "x")).expect(405);

    // The buckets of these names are there for those who sign.
    admin.put("/health", "").expect(200);
    admin.call("PUT", "/health/live", &[("x-amz-acl", "public-read")], "mine").expect(200);
    assert_eq!(admin.get("/health/live").expect(200).text(), "mine");
    assert_eq!(s3.get("/health/live").expect(200).text(), "live\n");
    let in_host = HttpRequest::get("/live").header("Host", "health.localhost");
    assert_eq!(s3.send(&in_host).expect(200).text(), "mine");
    s3.get("/health/live?versionId=null").expect(200);
    for other in ["/health/lives", "/health/live/", "/health/live?acl", "/health"] {
        assert_ne!(s3.get(other).text(), "live\n", "{other}");
    }

    let check = |node: &LarderNode, url: &str| {
        let args: &[&str] = if url.is_empty() { &["healthcheck"] } else { &["healthcheck", "--url", url] };
        Process::start(&mut node.home().command(args)).wait_for_end(Duration::from_secs(20))
    };
    let url = format!("http://{}", node.http());
    let ended = check(&node, &url);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ready\n"), "{ended:?}");
    assert_eq!(check(&node, &format!("http://{}/health/live", node.s3_at())).stdout, "live\n");
    // Without plain HTTP the admin socket is asked.
    let over_socket = |node: &LarderNode| {
        let mut command = node.home().command(&["--http", "off", "--s3", "off", "healthcheck"]);
        Process::start(&mut command).wait_for_end(Duration::from_secs(20))
    };
    assert_eq!(over_socket(&node).stdout, "ready\n");
    node.kill();
    let ended = over_socket(&node);
    assert!(ended.code == Some(1) && ended.stderr.contains("no answer on"), "{ended:?}");
    for (url, reason) in [(url.as_str(), "no answer from"), ("ftp://a", "expected http://"), ("", "--url")] {
        let ended = check(&node, url);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(reason) && ended.stderr.lines().count() == 1, "{ended:?}");
    }
}

#[test]
fn changes_and_refusals_are_audited_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let file = path.to_str().unwrap();
    let mut node = LarderNode::s3(&["--durability", "buffered", "--pb", "127.0.0.1:0", "--audit-log", file]);
    let (mut riak, mut admin) = (node.client(), node.s3_admin());

    admin.put("/bucket", "").expect(200);
    admin.put("/bucket/key", "not audited").expect(200);
    let created = node.admin().run(&["s3", "user", "create", "a@example.com", "A"]);
    let secret = created.stdout.lines().find_map(|line| line.strip_prefix("key_secret: ")).unwrap().to_owned();
    let body = r#"{"email":"b@example.com","name":"B"}"#;
    let json = [("Content-Type", "application/json"), ("Accept", "application/json")];
    let other = admin.call("POST", "/riak-cs/user", &json, body).expect(201).json();
    let (other_key, other_secret) = (other["key_id"].as_str().unwrap(), other["key_secret"].as_str().unwrap());
    S3Client::new(node.s3_at(), other_key, other_secret).get("/bucket/key").expect(403);
    let limited = node.admin().run(&["s3", "key", "create", "--read-only", "a@example.com"]);
    let limited = |name: &str| limited.stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    let (limited_key, limited_secret) = (limited("key_id: "), limited("key_secret: "));
    S3Client::new(node.s3_at(), &limited_key, &limited_secret).get("/bucket/key").expect(403);
    S3Client::new(node.s3_at(), S3_KEY, "wrong-secret").get("/bucket?policy").expect(403);
    node.admin().run(&["bucket-type", "create", "t", r#"{"props":{"allow_mult":true}}"#]);
    riak.put_json("/buckets/b/props", r#"{"props":{"n_val":3}}"#).expect(204);
    riak.put_json("/types/none/props", r#"{"props":{"n_val":3}}"#);
    riak.send(&HttpRequest::get("/buckets/b/keys/k?secret=1").header("Origin", "null")).expect(403);
    let reset = larder_testkit::pb::frame(29, &[0x0a, 1, b'b']);
    assert_eq!(talk(node.pb(), STRANGER, &[&reset], 5), [0, 0, 0, 1, 30]);
    assert!(riak.get("/metrics").text().contains("larder_audit_lost_total 0\n"));
    assert!(node.terminate().code == Some(0));

    let text = std::fs::read_to_string(&path).unwrap();
    for secret in
        [S3_SECRET, &secret, &limited_secret, other_secret, "not audited", "allow_mult", "wrong-secret", "secret=1"]
    {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            let field = |name: &str| line[name].as_str().unwrap_or("-");
            [field("face"), field("action"), field("target"), field("outcome")].join(" ")
        })
        .collect();
    let user = format!("s3 AdminCreateUser /riak-cs/user/{other_key} done");
    assert_eq!(
        shown,
        [
            "s3 CreateBucket /bucket done",
            "kv-admin s3 user create a@example.com done",
            &user,
            "s3 GetObject /bucket/key refused",
            "kv-admin s3 key create a@example.com done",
            "s3 GetObject /bucket/key refused",
            "s3 GetBucketPolicy /bucket refused",
            "kv-admin bucket-type create t done",
            "http PUT BucketProps /buckets/b/props done",
            "http PUT TypeProps /types/none/props failed",
            "http GET Object /buckets/b/keys/k refused",
            "pb ResetBucket /types/default/buckets/b done",
        ]
    );
    assert_eq!((lines[0]["who"].as_str(), lines[0]["from"].as_str()), (Some(S3_KEY), Some("127.0.0.1")));
    assert_eq!(lines[5]["who"].as_str(), Some(limited_key.as_str()), "the key that signed, not its user's first one");
    assert_eq!((lines[3]["who"].as_str(), lines[6]["who"].as_str()), (Some(other_key), None));
    assert!(lines[1]["who"].as_str().unwrap().starts_with("uid "));
    assert!(lines[0]["request"].as_str().is_some_and(|id| id.len() == 22));
}

#[test]
fn slow_and_refused_requests_have_an_id_in_answer_and_log() {
    // A millisecond is less than a body whose second half comes later, whatever the machine does.
    let node = LarderNode::s3(&["--durability", "buffered", "--slow-log", "1ms", "--log-format", "json"]);
    let mut riak = node.client();
    let get = |id: &str| HttpRequest::get("/buckets/b/keys/k").header("Origin", "null").header("X-Request-Id", id);
    assert_eq!(riak.send(&get("trace-7")).expect(403).header("X-Request-Id"), Some("trace-7"));
    for invalid in ["", "a b", &"x".repeat(65)] {
        let made = riak.send(&get(invalid)).expect(403);
        assert_eq!(made.header("X-Request-Id").unwrap().len(), 22, "{made:?}");
    }
    let key = "personal-name-in-a-key";
    let put = HttpRequest::put(&format!("/buckets/b/keys/{key}"), "12").header("X-Request-Id", "slow-1").bytes();
    let put = [&put[..put.len() - 1], &put[put.len() - 1..]];
    let answer = String::from_utf8_lossy(&talk(node.http(), STRANGER, &put, 17)).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 204 ") && answer.contains("x-request-id: slow-1\r\n"), "{answer}");
    // The line may come after the answer.
    wait("the line of the slow request", Duration::from_secs(20), || node.log().contains("slow-1"));
    let log = node.log();
    let line = log.lines().find(|line| line.contains("slow-1")).unwrap_or_else(|| panic!("{log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((line["bucket"].as_str(), line["key"].as_str()), (Some("b"), Some("personal-name-in…")));
    assert_eq!((line["method"].as_str(), line["client"].as_str()), (Some("PUT"), Some("127.0.0.1")));
    assert_eq!((line["status"].as_u64(), line["resource"].as_str()), (Some(204), Some("Object")));
    assert!(!log.contains(key), "{log}");
}
