//! Published signatures of Amazon and Riak CS verify; modified requests do not.

use hyper::header::{HeaderMap, HeaderName};
use larder_s3_rules::dates;
use proptest::prelude::*;

use super::*;

/// A request of a test.
#[derive(Clone)]
struct TestRequest {
    method: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    bucket: Option<&'static str>,
    public_host: Option<&'static str>,
    now: Timestamp,
    region: Option<&'static str>,
}

impl TestRequest {
    fn new(method: &str, target: &str, headers: &[(&str, &str)], now: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let now = dates::parse_any(now).unwrap();
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, query, headers: map, bucket: None, public_host: None, now, region: None }
    }

    fn at_bucket(mut self, bucket: &'static str) -> Self {
        self.bucket = Some(bucket);
        self
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    fn check(&self, secret: &str) -> Result<Option<(String, VerifiedSignature)>, S3Error> {
        let query = S3Query::parse(self.query.as_deref());
        let request = AuthRequest {
            method: &self.method,
            path: &self.path,
            raw_query: self.query.as_deref(),
            query: &query,
            headers: &self.headers,
            host: None,
            other_hosts: [self.public_host, None],
            host_bucket: self.bucket,
            now: self.now,
            region: self.region,
            service: SignedService::S3,
        };
        let Some(signature) = RequestSignature::from_request(&request)? else { return Ok(None) };
        let key = signature.access_key().to_owned();
        signature.verify(&request, secret, &SigningKeys::default()).map(|checked| Some((key, checked)))
    }

    fn holds(&self, secret: &str) -> bool {
        matches!(self.check(secret), Ok(Some(_)))
    }

    fn code(&self, secret: &str) -> Result<AuthScheme, Code> {
        self.check(secret).map(|outcome| outcome.unwrap().1.scheme).map_err(|error| error.code)
    }
}

const V2_SECRET: &str = "uV3F3YluFJax1cknvbcGwgjvx4QpvB+leU8dUj2o";

fn v2(method: &str, target: &str, date: &str, signature: &str) -> TestRequest {
    let authorization = format!("AWS 0PN5J17HBGZHT7JJ3X82:{signature}");
    TestRequest::new(method, target, &[("date", date), ("authorization", &authorization)], date)
}

fn puppy() -> TestRequest {
    v2("GET", "/photos/puppy.jpg", "Tue, 27 Mar 2007 19:36:42 +0000", "xXjDGYUmKxnwqr5KXNPGldn5LbA=")
        .at_bucket("johnsmith")
}

#[test]
fn a_signature_holds_for_the_host_of_the_client_behind_a_proxy_and_for_no_other() {
    let signature =
        sign_v4("/k", "", &[("host", "s3.example.com"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", NOW)], EMPTY);
    let sent = v4("GET", "/k", &[("x-amz-content-sha256", EMPTY)], "host;x-amz-content-sha256;x-amz-date", &signature);
    let arrived =
        |host: &str, public| TestRequest { public_host: public, ..sent.clone().with("host", host) }.holds(V4_SECRET);
    assert!(arrived("s3.example.com", None) && arrived("s3.example.com", Some("other")));
    assert!(arrived("10.1.2.3:8080", Some("s3.example.com")));
    assert!(!arrived("10.1.2.3:8080", None) && !arrived("10.1.2.3:8080", Some("s3.example.com:1")));
}

#[test]
fn the_published_signatures_of_version_2_verify() {
    let put = "Tue, 27 Mar 2007 21:15:45 +0000";
    let delete = "Tue, 27 Mar 2007 21:20:27 +0000";
    let upload = "Tue, 27 Mar 2007 21:06:08 +0000";
    let french = "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re";
    let mut backup = v2("PUT", "/db-backup.dat.gz", upload, "C0FlOtU8Ylb9KDTpZqYkZPX91iI=")
        .at_bucket("static.johnsmith.net")
        .with("x-amz-acl", "public-read")
        .with("content-type", "application/x-download")
        .with("content-md5", "4gJE4saaMU4BqNR0kLY+lw==")
        .with("x-amz-meta-filechecksum", "0x02661779")
        .with("x-amz-meta-checksumalgorithm", "crc32");
    for name in ["joe@johnsmith.net", "jane@johnsmith.net"] {
        backup.headers.append("x-amz-meta-reviewedby", name.parse().unwrap());
    }
    let requests = [
        puppy(),
        v2("GET", "/johnsmith/photos/puppy.jpg", "Tue, 27 Mar 2007 19:36:42 +0000", "xXjDGYUmKxnwqr5KXNPGldn5LbA="),
        v2("PUT", "/johnsmith/photos/puppy.jpg", put, "hcicpDDvL9SsO6AkvxqmIWkmOuQ=")
            .with("content-type", "image/jpeg"),
        v2(
            "GET",
            "/johnsmith/?prefix=photos&max-keys=50&marker=puppy",
            "Tue, 27 Mar 2007 19:42:41 +0000",
            "jsRt/rhG+Vtp88HrYL706QhE4w4=",
        ),
        v2("GET", "/?acl", "Tue, 27 Mar 2007 19:44:46 +0000", "thdUi9VAkzhkniLj96JIrOPGi0g=").at_bucket("johnsmith"),
        v2("DELETE", "/johnsmith/photos/puppy.jpg", delete, "k3nL7gH3+PadhTEVn5Ip83xlYzk=")
            .with("x-amz-date", "Tue, 27 Mar 2007 21:20:26 +0000"),
        backup,
        v2("GET", "/", "Wed, 28 Mar 2007 01:29:59 +0000", "Db+gepJSUbZKwpx1FR0DLtEYoZA="),
        v2("GET", french, "Wed, 28 Mar 2007 01:49:49 +0000", "dxhSBHoI6eVSPcXJqEghlUzZMnY="),
    ];
    for sent in requests {
        let outcome = sent.check(V2_SECRET);
        assert!(outcome.is_ok(), "{} {}: {outcome:?}", sent.method, sent.path);
        assert_eq!(outcome.unwrap().unwrap().0, "0PN5J17HBGZHT7JJ3X82");
        assert_eq!(sent.code("another secret"), Err(Code::SignatureDoesNotMatch));
    }
}

#[test]
fn list_parts_of_the_riak_cs_manual_verifies() {
    let id = "VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA";
    let target = format!("/large.iso?max-parts=2&part-number-marker=1&uploadId={id}");
    let sent = v2("GET", &target, "Mon, 1 Nov 2010 20:34:56 GMT", "YSQi8OsWrSMHmZNM1XhQwL8tnaU=").at_bucket("os");
    assert_eq!(sent.code("SECRET"), Ok(AuthScheme::V2Header));
}

/// Signs a given string to sign.
fn v2_signature(text: &str, secret: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(canonical::hmac_sha1(secret.as_bytes(), text.as_bytes()))
}

#[test]
fn known_readings_of_the_canonical_resource_are_tried() {
    let date = "Tue, 27 Mar 2007 19:36:42 UTC";
    for (target, resource) in [
        ("/b/?acl", "/b?acl?acl"),
        ("/b/?delete", "/b?delete"),
        ("/b?acl", "/b/?acl"),
        ("/b/k?tagging&versionId=1", "/b/k?versionId=1"),
        ("/b/k?tagging&versionId=1", "/b/k?tagging&versionId=1"),
        ("/b/k?response-content-type=a%2Fb", "/b/k?response-content-type=a/b"),
        ("/b/?list-type=2&prefix=x", "/b/?list-type=2"),
        ("/b/?uploads=&prefix=x", "/b/?uploads"),
    ] {
        let signature = v2_signature(&format!("GET\n\n\n{date}\n{resource}"), "s");
        assert!(v2("GET", target, date, &signature).holds("s"), "{target} as {resource}");
    }
    for (target, resource) in
        [("/b/k", "/b/k/"), ("/b/k", "/k"), ("/b/k?acl", "/b/k"), ("/b/k?uploadId=u", "/b/k?uploadId=v")]
    {
        let signature = v2_signature(&format!("GET\n\n\n{date}\n{resource}"), "s");
        assert!(!v2("GET", target, date, &signature).holds("s"), "{target} as {resource}");
    }
}

#[test]
fn white_space_within_a_header_is_signed_verbatim_or_folded() {
    let date = "Tue, 27 Mar 2007 19:36:42 UTC";
    for (value, holds) in [("two  spaces", true), ("two spaces", true), (" two  spaces ", false), ("twospaces", false)]
    {
        let text = format!("PUT\n\n\n{date}\nx-amz-meta-a:{value}\nx-amz-meta-b:1\n/b/k");
        let sent = v2("PUT", "/b/k", date, &v2_signature(&text, "s"));
        let sent = sent.with("x-amz-meta-a", " two  spaces ").with("x-amz-meta-b", "1");
        assert_eq!(sent.holds("s"), holds, "{value:?}");
    }
}

#[test]
fn a_presigned_v2_address_cannot_be_extended() {
    for (method, resource, target) in [
        ("PUT", "/b/k", "/b/k?tagging"),
        ("GET", "/b/k", "/b/k?response-content-type=text%2Fhtml"),
        ("PUT", "/b", "/b?cors"),
        ("PUT", "/b", "/b/?cors"),
        ("PUT", "/b", "/b?publicAccessBlock"),
        ("GET", "/b", "/b?policyStatus"),
        ("GET", "/b/k", "/b/k?versionId=1"),
    ] {
        let signature = v2_signature(&format!("{method}\n\n\n2000000000\n{resource}"), "s").replace('+', "%2B");
        let signed = |target: &str| {
            let mark = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{mark}AWSAccessKeyId=K&Expires=2000000000&Signature={signature}");
            TestRequest::new(method, &target, &[], "20200101T000000Z")
        };
        assert!(signed(resource).holds("s"), "{resource}");
        assert!(!signed(target).holds("s"), "{method} {target}");
    }
}

#[test]
fn headers_moved_into_a_presigned_address_are_restored() {
    let moved = |query: &str, headers: &[(&'static str, &'static str)]| {
        let mut map: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        restore_headers(&S3Query::parse(Some(query)), &mut map).map(|()| map).map_err(|error| error.code)
    };
    let signed = "AWSAccessKeyId=K&Expires=2000000000&Signature=s";
    let restored_headers =
        moved(&format!("{signed}&Content-MD5=m&X-Amz-Acl=private&x-amz-meta-a=b&x-amz-meta-a=c"), &[]).unwrap();
    assert_eq!(
        (restored_headers.len(), &restored_headers["content-md5"], &restored_headers["x-amz-acl"]),
        (4, &"m".parse().unwrap(), &"private".parse().unwrap())
    );
    let kept = moved(&format!("{signed}&x-amz-acl=private"), &[("x-amz-acl", "public-read")]).unwrap();
    assert_eq!(kept.get_all("x-amz-acl").iter().collect::<Vec<_>>(), ["public-read"]);
    for other in ["x-amz-acl=private", "X-Amz-Algorithm=A&AWSAccessKeyId=K&Signature=s&x-amz-acl=private"] {
        assert!(moved(other, &[]).unwrap().is_empty(), "{other}");
    }
    let four = "X-Amz-Algorithm=A&X-Amz-Signature=s&x-amz-meta-a=b&x-amz-checksum-crc32=AAAAAA%3D%3D&content-md5=m";
    let restored_headers = moved(four, &[]).unwrap();
    assert_eq!(
        (restored_headers.len(), &restored_headers["x-amz-meta-a"]),
        (1, &"b".parse().unwrap()),
        "{restored_headers:?}"
    );
    assert!(
        !moved(&format!("{signed}&x-amz-acl=private"), &[("authorization", "AWS K:s")])
            .unwrap()
            .contains_key("x-amz-acl")
    );
    for bad in ["content-type=a%0Ab", "x-amz-meta-a%0Ab=c", "x-amz-meta-a=%00"] {
        assert_eq!(moved(&format!("{signed}&{bad}"), &[]), Err(Code::InvalidArgument), "{bad}");
    }
}

#[test]
fn a_presigned_address_checks_the_body_against_the_hash_in_its_query() {
    let abc = canonical::sha256_hex(b"abc");
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Content-Sha256={abc}&X-Amz-Credential=\
         K%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date={NOW}&X-Amz-Expires=60&X-Amz-SignedHeaders=host"
    );
    let signature = sign_v4("/k", &query, &[("host", "h")], &abc);
    let sent = TestRequest::new("GET", &format!("/k?{query}&X-Amz-Signature={signature}"), &[("host", "h")], NOW);
    for header in [None, Some("UNSIGNED-PAYLOAD"), Some(EMPTY)] {
        let sent = header.map_or_else(|| sent.clone(), |header| sent.clone().with("x-amz-content-sha256", header));
        let checked = sent.check(V4_SECRET).unwrap().unwrap().1;
        assert_eq!(checked.body, canonical::unhex(&abc), "{header:?}");
    }
    assert_eq!(v4_presigned(PRESIGNED).check(V4_SECRET).unwrap().unwrap().1.body, None);
}

#[test]
fn only_headers_signed_in_a_v4_query_are_accepted() {
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date={NOW}\
         &X-Amz-Expires=60&X-Amz-SignedHeaders=host&x-amz-acl=private&x-amz-meta-a=b%20c"
    );
    let signature = sign_v4("/k", &query, &[("host", "h")], "UNSIGNED-PAYLOAD");
    let sent = TestRequest::new("GET", &format!("/k?{query}&X-Amz-Signature={signature}"), &[("host", "h")], NOW);
    let moved = sent.clone().with("x-amz-acl", "private").with("x-amz-meta-a", "b c");
    assert_eq!(moved.code(V4_SECRET), Ok(AuthScheme::V4Query));
    for (name, value) in [("x-amz-acl", "public-read"), ("x-amz-meta-a", "b"), ("x-amz-meta-b", "b c")] {
        assert_eq!(sent.clone().with(name, value).code(V4_SECRET), Err(Code::AccessDenied), "{name}: {value}");
    }
}

#[test]
fn the_dates_of_version_2_are_checked() {
    let sent = puppy();
    for (shift, fine) in [(0i64, true), (899, true), (-899, true), (901, false), (-901, false)] {
        let mut sent = sent.clone();
        sent.now = Timestamp(sent.now.0.checked_add_signed(shift * 1_000_000).unwrap());
        let expected = if fine { Ok(AuthScheme::V2Header) } else { Err(Code::RequestTimeTooSkewed) };
        assert_eq!(sent.code(V2_SECRET), expected, "{shift}");
    }
    for date in ["", "yesterday"] {
        let error = sent.clone().with("date", date).check(V2_SECRET).unwrap_err();
        assert_eq!((error.code, error.message.contains("valid Date or x-amz-date header")), (Code::AccessDenied, true));
    }
    let mut skewed = sent.clone();
    skewed.now += 1_000_000_000;
    let names: Vec<_> = skewed.check(V2_SECRET).unwrap_err().extras.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["RequestTime", "ServerTime", "MaxAllowedSkewMilliseconds"]);
}

#[test]
fn presigned_v2_addresses_verify_until_they_expire() {
    let text = "PUT\nmd5\ntext/plain\n2000000000\nx-amz-acl:public-read\nx-amz-meta-a:b c\n/b/k?versionId=1";
    let signature = v2_signature(text, "s");
    let escaped = percent_encoding::percent_encode(signature.as_bytes(), canonical::QUERY).to_string();
    let target = |signature: &str| {
        format!(
            "/b/k?AWSAccessKeyId=K&Expires=2000000000&Signature={signature}&versionId=1&x-amz-acl=public-read&\
             x-amz-meta-a=b++c&content-md5=md5&Content-Type=text%2Fplain"
        )
    };
    let sent = TestRequest::new("PUT", &target(&escaped), &[], "20200101T000000Z");
    assert_eq!(sent.code("s"), Ok(AuthScheme::V2Query));
    // The plus is not escaped, and one moved header arrives as a real header.
    let plain = TestRequest::new("PUT", &target(&signature), &[("x-amz-acl", "public-read")], "20200101T000000Z");
    assert_eq!(plain.code("s"), Ok(AuthScheme::V2Query));
    assert_eq!(plain.clone().with("x-amz-acl", "private").code("s"), Err(Code::SignatureDoesNotMatch));
    assert_eq!(plain.clone().with("x-amz-copy-source", "/b/other").code("s"), Err(Code::SignatureDoesNotMatch));

    let mut late = sent.clone();
    late.now = Timestamp(2_000_000_001_000_000);
    let error = late.check("s").unwrap_err();
    assert_eq!((error.code, &*error.message), (Code::AccessDenied, "Request has expired"));
    assert_eq!(error.extras[0], ("Expires", "2033-05-18T03:33:20.000Z".to_owned()));
    for query in ["AWSAccessKeyId=K&Signature=x", "Signature=x&Expires=1", "AWSAccessKeyId=K&Signature=x&Expires=soon"]
    {
        let sent = TestRequest::new("GET", &format!("/b/k?{query}"), &[], "20200101T000000Z");
        assert_eq!(sent.code("s"), Err(Code::AccessDenied), "{query}");
    }
}

const V4_SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const NOW: &str = "20130524T000000Z";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn v4(method: &str, target: &str, headers: &[(&str, &str)], signed: &str, signature: &str) -> TestRequest {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},\
         Signature={signature}"
    );
    let mut all =
        vec![("host", "examplebucket.s3.amazonaws.com"), ("x-amz-date", NOW), ("authorization", &authorization)];
    all.extend_from_slice(headers);
    TestRequest::new(method, target, &all, NOW).at_bucket("examplebucket")
}

fn v4_get() -> TestRequest {
    v4(
        "GET",
        "/test.txt",
        &[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)],
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    )
}

fn v4_presigned(signature: &str) -> TestRequest {
    let target = format!(
        "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
         aws4_request&X-Amz-Date={NOW}&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
    );
    TestRequest::new("GET", &target, &[("host", "examplebucket.s3.amazonaws.com")], NOW).at_bucket("examplebucket")
}

const PRESIGNED: &str = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

#[test]
fn the_published_signatures_of_version_4_verify() {
    let plain = "host;x-amz-content-sha256;x-amz-date";
    let empty = [("x-amz-content-sha256", EMPTY)];
    let welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let put = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", welcome),
    ];
    let requests = [
        v4_get(),
        v4(
            "PUT",
            "/test$file.text",
            &put,
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        v4("GET", "/?lifecycle", &empty, plain, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        v4(
            "GET",
            "/?prefix=J&max-keys=2",
            &empty,
            plain,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
        v4_presigned(PRESIGNED),
    ];
    for sent in requests {
        let outcome = sent.check(V4_SECRET);
        assert!(outcome.is_ok(), "{} {}: {outcome:?}", sent.method, sent.path);
        assert_eq!(outcome.unwrap().unwrap().0, "AKIAIOSFODNN7EXAMPLE");
        assert_eq!(sent.code("another secret"), Err(Code::SignatureDoesNotMatch));
    }
}

/// Signs a request with version 4 under the client's own canonical path and query.
fn sign_v4(path: &str, query: &str, signed: &[(&str, &str)], payload: &str) -> String {
    let headers: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<_> = signed.iter().map(|(name, _)| *name).collect();
    let canonical = format!("GET\n{path}\n{query}\n{headers}\n{}\n{payload}", names.join(";"));
    let hash = canonical::sha256_hex(canonical.as_bytes());
    let text = format!("AWS4-HMAC-SHA256\n{NOW}\n20130524/us-east-1/s3/aws4_request\n{hash}");
    let credential = Credential::parse("K/20130524/us-east-1/s3/aws4_request").unwrap();
    hex::encode(canonical::hmac_sha256(&credential.key(V4_SECRET), text.as_bytes()))
}

#[test]
fn a_request_for_directory_buckets_was_said_to_be_malformed() {
    let signed = "AWS4-HMAC-SHA256 Credential=K/20130524/us-east-1/s3express/aws4_request, \
        SignedHeaders=host, Signature=00";
    let request = TestRequest::new("GET", "/", &[("authorization", signed), ("x-amz-date", NOW)], NOW);
    assert_eq!(request.code(V4_SECRET), Err(Code::NotImplemented));
}

#[test]
fn v4_paths_and_queries_are_canonicalised_as_clients_do() {
    let signed = [("host", "h"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", NOW)];
    let names = "host;x-amz-content-sha256;x-amz-date";
    for (target, path, query) in [
        ("/a%20b/%c3%a9", "/a%20b/%C3%A9", ""),
        ("/a*b=(c)", "/a%2Ab%3D%28c%29", ""),
        ("/a*b=(c)", "/a*b=(c)", ""),
        ("//a/./../b", "//a/./../b", ""),
        ("/k?b=2&a=1&a=0&c", "/k", "a=0&a=1&b=2&c="),
        ("/k?x=a+b/%7e", "/k", "x=a%20b%2F~"),
    ] {
        let signature = sign_v4(path, query, &signed, EMPTY);
        let sent = v4("GET", target, &[("x-amz-content-sha256", EMPTY)], names, &signature).with("host", "h");
        assert!(sent.holds(V4_SECRET), "{target} as {path}?{query}");
        assert!(!TestRequest { path: "/other".into(), ..sent }.holds(V4_SECRET));
    }
}

#[test]
fn a_malformed_signature_of_version_4_is_refused_by_name() {
    let sent = v4_get();
    let good = sent.headers["authorization"].to_str().unwrap().to_owned();
    let spaced = sent.clone().with("authorization", &good.replace(',', ",  "));
    assert_eq!(spaced.code(V4_SECRET), Ok(AuthScheme::V4Header));
    let malformed = Code::AuthorizationHeaderMalformed;
    for (from, to, code) in [
        ("SignedHeaders=", "Signed=", malformed),
        ("Credential=", "Cred=", malformed),
        ("Signature=", "Sig=", malformed),
        ("AKIAIOSFODNN7EXAMPLE/", "", malformed),
        ("/20130524/", "/2013052/", malformed),
        ("/20130524/", "/20130525/", malformed),
        ("/s3/", "/ec2/", malformed),
        ("aws4_request", "aws5_request", malformed),
        (",", "", malformed),
        ("host;", "", Code::AccessDenied),
        (";x-amz-date", "", Code::AccessDenied),
        ("f0e8", "f0e9", Code::SignatureDoesNotMatch),
        ("f0e8", "xx", Code::SignatureDoesNotMatch),
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256", Code::InvalidArgument),
        ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA512 ", Code::InvalidArgument),
        ("AWS4-HMAC-SHA256 ", "AWS4-ECDSA-P256-SHA256 ", Code::NotImplemented),
        ("AWS4-HMAC-SHA256 ", "AWS ", Code::InvalidArgument),
    ] {
        let sent = sent.clone().with("authorization", &good.replacen(from, to, 1));
        assert_eq!(sent.code(V4_SECRET), Err(code), "{from} -> {to}");
    }
    assert_eq!(sent.clone().with("x-amz-date", "").code(V4_SECRET), Err(Code::AccessDenied));
    assert_eq!(sent.clone().with("x-amz-content-sha256", "none").code(V4_SECRET), Err(Code::InvalidArgument));
    let mut bare = sent.clone();
    bare.headers.remove("x-amz-content-sha256");
    assert_eq!(bare.code(V4_SECRET), Err(Code::InvalidRequest));
    let both = TestRequest { query: Some("X-Amz-Signature=x".into()), ..sent.clone() };
    assert_eq!(both.code(V4_SECRET), Err(Code::InvalidArgument));
    let elsewhere = TestRequest { region: Some("eu"), ..sent.clone() };
    let error = elsewhere.check(V4_SECRET).unwrap_err();
    assert_eq!((error.code, &error.extras[..]), (malformed, &[("Region", "eu".to_owned())][..]));
    let mut late = sent;
    late.now += 901_000_000;
    assert_eq!(late.code(V4_SECRET), Err(Code::RequestTimeTooSkewed));
}

#[test]
fn unsigned_amz_headers_are_refused() {
    for sent in [v4_get(), v4_presigned(PRESIGNED)] {
        let error = sent.with("x-amz-copy-source", "/b/secret").check(V4_SECRET).unwrap_err();
        assert_eq!(error.code, Code::AccessDenied);
        assert_eq!(error.extras, [("HeadersNotSigned", "x-amz-copy-source".to_owned())]);
    }
    // A presigned address accepts an unsigned hash of the body; the body is still checked against it.
    assert!(v4_presigned(PRESIGNED).with("x-amz-content-sha256", EMPTY).holds(V4_SECRET));
}

#[test]
fn a_mismatch_shows_the_servers_string_to_sign() {
    let error = v4_get().with("range", "bytes=0-8").check(V4_SECRET).unwrap_err();
    let extra = |name: &str| error.extras.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value).unwrap();
    assert!(
        extra("StringToSign").starts_with("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n")
    );
    assert!(extra("CanonicalRequest").contains("range:bytes=0-8\n"));
    assert!(extra("StringToSignBytes").starts_with("41 57 53 34 2d"));
    assert_eq!(extra("AWSAccessKeyId"), "AKIAIOSFODNN7EXAMPLE");
    let error = puppy().with("date", "Tue, 27 Mar 2007 19:36:43 +0000").check(V2_SECRET).unwrap_err();
    let expected = "GET\n\n\nTue, 27 Mar 2007 19:36:43 +0000\n/johnsmith/photos/puppy.jpg".to_owned();
    assert!(error.extras.contains(&("StringToSign", expected)));
}

#[test]
fn presigned_addresses_of_version_4_are_refused_by_name() {
    let wrong = Code::AuthorizationQueryParametersError;
    for (from, to, code) in [
        ("X-Amz-Expires=86400", "X-Amz-Expires=0", wrong),
        ("X-Amz-Expires=86400", "X-Amz-Expires=-1", wrong),
        ("X-Amz-Expires=86400", "X-Amz-Expires=604801", wrong),
        ("X-Amz-Expires=86400", "X-Amz-Expires=soon", wrong),
        ("X-Amz-Expires=86400", "X-Amz-Expires=", wrong),
        ("X-Amz-Expires=86400&", "", wrong),
        ("X-Amz-SignedHeaders=host&", "", wrong),
        ("HMAC-SHA256", "HMAC-SHA512", wrong),
        ("20130524%2F", "20130525%2F", wrong),
        ("X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524", wrong),
        ("%2Fs3%2F", "%2Fiam%2F", wrong),
        ("test", "other", Code::SignatureDoesNotMatch),
        ("X-Amz-Expires=86400", "X-Amz-Expires=86401", Code::SignatureDoesNotMatch),
        ("&X-Amz-Signature=", "&versionId=1&X-Amz-Signature=", Code::SignatureDoesNotMatch),
    ] {
        let mut sent = v4_presigned(PRESIGNED);
        sent.path = sent.path.replace(from, to);
        sent.query = sent.query.map(|query| query.replace(from, to));
        assert_eq!(sent.code(V4_SECRET), Err(code), "{from} -> {to}");
    }
    let mut sent = v4_presigned(PRESIGNED);
    sent.now += 86_400_000_000;
    assert_eq!(sent.code(V4_SECRET), Ok(AuthScheme::V4Query));
    sent.now += 1;
    assert_eq!(sent.check(V4_SECRET).unwrap_err().message, "Request has expired");
    sent.now = sent.now - (86_400_000_001 + 901_000_000);
    assert_eq!(sent.check(V4_SECRET).unwrap_err().message, "Request is not valid yet");
}

#[test]
fn forms_are_signed_in_either_version() {
    let policy = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiIH0=";
    let credential = "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request";
    let key = Credential::parse(credential).unwrap().key(V4_SECRET);
    let in_v4 = hex::encode(canonical::hmac_sha256(&key, policy.as_bytes()));
    let in_v2 = v2_signature(policy, V4_SECRET);
    let four = [
        ("policy", policy),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", credential),
        ("x-amz-date", "20151229T000000Z"),
        ("x-amz-signature", &in_v4),
    ];
    let two = [("policy", policy), ("awsaccesskeyid", "AKIAIOSFODNN7EXAMPLE"), ("signature", &in_v2)];
    for form in [&four[..], &two[..]] {
        let of = |without: &str| {
            let field = |name: &str| {
                form.iter().find(|(field_name, _)| *field_name == name && name != without).map(|(_, value)| *value)
            };
            post::FormSignature::from_fields(field)
        };
        let signature = of("").unwrap().unwrap();
        assert_eq!((signature.access_key.as_str(), signature.policy()), ("AKIAIOSFODNN7EXAMPLE", policy));
        assert!(signature.verify(V4_SECRET).is_ok());
        assert_eq!(signature.verify("other").map_err(|error| error.code), Err(Code::SignatureDoesNotMatch));
        assert!(of("policy").unwrap().is_none());
        for (name, _) in &form[1..] {
            let error = of(name).unwrap_err();
            assert_eq!((error.code, error.extras[0].0), (Code::InvalidArgument, "ArgumentName"), "without {name}");
        }
    }
}

#[test]
fn a_request_without_a_signature_is_anonymous() {
    let sent = TestRequest::new("GET", "/b/k?prefix=Signature", &[("date", "now")], NOW);
    assert!(sent.check("s").unwrap().is_none());
}

proptest! {
    #[test]
    fn mutated_requests_never_panic_and_never_verify(
        what in 0usize..3,
        place in any::<prop::sample::Index>(),
        junk in "[ -~]{0,12}",
        header in "\\PC{0,60}",
        query in "[ -~]{0,60}",
    ) {
        let mut sent = [v4_get(), v4_presigned(PRESIGNED), puppy()][what].clone();
        let secret = if what == 2 { V2_SECRET } else { V4_SECRET };
        let before = (sent.query.clone(), sent.headers.clone());
        if let Some(text) = &mut sent.query {
            let at = place.index(text.len());
            text.replace_range(at..at, &junk);
        } else {
            let mut text = sent.headers["authorization"].to_str().unwrap().to_owned();
            let at = place.index(text.len());
            text.replace_range(at..at, &junk);
            sent.headers.insert("authorization", text.parse().unwrap());
        }
        if let Ok(Some((key, _))) = sent.check(secret) {
            // A surviving change is empty, ignored by the parser, or names another key with another secret.
            let trivial = junk.bytes().all(|byte| matches!(byte, b' ' | b',' | b'&' | b';'));
            let known = ["AKIAIOSFODNN7EXAMPLE", "0PN5J17HBGZHT7JJ3X82"].contains(&&*key);
            prop_assert!(trivial || !known, "{junk} {:?} {:?}", before.0, sent.headers);
        }
        for scheme in ["AWS", "AWS4-HMAC-SHA256", ""] {
            if let Ok(value) = format!("{scheme} {header}").parse() {
                sent.headers.insert("authorization", value);
                sent.query = None;
                let _ = sent.check(secret);
            }
        }
        sent.headers.remove("authorization");
        sent.query = Some(format!("X-Amz-Signature=1&Signature=2&{query}"));
        let _ = sent.check(secret);
    }
}

#[test]
fn an_address_that_this_server_makes_verifies_and_no_other_object_by_it() {
    let root = crate::PublicUrl::parse("http://127.0.0.1:8080").unwrap();
    let now = dates::parse_basic("20261129T000000Z").unwrap();
    let key = "a key/\u{e9}+~'()*".as_bytes();
    for version in [None, Some("null"), Some("v/1+")] {
        let get = PresignedGet { bucket: "cellar", key, version, now, seconds: 3_600, region: None };
        let address = get.address(&root, "AKIA/KEY", "secret");
        let target = address.strip_prefix("http://127.0.0.1:8080").unwrap();
        let request = |target: &str, now| TestRequest::new("GET", target, &[("host", "127.0.0.1:8080")], now);
        assert!(request(target, "20261129T005900Z").holds("secret"), "{address}");
        assert!(!request(target, "20261129T005900Z").holds("another"));
        assert!(!request(&target.replace("cellar", "vault"), "20261129T005900Z").holds("secret"));
        assert!(!request(&target.replace("Expires=3600", "Expires=7200"), "20261129T005900Z").holds("secret"));
        assert!(!request(target, "20261129T010100Z").holds("secret"), "it has expired");
    }
}
