//! Version 4 signatures: HMAC-SHA256 over the canonical request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use larder_rows::Timestamp;
use larder_s3_rules::dates;
use parking_lot::Mutex;
use percent_encoding::percent_encode;
use subtle::ConstantTimeEq as _;

use super::canonical::{PATH, QUERY, append_joined, fold, folded, hmac_sha256, unhex};
use super::credential::{ALGORITHM, Credential};
use super::{
    AuthRequest, AuthScheme, CONTENT_SHA256, ChunkSigner, Payload, SKEW_MICROS_MAX, SignedService, VerifiedSignature,
    expired, mismatch, skewed, spaced_hex, v2,
};
use crate::errors::{Code, S3Error};
use crate::target::{decode, decode_plus, pairs};

/// The service of requests for directory buckets.
const DIRECTORY_BUCKETS: &str = "s3express";
/// Longest validity of a presigned address, in seconds.
const EXPIRES_MAX: u64 = 604_800;
/// The payload hash of an unsigned body.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Most signed headers of a signature.
const SIGNED_HEADERS_MAX: usize = 256;
/// Room for most canonical requests.
const CANONICAL_BYTES: usize = 512;

/// A parsed version 4 signature, not yet verified.
#[derive(Debug)]
pub struct SignatureV4 {
    /// The access key and scope.
    pub credential: Credential,
    scheme: AuthScheme,
    /// The time of signing, `20060102T150405Z`.
    date: String,
    /// Names in lower case, separated by semicolons; none is empty.
    signed_headers: String,
    signature: String,
    /// Payload hashes to try: a presigned address may be signed with or without the body's hash.
    payloads: Vec<String>,
}

impl SignatureV4 {
    /// Parses `Credential=…, SignedHeaders=…, Signature=…`, and the headers with date and payload hash.
    pub(super) fn from_header(request: &AuthRequest<'_>, text: &str) -> Result<Self, S3Error> {
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| malformed_header("a component has no value."))?;
            match name {
                "Credential" => credential = Some(value),
                "SignedHeaders" => signed_headers = Some(value),
                "Signature" => signature = Some(value),
                _ => return Err(malformed_header(&format!("unknown component {name}."))),
            }
        }
        let missing = |name: &str| malformed_header(&format!("missing {name}."));
        let credential = credential.filter(|value| !value.is_empty()).ok_or_else(|| missing("Credential"))?;
        let signed_headers =
            signed_headers.filter(|value| !value.is_empty()).ok_or_else(|| missing("SignedHeaders"))?;
        let signature = signature.filter(|value| !value.is_empty()).ok_or_else(|| missing("Signature"))?;
        check_service(credential)?;
        let credential = Credential::parse_for(request.service, credential).map_err(malformed_header)?;
        check_region(&credential, request.region).map_err(|error| error(Code::AuthorizationHeaderMalformed))?;
        let (at, sent) = header_date(request)?;
        // Most clients send the date in the form that is signed.
        let date = if dates::parse_basic(&sent).is_some() { sent.clone() } else { dates::basic(at) };
        // The signing key is of one day: it must not sign requests of another.
        if !date.starts_with(&credential.day) {
            let message =
                format!("invalid credential date \"{}\". This date is not the one of the request.", credential.day);
            return Err(malformed_header(&message));
        }
        // A request that was recorded may be sent again within this time only.
        if at.abs_diff(request.now) > SKEW_MICROS_MAX {
            return Err(skewed(&sent, request.now));
        }
        let payload = signed_payload(request)?;
        Ok(Self {
            credential,
            scheme: AuthScheme::V4Header,
            date,
            signed_headers: header_names(signed_headers)?,
            signature: signature.to_owned(),
            payloads: vec![payload],
        })
    }

    /// Parses the parameters of a presigned address.
    pub(super) fn from_query(request: &AuthRequest<'_>) -> Result<Self, S3Error> {
        let get = |name: &str| {
            request.query.non_empty(name).ok_or_else(|| {
                malformed_query(
                    "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
                       X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
                )
            })
        };
        let (algorithm, credential, signature) =
            (get("X-Amz-Algorithm")?, get("X-Amz-Credential")?, get("X-Amz-Signature")?);
        let (date, signed_headers, expires) = (get("X-Amz-Date")?, get("X-Amz-SignedHeaders")?, get("X-Amz-Expires")?);
        if algorithm != ALGORITHM {
            return Err(malformed_query("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        check_service(credential)?;
        let credential = Credential::parse(credential)
            .map_err(|what| malformed_query(&format!("Error parsing the X-Amz-Credential parameter; {what}")))?;
        check_region(&credential, request.region).map_err(|error| error(Code::AuthorizationQueryParametersError))?;
        let at = dates::parse_basic(date)
            .ok_or_else(|| malformed_query("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
        if !date.starts_with(&credential.day) {
            return Err(malformed_query("Invalid credential date. This date is not the same as X-Amz-Date."));
        }
        check_validity_period(at, expires, request.now)?;
        let mut payloads: Vec<String> = Vec::with_capacity(3);
        let header = request.headers.get(CONTENT_SHA256).and_then(|value| value.to_str().ok());
        // Clients sign the address with the body's hash, with the header's, or without any.
        for payload in [request.query.get("X-Amz-Content-Sha256"), header, Some(UNSIGNED)].into_iter().flatten() {
            payloads.push(payload.to_owned());
        }
        Ok(Self {
            credential,
            scheme: AuthScheme::V4Query,
            date: date.to_owned(),
            signed_headers: header_names(signed_headers)?,
            signature: signature.to_owned(),
            payloads,
        })
    }

    /// Verifies the signature.
    pub(super) fn verify(
        self,
        request: &AuthRequest<'_>,
        secret: &str,
        keys: &SigningKeys,
    ) -> Result<VerifiedSignature, S3Error> {
        self.check_all_headers_signed(request)?;
        let (key, fresh) = keys.key_for(&self.credential, secret);
        let given = unhex(&self.signature);
        let decoded = decode(request.path);
        let encoded: Cow<'_, str> = percent_encode(&decoded, PATH).into();
        // Some clients sign the path exactly as sent, without escaping reserved characters.
        let as_sent = (encoded != request.path).then_some(request.path);
        for path in [Some(&*encoded), as_sent].into_iter().flatten() {
            for (host, payload) in
                signed_hosts(request).flat_map(|host| self.payloads.iter().map(move |text| (host, text)))
            {
                let text =
                    self.credential.string_to_sign(&self.date, &self.canonical_request(request, path, host, payload));
                // In constant time: the time of a comparison would tell how many bytes are right.
                if given.is_some_and(|given| hmac_sha256(&key, text.as_bytes()).ct_eq(&given).into()) {
                    let body = unhex(payload);
                    if fresh {
                        keys.keep(&self.credential, secret, key);
                    }
                    return Ok(self.into_verified(key, body));
                }
            }
        }
        let canonical = self.canonical_request(request, &encoded, None, &self.payloads[0]);
        let text = self.credential.string_to_sign(&self.date, &canonical);
        Err(mismatch(&self.credential.access_key, text.as_bytes(), &self.signature)
            .with("CanonicalRequest", String::from_utf8_lossy(&canonical))
            .with("CanonicalRequestBytes", spaced_hex(&canonical)))
    }

    fn into_verified(self, key: [u8; 32], body: Option<[u8; 32]>) -> VerifiedSignature {
        let scope = self.credential.scope();
        VerifiedSignature {
            scheme: self.scheme,
            signer: Some(ChunkSigner::new(key, self.date, scope, self.signature)),
            body,
        }
    }

    /// Refuses unsigned `x-amz-` headers: the holder of a presigned PUT could turn it into a copy by adding one.
    fn check_all_headers_signed(&self, request: &AuthRequest<'_>) -> Result<(), S3Error> {
        let signed = |name: &str| self.signed_names().any(|signed_name| signed_name == name);
        let mut unsigned: Vec<&str> = Vec::new();
        if !signed("host") {
            unsigned.push("host");
        }
        for name in request.headers.keys().map(hyper::header::HeaderName::as_str) {
            if name.starts_with("x-amz-")
                && name != CONTENT_SHA256
                && !signed(name)
                && !is_signed_in_query(request, name)
            {
                unsigned.push(name);
            }
        }
        if unsigned.is_empty() {
            return Ok(());
        }
        let message = "There were headers present in the request which were not signed";
        Err(S3Error::new(Code::AccessDenied, message).with("HeadersNotSigned", unsigned.join(", ")))
    }

    fn signed_names(&self) -> impl Iterator<Item = &str> {
        self.signed_headers.split(';').filter(|name| !name.is_empty())
    }

    /// The signed text. `host` stands for the header `Host`, where it is given.
    fn canonical_request(&self, request: &AuthRequest<'_>, path: &str, host: Option<&str>, payload: &str) -> Vec<u8> {
        let mut text = Vec::with_capacity(CANONICAL_BYTES);
        for line in [request.method, path, &canonical_query(request.raw_query)] {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        for name in self.signed_names() {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            let absent = || request.host.filter(|_| !request.headers.contains_key("host"));
            match host.or_else(absent) {
                Some(host) if name == "host" => {
                    text.extend_from_slice(host.as_bytes());
                }
                _ => append_joined(&mut text, request.headers, name, fold),
            }
            text.push(b'\n');
        }
        text.push(b'\n');
        text.extend_from_slice(self.signed_headers.as_bytes());
        text.push(b'\n');
        text.extend_from_slice(payload.as_bytes());
        text
    }
}

/// The hosts that the client may have signed: the one of the request, as `None`, then those that proxies and settings name.
fn signed_hosts<'a>(request: &AuthRequest<'a>) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
    let asked = request.host;
    let others = request.other_hosts.into_iter().flatten().filter(move |host| asked != Some(*host));
    std::iter::once(None).chain(others.map(Some))
}

/// The time of a header-signed request, and its text.
fn header_date(request: &AuthRequest<'_>) -> Result<(Timestamp, String), S3Error> {
    let name = if request.headers.contains_key("x-amz-date") { "x-amz-date" } else { "date" };
    let text = String::from_utf8_lossy(&folded(request.headers, name)).into_owned();
    dates::parse_any(&text).map(|at| (at, text)).ok_or_else(v2::missing_date)
}

/// The payload hash that a signature in a header covers.
fn signed_payload(request: &AuthRequest<'_>) -> Result<String, S3Error> {
    match request.service {
        // Not the header, which may say that the body is not signed.
        SignedService::Sts { digest } => Ok(hex::encode(digest)),
        SignedService::S3 => {
            let payload = request.headers.get(CONTENT_SHA256).and_then(|value| value.to_str().ok()).map(str::trim);
            let payload = payload
                .ok_or_else(|| S3Error::invalid("Missing required header for this request: x-amz-content-sha256"))?;
            Payload::parse(payload)?;
            Ok(payload.to_owned())
        }
    }
}

/// Checks the validity period of a presigned address.
fn check_validity_period(at: Timestamp, expires: &str, now: Timestamp) -> Result<(), S3Error> {
    let number: i64 = expires.parse().map_err(|_| malformed_query("X-Amz-Expires should be a number"))?;
    let seconds = u64::try_from(number).map_err(|_| malformed_query("X-Amz-Expires must be non-negative"))?;
    if seconds > EXPIRES_MAX {
        return Err(malformed_query(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be \
                          less than 604800 seconds",
        ));
    }
    if seconds == 0 {
        return Err(malformed_query("X-Amz-Expires must be greater than zero"));
    }
    if at > now + SKEW_MICROS_MAX {
        return Err(S3Error::new(Code::AccessDenied, "Request is not valid yet")
            .with("X-Amz-Date", dates::basic(at))
            .with("ServerTime", dates::iso(now)));
    }
    let until = at.saturating_add(seconds * 1_000_000);
    if now > until {
        return Err(expired()
            .with("X-Amz-Expires", expires)
            .with("Expires", dates::iso(until))
            .with("ServerTime", dates::iso(now)));
    }
    Ok(())
}

/// Checks the region. The error names the expected one, and clients then sign again for it.
fn check_region(credential: &Credential, expected: Option<&str>) -> Result<(), impl FnOnce(Code) -> S3Error + use<>> {
    let Some(expected) = expected.filter(|region| *region != credential.region) else { return Ok(()) };
    let message = format!(
        "The authorization header is malformed; the region '{}' is wrong; expecting '{expected}'",
        credential.region
    );
    let expected = expected.to_owned();
    Err(move |code| S3Error::new(code, message).with("Region", expected))
}

/// The names of a list in lower case, without empty ones.
fn header_names(list: &str) -> Result<String, S3Error> {
    let mut names = String::with_capacity(list.len());
    for (index, name) in list.split(';').filter(|name| !name.is_empty()).enumerate() {
        if index == SIGNED_HEADERS_MAX {
            return Err(malformed_header("too many signed headers."));
        }
        if index > 0 {
            names.push(';');
        }
        names.push_str(name);
    }
    names.make_ascii_lowercase();
    Ok(names)
}

/// The canonical query: pairs decoded, encoded again and sorted, without the signature.
fn canonical_query(raw_query: Option<&str>) -> String {
    let reencode = |raw: &str| percent_encode(&decode_plus(raw), QUERY).to_string();
    // The signature cannot cover itself.
    let mut all: Vec<(String, String)> = pairs(raw_query.unwrap_or_default())
        .map(|(name, value)| (reencode(name), reencode(value.unwrap_or_default())))
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    all.sort_unstable();
    let pairs: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Refuses requests for directory buckets: by their paths alone they would be requests for other buckets.
fn check_service(credential: &str) -> Result<(), S3Error> {
    match credential.rsplit('/').nth(1) {
        Some(DIRECTORY_BUCKETS) => {
            let message = format!("Directory buckets, the service {DIRECTORY_BUCKETS}, are not offered");
            Err(S3Error::new(Code::NotImplemented, message))
        }
        _ => Ok(()),
    }
}

fn malformed_header(what: &str) -> S3Error {
    S3Error::new(Code::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {what}"))
}

fn malformed_query(message: &str) -> S3Error {
    S3Error::new(Code::AuthorizationQueryParametersError, message.to_owned())
}

/// Whether every value of a header was moved into the signed query.
fn is_signed_in_query(request: &AuthRequest<'_>, name: &str) -> bool {
    let is_in_query = |value: &hyper::header::HeaderValue| {
        let same = |(parameter, other): (&str, &str)| {
            parameter.eq_ignore_ascii_case(name) && other.trim_ascii().as_bytes() == value.as_bytes()
        };
        request.query.iter().any(same)
    };
    request.query.has("X-Amz-Signature") && request.headers.get_all(name).iter().all(is_in_query)
}

/// Most keys; a thousand users sign at once, with one day and region each.
const KEYS_MAX: usize = 1000;

/// The signing keys used last, one for each access key id.
#[derive(Default)]
pub struct SigningKeys(Mutex<HashMap<String, DerivedKey>>);

/// A signing key, and all that it was derived from.
struct DerivedKey {
    secret: String,
    day: String,
    region: String,
    service: &'static str,
    key: [u8; 32],
}

/// Shows no key: neither logs nor errors may.
impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({})", self.0.lock().len())
    }
}

impl SigningKeys {
    /// The signing key of a credential under the user's current secret, and whether it was derived just now.
    pub(super) fn key_for(&self, credential: &Credential, secret: &str) -> (SigningKey, bool) {
        let keys = self.0.lock();
        // The secret is compared, so a changed one is obeyed at once whatever the cache holds.
        let is_of_service = |derived: &&DerivedKey| derived.service == credential.service;
        let cached_key = keys.get(&credential.access_key).filter(is_of_service).filter(|derived| {
            derived.secret == secret && derived.day == credential.day && derived.region == credential.region
        });
        match cached_key {
            Some(derived) => (derived.key, false),
            None => {
                drop(keys);
                (credential.key(secret), true)
            }
        }
    }

    /// Keeps the key of a signature that was verified. An unverified one is never kept: anyone could name a user and any region,
    /// and so displace the key in use.
    pub(super) fn keep(&self, credential: &Credential, secret: &str, key: SigningKey) {
        let mut keys = self.0.lock();
        // Bound: to forget all costs each user four HMACs.
        if keys.len() >= KEYS_MAX && !keys.contains_key(&credential.access_key) {
            keys.clear();
        }
        let derived = DerivedKey {
            secret: secret.to_owned(),
            day: credential.day.clone(),
            region: credential.region.clone(),
            service: credential.service,
            key,
        };
        keys.insert(credential.access_key.clone(), derived);
    }
}

/// An HMAC key of one user, day, region and service.
pub(super) type SigningKey = [u8; 32];

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(access_key: &str, day: &str, region: &str) -> Credential {
        Credential::parse(&format!("{access_key}/{day}/{region}/s3/aws4_request")).unwrap()
    }

    #[test]
    fn a_changed_secret_day_or_region_is_never_answered_with_the_old_key() {
        let keys = SigningKeys::default();
        let first = credential("K", "20260101", "us-east-1");
        let (key, fresh) = keys.key_for(&first, "secret");
        assert!(fresh);
        keys.keep(&first, "secret", key);
        assert_eq!(keys.key_for(&first, "secret"), (first.key("secret"), false));
        for (other, secret) in [
            (first.clone(), "changed"),
            (credential("K", "20260102", "us-east-1"), "secret"),
            (credential("K", "20260101", "eu-west-1"), "secret"),
            (credential("other", "20260101", "us-east-1"), "secret"),
            (Credential { service: "sts", ..first.clone() }, "secret"),
        ] {
            assert_eq!(keys.key_for(&other, secret), (other.key(secret), true), "{other:?}");
        }
    }

    #[test]
    fn signing_keys_are_bounded_and_not_shown() {
        let keys = SigningKeys::default();
        for number in 0..=KEYS_MAX {
            keys.keep(&credential(&format!("K{number}"), "20260101", "r"), "hidden", [7; 32]);
            assert!(keys.0.lock().len() <= KEYS_MAX);
        }
        assert_eq!(format!("{keys:?}"), "SigningKeys(1)");
    }
}
