//! Checksums in headers and documents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use larder_s3::Error;
use larder_s3::put::ChecksumWanted;
use larder_s3_rules::checksum::{ChecksumHasher, Md5Hasher};
use larder_s3_rules::{Algorithm, Checksum, ChecksumKind};

use super::listing_document;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

/// Prefix of checksum headers.
const PREFIX: &str = "x-amz-checksum-";
/// Headers with this prefix that carry no checksum.
const NO_CHECKSUM: &[&str] = &["x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode"];
/// The algorithm that the client's SDK used.
const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";

/// The algorithm of a multipart upload or a copy.
pub(crate) const ALGORITHM: &str = "x-amz-checksum-algorithm";
/// Whether the checksum covers all bytes or the checksums of the parts.
pub(crate) const TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");

/// The expected MD5 of the body.
///
/// # Errors
/// 400 `InvalidDigest`.
pub(crate) fn md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let digest = STANDARD.decode(value.as_bytes()).ok().and_then(|digest| <[u8; 16]>::try_from(digest).ok());
    let bad = || S3Error::from(Code::InvalidDigest).with("Content-MD5", String::from_utf8_lossy(value.as_bytes()));
    digest.map(Some).ok_or_else(bad)
}

/// The checksum in the headers, at most one.
///
/// # Errors
/// 400 `InvalidRequest` for several checksums, an invalid one, or a wrong algorithm; 501 for an unknown algorithm.
pub(crate) fn given(headers: &HeaderMap) -> Result<Option<Checksum>, S3Error> {
    let mut single_checksum: Option<Checksum> = None;
    let is_checksum = |name: &str| name.starts_with(PREFIX) && !NO_CHECKSUM.contains(&name);
    let mut checksums: Vec<_> = headers.iter().filter(|(name, _)| is_checksum(name.as_str())).collect();
    // The order of a request's headers does not choose its answer.
    checksums.sort_by(|(left, _), (right, _)| left.as_str().cmp(right.as_str()));
    for (name, value) in checksums {
        let Some(algorithm) = Algorithm::from_header(name.as_str()) else {
            return Err(S3Error::header_not_offered(name.as_str()));
        };
        let invalid = || S3Error::invalid(format!("Value for {name} header is invalid."));
        let text = value.to_str().map_err(|_| invalid())?;
        let checksum = Checksum::parse(algorithm, text).ok_or_else(invalid)?;
        // Two checksums could contradict each other after the bytes are stored.
        if single_checksum.replace(checksum).is_some() {
            return Err(S3Error::invalid(
                "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            ));
        }
    }
    Ok(single_checksum)
}

/// The expected checksum of an upload.
///
/// # Errors
/// As [`given`], and if an announced checksum is missing.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<ChecksumWanted, S3Error> {
    let announced = announced(headers)?;
    let requested_checksum = match (given(headers)?, trailing(headers)?) {
        (Some(_), Some(_)) => {
            return Err(S3Error::invalid("Expecting a single x-amz-checksum- header or trailer."));
        }
        (Some(checksum), None) if checksum.parts.is_some() => {
            return Err(S3Error::invalid(format!("Value for {} header is invalid.", checksum.algorithm.header())));
        }
        (Some(checksum), None) => ChecksumWanted::Given(checksum),
        (None, Some(algorithm)) => ChecksumWanted::Trailing(algorithm),
        (None, None) => ChecksumWanted::Default,
    };
    let provided = match &requested_checksum {
        ChecksumWanted::Given(checksum) => Some(checksum.algorithm),
        ChecksumWanted::Trailing(algorithm) | ChecksumWanted::Compute(algorithm) => Some(*algorithm),
        ChecksumWanted::Default => None,
    };
    match (announced, provided) {
        (Some(_), None) => Err(S3Error::invalid(
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers \
             were found.",
        )),
        (Some(announced), Some(provided)) if announced != provided => {
            Err(S3Error::invalid("Value for x-amz-sdk-checksum-algorithm header is invalid."))
        }
        _ => Ok(requested_checksum),
    }
}

/// The algorithm in `x-amz-checksum-algorithm`.
///
/// # Errors
/// 400 `InvalidRequest` for an unknown algorithm.
pub(crate) fn algorithm(headers: &HeaderMap) -> Result<Option<Algorithm>, S3Error> {
    let unsupported = || {
        let mut names = Algorithm::ALL.map(Algorithm::name);
        names.sort_unstable();
        let names = names.join(", ");
        S3Error::invalid(format!(
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [{names}]"
        ))
    };
    let name = listing_document::header(headers, ALGORITHM);
    name.map(|name| Algorithm::from_name(name).ok_or_else(unsupported)).transpose()
}

/// The kind in `x-amz-checksum-type`.
///
/// # Errors
/// 400 `InvalidRequest` for an unknown kind.
pub(crate) fn kind(headers: &HeaderMap) -> Result<Option<ChecksumKind>, S3Error> {
    let name = listing_document::header(headers, TYPE.as_str());
    known(name, ChecksumKind::from_name, "Value for x-amz-checksum-type header is invalid.")
}

/// Verifies a document against the digests in the headers.
///
/// # Errors
/// 400 `InvalidDigest`, `InvalidRequest`, `BadDigest`.
pub(crate) fn check(headers: &HeaderMap, document: &[u8]) -> Result<(), S3Error> {
    let (md5, checksum) = (md5(headers)?, given(headers)?);
    if md5.is_some_and(|md5| md5 != Md5Hasher::digest(document)) {
        return Err(Error::BadDigest.into());
    }
    match checksum {
        Some(checksum) if ChecksumHasher::digest(checksum.algorithm, document) != checksum => {
            Err(Error::BadChecksum(checksum.algorithm.name()).into())
        }
        _ => Ok(()),
    }
}

/// Writes a checksum into the headers of a response, with the kind of the object's checksum.
pub(crate) fn write_headers(response: &mut S3Response, checksum: &Checksum, of_object: ChecksumKind) {
    response::set(response, HeaderName::from_static(checksum.algorithm.header()), checksum.text());
    response.headers_mut().insert(TYPE, HeaderValue::from_static(of_object.name()));
}

/// Writes a checksum into a document.
pub(crate) fn write(xml: &mut XmlWriter, checksum: Option<&Checksum>) {
    let Some(checksum) = checksum else { return };
    xml.text(checksum.algorithm.element(), checksum.text()).text("ChecksumType", checksum.kind().name());
}

fn announced(headers: &HeaderMap) -> Result<Option<Algorithm>, S3Error> {
    let name = listing_document::header(headers, SDK_ALGORITHM);
    known(name, Algorithm::from_name, "Value for x-amz-sdk-checksum-algorithm header is invalid.")
}

/// The algorithm of a trailing checksum.
fn trailing(headers: &HeaderMap) -> Result<Option<Algorithm>, S3Error> {
    let name = listing_document::header(headers, "x-amz-trailer").filter(|name| !name.is_empty());
    known(name, Algorithm::from_header, "The value specified in the x-amz-trailer header is not supported")
}

/// Parses a header's value; an unknown one is refused with `message`.
fn known<T>(
    value: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
    message: &'static str,
) -> Result<Option<T>, S3Error> {
    value.map(|value| parse(value).ok_or_else(|| S3Error::invalid(message))).transpose()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn the_expected_checksum_is_read_from_headers() {
        let crc = Checksum::full(Algorithm::Crc32, vec![0, 0, 0, 0].into());
        let good: &[(&[(&str, &str)], ChecksumWanted)] = &[
            (&[], ChecksumWanted::Default),
            (&[("x-amz-checksum-mode", "ENABLED")], ChecksumWanted::Default),
            (&[("x-amz-checksum-crc32", "AAAAAA==")], ChecksumWanted::Given(crc.clone())),
            (
                &[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "crc32")],
                ChecksumWanted::Given(crc),
            ),
            (
                &[("x-amz-trailer", "x-amz-checksum-crc64nvme"), ("x-amz-sdk-checksum-algorithm", "CRC64NVME")],
                ChecksumWanted::Trailing(Algorithm::Crc64Nvme),
            ),
        ];
        for (given, expected) in good {
            let given: Vec<_> = given.iter().map(|(name, value)| (*Box::leak(Box::new(*name)), *value)).collect();
            assert_eq!(wanted(&headers(&given)).unwrap(), *expected, "{given:?}");
        }
    }

    #[test]
    fn contradictory_checksum_headers_are_refused() {
        let bad: &[(&[(&'static str, &str)], &str)] = &[
            (&[("x-amz-checksum-crc32", "AAAAAA==-2")], "InvalidRequest"),
            (&[("x-amz-checksum-crc32", "AAAA")], "InvalidRequest"),
            (&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")], "InvalidRequest"),
            (&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-trailer", "x-amz-checksum-crc32")], "InvalidRequest"),
            (&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "SHA1")], "InvalidRequest"),
            (&[("x-amz-sdk-checksum-algorithm", "SHA1")], "InvalidRequest"),
            (&[("x-amz-sdk-checksum-algorithm", "ROT13")], "InvalidRequest"),
            (&[("x-amz-trailer", "x-amz-meta-a")], "InvalidRequest"),
            (&[("x-amz-checksum-xxhash64", "AAAAAA==")], "InvalidRequest"),
            (&[("x-amz-checksum-sha3", "AAAAAA==")], "NotImplemented"),
            (
                &[("x-amz-checksum-md5", "XrY7u+Ae7tCTyyK7j1rNww=="), ("x-amz-trailer", "x-amz-checksum-md5")],
                "InvalidRequest",
            ),
        ];
        for (given, code) in bad {
            assert_eq!(wanted(&headers(given)).unwrap_err().code.name(), *code, "{given:?}");
        }
    }

    #[test]
    fn documents_are_checked_against_their_digests() {
        let hello = b"hello";
        let with = |name: &'static str, value: &str| {
            check(&headers(&[(name, value)]), hello).map_err(|error| error.code.name())
        };
        assert!(check(&HeaderMap::new(), hello).is_ok());
        assert_eq!(with("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="), Ok(()));
        assert_eq!(with("content-md5", "AUFAKrxLKna5cZ2REBfFkg=="), Err("BadDigest"));
        assert_eq!(with("content-md5", "XUFA"), Err("InvalidDigest"));
        assert_eq!(with("x-amz-checksum-crc32", "NhCmhg=="), Ok(()));
        assert_eq!(with("x-amz-checksum-crc32", "AAAAAA=="), Err("BadDigest"));
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(value: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            for name in ["x-amz-checksum-sha1", "x-amz-trailer", SDK_ALGORITHM, "content-md5", ALGORITHM] {
                let headers: HeaderMap = [(HeaderName::from_static(name), value.clone())].into_iter().collect();
                let _ = (wanted(&headers), check(&headers, b""), algorithm(&headers), kind(&headers));
            }
        }
    }
}
