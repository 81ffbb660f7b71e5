//! Reads at once answer as all others do: two servers over one store, of which one never reads at once. And what is remembered
//! between requests never outlives a change: keys, users, policies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use larder_api_s3::S3Settings;
use larder_core::Config;
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_testkit::at_once::ReadsAtOnce;
use larder_testkit::hooked::Hooked;
use larder_testkit::http::{HttpConnection, HttpResponse, element};
use larder_testkit::s3::{S3Signer, complete_body};

use crate::support::{S3TestServer, admin};

const NOTHING: &[(&str, &str)] = &[];
/// The SHA-256 of no bytes.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Draws other bytes each time: a new secret is not the old one.
fn random(bytes: &mut [u8]) {
    static DRAWN: AtomicU8 = AtomicU8::new(0);
    bytes.fill(DRAWN.fetch_add(1, Ordering::Relaxed));
}

/// A server over `memory`; with `reads` it reads at once, and counts that.
fn server(memory: &Arc<MemoryStore>, clock: &Arc<SystemClock>, reads: Option<Arc<AtomicUsize>>) -> S3TestServer {
    let store = Arc::new(Hooked(Arc::new(ReadsAtOnce { inner: memory.clone(), reads })));
    let (config, settings) = (Config::default(), S3Settings::default());
    S3TestServer::start_over(store, memory.clone(), clock.clone(), random, config, settings)
}

fn single_server() -> S3TestServer {
    let clock = Arc::new(SystemClock::default());
    server(&Arc::new(MemoryStore::new(clock.clone())), &clock, Some(Arc::default()))
}

const POLICY: &str = r#"{"Version":"2012-10-17","Statement":[
    {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::guarded/*",
     "Condition":{"StringLike":{"aws:Referer":"http://good/*"}}},
    {"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::guarded/secret*"}]}"#;
const RULES: &str = "<LifecycleConfiguration><Rule><ID>old stuff</ID><Filter><Prefix>a</Prefix></Filter><Status>Enabled</Status>\
                     <Expiration><Days>7</Days></Expiration></Rule></LifecycleConfiguration>";
const VERSIONING: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>http://p</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
                    </CORSRule></CORSConfiguration>";

/// Buckets of each kind, and keys of each kind in them.
fn fill(server: &S3TestServer) -> Vec<String> {
    let put = |target: &str, headers: &[(&str, &str)], body: &[u8]| {
        let put = server.ask("PUT", target, headers, body);
        assert!(put.status < 300, "{target}: {put:?}");
    };
    for bucket in ["plain", "kept", "rules", "guarded"] {
        put(&format!("/{bucket}"), NOTHING, b"");
    }
    put("/kept?versioning", NOTHING, VERSIONING.as_bytes());
    put("/rules?lifecycle", NOTHING, RULES.as_bytes());
    put("/rules?cors", NOTHING, CORS.as_bytes());
    put("/guarded?policy", NOTHING, POLICY.as_bytes());
    let mut targets = vec!["/none/a".to_owned(), "/plain/none".to_owned()];
    for bucket in ["plain", "kept", "rules", "guarded"] {
        let key = |name: &str| format!("/{bucket}/{name}");
        put(&key("a"), &[("content-type", "text/html"), ("x-amz-meta-colour", "dark red")], b"hello");
        put(&key("b%2F%20c"), &[("x-amz-tagging", "k=v"), ("cache-control", "no-store")], &[7; 3000]);
        put(&key("empty"), NOTHING, b"");
        put(&key("secret"), &[("x-amz-acl", "public-read")], b"hidden");
        put(&key("long"), NOTHING, &vec![1; 300_000]);
        put(&key("deleted"), NOTHING, b"once");
        assert_eq!(server.ask("DELETE", &key("deleted"), NOTHING, b"").status, 204);
        put_in_parts(server, &key("parts"));
        targets.extend(["a", "b%2F%20c", "empty", "secret", "long", "deleted", "parts"].map(key));
    }
    targets
}

fn put_in_parts(server: &S3TestServer, target: &str) {
    let begun = server.ask("POST", &format!("{target}?uploads"), NOTHING, b"");
    let upload = begun.element("UploadId").unwrap();
    let part = server.ask("PUT", &format!("{target}?partNumber=1&uploadId={upload}"), NOTHING, b"a part");
    let parts = complete_body(&[(1, part.header("etag").unwrap().to_owned())]);
    let completed = server.ask("POST", &format!("{target}?uploadId={upload}"), NOTHING, parts.as_bytes());
    assert_eq!(completed.status, 200, "{completed:?}");
}

/// Requests for a key, given an earlier answer.
fn requests(target: &str, seen: &HttpResponse) -> Vec<String> {
    let tag = seen.header("etag").unwrap_or("\"none\"");
    let modified = seen.header("last-modified").unwrap_or("Thu, 01 Jan 1970 00:00:00 GMT");
    let mut heads: Vec<String> = [
        ("if-none-match", tag),
        ("if-none-match", "*"),
        ("if-match", "\"other\""),
        ("if-match", tag),
        ("if-modified-since", modified),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("range", "bytes=1-2"),
        ("range", "bytes=-3"),
        ("range", "bytes=9000000-"),
        ("range", "bytes=3-1"),
        ("x-amz-checksum-mode", "ENABLED"),
        ("x-amz-expected-bucket-owner", "another"),
        ("x-amz-content-sha256", "nonsense"),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("origin", "http://p"),
    ]
    .into_iter()
    .flat_map(|header| ["GET", "HEAD"].map(|method| admin().v2(method, target, &[header]).head()))
    .collect();
    for query in ["", "?versionId=null", "?versionId=x", "?partNumber=1", "?partNumber=2", "?response-content-type=a/b"]
    {
        heads.push(admin().v2("GET", &format!("{target}{query}"), NOTHING).head());
    }
    heads.push(admin().v4("GET", target, EMPTY, NOTHING).head());
    heads.push(S3Signer::new("ADMIN-KEY", "wrong").v2("GET", target, NOTHING).head());
    heads.push(S3Signer::new("ADMIN-KEY", "wrong").v4("GET", target, EMPTY, NOTHING).head());
    for more in ["", "Referer: http://good/x\r\n", "Referer: http://bad/x\r\n", "Date: x\r\nAuthorization: AWS a:b\r\n"]
    {
        heads.push(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
        heads.push(format!("GET {target}?response-expires=x HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
    }
    // Too old a clock, and an address that has expired.
    let old = "Date: Thu, 01 Jan 2015 00:00:00 GMT\r\nAuthorization: AWS ADMIN-KEY:eA==\r\n";
    heads.push(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{old}\r\n"));
    let expired = "AWSAccessKeyId=ADMIN-KEY&Signature=eA%3D%3D&Expires=1000000000";
    heads.push(format!("GET {target}?{expired} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    heads
}

/// All of an answer but what differs between two equal requests.
fn answer(connection: &mut HttpConnection, head: &str) -> (u16, Vec<(String, String)>, String) {
    let HttpResponse { status, mut headers, body, .. } = connection.exchange(head).expect("an answer");
    headers.retain(|(name, _)| !["date", "x-amz-request-id", "x-amz-id-2"].contains(&&*name.to_ascii_lowercase()));
    let mut text = String::from_utf8_lossy(&body).into_owned();
    for name in ["RequestId", "ServerTime"] {
        if let Some(value) = element(&text, name).map(str::to_owned) {
            text = text.replace(&value, name);
        }
    }
    (status, headers, text)
}

#[test]
fn a_read_at_once_answers_as_any_other() {
    let clock = Arc::new(SystemClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let never = server(&memory, &clock, None);
    let targets = fill(&never);
    let reads = Arc::new(AtomicUsize::new(0));
    let at_once = server(&memory, &clock, Some(reads.clone()));
    let mut statuses = std::collections::BTreeSet::new();
    for target in &targets {
        let seen = never.ask("HEAD", target, NOTHING, b"");
        for head in requests(target, &seen) {
            // A connection each: some refusals close theirs.
            let [general, quick] = [&never, &at_once].map(|server| answer(&mut server.connect(), &head));
            assert_eq!(quick, general, "{head}");
            statuses.insert(general.0);
        }
    }
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [200, 206, 304, 400, 403, 404, 412, 416]);
    assert!(reads.load(Ordering::Relaxed) > 500, "{reads:?} reads at once");
    at_once.stop();
    never.stop();
}

/// A user with a bucket of its own and a key in it: its access key id and its secret.
fn user_with_object(server: &S3TestServer) -> (String, String) {
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let made = server.ask("POST", "/riak-cs/user", &json, br#"{"email":"eve@x.org","name":"eve"}"#);
    let (key, secret) = (field(&made, "key_id"), field(&made, "key_secret"));
    let signer = S3Signer::new(&key, &secret);
    for (target, body) in [("/eve", ""), ("/eve/k", "hello")] {
        let head = signer.v2("PUT", target, NOTHING).header("Content-Length", &body.len().to_string()).head();
        assert_eq!(server.ask_text(&head, body.as_bytes()).status, 200);
    }
    (key, secret)
}

fn field(answer: &HttpResponse, name: &str) -> String {
    let text = answer.text();
    text.split_once(&format!("\"{name}\":\"")).unwrap().1.split('"').next().unwrap().to_owned()
}

/// The statuses of a GET of the user's key in both versions, twice each on one connection.
fn statuses(connection: &mut HttpConnection, signer: &S3Signer) -> [u16; 4] {
    let (v2, v4) = (signer.v2("GET", "/eve/k", NOTHING).head(), signer.v4("GET", "/eve/k", EMPTY, NOTHING).head());
    [&v2, &v4, &v4, &v2].map(|head| connection.exchange(head).expect("an answer").status)
}

#[test]
fn a_changed_secret_is_obeyed_at_once_on_an_open_connection() {
    let server = single_server();
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let (key, secret) = user_with_object(&server);
    let (path, old) = (format!("/riak-cs/user/{key}"), S3Signer::new(&key, &secret));
    let mut connection = server.connect();
    assert_eq!(statuses(&mut connection, &old), [200; 4], "the signing key is remembered now");
    let changed = server.ask("PUT", &path, &json, br#"{"new_key_secret":true}"#);
    let new = S3Signer::new(&key, &field(&changed, "key_secret"));
    assert_ne!(field(&changed, "key_secret"), secret);
    assert_eq!(statuses(&mut connection, &old), [403; 4], "the old secret");
    assert_eq!(statuses(&mut connection, &new), [200; 4], "the new secret");
    assert_eq!(server.ask("PUT", &path, &json, br#"{"status":"disabled"}"#).status, 200);
    assert_eq!(statuses(&mut connection, &new), [403; 4], "a disabled user");
    assert_eq!(server.ask("PUT", &path, &json, br#"{"status":"enabled"}"#).status, 200);
    assert_eq!(statuses(&mut connection, &new), [200; 4]);
    for target in ["/eve/k", "/eve"] {
        assert_eq!(server.ask("DELETE", target, NOTHING, b"").status, 204);
    }
    assert_eq!(server.ask("DELETE", &path, &json, b"").status, 204);
    assert_eq!(statuses(&mut connection, &new), [403; 4], "a deleted user");
    server.stop();
}

#[test]
fn a_changed_policy_or_acl_holds_for_the_next_request_of_a_connection() {
    let server = single_server();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    let mut connection = server.connect();
    let mut anonymous =
        || connection.exchange("GET /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("an answer").status;
    assert_eq!(anonymous(), 403);
    let statement = |effect: &str| {
        format!(r#"{{"Effect":"{effect}","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/k"}}"#)
    };
    let put = |statements: &str| {
        let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
        assert!(server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes()).status < 300);
    };
    for _ in 0..3 {
        put(&statement("Allow"));
        assert_eq!(anonymous(), 200);
        put(&format!("{},{}", statement("Allow"), statement("Deny")));
        assert_eq!(anonymous(), 403, "a deny");
        assert_eq!(server.ask("DELETE", "/box?policy", NOTHING, b"").status, 204);
        assert_eq!(anonymous(), 403);
    }
    assert_eq!(server.ask("PUT", "/box/k?acl", &[("x-amz-acl", "public-read")], b"").status, 200);
    assert_eq!(anonymous(), 200);
    assert_eq!(server.ask("PUT", "/box/k?acl", &[("x-amz-acl", "private")], b"").status, 200);
    assert_eq!(anonymous(), 403);
    server.stop();
}
