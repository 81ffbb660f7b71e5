//! Attacks over the wire: requests that try to gain access or to stop the server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_admission::MemoryBudget;
use larder_api_s3::S3Settings;
use larder_api_s3::operations::{OPERATIONS, OperationScope};
use larder_core::Config;
use larder_net::ConnectionSettings;
use larder_testkit::s3::S3Signer;
use sha2::{Digest as _, Sha256};

use crate::support::{KEY, S3TestServer, SECRET, signed_v2, signed_v4};

const NOTHING: &[(&str, &str)] = &[];
const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("accept", "application/json")];
/// The longest time until the server closes a connection whose next request it does not wait for.
const SOON: Duration = Duration::from_millis(200);

fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    server
}

/// A new user, by its key and its secret.
fn eve(server: &S3TestServer) -> (String, String) {
    let made = server.ask("POST", "/riak-cs/user", JSON, br#"{"email":"eve@x.org","name":"eve"}"#).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("key_id"), text("key_secret"))
}

/// The parameters of a version 2 presigned address whose string to sign ends in these lines.
fn presigned(method: &str, lines: &str) -> String {
    presigned_by(KEY, SECRET, method, lines)
}

fn presigned_by(key: &str, secret: &str, method: &str, lines: &str) -> String {
    let signature = S3Signer::new(key, secret).sign_text(&format!("{method}\n{lines}")).replace('+', "%2B");
    format!("AWSAccessKeyId={key}&Expires=4000000000&Signature={signature}")
}

fn plain(method: &str, target: &str, headers: &str, length: usize) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n")
}

#[test]
fn the_holder_of_a_presigned_put_cannot_bypass_its_signed_headers() {
    let server = with_bucket();
    let md5 = "XUFAKrxLKna5cZ2REBfFkg=="; // hello
    let signed = presigned("PUT", &format!("{md5}\n\n4000000000\n/box/k"));
    let moved = format!("/box/k?{signed}&Content-MD5={md5}");
    let other = server.ask_text(&plain("PUT", &moved, "", 5), b"other");
    assert_eq!((other.status, other.element("Code")), (400, Some("BadDigest")), "{other:?}");
    assert_eq!(server.ask_text(&plain("PUT", &moved, "", 5), b"hello").status, 200);

    // A copy stays a copy if its source is named in the query.
    let signed = presigned("PUT", "\n\n4000000000\nx-amz-copy-source:/box/k\n/box/copy");
    let moved = format!("/box/copy?{signed}&x-amz-copy-source=%2Fbox%2Fk");
    let copied = server.ask_text(&plain("PUT", &moved, "", 5), b"other");
    assert_eq!(copied.status, 200, "{copied:?}");
    assert_eq!(server.ask("GET", "/box/copy", NOTHING, b"").text(), "hello");

    // Nothing can be added to the address.
    let signed = presigned("PUT", "\n\n4000000000\n/box/k");
    let tags = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let added = server.ask_text(&plain("PUT", &format!("/box/k?tagging&{signed}"), "", tags.len()), tags);
    assert_eq!((added.status, added.element("Code")), (403, Some("SignatureDoesNotMatch")), "{added:?}");
    for header in ["x-amz-acl: public-read\r\n", "x-amz-copy-source: /box/copy\r\n", "x-amz-tagging: a=b\r\n"] {
        let added = server.ask_text(&plain("PUT", &format!("/box/k?{signed}"), header, 0), b"");
        assert_eq!(added.status, 403, "{header}");
    }
    server.stop();
}

#[test]
fn one_request_is_never_parsed_as_two() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    let hidden = signed_v2("DELETE", "/box/k", NOTHING, None);
    let put = |headers: &[(&str, &str)]| signed_v2("PUT", "/box/other", headers, None);
    let as_chunks = format!("0\r\n\r\n{hidden}");
    let length = hidden.len().to_string();
    for (head, body) in [
        // Refused before the body is read: the body must not be parsed as the next request.
        (plain("PUT", "/box/other", "", hidden.len()), &hidden),
        (signed_v2("PUT", "/box/other?website", NOTHING, Some(hidden.len())), &hidden),
        (signed_v2("POST", "/box/other", NOTHING, Some(hidden.len())), &hidden),
        // Answered without reading the body.
        (signed_v2("GET", "/box/none", NOTHING, Some(hidden.len())), &hidden),
        (signed_v2("HEAD", "/box", NOTHING, Some(hidden.len())), &hidden),
        // Two lengths or an ambiguous framing.
        (put(&[("content-length", "0"), ("content-length", &length)]), &hidden),
        (put(&[("content-length", &format!("{length}, 0"))]), &hidden),
        (put(&[("content-length", "+5")]), &hidden),
        (put(&[("transfer-encoding", "chunked, identity")]), &as_chunks),
        (put(&[("transfer-encoding", "xchunked"), ("content-length", &length)]), &hidden),
    ] {
        let mut client = server.connect();
        let first = client.exchange([&head, &**body].concat()).unwrap();
        if !client.is_closed_within(SOON) {
            client.write(signed_v2("GET", "/box/k", NOTHING, None)).unwrap();
            assert_eq!(client.receive().unwrap().text(), "hello", "{head} {first:?}");
        }
        assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "hello", "{head}");
    }
    server.stop();
}

#[test]
fn a_signature_is_valid_for_one_bucket_and_one_key() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/other", NOTHING, b"").status, 200);
    for target in ["/box/a/b", "/other/a/b", "/box//a", "/box/../other/a/b"] {
        assert_eq!(server.ask("PUT", target, NOTHING, target.as_bytes()).status, 200, "{target}");
        assert_eq!(server.ask("GET", target, NOTHING, b"").text(), target);
    }
    let signed = signed_v2("GET", "/box/a/b", NOTHING, None);
    for (from, to) in [
        ("GET /box/a/b", "GET /other/a/b"),
        ("GET /box/a/b", "GET /box/../other/a/b"),
        ("GET /box/a/b", "GET /box%2Fa/b"),
        ("GET /box/a/b", "GET /box//a/b"),
        ("Host: localhost", "Host: other.localhost"),
        ("GET /box/a/b HTTP/1.1\r\nHost: localhost", "GET /box/a/b HTTP/1.1\r\nHost: other.localhost"),
        ("GET /box/a/b HTTP/1.1\r\nHost: localhost", "GET http://localhost/box/a/b HTTP/1.1\r\nHost: other.localhost"),
    ] {
        assert!(signed.contains(from), "{from}");
        let response = server.ask_text(&signed.replace(from, to), b"");
        assert_eq!(
            (response.status, response.element("Code")),
            (403, Some("SignatureDoesNotMatch")),
            "{to}: {response:?}"
        );
    }
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let signed = signed_v4("GET", "/a/b", empty, NOTHING, None);
    let elsewhere = server.ask_text(&signed.replace("Host: localhost", "Host: other.localhost"), b"");
    assert_eq!(elsewhere.status, 403, "{elsewhere:?}");
    // Two `Host` headers are signed together, so neither is trusted alone.
    let two = signed.replace("Host: localhost", "Host: other.localhost\r\nHost: localhost");
    assert_ne!(server.ask_text(&two, b"").status, 200);
    server.stop();
}

#[test]
fn response_headers_cannot_be_split() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    for value in ["a%0d%0aX-Evil:%201", "a%0aX-Evil:%201", "%00"] {
        let signed = signed_v2("GET", "/box/k", NOTHING, None);
        let target = format!("GET /box/k?response-content-disposition={value}");
        let response = server.ask_text(&signed.replace("GET /box/k", &target), b"");
        assert!(response.status == 400 && response.header("x-evil").is_none(), "{response:?}");
        let response = server.ask_text(&plain("GET", &format!("/box/k?versionId={value}&{value}"), "", 0), b"");
        assert!(response.header("x-evil").is_none(), "{response:?}");
    }
    server.stop();
}

#[test]
fn a_policy_sees_everything_that_is_stored() {
    let server = with_bucket();
    let policy = br#"{"Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::box/*"},
        {"Effect": "Deny", "Principal": "*", "Action": ["s3:PutObject", "s3:PutObjectTagging"],
         "Resource": "arn:aws:s3:::box/*", "Condition": {"StringEquals": {"s3:RequestObjectTag/secret": "no"}}},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::box/*",
         "Condition": {"StringLike": {"s3:x-amz-grant-read": "*AllUsers*"}}},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::box/*",
         "Condition": {"StringEquals": {"s3:x-amz-acl": "public-read"}}}]}"#;
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, policy).status, 204);
    let put = |headers: &str| plain("PUT", "/box/k", headers, 0);
    let group = "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"";
    assert_eq!(server.ask_text(&put("x-amz-tagging: secret=yes\r\n"), b"").status, 200);
    for headers in [
        "x-amz-tagging: secret=no\r\n",
        "x-amz-tagging: a=\u{e9}&secret=no\r\n",
        "x-amz-acl: public-read\r\n",
        &format!("x-amz-grant-read: {group}\r\n"),
        &format!("x-amz-grant-read: emailAddress=\"a@b\"\r\nx-amz-grant-read: {group}\r\n"),
    ] {
        let response = server.ask_text(&put(headers), b"");
        assert_eq!((response.status, response.element("Code")), (403, Some("AccessDenied")), "{headers} {response:?}");
    }
    let tags = b"<Tagging><TagSet><Tag><Key>secret</Key><Value>no</Value></Tag></TagSet></Tagging>";
    for headers in ["", "x-amz-tagging: secret=yes\r\n"] {
        let response = server.ask_text(&plain("PUT", "/box/k?tagging", headers, tags.len()), tags);
        assert_eq!(response.status, 403, "{response:?}");
    }
    // The fields of a form count as headers; the real headers of its request do not.
    let form = |fields: &[(&str, &str)]| {
        let field = |(name, value): &(&str, &str)| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let fields: String = fields.iter().map(field).collect();
        format!("{fields}--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--B--\r\n")
    };
    let media = "Content-Type: multipart/form-data; boundary=B\r\nx-amz-acl: private\r\n";
    for (fields, status) in [
        (&[("key", "f")][..], 204),
        (&[("key", "f"), ("acl", "public-read")], 403),
        (&[("key", "f"), ("KEY", "g")], 400),
    ] {
        let body = form(fields);
        let response = server.ask_text(&plain("POST", "/box", media, body.len()), body.as_bytes());
        assert_eq!(response.status, status, "{fields:?} {response:?}");
    }
    server.stop();
}

#[test]
fn a_delete_without_a_key_once_removed_the_only_administrator() {
    let server = with_bucket();
    let (key, secret) = eve(&server);
    let path = format!("/riak-cs/user/{key}");
    for (target, status) in [("/riak-cs/user", 400), ("/riak-cs/user/", 400), (&*format!("/riak-cs/user/{KEY}"), 403)] {
        assert_eq!(server.ask("DELETE", target, NOTHING, b"").status, status, "{target}");
    }
    // A user does not remove itself.
    for target in ["/riak-cs/user", &path] {
        let own = S3Signer::new(&key, &secret).v2("DELETE", target, NOTHING).head();
        assert_eq!(server.ask_text(&own, b"").status, 403, "{target}");
    }
    assert_eq!(server.ask("DELETE", &path, NOTHING, b"").status, 204);
    assert_eq!(server.ask("GET", "/riak-cs/users", NOTHING, b"").status, 200);
    server.stop();
}

#[test]
fn a_user_disabled_during_its_own_request_stays_disabled() {
    let server = with_bucket();
    let (key, secret) = eve(&server);
    let path = format!("/riak-cs/user/{key}");
    let signed = presigned_by(&key, &secret, "PUT", &format!("\n\n4000000000\n{path}"));
    let enable = br#"{"status":"enabled","name":"eve"}"#;
    let mut eve = server.connect();
    let head = plain("PUT", &format!("{path}?{signed}"), "Expect: 100-continue\r\n", enable.len());
    eve.write(head).unwrap();
    assert_eq!(eve.receive().unwrap().status, 100);
    let disabled = server.ask("PUT", &path, JSON, br#"{"status":"disabled"}"#);
    assert!(disabled.text().contains("\"status\":\"disabled\""), "{disabled:?}");
    eve.write(enable).unwrap();
    let _ = eve.receive().unwrap();
    let now = server.ask("GET", &path, JSON, b"");
    assert!(now.text().contains("\"status\":\"disabled\""), "{now:?}");
    // Only an administrator can read or change another user.
    for target in ["/riak-cs/users", "/riak-cs/stats", "/riak-cs/info", "/riak-cs/user/ADMIN-KEY", "/usage/ADMIN-KEY/a"]
    {
        assert_eq!(server.ask("PUT", &path, JSON, br#"{"status":"enabled"}"#).status, 200);
        let signed = presigned_by(&key, &secret, "GET", &format!("\n\n4000000000\n{target}"));
        let response = server.ask_text(&plain("GET", &format!("{target}?{signed}"), "", 0), b"");
        assert!(response.status == 403 && !response.text().contains(SECRET), "{target} {response:?}");
        let response = server.ask_text(&plain("GET", target, "", 0), b"");
        assert!(response.status == 403 && !response.text().contains(SECRET), "{target} {response:?}");
    }
    server.stop();
}

/// Puts a policy that lets the user called alice read her folder, by name and by address.
fn allow_alice(server: &S3TestServer) {
    let policy = r#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/home/${aws:username}/*"},
        {"Effect":"Allow","Principal":{"AWS":"arn:aws:iam:::user/alice@x.org"},"Action":"s3:GetObject",
         "Resource":"arn:aws:s3:::box/mail/*"}]}"#;
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes()).status, 204);
    for key in ["/box/home/alice/k", "/box/mail/k"] {
        assert_eq!(server.ask("PUT", key, NOTHING, b"hers").status, 200);
    }
}

/// The statuses of a GET of what the policy of [`allow_alice`] is about.
fn reads_as_alice(server: &S3TestServer, user: &S3Signer) -> [u16; 2] {
    let get = |path| server.ask_text(&user.v2("GET", path, NOTHING).head(), b"").status;
    ["/box/home/alice/k", "/box/mail/k"].map(get)
}

#[test]
fn a_user_who_takes_the_name_or_address_of_another_gains_nothing() {
    let server = with_bucket();
    allow_alice(&server);
    let (key, secret) = eve(&server);
    let eve = S3Signer::new(&key, &secret);
    let change = |body: &str| {
        let head = eve.v2("PUT", "/riak-cs/user", JSON).header("Content-Length", &body.len().to_string()).head();
        server.ask_text(&head, body.as_bytes())
    };
    for body in [r#"{"name":"alice"}"#, r#"{"email":"alice@x.org"}"#, r#"{"name":"alice","new_key_secret":true}"#] {
        let refused = change(body);
        assert_eq!((refused.status, refused.element("Code")), (403, Some("AccessDenied")), "{body} {refused:?}");
    }
    assert_eq!(reads_as_alice(&server, &eve), [403; 2]);
    // Her own document, sent back as she read it, is no change; the administrator may rename her.
    let same = change(r#"{"email":"eve@x.org","name":"eve","status":"enabled","new_key_secret":false}"#);
    assert_eq!(same.status, 200, "{same:?}");
    let path = format!("/riak-cs/user/{}", key);
    let renamed = server.ask("PUT", &path, JSON, br#"{"name":"alice","email":"alice@x.org"}"#);
    assert_eq!((renamed.status, reads_as_alice(&server, &eve)), (200, [200; 2]));
    server.stop();
}

#[test]
fn a_stranger_who_registers_under_a_name_of_a_policy_gains_nothing() {
    let settings = S3Settings { anonymous_user_creation: true, ..S3Settings::default() };
    let server = S3TestServer::start_with(Config::default(), settings);
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    allow_alice(&server);
    let body = r#"{"email":"alice@x.org","name":"alice"}"#;
    let media = "Content-Type: application/json\r\nAccept: application/json\r\n";
    let made = server.ask_text(&plain("POST", "/riak-cs/user", media, body.len()), body.as_bytes());
    let made = made.json();
    let text = |name: &str| made[name].as_str().unwrap();
    let stranger = S3Signer::new(text("key_id"), text("key_secret"));
    assert_eq!(reads_as_alice(&server, &stranger), [403; 2]);
    let grant = server.ask("PUT", "/box/mail/k?acl", &[("x-amz-grant-read", "emailAddress=alice@x.org")], b"");
    assert_eq!(grant.element("Code"), Some("UnresolvableGrantByEmailAddress"), "{grant:?}");
    // By her id she is who she is.
    let policy = format!(
        r#"{{"Statement":{{"Effect":"Allow","Principal":{{"AWS":"{}"}},"Action":"s3:GetObject","Resource":"*"}}}}"#,
        text("id")
    );
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes()).status, 204);
    assert_eq!(reads_as_alice(&server, &stranger), [200; 2]);
    server.stop();
}

#[test]
fn a_parameter_that_means_nothing_to_a_request_met_the_condition_of_a_policy() {
    let server = with_bucket();
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/box?versioning", NOTHING, versioning.as_bytes()).status, 200);
    let put = |body: &[u8]| server.ask("PUT", "/box/k", NOTHING, body).header("x-amz-version-id").unwrap().to_owned();
    let (shared, hidden) = (put(b"shared"), put(b"hidden"));
    let policy = format!(
        r#"{{"Statement":[
        {{"Effect":"Allow","Principal":"*","Action":["s3:GetObjectVersion","s3:DeleteObjectVersion"],
          "Resource":"arn:aws:s3:::box/*","Condition":{{"StringEquals":{{"s3:VersionId":"{shared}"}}}}}},
        {{"Effect":"Allow","Principal":"*","Action":["s3:PutObject","s3:GetObject"],"Resource":"arn:aws:s3:::box/*"}},
        {{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::box",
          "Condition":{{"StringLike":{{"s3:prefix":"open/*"}}}}}}]}}"#
    );
    let put = server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes());
    assert_eq!(put.status, 204, "{put:?}");
    let ask = |method: &str, target: &str, headers: &str, body: &str| {
        server.ask_text(&plain(method, target, headers, body.len()), body.as_bytes())
    };
    for (version, status) in [(&hidden, 403), (&shared, 200)] {
        let source = format!("x-amz-copy-source: /box/k?versionId={version}\r\n");
        for (target, status) in [(&*format!("/box/copy?versionId={shared}"), 400), ("/box/copy", status)] {
            let copied = ask("PUT", target, &source, "");
            assert_eq!(copied.status, status, "{target}: {copied:?}");
        }
    }
    let delete = |version: &str| {
        let body = format!("<Delete><Object><Key>k</Key><VersionId>{version}</VersionId></Object></Delete>");
        let digest = format!("x-amz-checksum-sha256: {}\r\n", STANDARD.encode(Sha256::digest(body.as_bytes())));
        assert_eq!(ask("POST", &format!("/box?delete&versionId={shared}"), &digest, &body).status, 400);
        ask("POST", "/box?delete", &digest, &body).element("Code").map(str::to_owned)
    };
    assert_eq!((delete(&hidden).as_deref(), delete(&shared)), (Some("AccessDenied"), None));
    // Those who may list a key learn that it is missing.
    for (target, status) in [("/box/open/none", 404), ("/box/none", 403), ("/box/none?prefix=open/", 403)] {
        assert_eq!(ask("GET", target, "", "").status, status, "{target}");
    }
    server.stop();
}

#[test]
fn stalled_anonymous_bodies_do_not_lock_out_other_clients() {
    let memory = MemoryBudget::new(64 << 20, 0);
    let connection = ConnectionSettings { memory, ..ConnectionSettings::default() };
    let settings = S3Settings { connection, ..S3Settings::default() };
    let server = S3TestServer::start_with(Config::default(), settings);
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    // Each client may send 4 MiB, which reserves twice that memory; an address may reserve 24 MiB.
    let document = "POST /box/k?uploadId=x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
                    Expect: 100-continue\r\n\r\n";
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect();
        client.write(document).unwrap();
        assert_eq!(client.receive().unwrap().status, 100);
        waiting.push(client);
    }
    let more = server.ask_text(document, b"");
    assert_eq!((more.status, more.element("Code")), (503, Some("SlowDown")), "{more:?}");
    assert_eq!(more.header("retry-after"), Some("1"));
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    let tags = b"<Tagging><TagSet/></Tagging>";
    assert_eq!(server.ask("PUT", "/box/k?tagging", NOTHING, tags).status, 200);
    // A finished request releases its memory.
    let mut gone = waiting.pop().unwrap();
    gone.write(b"1\r\nx\r\n0\r\n\r\n").unwrap();
    assert_eq!(gone.receive().unwrap().status, 400);
    let mut next = server.connect();
    next.write(document).unwrap();
    assert_eq!(next.receive().unwrap().status, 100);
    drop((waiting, next));
    server.stop();
}

/// Sends every operation unexpected parameters, headers and bodies: it refuses or succeeds, but never fails with 500.
#[test]
fn no_malformed_request_is_answered_500() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"hello").status, 200);
    let odd = ["", "0", "-1", "18446744073709551616", "null", "%00", "%ff", "a%0ab", "%F0%9F%98%80", "..", "*"];
    let parameters = ["versionId", "partNumber", "uploadId", "max-keys", "marker", "key-marker", "prefix", "delimiter"];
    let bodies: [&[u8]; 6] = [b"", b"<", b"{}", b"<Delete><Object><Key/></Object></Delete>", b"\xff\xfe", b"[[[[[[[["];
    let headers: [&[(&str, &str)]; 6] = [
        &[("range", "bytes=18446744073709551615-")],
        &[("range", "bytes=-0"), ("if-match", ",,\"")],
        &[("x-amz-copy-source", "/box/%")],
        &[("x-amz-copy-source", "box/k?versionId=%ff"), ("x-amz-copy-source-range", "bytes=9-1")],
        &[("if-modified-since", "Sun, 99 Foo 99999 99:99:99 GMT"), ("x-amz-mp-object-size", "-1")],
        &[("x-amz-tagging", "=&=&%"), ("x-amz-grant-read", "id=,"), ("x-amz-decoded-content-length", "-5")],
    ];
    let mut count = 0_usize;
    for operation in OPERATIONS {
        let path = match operation.scope {
            OperationScope::Service => "/".to_owned(),
            OperationScope::Bucket => "/box".to_owned(),
            OperationScope::Object => "/box/k".to_owned(),
            OperationScope::Admin(segment) => format!("/riak-cs/{segment}/%00"),
        };
        if operation.name == "DeleteBucket" {
            continue;
        }
        for round in 0..12 {
            let value = odd[(count + round) % odd.len()];
            let parameter = parameters[(count / 3 + round) % parameters.len()];
            let keys: String = operation.query_params.iter().map(|key| format!("{key}&")).collect();
            let lines = headers[(count + round) % headers.len()];
            let body = bodies[round % bodies.len()];
            // Parameters that version 2 does not sign are added after signing.
            let signed = operation.query_params.iter().max_by_key(|key| key.len()).map_or_else(
                || path.clone(),
                |key| if key.contains('=') { path.clone() } else { format!("{path}?{key}") },
            );
            let target = format!("{path}?{keys}{parameter}={value}&{value}=1");
            let head = signed_v2(operation.method.as_str(), &signed, lines, Some(body.len()));
            let head = head.replacen(&format!(" {signed} "), &format!(" {target} "), 1);
            let response = server.ask_text(&head, body);
            assert!(response.status != 500 && response.status > 99, "{head} {response:?}");
            count += 1;
        }
    }
    assert!(server.ask("GET", "/box", NOTHING, b"").status == 200);
    server.stop();
}
