//! Headers of encryption by the server: what a request asks for, the key that it brings, and what its answer says.
//!
//! ```text
//! put, form, initiate   choice         part, end of an upload   named        copies   choice or named, and source_key
//! get, head, attributes read_key                                            answers  write_headers
//! ```
//! Order and texts of the refusals are AWS's.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use larder_encryption::SecretKey;
use larder_s3::encryption::EncryptionChoice;
use larder_s3::get::GetObject;
use larder_s3::{Caller, Error};
use larder_s3_rules::ObjectLock;
use larder_s3_rules::checksum::Md5Hasher;
use larder_s3_rules::encryption::EncryptionKind;

use super::listing_document::{first_header, header};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::S3Response;

/// The header of the way, and the beginning of all others.
pub(super) const ENCRYPTION: &str = "x-amz-server-side-encryption";
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const KMS_CONTEXT: &str = "x-amz-server-side-encryption-context";
const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm");
const KEY_MD5: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-key-md5");

/// The one algorithm, of both ways.
const AES256: &str = "AES256";
/// What all texts about customers' keys begin with.
const CUSTOMER: &str = "Requests specifying Server Side Encryption with Customer provided keys must";

/// The three headers with a customer's key.
struct KeyHeaders {
    algorithm: &'static str,
    key: &'static str,
    md5: &'static str,
}

const REQUEST: KeyHeaders = KeyHeaders {
    algorithm: "x-amz-server-side-encryption-customer-algorithm",
    key: "x-amz-server-side-encryption-customer-key",
    md5: "x-amz-server-side-encryption-customer-key-md5",
};
const SOURCE: KeyHeaders = KeyHeaders {
    algorithm: "x-amz-copy-source-server-side-encryption-customer-algorithm",
    key: "x-amz-copy-source-server-side-encryption-customer-key",
    md5: "x-amz-copy-source-server-side-encryption-customer-key-md5",
};

/// The encryption that a write asks for.
///
/// # Errors
/// As [`choice_for`].
pub(super) async fn choice(call: &S3Call) -> Result<EncryptionChoice, S3Error> {
    choice_for(call, &call.caller, &call.key, &call.headers).await
}

/// The encryption that a write of this key asks for, by these headers or fields of a form. A caller who may not write gets that answer,
/// whatever the headers say: policies forbid ways of encryption.
///
/// # Errors
/// 400 for headers that do not fit each other, 501 for KMS; `AccessDenied`.
pub(super) async fn choice_for(
    call: &S3Call,
    caller: &Caller,
    key: &Bytes,
    headers: &HeaderMap,
) -> Result<EncryptionChoice, S3Error> {
    let choice = decode_choice(headers, takes_customer_keys(call));
    if choice.is_err() {
        call.objects.buckets.find_for_put(caller, &call.bucket, key, &[], &ObjectLock::default()).await?;
    }
    choice
}

/// The encryption that a part, or the end of an upload, names.
///
/// # Errors
/// 400 for headers that do not fit each other, 501 for KMS.
pub(super) fn named(call: &S3Call) -> Result<EncryptionChoice, S3Error> {
    decode_choice(&call.headers, takes_customer_keys(call))
}

/// The customer's key of a read. A caller who may not read the object, or an object that is not there, has that answer, whatever the
/// headers say.
///
/// # Errors
/// 400 for headers that do not fit each other, and those of a read.
pub(super) async fn read_key(call: &S3Call, request: &GetObject) -> Result<Option<SecretKey>, S3Error> {
    let key = decode_key(&call.headers, &REQUEST, takes_customer_keys(call));
    if key.is_err()
        && let Err(error) = call.objects.head(&call.caller, request).await
        && !matches!(error, Error::Encryption(_))
    {
        return Err(error.into());
    }
    key
}

/// The customer's key of the source of a copy.
///
/// # Errors
/// 400 for headers that do not fit each other.
pub(super) fn source_key(call: &S3Call) -> Result<Option<SecretKey>, S3Error> {
    decode_key(&call.headers, &SOURCE, takes_customer_keys(call))
}

/// Whether a request names an encryption.
pub(super) fn is_named(headers: &HeaderMap) -> bool {
    first_header(headers, |name| name.starts_with(ENCRYPTION)).is_some()
}

/// Refuses headers of a read that ask for a way: the object has its own.
///
/// # Errors
/// 400 `InvalidArgument`.
pub(super) fn check_read(headers: &HeaderMap) -> Result<(), S3Error> {
    let is_key = |name: &str| [REQUEST.algorithm, REQUEST.key, REQUEST.md5].contains(&name);
    match first_header(headers, |name| name.starts_with(ENCRYPTION) && !is_key(name)) {
        Some(_) => Err(argument("", "x-amz-server-side-encryption header is not supported for this operation.")),
        None => Ok(()),
    }
}

/// Says how the object, upload or part is encrypted. The answer repeats of a customer's key what the request said.
pub(super) fn write_headers(response: &mut S3Response, kind: Option<EncryptionKind>, headers: &HeaderMap) {
    let aes256 = HeaderValue::from_static(AES256);
    match kind {
        None => {}
        Some(EncryptionKind::Server) => {
            response.headers_mut().insert(HeaderName::from_static(ENCRYPTION), aes256);
        }
        Some(EncryptionKind::Customer) => {
            if let Some(md5) = headers.get(&KEY_MD5) {
                response.headers_mut().insert(ALGORITHM, aes256);
                response.headers_mut().insert(KEY_MD5, md5.clone());
            }
        }
    }
}

/// Keys travel in headers, so they take a connection that nobody reads.
fn takes_customer_keys(call: &S3Call) -> bool {
    call.caller.access_context.secure || call.settings.takes_plain_customer_keys
}

fn decode_choice(headers: &HeaderMap, takes_keys: bool) -> Result<EncryptionChoice, S3Error> {
    let way = text(headers, ENCRYPTION);
    let key = [REQUEST.algorithm, REQUEST.key, REQUEST.md5].iter().any(|name| headers.contains_key(*name));
    if let (Some(way), true) = (&way, key) {
        return Err(argument(
            way,
            "Server Side Encryption with Customer provided key is incompatible with the encryption method specified",
        ));
    }
    let is_kms = matches!(way.as_deref(), Some("aws:kms" | "aws:kms:dsse"));
    if let Some(name) = [KMS_KEY, KMS_CONTEXT].into_iter().find(|name| !is_kms && headers.contains_key(*name)) {
        let value = text(headers, name).unwrap_or_default();
        let message = "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms";
        return Err(S3Error::argument(name, value, message));
    }
    match way.as_deref() {
        None => Ok(decode_key(headers, &REQUEST, takes_keys)?
            .map_or(EncryptionChoice::BucketDefault, EncryptionChoice::Customer)),
        Some(AES256) => Ok(EncryptionChoice::Server),
        Some(_) if is_kms => Err(S3Error::header_not_offered(ENCRYPTION)),
        Some(other) => Err(argument(other, "The encryption method specified is not supported")),
    }
}

fn decode_key(headers: &HeaderMap, names: &KeyHeaders, takes_keys: bool) -> Result<Option<SecretKey>, S3Error> {
    let [algorithm, key, md5] = [names.algorithm, names.key, names.md5].map(|name| text(headers, name));
    if algorithm.is_none() && key.is_none() && md5.is_none() {
        return Ok(None);
    }
    if !takes_keys {
        return Err(S3Error::invalid(format!("{CUSTOMER} be made over a secure connection.")));
    }
    let bad = |what: &str| argument("", format!("{CUSTOMER} provide {what}"));
    let algorithm = algorithm.ok_or_else(|| bad("a valid encryption algorithm."))?;
    let key = key.ok_or_else(|| bad("an appropriate secret key."))?;
    if algorithm != AES256 {
        let message = "The Encryption request you specified is not valid. Supported value: AES256.";
        return Err(S3Error::new(Code::InvalidEncryptionAlgorithmError, message)
            .with("ArgumentName", ENCRYPTION)
            .with("ArgumentValue", algorithm));
    }
    let key: [u8; 32] = STANDARD
        .decode(key)
        .ok()
        .and_then(|key| key.try_into().ok())
        .ok_or_else(|| argument("", "The secret key was invalid for the specified algorithm."))?;
    let md5 = md5.ok_or_else(|| bad("the client calculated MD5 of the secret key."))?;
    if STANDARD.decode(md5).ok().as_deref() != Some(&Md5Hasher::digest(&key)) {
        return Err(argument("", "The calculated MD5 hash of the key did not match the hash that was provided."));
    }
    Ok(Some(SecretKey::new(key)))
}

/// The value of a header, also one that is no text: it is there, and asks for something.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.contains_key(name).then(|| header(headers, name).unwrap_or_default().to_owned())
}

fn argument(value: &str, message: impl Into<Cow<'static, str>>) -> S3Error {
    S3Error::argument(ENCRYPTION, value, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(header).collect()
    }

    fn md5() -> String {
        STANDARD.encode(Md5Hasher::digest(&[1; 32]))
    }

    fn refusal(pairs: &[(&'static str, &str)]) -> (String, String) {
        let error = decode_choice(&headers(pairs), true).unwrap_err();
        (error.code.name().to_owned(), error.message.to_string())
    }

    #[test]
    fn the_ways_of_a_write() {
        let choice = |pairs| decode_choice(&headers(pairs), true).unwrap();
        assert_eq!(choice(&[]), EncryptionChoice::BucketDefault);
        assert_eq!(choice(&[(ENCRYPTION, "AES256")]), EncryptionChoice::Server);
        assert_eq!(
            choice(&[("x-amz-server-side-encryption-bucket-key-enabled", "true")]),
            EncryptionChoice::BucketDefault
        );
        let key = [(REQUEST.algorithm, "AES256"), (REQUEST.key, KEY), (REQUEST.md5, &*md5())];
        assert_eq!(choice(&key), EncryptionChoice::Customer(SecretKey::new([1; 32])));
        let refused = decode_choice(&headers(&key), false).unwrap_err();
        assert!(refused.message.ends_with("must be made over a secure connection."), "{}", refused.message);
    }

    #[test]
    fn headers_that_do_not_fit_are_refused_in_the_order_of_aws() {
        let md5 = md5();
        let (algorithm, key, md5) = ((REQUEST.algorithm, "AES256"), (REQUEST.key, KEY), (REQUEST.md5, &*md5));
        for (pairs, code, message) in [
            (vec![(ENCRYPTION, "AES256"), key], "InvalidArgument", "is incompatible with"),
            (vec![(ENCRYPTION, "aws:kms"), key], "InvalidArgument", "is incompatible with"),
            (vec![key, md5], "InvalidArgument", "must provide a valid encryption algorithm."),
            (vec![algorithm, md5], "InvalidArgument", "must provide an appropriate secret key."),
            (vec![(REQUEST.algorithm, "AES192")], "InvalidArgument", "an appropriate secret key."),
            (vec![(REQUEST.algorithm, "AES192"), (REQUEST.key, "x")], "InvalidEncryptionAlgorithmError", "AES256."),
            (vec![algorithm, (REQUEST.key, "c2hvcnQ=")], "InvalidArgument", "The secret key was invalid"),
            (vec![algorithm, key], "InvalidArgument", "the client calculated MD5"),
            (vec![algorithm, key, (REQUEST.md5, "eA==")], "InvalidArgument", "did not match the hash"),
            (vec![(ENCRYPTION, "aws:kms")], "NotImplemented", ""),
            (vec![(ENCRYPTION, "aws:kms:dsse"), (KMS_KEY, "k")], "NotImplemented", ""),
            (vec![(KMS_KEY, "k")], "InvalidArgument", "requires HTTP header"),
            (vec![(ENCRYPTION, "AES256"), (KMS_KEY, "k")], "InvalidArgument", "requires HTTP header"),
            (vec![(ENCRYPTION, "AES256"), (KMS_CONTEXT, "k")], "InvalidArgument", "requires HTTP header"),
            (vec![(ENCRYPTION, "aes:kms")], "InvalidArgument", "not supported"),
            (vec![(ENCRYPTION, "")], "InvalidArgument", "not supported"),
        ] {
            let refused = refusal(&pairs);
            assert!(refused.0 == code && refused.1.contains(message), "{pairs:?}: {refused:?}");
        }
    }

    #[test]
    fn answers_repeat_what_the_request_said_of_its_key() {
        let written = |kind, pairs: &[_]| {
            let mut response = crate::response::empty(hyper::StatusCode::OK);
            write_headers(&mut response, kind, &headers(pairs));
            response
                .headers()
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(written(None, &[(REQUEST.md5, "m")]), Vec::<String>::new());
        assert_eq!(written(Some(EncryptionKind::Server), &[]), ["x-amz-server-side-encryption: AES256"]);
        assert_eq!(written(Some(EncryptionKind::Customer), &[]), Vec::<String>::new());
        assert_eq!(
            written(Some(EncryptionKind::Customer), &[(REQUEST.md5, "m"), (REQUEST.key, KEY)]),
            [
                "x-amz-server-side-encryption-customer-algorithm: AES256",
                "x-amz-server-side-encryption-customer-key-md5: m"
            ]
        );
    }

    #[test]
    fn a_read_may_bring_a_key_and_nothing_else() {
        assert!(check_read(&headers(&[(REQUEST.key, KEY), (REQUEST.md5, "m")])).is_ok());
        for name in [ENCRYPTION, KMS_KEY, KMS_CONTEXT] {
            assert_eq!(check_read(&headers(&[(name, "AES256")])).unwrap_err().code.name(), "InvalidArgument");
        }
    }
}
