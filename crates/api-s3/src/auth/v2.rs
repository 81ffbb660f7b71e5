//! Signatures of version 2: HMAC-SHA1 over a few headers and the resource.
//!
//! Clients disagree about the canonical resource. The server verifies the signature for the widest reading first, then
//! for the variants of known clients. Each try costs one SHA-1 of some hundred bytes; there are at most nineteen.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_TYPE, HeaderName};
use larder_rows::Timestamp;
use larder_s3_rules::dates;
use subtle::ConstantTimeEq as _;

use super::canonical::{AppendValue, fold, folded, hmac_sha1, joined, trim};
use super::{AuthRequest, AuthScheme, SKEW_MICROS_MAX, VerifiedSignature, expired, mismatch, skewed};
use crate::errors::{Code, S3Error};
use crate::route::is_subresource;
use crate::target::{decode_plus, pairs};

/// Sub-resources that all clients sign.
const SIGNED_BY_ALL: &[&str] = &[
    "acl",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "requestPayment",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Sub-resources that some clients sign as well.
const SIGNED_BY_SOME: &[&str] = &[
    "accelerate",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "inventory",
    "metrics",
    "object-lock",
    "replication",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
];

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Room for most strings to sign.
const SIGNED_BYTES: usize = 256;

/// A parsed version 2 signature, not yet verified.
#[derive(Debug)]
pub struct SignatureV2 {
    /// The access key id.
    pub access_key: String,
    scheme: AuthScheme,
    signature: String,
    /// The date line of the string to sign.
    date_line: Vec<u8>,
}

impl SignatureV2 {
    /// Parses `<access key>:<signature>` and checks the time of the request.
    pub(super) fn from_header(request: &AuthRequest<'_>, credential: &str) -> Result<Self, S3Error> {
        let Some((access_key, signature)) = credential.split_once(':') else {
            let message = "AWS authorization header is invalid. Expected AwsAccessKeyId:signature";
            return Err(S3Error::argument("Authorization", format!("AWS {credential}"), message));
        };
        let moved = request.headers.contains_key("x-amz-date");
        let sent = folded(request.headers, if moved { "x-amz-date" } else { "date" });
        let text = String::from_utf8_lossy(&sent).into_owned();
        let at = dates::parse_any(&text).ok_or_else(missing_date)?;
        if at.abs_diff(request.now) > SKEW_MICROS_MAX {
            return Err(skewed(&text, request.now));
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            scheme: AuthScheme::V2Header,
            signature: signature.to_owned(),
            date_line: if moved { Vec::new() } else { raw_header(request, "date") },
        })
    }

    /// Parses the three parameters of a presigned address.
    pub(super) fn from_query(request: &AuthRequest<'_>) -> Result<Self, S3Error> {
        let parameter = |name: &str| request.query.non_empty(name);
        let (Some(access_key), Some(signature), Some(expires)) =
            (parameter("AWSAccessKeyId"), parameter("Signature"), parameter("Expires"))
        else {
            let message = "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters";
            return Err(S3Error::new(Code::AccessDenied, message));
        };
        let seconds: u64 = expires.parse().map_err(|_| {
            S3Error::new(Code::AccessDenied, "Invalid date (should be seconds since epoch)").with("Expires", expires)
        })?;
        let until = Timestamp(seconds.saturating_mul(1_000_000));
        if request.now > until {
            return Err(expired().with("Expires", dates::iso(until)).with("ServerTime", dates::iso(request.now)));
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            scheme: AuthScheme::V2Query,
            // An unescaped plus was decoded as a space.
            signature: signature.replace(' ', "+"),
            date_line: expires.as_bytes().to_vec(),
        })
    }

    /// Verifies the signature under each reading of the request.
    pub(super) fn verify(self, request: &AuthRequest<'_>, secret: &str) -> Result<VerifiedSignature, S3Error> {
        // The holder of an address could turn a GET into another operation by adding a parameter.
        if let Some(name) = request.query.iter().map(|(name, _)| name).find(|name| self.is_unsigned_subresource(name)) {
            let message = format!("The address was signed without the parameter {name}");
            return Err(S3Error::new(Code::AccessDenied, message));
        }
        let given: Option<[u8; 20]> = STANDARD.decode(&self.signature).ok().and_then(|bytes| bytes.try_into().ok());
        // In constant time: the time of a comparison would tell how many bytes are right.
        let holds = |text: &[u8]| given.is_some_and(|given| hmac_sha1(secret.as_bytes(), text).ct_eq(&given).into());
        // The protocol keeps white space within a value; some clients fold it.
        let mut widest = self.before_resource(request, trim);
        let kept = widest.len();
        add_widest_resource(&mut widest, request);
        // Most clients sign the widest reading; the others cost more to write down than to verify.
        if holds(&widest) || self.holds_in_other_readings(request, &widest[..kept], holds) {
            return Ok(VerifiedSignature { scheme: self.scheme, signer: None, body: None });
        }
        Err(mismatch(&self.access_key, &widest, &self.signature))
    }

    /// Whether the signature holds in one of the readings of some clients.
    fn holds_in_other_readings(&self, request: &AuthRequest<'_>, kept: &[u8], holds: impl Fn(&[u8]) -> bool) -> bool {
        let resources = resources(request, self.scheme == AuthScheme::V2Query);
        let folded = self.before_resource(request, fold);
        let heads = [kept, &folded].into_iter().take(if kept == folded { 1 } else { 2 });
        let mut texts = heads.flat_map(|head| resources.iter().map(move |resource| [head, resource].concat()));
        texts.any(|text| holds(&text))
    }

    /// Whether a parameter selects the operation without being signed. Anyone may hold a presigned address, and must
    /// not turn it into another operation. A client with a header signature signs every request anew.
    fn is_unsigned_subresource(&self, name: &str) -> bool {
        self.scheme == AuthScheme::V2Query && is_subresource(name) && !is_signed(name)
    }

    /// The string to sign before the resource; `append` formats header values.
    fn before_resource(&self, request: &AuthRequest<'_>, append: AppendValue) -> Vec<u8> {
        let presigned = self.scheme == AuthScheme::V2Query;
        let mut text = Vec::with_capacity(SIGNED_BYTES);
        text.extend_from_slice(request.method.as_bytes());
        for name in [CONTENT_MD5, CONTENT_TYPE] {
            text.push(b'\n');
            let moved = |(key, _): &(&str, &str)| presigned && key.eq_ignore_ascii_case(name.as_str());
            match (request.headers.get(&name), request.query.iter().find(moved)) {
                (Some(value), _) => text.extend_from_slice(value.as_bytes()),
                (None, Some((_, value))) => text.extend_from_slice(value.as_bytes()),
                (None, None) => {}
            }
        }
        text.push(b'\n');
        text.extend_from_slice(&self.date_line);
        text.push(b'\n');
        for (name, value) in amz_headers(request, presigned, append) {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            text.extend_from_slice(&value);
            text.push(b'\n');
        }
        text
    }
}

/// 403 with the message that s3cmd matches.
pub(super) fn missing_date() -> S3Error {
    S3Error::new(Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
}

fn raw_header(request: &AuthRequest<'_>, name: &str) -> Vec<u8> {
    request.headers.get(name).map(|value| value.as_bytes().to_vec()).unwrap_or_default()
}

/// The signed headers by name. boto moves them into the query of a presigned address; a real header wins.
fn amz_headers(request: &AuthRequest<'_>, presigned: bool, append: AppendValue) -> BTreeMap<String, Vec<u8>> {
    let mut signed = BTreeMap::new();
    if presigned {
        for (name, value) in request.query.iter() {
            let name = name.to_ascii_lowercase();
            if name.starts_with("x-amz-") {
                let line: &mut Vec<u8> = signed.entry(name).or_default();
                if !line.is_empty() {
                    line.push(b',');
                }
                append(line, value.as_bytes());
            }
        }
    }
    for name in request.headers.keys().map(hyper::header::HeaderName::as_str) {
        if name.starts_with("x-amz-") {
            signed.insert(name.to_owned(), joined(request.headers, name, append));
        }
    }
    signed
}

/// Whether at least some clients sign a sub-resource.
fn is_signed(name: &str) -> bool {
    SIGNED_BY_ALL.contains(&name) || SIGNED_BY_SOME.contains(&name)
}

/// The path with its bucket.
fn whole_path<'a>(request: &AuthRequest<'a>) -> Cow<'a, str> {
    match request.host_bucket {
        Some(bucket) => Cow::Owned(format!("/{bucket}{}", request.path)),
        None => Cow::Borrowed(request.path),
    }
}

/// Appends the canonical resource with every sub-resource that any client signs.
fn add_widest_resource(text: &mut Vec<u8>, request: &AuthRequest<'_>) {
    text.extend_from_slice(whole_path(request).as_bytes());
    text.extend_from_slice(&sub_resources(request.raw_query, is_signed, false));
}

/// The canonical resource in every known reading, the widest first. With `presigned`, only readings that include every
/// sub-resource, because the holder of the address could add one.
fn resources(request: &AuthRequest<'_>, presigned: bool) -> Vec<Vec<u8>> {
    let path = whole_path(request);
    let all = sub_resources(request.raw_query, is_signed, false);
    let some = |name: &str| if presigned { is_signed(name) } else { SIGNED_BY_ALL.contains(&name) };
    let core = sub_resources(request.raw_query, some, false);
    let with_type = sub_resources(request.raw_query, |name| some(name) || name == "list-type", false);
    // botocore signs an empty value with its equals sign.
    let empty = sub_resources(request.raw_query, is_signed, true);
    let mut readings = vec![[path.as_bytes(), &all].concat()];
    for query in [&core, &with_type, &empty] {
        readings.push([path.as_bytes(), query].concat());
    }
    let bare = path.trim_start_matches('/');
    if !bare.is_empty() && bare.find('/').is_none_or(|slash| slash + 1 == bare.len()) {
        // The bucket itself: with and without the trailing slash, and without it with the sub-resource twice.
        let short = path.strip_suffix('/').unwrap_or(&*path);
        for query in [&all, &core] {
            readings.push([short.as_bytes(), query].concat());
            readings.push([short.as_bytes(), b"/", query].concat());
        }
        readings.push([short.as_bytes(), &all, &all].concat());
    }
    let mut seen = Vec::with_capacity(readings.len());
    for reading in readings {
        if !seen.contains(&reading) {
            seen.push(reading);
        }
    }
    seen
}

/// The signed parameters, sorted by name, with decoded values; `keep_empty` keeps the equals sign of empty values.
fn sub_resources(raw_query: Option<&str>, signed: impl Fn(&str) -> bool, keep_empty: bool) -> Vec<u8> {
    let mut parameters = Vec::new();
    for (name, value) in pairs(raw_query.unwrap_or_default()).take(crate::target::PARAMETERS_MAX) {
        let name = decode_plus(name);
        if std::str::from_utf8(&name).is_ok_and(&signed) {
            parameters.push((name, value.map(decode_plus)));
        }
    }
    parameters.sort_by(|pair, other| pair.0.cmp(&other.0));
    let mut text = Vec::new();
    for (name, value) in parameters {
        text.push(if text.is_empty() { b'?' } else { b'&' });
        text.extend_from_slice(&name);
        if let Some(value) = value.filter(|value| keep_empty || !value.is_empty()) {
            text.push(b'=');
            text.extend_from_slice(&value);
        }
    }
    text
}
