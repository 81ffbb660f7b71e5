//! S3 operations over the wire: requests and their documents, element by element where it matters.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support::{KEY, S3TestServer, admin, signed_v2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_testkit::SplitMix64;

const NOTHING: &[(&str, &str)] = &[];

fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    server
}

/// Sends a request; returns the status and the error code.
fn outcome(server: &S3TestServer, method: &str, target: &str, body: &str) -> (u16, String) {
    let response = server.ask(method, target, NOTHING, body.as_bytes());
    (response.status, response.element("Code").unwrap_or_default().to_owned())
}

fn begin(server: &S3TestServer, key: &str) -> String {
    let response = server.ask("POST", &format!("/box/{key}?uploads"), NOTHING, b"");
    assert_eq!((response.status, response.element("Key")), (200, Some(key)), "{response:?}");
    response.element("UploadId").unwrap().to_owned()
}

/// The element names of a document in order.
fn elements(body: &str) -> Vec<&str> {
    let tags = body.split('<').skip(2).filter(|tag| !tag.starts_with('/'));
    tags.map(|tag| tag.split(['>', ' ', '/']).next().unwrap()).collect()
}

#[test]
fn parts_are_listed_page_by_page() {
    let server = with_bucket();
    let upload = begin(&server, "large.iso");
    for number in [1, 2, 5] {
        let target = format!("/box/large.iso?partNumber={number}&uploadId={upload}");
        let put = server.ask("PUT", &target, NOTHING, b"hello");
        assert_eq!((put.status, put.header("etag")), (200, Some("\"5d41402abc4b2a76b9719d911017c592\"")), "{put:?}");
    }
    let signed = format!("/box/large.iso?uploadId={upload}");
    let page = server.ask("GET", &format!("{signed}&max-parts=1&part-number-marker=1"), NOTHING, b"");
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
    assert_eq!(elements(&page.text()), expected, "{}", page.text());
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
    let last = server.ask("GET", &format!("{signed}&part-number-marker=2"), NOTHING, b"");
    assert_eq!((last.element("PartNumber"), last.element("IsTruncated")), (Some("5"), Some("false")));
    assert_eq!((last.element("MaxParts"), last.element("NextPartNumberMarker")), (Some("1000"), Some("5")));
    for (more, status, code) in [
        ("&max-parts=-1", 400, Some("InvalidArgument")),
        ("&part-number-marker=x", 400, Some("InvalidArgument")),
        ("&max-parts=0", 200, None),
        ("&part-number-marker=7", 200, None),
    ] {
        let response = server.ask("GET", &format!("{signed}{more}"), NOTHING, b"");
        assert_eq!((response.status, response.element("Code")), (status, code), "{more}");
    }
    let other_key = format!("/box/other?uploadId={upload}");
    assert_eq!(outcome(&server, "GET", &other_key, ""), (404, "NoSuchUpload".into()));
    // An empty value is signed without its equals sign.
    let head = signed_v2("GET", "/box/large.iso?uploadId", NOTHING, Some(0)).replacen("uploadId ", "uploadId= ", 1);
    let empty = server.ask_text(&head, b"");
    assert_eq!((empty.status, empty.element("Code")), (404, Some("NoSuchUpload")), "{empty:?}");
    assert_eq!(outcome(&server, "GET", "/none/k?uploadId=u", ""), (404, "NoSuchBucket".into()));
    server.stop();
}

#[test]
fn pages_of_parts_equal_those_of_a_model() {
    let server = with_bucket();
    let upload = begin(&server, "k");
    let mut random = SplitMix64::new(7);
    let mut parts = std::collections::BTreeMap::new();
    for _ in 0..40 {
        let number = [1, 9_999, 10_000, 1 + random.number_below(60)][random.below(4)];
        let body = "x".repeat(random.below(9));
        let target = format!("/box/k?partNumber={number}&uploadId={upload}");
        assert_eq!(server.ask("PUT", &target, NOTHING, body.as_bytes()).status, 200);
        parts.insert(number, body.len());
    }
    let signed = format!("/box/k?uploadId={upload}");
    for _ in 0..200 {
        let after = [random.number_below(70), 9_998 + random.number_below(4)][random.below(2)];
        let max = random.below(50);
        // Virtual-hosted style, in the form that clients of Riak CS send.
        let head = signed_v2("GET", &signed, NOTHING, None).replacen("/box/k?", "/k?", 1);
        let head = head.replacen(" HTTP/1.1", &format!("&max-parts={max}&part-number-marker={after} HTTP/1.1"), 1);
        let page = server.ask_text(&head.replacen("Host: localhost", "Host: box.localhost:8080", 1), b"");
        assert_eq!(page.status, 200, "{page:?}");
        let above: Vec<_> = parts.range(after + 1..).map(|(number, length)| (*number, *length)).collect();
        let expected = &above[..max.min(above.len())];
        let listed: Vec<_> = page
            .text()
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
    server.stop();
}

#[test]
fn an_upload_can_be_completed_twice_or_aborted_once() {
    let server = with_bucket();
    let upload = begin(&server, "k");
    let target = format!("/box/k?uploadId={upload}");
    let part = format!("/box/k?partNumber=3&uploadId={upload}");
    assert_eq!(
        outcome(&server, "PUT", &format!("/box/k?partNumber=0&uploadId={upload}"), "x"),
        (400, "InvalidArgument".into())
    );
    assert_eq!(server.ask("PUT", &part, NOTHING, b"hello").status, 200);
    let uploads = server.ask("GET", "/box?uploads", NOTHING, b"");
    assert_eq!((uploads.element("UploadId"), uploads.element("Key")), (Some(upload.as_str()), Some("k")));
    let list = |number: u32, etag: &str| {
        format!(
            "<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>\
                </CompleteMultipartUpload>"
        )
    };
    let etag = "\"5d41402abc4b2a76b9719d911017c592\"";
    assert_eq!(outcome(&server, "POST", &target, ""), (400, "MalformedXML".into()));
    assert_eq!(outcome(&server, "POST", &target, &list(4, etag)), (400, "InvalidPart".into()));
    for _ in 0..2 {
        let done = server.ask("POST", &target, NOTHING, list(3, etag).as_bytes());
        assert_eq!(
            (done.status, done.element("Bucket"), done.element("Key")),
            (200, Some("box"), Some("k")),
            "{done:?}"
        );
        assert_eq!(done.element("Location"), Some("http://localhost/box/k"));
        assert!(done.element("ETag").unwrap().ends_with("-1&quot;"));
    }
    assert_eq!(outcome(&server, "GET", &target, ""), (404, "NoSuchUpload".into()));
    let got = server.ask("GET", "/box/k?partNumber=1", NOTHING, b"");
    assert_eq!(
        (got.status, got.text().as_str(), got.header("x-amz-mp-parts-count")),
        (206, "hello", Some("1")),
        "{got:?}"
    );
    let aborted = begin(&server, "k");
    let target = format!("/box/k?uploadId={aborted}");
    assert_eq!(server.ask("DELETE", &target, NOTHING, b"").status, 204);
    assert_eq!(outcome(&server, "DELETE", &target, ""), (404, "NoSuchUpload".into()));
    server.stop();
}

#[test]
fn keys_are_listed_in_both_api_versions() {
    let server = with_bucket();
    for key in ["a/1", "a/2", "b%20c", "d"] {
        assert_eq!(server.ask("PUT", &format!("/box/{key}"), NOTHING, b"x").status, 200);
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let target = format!("/box?list-type=2&delimiter=/&max-keys=1&encoding-type=url{after}");
        let page = server.ask("GET", &target, NOTHING, b"");
        assert_eq!((page.status, page.element("KeyCount")), (200, Some("1")), "{page:?}");
        let name = page.element("Key").or(page.element("CommonPrefixes")).unwrap();
        seen.push(name.to_owned());
        match page.element("NextContinuationToken") {
            Some(token) => after = format!("&continuation-token={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["<Prefix>a/</Prefix>", "b%20c", "d"]);
    let page = server.ask("GET", "/box?marker=a/&delimiter=/&max-keys=1", NOTHING, b"");
    assert_eq!((page.element("Key"), page.element("NextMarker")), (Some("b c"), Some("b c")), "{page:?}");
    let bad = server.ask("GET", "/box?list-type=2&continuation-token=", NOTHING, b"");
    assert_eq!((bad.status, bad.element("ArgumentName")), (400, Some("continuation-token")));
    let all = server.ask("GET", "/", NOTHING, b"");
    assert_eq!((all.status, all.element("Name")), (200, Some("box")));
    server.stop();
}

#[test]
fn deleting_a_marker_restores_the_version_below_it() {
    let server = with_bucket();
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(server.ask("PUT", "/box?versioning", NOTHING, on.as_bytes()).status, 200);
    let first = server.ask("PUT", "/box/k", NOTHING, b"one");
    let first = first.header("x-amz-version-id").unwrap().to_owned();
    let deleted = server.ask("DELETE", "/box/k", NOTHING, b"");
    assert_eq!((deleted.status, deleted.header("x-amz-delete-marker")), (204, Some("true")));
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    let gone = server.ask("GET", "/box/k", NOTHING, b"");
    assert_eq!(
        (gone.status, gone.element("Code"), gone.header("x-amz-delete-marker")),
        (404, Some("NoSuchKey"), Some("true"))
    );
    let old = server.ask("GET", &format!("/box/k?versionId={first}"), NOTHING, b"");
    assert_eq!((old.status, old.text().as_str()), (200, "one"));
    assert_eq!(outcome(&server, "GET", &format!("/box/k?versionId={marker}"), ""), (405, "MethodNotAllowed".into()));
    let tags = "<Tagging><TagSet/></Tagging>";
    for (method, body) in [("GET", ""), ("PUT", tags), ("DELETE", "")] {
        assert_eq!(outcome(&server, method, "/box/k?tagging", body), (405, "MethodNotAllowed".into()), "{method}");
    }
    let versions = server.ask("GET", "/box?versions", NOTHING, b"");
    let text = versions.text();
    let names = elements(&text);
    let at = |name| names.iter().position(|one| *one == name).unwrap();
    assert!(at("DeleteMarker") < at("Version"), "{}", versions.text());
    let many = format!(
        "<Delete><Object><Key>k</Key><VersionId>{marker}</VersionId></Object><Object><Key>no</Key></Object></Delete>"
    );
    let outcomes = server.ask("POST", "/box?delete", NOTHING, many.as_bytes());
    assert_eq!((outcomes.status, outcomes.text().matches("<Deleted>").count()), (200, 2), "{outcomes:?}");
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "one");
    assert_eq!(outcome(&server, "DELETE", "/box", ""), (409, "BucketNotEmpty".into()));
    server.stop();
}

#[test]
fn configurations_are_written_read_and_deleted() {
    let server = with_bucket();
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
            "website",
            "NoSuchWebsiteConfiguration",
            "<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument></WebsiteConfiguration>",
            200,
        ),
        (
            "ownershipControls",
            "OwnershipControlsNotFoundError",
            "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>",
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
        let ask = |method: &str, body: &str| server.ask(method, &target, NOTHING, body.as_bytes());
        let absent = ask("GET", "");
        assert_eq!((absent.status, absent.element("Code")), (404, Some(none)), "{name}");
        let response = ask("PUT", document);
        assert_eq!(response.status, put, "{name} {response:?}");
        let response = ask("GET", "");
        assert_eq!(response.status, 200, "{name}");
        assert!(name != "policy" || response.text() == policy);
        if name == "policy" {
            let status = server.ask("GET", "/box?policyStatus", NOTHING, b"");
            assert_eq!(status.element("IsPublic"), Some("true"), "{status:?}");
        }
        assert_eq!(ask("DELETE", "").status, 204, "{name}");
        assert_eq!(ask("GET", "").status, 404, "{name}");
    }
    assert!(server.ask("GET", "/box?location", NOTHING, b"").text().contains("<LocationConstraint"));
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200, "as in us-east-1");
    assert_eq!(server.ask("DELETE", "/box", NOTHING, b"").status, 204);
    assert_eq!(server.ask("HEAD", "/box", NOTHING, b"").status, 404);
    server.stop();
}

#[test]
fn objects_are_copied_tagged_and_described() {
    let server = with_bucket();
    let headers = [("content-type", "text/plain"), ("x-amz-meta-a", "b"), ("x-amz-tagging", "k=v")];
    assert_eq!(server.ask("PUT", "/box/k", &headers, b"hello").status, 200);
    let copied = server.ask("PUT", "/box/l", &[("x-amz-copy-source", "/box/k")], b"");
    assert_eq!(
        (copied.status, copied.element("ETag")),
        (200, Some("&quot;5d41402abc4b2a76b9719d911017c592&quot;")),
        "{copied:?}"
    );
    let head = server.ask("HEAD", "/box/l", NOTHING, b"");
    assert_eq!((head.header("content-type"), head.header("x-amz-meta-a")), (Some("text/plain"), Some("b")));
    assert_eq!((head.header("x-amz-tagging-count"), head.header("content-length")), (Some("1"), Some("5")));
    let tags = server.ask("GET", "/box/l?tagging", NOTHING, b"");
    assert_eq!((tags.element("Key"), tags.element("Value")), (Some("k"), Some("v")));
    assert_eq!(server.ask("DELETE", "/box/l?tagging", NOTHING, b"").status, 204);
    assert_eq!(server.ask("GET", "/box/l?tagging", NOTHING, b"").element("TagSet"), Some(""));
    let acl = server.ask("GET", "/box/l?acl", NOTHING, b"");
    assert_eq!((acl.status, acl.element("Permission")), (200, Some("FULL_CONTROL")), "{acl:?}");
    assert_eq!(server.ask("PUT", "/box/l?acl", &[("x-amz-acl", "public-read")], b"").status, 200);
    let anonymous = server.ask_text("GET /box/l HTTP/1.1\r\nHost: localhost\r\n\r\n", b"");
    assert_eq!((anonymous.status, anonymous.text().as_str()), (200, "hello"));
    let not_modified = server.ask("GET", "/box/k", &[("if-none-match", "\"5d41402abc4b2a76b9719d911017c592\"")], b"");
    assert_eq!((not_modified.status, not_modified.text().as_str()), (304, ""));
    let beyond = server.ask("GET", "/box/k", &[("range", "bytes=9-")], b"");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */5")));
    let head = signed_v2("GET", "/box/k", &[("x-amz-object-attributes", "ETag,ObjectSize,Checksum")], Some(0));
    let attributes = server.ask_text(&head.replacen("/box/k ", "/box/k?attributes ", 1), b"");
    assert_eq!((attributes.element("ObjectSize"), attributes.status), (Some("5"), 200), "{attributes:?}");
    assert!(attributes.element("ChecksumCRC64NVME").is_some(), "{attributes:?}");
    server.stop();
}

#[test]
fn browsers_upload_with_forms() {
    let server = with_bucket();
    let policy = r#"{"expiration":"2100-01-01T00:00:00Z","conditions":[
        {"bucket":"box"},["starts-with","$key","up/"],{"success_action_status":"201"},["content-length-range",1,5]]}"#;
    let policy = STANDARD.encode(policy);
    let signature = admin().sign_text(&policy);
    let post = |file: &str, key: &str, signature: &str| {
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
        server.ask_text(&head, body.as_bytes())
    };
    let done = post("hello", "up/${filename}", &signature);
    assert_eq!(
        (done.status, done.element("Key"), done.element("Bucket")),
        (201, Some("up/f.txt"), Some("box")),
        "{done:?}"
    );
    assert_eq!(done.element("Location"), Some("http://localhost/box/up/f.txt"));
    assert_eq!(server.ask("GET", "/box/up/f.txt", NOTHING, b"").text(), "hello");
    for (file, key, signature, code) in [
        ("hello!", "up/no", &*signature, "EntityTooLarge"),
        ("", "up/no", &signature, "EntityTooSmall"),
        ("hello", "down/no", &signature, "AccessDenied"),
        ("hello", "up/no", "AAAA", "SignatureDoesNotMatch"),
        ("hello", "", &signature, "InvalidArgument"),
    ] {
        let refused = post(file, key, signature);
        assert_eq!(refused.element("Code"), Some(code), "{refused:?}");
    }
    assert_eq!(server.ask("GET", "/box/up/no", NOTHING, b"").status, 404);
    server.stop();
}

#[test]
fn an_administrator_manages_users() {
    let server = with_bucket();
    assert_eq!(server.ask_text("GET /riak-cs/ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").text(), "OK");
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let made = server.ask("POST", "/riak-cs/user", &json, br#"{"email":"a@b","name":"Foo"}"#);
    assert_eq!((made.status, made.header("location")), (201, Some("/riak-cs/user")), "{made:?}");
    let field =
        |name: &str| made.text().split_once(&format!("\"{name}\":\"")).unwrap().1.split('"').next().unwrap().to_owned();
    assert_eq!((field("email"), field("display_name"), field("status")), ("a@b".into(), "a".into(), "enabled".into()));
    let target = format!("/riak-cs/user/{}", field("key_id"));
    let read = server.ask("GET", &target, NOTHING, b"");
    assert_eq!(
        (read.status, read.element("Email"), read.element("Status")),
        (200, Some("a@b"), Some("enabled")),
        "{read:?}"
    );
    let off = server.ask("PUT", &target, NOTHING, b"<User><Status>disabled</Status></User>");
    assert_eq!((off.status, off.element("Status")), (200, Some("disabled")));
    assert_eq!(outcome(&server, "POST", "/riak-cs/user", "<User><Email>a@b</Email><Name>x</Name></User>").0, 409);
    assert_eq!(
        outcome(&server, "POST", "/riak-cs/user", "<User><Name>x</Name></User>"),
        (400, "MissingParameter".into())
    );
    let own = server.ask("GET", "/riak-cs/user", NOTHING, b"");
    assert_eq!((own.status, own.element("KeyId")), (200, Some(KEY)));
    let usage = server.ask("GET", &format!("/riak-cs/usage/{KEY}/ab"), NOTHING, b"");
    assert_eq!(usage.status, 200);
    assert!(
        usage.text().contains("\"box\":{\"Objects\":0,\"Bytes\":0}") && usage.text().contains("\"BucketCreate\""),
        "{usage:?}"
    );
    assert_eq!(server.ask("GET", "/riak-cs/stats", NOTHING, b"").status, 200);
    assert_eq!(server.ask("DELETE", &target, NOTHING, b"").status, 204);
    assert_eq!(outcome(&server, "GET", &target, ""), (403, "InvalidAccessKeyId".into()));
    let anonymous = server.ask_text("GET /riak-cs/users HTTP/1.1\r\nHost: localhost\r\n\r\n", b"");
    assert_eq!(anonymous.status, 403);
    server.stop();
}

#[test]
fn a_client_of_minio_took_prefixes_out_of_versioning_and_was_not_told_that_they_stay() {
    let server = with_bucket();
    let document = |exception: &str| {
        format!("<VersioningConfiguration><Status>Enabled</Status>{exception}</VersioningConfiguration>")
    };
    let excluded = document("<ExcludedPrefixes><Prefix>tmp/</Prefix></ExcludedPrefixes>");
    let refused = server.ask("PUT", "/box?versioning", NOTHING, excluded.as_bytes());
    assert_eq!((refused.status, refused.element("Element")), (501, Some("ExcludedPrefixes")), "{refused:?}");
    assert!(!server.ask("GET", "/box?versioning", NOTHING, b"").text().contains("Status"));
    let kept = document("<ExcludeFolders>false</ExcludeFolders>");
    assert_eq!(server.ask("PUT", "/box?versioning", NOTHING, kept.as_bytes()).status, 200);
    server.stop();
}
