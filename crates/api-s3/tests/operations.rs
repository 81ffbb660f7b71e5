//! S3 operations over the wire: requests and their documents, element by element where it matters.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test binary uses a part")]
mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;
use support::{KEY, S3TestResponse, S3TestServer, SECRET, signed_v2};

const NOTHING: &[(&str, &str)] = &[];

async fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start().await;
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").await.status, 200);
    server
}

/// Sends a request with query parameters that version 2 does not sign; `signed` is the target without them.
async fn ask(server: &S3TestServer, method: &str, signed: &str, target: &str, body: &[u8]) -> S3TestResponse {
    let head = signed_v2(method, signed, NOTHING, Some(body.len()));
    let head = head.replacen(&format!("{method} {signed} "), &format!("{method} {target} "), 1);
    server.ask_text(&head, body).await
}

/// Sends a request; returns the status and the error code.
async fn outcome(server: &S3TestServer, method: &str, target: &str, body: &str) -> (u16, String) {
    let response = server.ask(method, target, NOTHING, body.as_bytes()).await;
    (response.status, response.element("Code").unwrap_or_default().to_owned())
}

async fn begin(server: &S3TestServer, key: &str) -> String {
    let response = server.ask("POST", &format!("/box/{key}?uploads"), NOTHING, b"").await;
    assert_eq!((response.status, response.element("Key")), (200, Some(key)), "{response:?}");
    response.element("UploadId").unwrap().to_owned()
}

/// The element names of a document in order.
fn elements(body: &str) -> Vec<&str> {
    let tags = body.split('<').skip(2).filter(|tag| !tag.starts_with('/'));
    tags.map(|tag| tag.split(['>', ' ', '/']).next().unwrap()).collect()
}

#[tokio::test]
async fn parts_are_listed_page_by_page() {
    let server = with_bucket().await;
    let upload = begin(&server, "large.iso").await;
    for number in [1, 2, 5] {
        let target = format!("/box/large.iso?partNumber={number}&uploadId={upload}");
        let put = server.ask("PUT", &target, NOTHING, b"hello").await;
        assert_eq!((put.status, put.header("etag")), (200, Some("\"5d41402abc4b2a76b9719d911017c592\"")), "{put:?}");
    }
    let signed = format!("/box/large.iso?uploadId={upload}");
    let page = ask(&server, "GET", &signed, &format!("{signed}&max-parts=1&part-number-marker=1"), b"").await;
    assert_eq!(page.status, 200, "{page:?}");
    let expected = [
        "ListPartsResult",
        "Bucket",
        "Key",
        "UploadId",
        "Initiator",
        "ID",
        "DisplayName",
        "Owner",
        "ID",
        "DisplayName",
        "StorageClass",
        "PartNumberMarker",
        "NextPartNumberMarker",
        "MaxParts",
        "IsTruncated",
        "Part",
        "PartNumber",
        "LastModified",
        "ETag",
        "Size",
    ];
    assert_eq!(elements(&page.body), expected, "{}", page.body);
    for (name, value) in [
        ("Bucket", "box"),
        ("Key", "large.iso"),
        ("UploadId", upload.as_str()),
        ("StorageClass", "STANDARD"),
        ("PartNumberMarker", "1"),
        ("NextPartNumberMarker", "2"),
        ("MaxParts", "1"),
        ("IsTruncated", "true"),
        ("PartNumber", "2"),
        ("ETag", "&quot;5d41402abc4b2a76b9719d911017c592&quot;"),
        ("Size", "5"),
    ] {
        assert_eq!(page.element(name), Some(value));
    }
    let last = ask(&server, "GET", &signed, &format!("{signed}&part-number-marker=2"), b"").await;
    assert_eq!((last.element("PartNumber"), last.element("IsTruncated")), (Some("5"), Some("false")));
    assert_eq!((last.element("MaxParts"), last.element("NextPartNumberMarker")), (Some("1000"), Some("5")));
    for (more, status, code) in [
        ("&max-parts=-1", 400, Some("InvalidArgument")),
        ("&part-number-marker=x", 400, Some("InvalidArgument")),
        ("&max-parts=0", 200, None),
        ("&part-number-marker=7", 200, None),
    ] {
        let response = ask(&server, "GET", &signed, &format!("{signed}{more}"), b"").await;
        assert_eq!((response.status, response.element("Code")), (status, code), "{more}");
    }
    let other_key = format!("/box/other?uploadId={upload}");
    assert_eq!(outcome(&server, "GET", &other_key, "").await, (404, "NoSuchUpload".into()));
    let empty = ask(&server, "GET", "/box/large.iso?uploadId", "/box/large.iso?uploadId=", b"").await;
    assert_eq!((empty.status, empty.element("Code")), (404, Some("NoSuchUpload")), "{empty:?}");
    assert_eq!(outcome(&server, "GET", "/none/k?uploadId=u", "").await, (404, "NoSuchBucket".into()));
    server.stop().await;
}

/// A pseudo-random number below `end`; every run yields the same sequence.
fn random(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

#[tokio::test]
async fn pages_of_parts_equal_those_of_a_model() {
    let server = with_bucket().await;
    let upload = begin(&server, "k").await;
    let mut seed = 7;
    let mut parts = std::collections::BTreeMap::new();
    for _ in 0..40 {
        let number = [1, 9_999, 10_000, 1 + random(&mut seed, 60)][random(&mut seed, 4) as usize];
        let body = "x".repeat(random(&mut seed, 9) as usize);
        let target = format!("/box/k?partNumber={number}&uploadId={upload}");
        assert_eq!(server.ask("PUT", &target, NOTHING, body.as_bytes()).await.status, 200);
        parts.insert(number, body.len());
    }
    let signed = format!("/box/k?uploadId={upload}");
    for _ in 0..200 {
        let after = [random(&mut seed, 70), 9_998 + random(&mut seed, 4)][random(&mut seed, 2) as usize];
        let max = random(&mut seed, 50) as usize;
        // Virtual-hosted style, in the form that clients of Riak CS send.
        let head = signed_v2("GET", &signed, NOTHING, None).replacen("/box/k?", "/k?", 1);
        let head = head.replacen(" HTTP/1.1", &format!("&max-parts={max}&part-number-marker={after} HTTP/1.1"), 1);
        let page = server.ask_text(&head.replacen("Host: localhost", "Host: box.localhost:8080", 1), b"").await;
        assert_eq!(page.status, 200, "{page:?}");
        let above: Vec<_> = parts.range(after + 1..).map(|(number, length)| (*number, *length)).collect();
        let expected = &above[..max.min(above.len())];
        let listed: Vec<_> = page
            .body
            .split("<Part>")
            .skip(1)
            .map(|part| {
                let value = |name: &str| part.split_once(&format!("<{name}>")).unwrap().1.split('<').next().unwrap();
                (value("PartNumber").parse().unwrap(), value("Size").parse().unwrap())
            })
            .collect();
        assert_eq!(listed, expected, "{after} {max}");
        let truncated = max > 0 && above.len() > max;
        assert_eq!(page.element("IsTruncated"), Some(if truncated { "true" } else { "false" }), "{after} {max}");
        let next = expected.last().map_or(0, |(number, _)| *number).to_string();
        assert_eq!(page.element("NextPartNumberMarker"), Some(&*next), "{after} {max}");
        assert_eq!(page.element("PartNumberMarker"), Some(&*after.to_string()));
        assert_eq!(page.element("MaxParts"), Some(&*max.to_string()));
    }
    server.stop().await;
}

#[tokio::test]
async fn an_upload_can_be_completed_twice_or_aborted_once() {
    let server = with_bucket().await;
    let upload = begin(&server, "k").await;
    let target = format!("/box/k?uploadId={upload}");
    let part = format!("/box/k?partNumber=3&uploadId={upload}");
    assert_eq!(
        outcome(&server, "PUT", &format!("/box/k?partNumber=0&uploadId={upload}"), "x").await,
        (400, "InvalidArgument".into())
    );
    assert_eq!(server.ask("PUT", &part, NOTHING, b"hello").await.status, 200);
    let uploads = server.ask("GET", "/box?uploads", NOTHING, b"").await;
    assert_eq!((uploads.element("UploadId"), uploads.element("Key")), (Some(upload.as_str()), Some("k")));
    let list = |number: u32, etag: &str| {
        format!(
            "<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>\
                </CompleteMultipartUpload>"
        )
    };
    let etag = "\"5d41402abc4b2a76b9719d911017c592\"";
    assert_eq!(outcome(&server, "POST", &target, "").await, (400, "MalformedXML".into()));
    assert_eq!(outcome(&server, "POST", &target, &list(4, etag)).await, (400, "InvalidPart".into()));
    for _ in 0..2 {
        let done = server.ask("POST", &target, NOTHING, list(3, etag).as_bytes()).await;
        assert_eq!(
            (done.status, done.element("Bucket"), done.element("Key")),
            (200, Some("box"), Some("k")),
            "{done:?}"
        );
        assert_eq!(done.element("Location"), Some("http://localhost/box/k"));
        assert!(done.element("ETag").unwrap().ends_with("-1&quot;"));
    }
    assert_eq!(outcome(&server, "GET", &target, "").await, (404, "NoSuchUpload".into()));
    let got = server.ask("GET", "/box/k?partNumber=1", NOTHING, b"").await;
    assert_eq!(
        (got.status, got.body.as_str(), got.header("x-amz-mp-parts-count")),
        (206, "hello", Some("1")),
        "{got:?}"
    );
    let aborted = begin(&server, "k").await;
    let target = format!("/box/k?uploadId={aborted}");
    assert_eq!(server.ask("DELETE", &target, NOTHING, b"").await.status, 204);
    assert_eq!(outcome(&server, "DELETE", &target, "").await, (404, "NoSuchUpload".into()));
    server.stop().await;
}

#[tokio::test]
async fn keys_are_listed_in_both_api_versions() {
    let server = with_bucket().await;
    for key in ["a/1", "a/2", "b%20c", "d"] {
        assert_eq!(server.ask("PUT", &format!("/box/{key}"), NOTHING, b"x").await.status, 200);
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let target = format!("/box?list-type=2&delimiter=/&max-keys=1&encoding-type=url{after}");
        let page = ask(&server, "GET", "/box", &target, b"").await;
        assert_eq!((page.status, page.element("KeyCount")), (200, Some("1")), "{page:?}");
        let name = page.element("Key").or(page.element("CommonPrefixes")).unwrap();
        seen.push(name.to_owned());
        match page.element("NextContinuationToken") {
            Some(token) => after = format!("&continuation-token={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["<Prefix>a/</Prefix>", "b%20c", "d"]);
    let page = ask(&server, "GET", "/box", "/box?marker=a/&delimiter=/&max-keys=1", b"").await;
    assert_eq!((page.element("Key"), page.element("NextMarker")), (Some("b c"), Some("b c")), "{page:?}");
    let bad = ask(&server, "GET", "/box", "/box?list-type=2&continuation-token=", b"").await;
    assert_eq!((bad.status, bad.element("ArgumentName")), (400, Some("continuation-token")));
    let all = server.ask("GET", "/", NOTHING, b"").await;
    assert_eq!((all.status, all.element("Name")), (200, Some("box")));
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_marker_restores_the_version_below_it() {
    let server = with_bucket().await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/box?versioning", NOTHING, on.as_bytes()).await.status, 200);
    let first = server.ask("PUT", "/box/k", NOTHING, b"one").await;
    let first = first.header("x-amz-version-id").unwrap().to_owned();
    let deleted = server.ask("DELETE", "/box/k", NOTHING, b"").await;
    assert_eq!((deleted.status, deleted.header("x-amz-delete-marker")), (204, Some("true")));
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    let gone = server.ask("GET", "/box/k", NOTHING, b"").await;
    assert_eq!(
        (gone.status, gone.element("Code"), gone.header("x-amz-delete-marker")),
        (404, Some("NoSuchKey"), Some("true"))
    );
    let old = server.ask("GET", &format!("/box/k?versionId={first}"), NOTHING, b"").await;
    assert_eq!((old.status, old.body.as_str()), (200, "one"));
    assert_eq!(
        outcome(&server, "GET", &format!("/box/k?versionId={marker}"), "").await,
        (405, "MethodNotAllowed".into())
    );
    let versions = server.ask("GET", "/box?versions", NOTHING, b"").await;
    let names = elements(&versions.body);
    let at = |name| names.iter().position(|one| *one == name).unwrap();
    assert!(at("DeleteMarker") < at("Version"), "{}", versions.body);
    let many = format!(
        "<Delete><Object><Key>k</Key><VersionId>{marker}</VersionId></Object><Object><Key>no</Key></Object></Delete>"
    );
    let outcomes = server.ask("POST", "/box?delete", NOTHING, many.as_bytes()).await;
    assert_eq!((outcomes.status, outcomes.body.matches("<Deleted>").count()), (200, 2), "{outcomes:?}");
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").await.body, "one");
    assert_eq!(outcome(&server, "DELETE", "/box", "").await, (409, "BucketNotEmpty".into()));
    server.stop().await;
}

#[tokio::test]
async fn configurations_are_written_read_and_deleted() {
    let server = with_bucket().await;
    let policy = r#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*"}]}"#;
    for (name, none, document, put) in [
        ("tagging", "NoSuchTagSet", "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>", 204),
        ("policy", "NoSuchBucketPolicy", policy, 204),
        (
            "cors",
            "NoSuchCORSConfiguration",
            "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
                </CORSRule></CORSConfiguration>",
            200,
        ),
        (
            "lifecycle",
            "NoSuchLifecycleConfiguration",
            "<LifecycleConfiguration><Rule><ID>r</ID><Filter/><Status>Enabled</Status><Expiration>\
                <Days>1</Days></Expiration></Rule></LifecycleConfiguration>",
            200,
        ),
        (
            "publicAccessBlock",
            "NoSuchPublicAccessBlockConfiguration",
            "<PublicAccessBlockConfiguration><IgnorePublicAcls>true</IgnorePublicAcls>\
                </PublicAccessBlockConfiguration>",
            200,
        ),
    ] {
        let target = format!("/box?{name}");
        // Version 2 signs only some sub-resources.
        let signed = if name == "publicAccessBlock" { "/box" } else { &target };
        let ask = |method: &'static str, body: &'static str| ask(&server, method, signed, &target, body.as_bytes());
        let absent = ask("GET", "").await;
        assert_eq!((absent.status, absent.element("Code")), (404, Some(none)), "{name}");
        let document: &'static str = Box::leak(document.to_owned().into_boxed_str());
        let response = ask("PUT", document).await;
        assert_eq!(response.status, put, "{name} {response:?}");
        let response = ask("GET", "").await;
        assert_eq!(response.status, 200, "{name}");
        assert!(name != "policy" || response.body == policy);
        if name == "policy" {
            let status = self::ask(&server, "GET", "/box", "/box?policyStatus", b"").await;
            assert_eq!(status.element("IsPublic"), Some("true"), "{status:?}");
        }
        assert_eq!(ask("DELETE", "").await.status, 204, "{name}");
        assert_eq!(ask("GET", "").await.status, 404, "{name}");
    }
    assert!(server.ask("GET", "/box?location", NOTHING, b"").await.body.contains("<LocationConstraint"));
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").await.status, 200, "as in us-east-1");
    assert_eq!(server.ask("DELETE", "/box", NOTHING, b"").await.status, 204);
    assert_eq!(server.ask("HEAD", "/box", NOTHING, b"").await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn objects_are_copied_tagged_and_described() {
    let server = with_bucket().await;
    let headers = [("content-type", "text/plain"), ("x-amz-meta-a", "b"), ("x-amz-tagging", "k=v")];
    assert_eq!(server.ask("PUT", "/box/k", &headers, b"hello").await.status, 200);
    let copied = server.ask("PUT", "/box/l", &[("x-amz-copy-source", "/box/k")], b"").await;
    assert_eq!(
        (copied.status, copied.element("ETag")),
        (200, Some("&quot;5d41402abc4b2a76b9719d911017c592&quot;")),
        "{copied:?}"
    );
    let head = server.ask("HEAD", "/box/l", NOTHING, b"").await;
    assert_eq!((head.header("content-type"), head.header("x-amz-meta-a")), (Some("text/plain"), Some("b")));
    assert_eq!((head.header("x-amz-tagging-count"), head.header("content-length")), (Some("1"), Some("5")));
    let tags = server.ask("GET", "/box/l?tagging", NOTHING, b"").await;
    assert_eq!((tags.element("Key"), tags.element("Value")), (Some("k"), Some("v")));
    assert_eq!(server.ask("DELETE", "/box/l?tagging", NOTHING, b"").await.status, 204);
    assert_eq!(server.ask("GET", "/box/l?tagging", NOTHING, b"").await.element("TagSet"), Some(""));
    let acl = server.ask("GET", "/box/l?acl", NOTHING, b"").await;
    assert_eq!((acl.status, acl.element("Permission")), (200, Some("FULL_CONTROL")), "{acl:?}");
    assert_eq!(server.ask("PUT", "/box/l?acl", &[("x-amz-acl", "public-read")], b"").await.status, 200);
    let anonymous = server.ask_text("GET /box/l HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").await;
    assert_eq!((anonymous.status, anonymous.body.as_str()), (200, "hello"));
    let not_modified =
        server.ask("GET", "/box/k", &[("if-none-match", "\"5d41402abc4b2a76b9719d911017c592\"")], b"").await;
    assert_eq!((not_modified.status, not_modified.body.as_str()), (304, ""));
    let beyond = server.ask("GET", "/box/k", &[("range", "bytes=9-")], b"").await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */5")));
    let head = signed_v2("GET", "/box/k", &[("x-amz-object-attributes", "ETag,ObjectSize,Checksum")], Some(0));
    let attributes = server.ask_text(&head.replacen("/box/k ", "/box/k?attributes ", 1), b"").await;
    assert_eq!((attributes.element("ObjectSize"), attributes.status), (Some("5"), 200), "{attributes:?}");
    assert!(attributes.element("ChecksumCRC64NVME").is_some(), "{attributes:?}");
    server.stop().await;
}

#[tokio::test]
async fn browsers_upload_with_forms() {
    let server = with_bucket().await;
    let policy = r#"{"expiration":"2100-01-01T00:00:00Z","conditions":[
        {"bucket":"box"},["starts-with","$key","up/"],{"success_action_status":"201"},["content-length-range",1,5]]}"#;
    let policy = STANDARD.encode(policy);
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(policy.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let post = async |file: &str, key: &str, signature: &str| {
        let fields = [
            ("key", key),
            ("AWSAccessKeyId", KEY),
            ("policy", &policy),
            ("signature", signature),
            ("success_action_status", "201"),
        ];
        let mut body: String = fields
            .iter()
            .map(|(name, value)| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"))
            .collect();
        body.push_str(&format!(
            "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.txt\"\r\n\r\n{file}\r\n--B--\r\n"
        ));
        let head = format!(
            "POST /box HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        server.ask_text(&head, body.as_bytes()).await
    };
    let done = post("hello", "up/${filename}", &signature).await;
    assert_eq!(
        (done.status, done.element("Key"), done.element("Bucket")),
        (201, Some("up/f.txt"), Some("box")),
        "{done:?}"
    );
    assert_eq!(done.element("Location"), Some("http://localhost/box/up/f.txt"));
    assert_eq!(server.ask("GET", "/box/up/f.txt", NOTHING, b"").await.body, "hello");
    for (file, key, signature, code) in [
        ("hello!", "up/no", &*signature, "EntityTooLarge"),
        ("", "up/no", &signature, "EntityTooSmall"),
        ("hello", "down/no", &signature, "AccessDenied"),
        ("hello", "up/no", "AAAA", "SignatureDoesNotMatch"),
        ("hello", "", &signature, "InvalidArgument"),
    ] {
        let refused = post(file, key, signature).await;
        assert_eq!(refused.element("Code"), Some(code), "{refused:?}");
    }
    assert_eq!(server.ask("GET", "/box/up/no", NOTHING, b"").await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn an_administrator_manages_users() {
    let server = with_bucket().await;
    assert_eq!(server.ask_text("GET /riak-cs/ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").await.body, "OK");
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let made = server.ask("POST", "/riak-cs/user", &json, br#"{"email":"a@b","name":"Foo"}"#).await;
    assert_eq!((made.status, made.header("location")), (201, Some("/riak-cs/user")), "{made:?}");
    let field =
        |name: &str| made.body.split_once(&format!("\"{name}\":\"")).unwrap().1.split('"').next().unwrap().to_owned();
    assert_eq!((field("email"), field("display_name"), field("status")), ("a@b".into(), "a".into(), "enabled".into()));
    let target = format!("/riak-cs/user/{}", field("key_id"));
    let read = server.ask("GET", &target, NOTHING, b"").await;
    assert_eq!(
        (read.status, read.element("Email"), read.element("Status")),
        (200, Some("a@b"), Some("enabled")),
        "{read:?}"
    );
    let off = server.ask("PUT", &target, NOTHING, b"<User><Status>disabled</Status></User>").await;
    assert_eq!((off.status, off.element("Status")), (200, Some("disabled")));
    assert_eq!(outcome(&server, "POST", "/riak-cs/user", "<User><Email>a@b</Email><Name>x</Name></User>").await.0, 409);
    assert_eq!(
        outcome(&server, "POST", "/riak-cs/user", "<User><Name>x</Name></User>").await,
        (400, "MissingParameter".into())
    );
    let own = server.ask("GET", "/riak-cs/user", NOTHING, b"").await;
    assert_eq!((own.status, own.element("KeyId")), (200, Some(KEY)));
    let usage = server.ask("GET", &format!("/riak-cs/usage/{KEY}/ab"), NOTHING, b"").await;
    assert_eq!(usage.status, 200);
    assert!(
        usage.body.contains("\"box\":{\"Objects\":0,\"Bytes\":0}") && usage.body.contains("\"BucketCreate\""),
        "{usage:?}"
    );
    assert_eq!(server.ask("GET", "/riak-cs/stats", NOTHING, b"").await.status, 200);
    assert_eq!(server.ask("DELETE", &target, NOTHING, b"").await.status, 204);
    assert_eq!(outcome(&server, "GET", &target, "").await, (403, "InvalidAccessKeyId".into()));
    let anonymous = server.ask_text("GET /riak-cs/users HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").await;
    assert_eq!(anonymous.status, 403);
    server.stop().await;
}
