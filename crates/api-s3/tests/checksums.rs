//! Checksums over the wire: each algorithm in each place that carries it.

use crate::support::{S3TestServer, signed_v4};
use larder_s3_rules::checksum::{ChecksumHasher, composite};
use larder_s3_rules::{Algorithm, Checksum, ChecksumKind};
use larder_testkit::http::HttpResponse;

const NOTHING: &[(&str, &str)] = &[];
const MODE: (&str, &str) = ("x-amz-checksum-mode", "ENABLED");
/// The bytes of an object, and others of their length.
const BODY: &[u8] = b"hello world";
const OTHER: &[u8] = b"hello_world";

fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    server
}

fn refusal(response: &HttpResponse) -> (u16, &str) {
    (response.status, response.element("Code").unwrap_or_default())
}

/// The checksum that HEAD shows of a key, and its kind.
fn shown(server: &S3TestServer, key: &str, algorithm: Algorithm) -> (String, String) {
    let head = server.ask("HEAD", &format!("/box/{key}"), &[MODE], b"");
    let header = |name| head.header(name).unwrap_or_default().to_owned();
    (header(algorithm.header()), header("x-amz-checksum-type"))
}

#[test]
fn every_algorithm_is_checked_and_shown_in_headers_trailers_and_copies() {
    let server = with_bucket();
    for algorithm in Algorithm::ALL {
        let (name, header) = (algorithm.name(), algorithm.header());
        let (right, wrong) =
            (ChecksumHasher::digest(algorithm, BODY).text(), ChecksumHasher::digest(algorithm, OTHER).text());
        let whole = (right.clone(), "FULL_OBJECT".to_owned());

        let put = server.ask("PUT", "/box/put", &[(header, &right), ("x-amz-sdk-checksum-algorithm", name)], BODY);
        assert_eq!((put.status, put.header(header)), (200, Some(&*right)), "{put:?}");
        assert_eq!(shown(&server, "put", algorithm), whole);
        assert_eq!(server.ask("HEAD", "/box/put", NOTHING, b"").header(header), None, "only where it is asked for");
        assert_eq!(server.ask("GET", "/box/put", &[MODE, ("range", "bytes=1-")], b"").header(header), None);

        let refused = server.ask("PUT", "/box/no", &[(header, &wrong)], BODY);
        assert_eq!(refusal(&refused), (400, "BadDigest"), "{refused:?}");
        let message = format!("The {name} you specified did not match the calculated checksum.");
        assert_eq!(refused.element("Message"), Some(&*message));
        for broken in ["AAAA", "!", &format!("{right}-1")] {
            let refused = server.ask("PUT", "/box/no", &[(header, broken)], BODY);
            assert_eq!(refusal(&refused), (400, "InvalidRequest"), "{broken}");
            assert_eq!(refused.element("Message"), Some(&*format!("Value for {header} header is invalid.")));
        }

        for (value, status) in [(&right, 200), (&wrong, 400)] {
            let headers = [("x-amz-decoded-content-length", "11"), ("x-amz-trailer", header)];
            let head = signed_v4("PUT", "/box/trailer", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", &headers, None);
            let body = format!("b\r\nhello world\r\n0\r\n{header}:{value}\r\n\r\n");
            let head = head.replacen("\r\n\r\n", &format!("\r\nContent-Length: {}\r\n\r\n", body.len()), 1);
            let put = server.ask_text(&head, body.as_bytes());
            assert_eq!(put.status, status, "{put:?}");
        }
        assert_eq!(shown(&server, "trailer", algorithm), whole);

        let copied = server.ask("PUT", "/box/copy", &[("x-amz-copy-source", "/box/put")], b"");
        assert_eq!(copied.element(algorithm.element()), Some(&*right), "{copied:?}");
        let choice = [("x-amz-copy-source", "/box/plain"), ("x-amz-checksum-algorithm", name)];
        assert_eq!(server.ask("PUT", "/box/plain", NOTHING, BODY).status, 200);
        let chosen = server.ask("PUT", "/box/chosen", &choice, b"");
        assert_eq!(chosen.element(algorithm.element()), Some(&*right), "{chosen:?}");
        let wanted = [("x-amz-object-attributes", "Checksum")];
        let attributes = server.ask("GET", "/box/chosen?attributes", &wanted, b"");
        assert_eq!(attributes.element(algorithm.element()), Some(&*right), "{attributes:?}");
        let listed = server.ask("GET", "/box?list-type=2&prefix=chosen", NOTHING, b"");
        assert_eq!(listed.element("ChecksumAlgorithm"), Some(name));
    }
    assert_eq!(server.ask("HEAD", "/box/no", NOTHING, b"").status, 404);
    server.stop();
}

#[test]
fn uploads_have_the_checksums_that_their_algorithm_allows() {
    let server = with_bucket();
    for algorithm in Algorithm::ALL {
        for kind in ChecksumKind::ALL {
            let named = [("x-amz-checksum-algorithm", algorithm.name()), ("x-amz-checksum-type", kind.name())];
            let begun = server.ask("POST", "/box/k?uploads", &named, b"");
            if !algorithm.allows(kind) {
                let lower = algorithm.name().to_lowercase();
                let message =
                    format!("The {} checksum type cannot be used with the {lower} checksum algorithm.", kind.name());
                assert_eq!(refusal(&begun), (400, "InvalidRequest"));
                assert_eq!(begun.element("Message"), Some(&*message));
                continue;
            }
            assert_eq!(begun.header("x-amz-checksum-type"), Some(kind.name()), "{begun:?}");
            upload(&server, begun.element("UploadId").unwrap(), algorithm, kind);
        }
    }
    let unknown = server.ask("POST", "/box/k?uploads", &[("x-amz-checksum-algorithm", "SHA3")], b"");
    assert_eq!(refusal(&unknown), (400, "InvalidRequest"));
    let names = "[CRC32, CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]";
    assert!(unknown.element("Message").unwrap().ends_with(names), "{unknown:?}");
    server.stop();
}

/// Puts a part, completes the upload and reads the object back.
fn upload(server: &S3TestServer, id: &str, algorithm: Algorithm, kind: ChecksumKind) {
    let (header, element) = (algorithm.header(), algorithm.element());
    let part = ChecksumHasher::digest(algorithm, BODY);
    let (target, value) = (format!("/box/k?partNumber=1&uploadId={id}"), part.text());
    let (expected, other) =
        (algorithm.name().to_lowercase(), if algorithm == Algorithm::Sha1 { "md5" } else { "sha1" });
    let foreign = ChecksumHasher::digest(Algorithm::from_name(other).unwrap(), BODY).text();
    let refused = server.ask("PUT", &target, &[(&*format!("x-amz-checksum-{other}"), &*foreign)], BODY);
    let mismatch = |actual| {
        format!("Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}")
    };
    assert_eq!(refused.element("Message"), Some(&*mismatch(other)));
    let bare = server.ask("PUT", &target, NOTHING, BODY);
    match kind {
        ChecksumKind::FullObject => assert_eq!((bare.status, bare.header(header)), (200, Some(&*value))),
        ChecksumKind::Composite => assert_eq!(bare.element("Message"), Some(&*mismatch("null"))),
    }
    let put = server.ask("PUT", &target, &[(header, &value)], BODY);
    assert_eq!((put.status, put.header(header)), (200, Some(&*value)), "{put:?}");
    let parts = server.ask("GET", &format!("/box/k?uploadId={id}"), NOTHING, b"");
    assert_eq!((parts.element(element), parts.element("ChecksumType")), (Some(&*value), Some(kind.name())));

    let etag = put.header("etag").unwrap();
    let complete = |checksum: &str, headers: &[(&str, &str)]| {
        let document = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag>{checksum}</Part>\
             </CompleteMultipartUpload>"
        );
        server.ask("POST", &format!("/box/k?uploadId={id}"), headers, document.as_bytes())
    };
    let listed = format!("<{element}>{value}</{element}>");
    let wrong = ChecksumHasher::digest(algorithm, OTHER).text();
    let replaced = complete(&format!("<{element}>{wrong}</{element}>"), NOTHING);
    assert_eq!(refusal(&replaced), (400, "InvalidPart"), "{replaced:?}");
    assert_eq!(refusal(&complete(&listed, &[(header, &wrong)])), (400, "BadDigest"));
    assert_eq!(refusal(&complete(&listed, &[("x-amz-mp-object-size", "12")])), (400, "InvalidRequest"));
    if kind == ChecksumKind::Composite {
        let message = format!(
            "The upload was created using a {expected} checksum. The complete request must include the checksum for each \
             part. It was missing for part 1 in the request."
        );
        assert_eq!(complete("", NOTHING).element("Message"), Some(&*message));
    }
    let whole = match kind {
        ChecksumKind::FullObject => part,
        ChecksumKind::Composite => composite(algorithm, &[part.digest]),
    };
    let done = complete(&listed, &[(header, &whole.text()), ("x-amz-mp-object-size", "11")]);
    assert_eq!(done.element(element), Some(&*whole.text()), "{done:?}");
    assert_eq!(shown(server, "k", algorithm), (whole.text(), kind.name().to_owned()));
    let wanted = [("x-amz-object-attributes", "Checksum,ObjectParts")];
    let attributes = server.ask("GET", "/box/k?attributes", &wanted, b"").text();
    let bare = Checksum { parts: None, ..whole }.text();
    assert!(attributes.contains(&format!("<Checksum><{element}>{bare}</{element}>")), "{attributes}");
    let of_part = format!("<Size>11</Size>{listed}</Part>");
    assert_eq!(attributes.contains(&of_part), kind == ChecksumKind::Composite, "{attributes}");
    let of_part = server.ask("HEAD", "/box/k?partNumber=1", &[MODE], b"");
    let expected = (kind == ChecksumKind::Composite).then_some(&*value);
    assert_eq!(of_part.header(header), expected, "{of_part:?}");
}

#[test]
fn a_form_names_the_checksum_of_its_file_in_any_algorithm() {
    let server = with_bucket();
    assert_eq!(server.ask("PUT", "/box?acl", &[("x-amz-acl", "public-read-write")], b"").status, 200);
    for algorithm in Algorithm::ALL {
        for (bytes, status) in [(BODY, 204), (OTHER, 400)] {
            let (name, value) = (algorithm.header(), ChecksumHasher::digest(algorithm, bytes).text());
            let field = |name: &str, value: &str| {
                format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
            };
            let body = format!(
                "{}{}{}--B--\r\n",
                field("key", "form"),
                field(name, &value),
                field("file\"; filename=\"f", "hello world")
            );
            let head = format!(
                "POST /box HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            let posted = server.ask_text(&head, body.as_bytes());
            assert_eq!(posted.status, status, "{posted:?}");
        }
        let right = ChecksumHasher::digest(algorithm, BODY).text();
        // An anonymous form makes an object that only its bucket's policy or owner opens.
        let versions = server.ask("GET", "/box?list-type=2", NOTHING, b"");
        assert_eq!(versions.element("ChecksumAlgorithm"), Some(algorithm.name()), "{right}");
    }
    server.stop();
}
