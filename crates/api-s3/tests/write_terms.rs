//! What writes ask for beside their content: it is done, or refused by name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const OLD: &str = "Mon, 01 Jan 2001 00:00:00 GMT";
const PARTS: &str = "<CompleteMultipartUpload></CompleteMultipartUpload>";

/// A server with a bucket and an object.
fn started() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    assert_eq!(server.ask("PUT", "/box/k", NOTHING, b"first").status, 200);
    server
}

fn upload(server: &S3TestServer, key: &str) -> String {
    let created = server.ask("POST", &format!("/box/{key}?uploads"), NOTHING, b"");
    created.element("UploadId").unwrap().to_owned()
}

#[test]
fn conditions_that_an_operation_does_not_check_were_once_dropped() {
    let server = started();
    let part = format!("/box/k?partNumber=1&uploadId={}", upload(&server, "k"));
    let delete = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let md5 = STANDARD.encode(Md5::digest(delete));
    let copy = ("x-amz-copy-source", "/box/k");
    for (method, target, headers, body) in [
        ("DELETE", "/box/k", &[("if-unmodified-since", OLD)][..], &b""[..]),
        ("DELETE", "/box/k", &[("if-none-match", "*")], b""),
        ("PUT", "/box/k", &[("if-unmodified-since", OLD)], b"second"),
        ("PUT", "/box/k", &[("if-modified-since", OLD)], b"second"),
        ("PUT", "/box/k", &[copy, ("if-unmodified-since", OLD)], b""),
        ("POST", "/box?delete", &[("content-md5", &md5), ("if-match", "\"x\"")], delete),
        ("POST", "/box?delete", &[("content-md5", &md5), ("x-amz-if-match-size", "1")], delete),
        ("PUT", &part, &[("if-match", "\"x\"")], b"part"),
        ("PUT", "/box/k?tagging", &[("if-match", "\"x\"")], b"<Tagging><TagSet/></Tagging>"),
        ("PUT", "/box?cors", &[("if-none-match", "*")], b"<CORSConfiguration/>"),
        ("PUT", "/box/k", &[("x-amz-write-offset-bytes", "0")], b"second"),
        ("DELETE", "/box/pre/", &[("x-minio-force-delete", "true")], b""),
        ("PUT", "/box/a.tar", &[("x-amz-meta-snowball-auto-extract", "true")], b"tar"),
        ("PUT", "/new", &[("x-amz-bucket-namespace", "account-regional")], b""),
        ("PUT", "/box/k?tagging", &[("x-amz-object-lock-legal-hold", "ON")], b"<Tagging><TagSet/></Tagging>"),
    ] {
        let refused = server.ask(method, target, headers, body);
        assert_eq!(refused.status, 501, "{method} {target} {headers:?}: {refused:?}");
        let name = headers.last().unwrap().0;
        assert_eq!(refused.element("Header"), Some(name), "{method} {target}: {refused:?}");
    }
    let forced = server.ask("DELETE", "/box", &[("x-minio-force-delete", "true")], b"");
    assert_eq!(forced.element("Code"), Some("BucketNotEmpty"), "{forced:?}");
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "first");
    server.stop();
}

#[test]
fn a_condition_of_a_new_upload_was_once_dropped() {
    let server = started();
    let begin = |headers: &[(&str, &str)]| server.ask("POST", "/box/k?uploads", headers, b"").status;
    assert_eq!(begin(&[("if-none-match", "*")]), 412);
    assert_eq!(begin(&[("if-match", "\"x\"")]), 412);
    assert_eq!(begin(&[("if-match", "*")]), 200);
    assert_eq!(server.ask("POST", "/box/absent?uploads", &[("if-none-match", "*")], b"").status, 200);
    server.stop();
}

#[test]
fn a_version_id_of_a_write_that_takes_none_was_once_dropped() {
    let server = started();
    for (method, target, body) in [
        ("PUT", "/box/k?versionId=null", "second"),
        ("POST", "/box/k?uploads&versionId=null", ""),
        ("DELETE", "/box?versionId=null", ""),
        ("DELETE", "/box/k?partNumber=1", ""),
    ] {
        let refused = server.ask(method, target, NOTHING, body.as_bytes());
        assert_eq!((refused.status, refused.element("Code")), (400, Some("InvalidArgument")), "{method} {target}");
    }
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "first");
    assert_eq!(server.ask("DELETE", "/box/k?versionId=null", NOTHING, b"").status, 204);
    server.stop();
}

#[test]
fn the_digest_and_the_lock_of_a_completion_were_once_dropped() {
    let server = started();
    let target = format!("/box/k?uploadId={}", upload(&server, "k"));
    let wrong = STANDARD.encode([0_u8; 16]);
    let digest = server.ask("POST", &target, &[("content-md5", &wrong)], PARTS.as_bytes());
    assert_eq!(digest.element("Code"), Some("BadDigest"), "{digest:?}");
    let lock = server.ask("POST", &target, &[("x-amz-object-lock-legal-hold", "ON")], PARTS.as_bytes());
    assert_eq!((lock.status, lock.element("Code")), (400, Some("InvalidRequest")), "{lock:?}");
    let part = server.ask("PUT", &format!("{target}&partNumber=1"), NOTHING, b"part");
    let etag = part.header("etag").unwrap();
    let parts = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag>\
         <ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME></Part></CompleteMultipartUpload>"
    );
    let checksum = server.ask("POST", &target, NOTHING, parts.as_bytes());
    assert_eq!(checksum.element("Code"), Some("InvalidPart"), "{checksum:?}");
    server.stop();
}

#[test]
fn an_acl_with_two_meanings_once_ended_public() {
    let server = started();
    let all = "<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI>";
    let acl = |grantee: &str| {
        format!(
            "<AccessControlPolicy><AccessControlList><Grant>{grantee}<Permission>READ</Permission></Grant>\
             </AccessControlList></AccessControlPolicy>"
        )
    };
    let user = |inner: &str| {
        format!(
            "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">{inner}</Grantee>"
        )
    };
    for (document, code) in [
        (acl(&user(&format!("<ID>o</ID>{all}"))), "MalformedACLError"),
        (acl(&user(all)), "MalformedACLError"),
        (acl(&format!("<Grantee>{all}</Grantee><Grantee>{all}</Grantee>")), "MalformedXML"),
    ] {
        let put = server.ask("PUT", "/box/k?acl", NOTHING, document.as_bytes());
        assert_eq!((put.status, put.element("Code")), (400, Some(code)), "{document}");
    }
    let both = server.ask("PUT", "/box/k?acl", &[("x-amz-acl", "public-read")], acl("").as_bytes());
    assert_eq!(both.element("Code"), Some("UnexpectedContent"), "{both:?}");
    assert_eq!(server.ask_text("GET /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").status, 403);
    let group = acl(&format!("<Grantee>{all}</Grantee>"));
    assert_eq!(server.ask("PUT", "/box/k?acl", NOTHING, group.as_bytes()).status, 200);
    server.stop();
}

#[test]
fn of_two_elements_the_last_once_won_unseen() {
    let server = started();
    let versioning =
        "<VersioningConfiguration><Status>Suspended</Status><Status>Enabled</Status></VersioningConfiguration>";
    let delete = "<Delete><Object><Key>k</Key><Key>l</Key></Object></Delete>";
    let md5 = STANDARD.encode(Md5::digest(delete));
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet><TagSet/></Tagging>";
    for (method, target, headers, body) in [
        ("PUT", "/box?versioning", NOTHING, versioning),
        ("POST", "/box?delete", &[("content-md5", &*md5)][..], delete),
        ("PUT", "/box/k?tagging", NOTHING, tags),
    ] {
        let refused = server.ask(method, target, headers, body.as_bytes());
        assert_eq!((refused.status, refused.element("Code")), (400, Some("MalformedXML")), "{body}: {refused:?}");
    }
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "first");
    server.stop();
}

#[test]
fn guards_in_the_fields_of_a_form_were_once_dropped() {
    let server = started();
    let open = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*",
        "Resource":"arn:aws:s3:::box/*"}]}"#;
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, open.as_bytes()).status, 204);
    let post = |name: &str, value: &str| {
        let form = format!(
            "--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n\
             --B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n\
             --B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nform\r\n--B--\r\n"
        );
        let head = format!(
            "POST /box HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n\
             Content-Length: {}\r\n\r\n",
            form.len()
        );
        server.ask_text(&head, form.as_bytes())
    };
    for name in ["If-None-Match", "if-match", "x-amz-expected-bucket-owner", "x-amz-copy-source"] {
        let refused = post(name, "*");
        let field = name.to_ascii_lowercase();
        assert_eq!((refused.status, refused.element("Field")), (501, Some(&*field)), "{refused:?}");
    }
    assert_eq!(server.ask("GET", "/box/k", NOTHING, b"").text(), "first");
    assert_eq!(post("x-amz-tagging", "a=b").status, 204);
    assert!(server.ask("GET", "/box/k?tagging", NOTHING, b"").text().contains("<Key>a</Key>"));
    server.stop();
}
