//! Signatures of requests to a source: version 4 in a header, over an empty body.

use larder_api_s3::auth::{ALGORITHM, Credential, QUERY, SignedService};
use larder_rows::Timestamp;
use larder_s3_rules::dates;
use percent_encoding::percent_encode;

use crate::source_http::{CallHeaders, SourceRequest};

/// SHA-256 of no bytes, in hexadecimal digits.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The access key that signs, and the region that it signs for.
#[derive(Clone, Copy)]
pub(super) struct CallSigner<'a> {
    pub(super) key: &'a str,
    pub(super) secret: &'a str,
    pub(super) region: &'a str,
}

/// The parts of a request without a body that a signature covers.
#[derive(Clone, Copy)]
pub(super) struct CallToSign<'a> {
    pub(super) method: SourceRequest,
    /// As the request names it: without the port that its scheme implies.
    pub(super) host: &'a str,
    /// The path as it is sent: all is encoded but letters, digits and `-._~/`.
    pub(super) path: &'a str,
    /// The query as it is sent, made by [`canonical_query`].
    pub(super) query: &'a str,
    /// Further headers, names in lower case, values without blanks at their ends. All of them are signed.
    pub(super) headers: &'a [(&'static str, &'a str)],
}

impl CallSigner<'_> {
    /// The headers of a request that is sent at this time, besides `Host`.
    pub(super) fn headers(&self, call: CallToSign<'_>, now: Timestamp) -> CallHeaders {
        let date = dates::basic(now);
        let mut headers: CallHeaders =
            vec![("x-amz-content-sha256", EMPTY_SHA256.to_owned()), ("x-amz-date", date.clone())];
        headers.extend(call.headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let mut signed: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        signed.push(("host", call.host));
        signed.sort_unstable();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let method = call.method.name();
        let canonical = format!("{method}\n{}\n{}\n{lines}\n{names}\n{EMPTY_SHA256}", call.path, call.query);
        let credential = Credential {
            access_key: self.key.to_owned(),
            day: date.get(..8).unwrap_or_default().to_owned(),
            region: self.region.to_owned(),
            service: SignedService::S3.name(),
        };
        let authorization = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={names}, Signature={}",
            self.key,
            credential.scope(),
            credential.sign(self.secret, &date, canonical.as_bytes())
        );
        headers.push(("authorization", authorization));
        headers
    }
}

/// A query in the form that is signed: encoded, in order, and each name with a value.
pub(super) fn canonical_query(pairs: &[(&str, &[u8])]) -> String {
    let encoded = |bytes: &[u8]| percent_encode(bytes, QUERY).to_string();
    let mut pairs: Vec<_> = pairs.iter().map(|(name, value)| (encoded(name.as_bytes()), encoded(value))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};
    use larder_api_s3::auth::{AuthRequest, PATH, RequestSignature, SigningKeys};
    use larder_api_s3::target::S3Query;
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const SIGNER: CallSigner<'static> = CallSigner { key: "AKIAIOSFODNN7EXAMPLE", secret: SECRET, region: "us-east-1" };
    const CALL: CallToSign<'static> = CallToSign {
        method: SourceRequest::Get,
        host: "examplebucket.s3.amazonaws.com",
        path: "/",
        query: "",
        headers: &[],
    };

    fn now() -> Timestamp {
        dates::parse_basic("20130524T000000Z").unwrap()
    }

    fn authorization(headers: &CallHeaders) -> &str {
        &headers.iter().find(|(name, _)| *name == "authorization").unwrap().1
    }

    #[test]
    fn the_published_signatures_of_reads_are_made() {
        let listing = canonical_query(&[("prefix", b"J"), ("max-keys", b"2")]);
        assert_eq!(listing, "max-keys=2&prefix=J");
        let lifecycle = canonical_query(&[("lifecycle", b"")]);
        for (call, names, signature) in [
            (
                CallToSign { path: "/test.txt", headers: &[("range", "bytes=0-9")], ..CALL },
                "host;range;x-amz-content-sha256;x-amz-date",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                CallToSign { query: &lifecycle, ..CALL },
                "host;x-amz-content-sha256;x-amz-date",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                CallToSign { query: &listing, ..CALL },
                "host;x-amz-content-sha256;x-amz-date",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let headers = SIGNER.headers(call, now());
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(authorization(&headers), expected);
        }
    }

    /// Whether the verifier of this server accepts a request as it arrives.
    fn is_accepted(method: &str, host: &str, path: &str, query: &str, headers: &CallHeaders) -> bool {
        let mut map = HeaderMap::new();
        map.insert("host", host.parse().unwrap());
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let raw_query = Some(query).filter(|query| !query.is_empty());
        let request = AuthRequest {
            method,
            path,
            raw_query,
            query: &S3Query::parse(raw_query),
            headers: &map,
            host: None,
            other_hosts: [None, None],
            host_bucket: None,
            now: now(),
            region: Some(SIGNER.region),
            service: SignedService::S3,
        };
        let signature = RequestSignature::from_request(&request).unwrap().unwrap();
        signature.access_key() == SIGNER.key && signature.verify(&request, SECRET, &SigningKeys::default()).is_ok()
    }

    fn check(key: &[u8], id: &[u8], method: SourceRequest) {
        let path = format!("/box/{}", percent_encode(key, PATH));
        let query = canonical_query(&[("versionId", id), ("key-marker", key), ("versions", b"")]);
        let headers = &[("x-amz-checksum-mode", "ENABLED")];
        let call = CallToSign { method, host: "h:9000", path: &path, query: &query, headers };
        let signed = SIGNER.headers(call, now());
        let accepts = |method, host, path: &str, query: &str| is_accepted(method, host, path, query, &signed);
        assert!(accepts(method.name(), "h:9000", &path, &query), "{}", key.escape_ascii());
        // What is not as it was signed is refused.
        assert!(!accepts("PUT", "h:9000", &path, &query) && !accepts(method.name(), "h", &path, &query));
        assert!(!accepts(method.name(), "h:9000", &format!("{path}x"), &query));
        assert!(!accepts(method.name(), "h:9000", &path, &query.replace("versions=", "versions=1")));
    }

    #[test]
    fn odd_keys_are_signed_as_a_server_reads_them() {
        let keys =
            ["a b", "a+b", "100%", "%2F", "é/ü", "日本", "//a//", "~-._", "a?b=c&d", "/", ".", "../x", "a\u{1}\n"];
        for key in keys {
            check(key.as_bytes(), b"null", SourceRequest::Get);
            check(key.as_bytes(), "v+/= ~é".as_bytes(), SourceRequest::Head);
        }
    }

    proptest! {
        #[test]
        fn any_key_is_signed_as_a_server_reads_it(key in proptest::collection::vec(any::<u8>(), 1..40)) {
            // The query of a request is text.
            check(&key, b"1", SourceRequest::Get);
        }
    }
}
