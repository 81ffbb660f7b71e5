//! Request signatures, versions 2 and 4: who sent a request, and which body it declares and signs.
//!
//! ```text
//! request ── RequestSignature::from_request ──> access key ── the user's secret ──> RequestSignature::verify ──> VerifiedSignature
//!                 v2 header, query · v4 header, query            post: forms       chunked: bodies signed in pieces
//! ```
//! Parsing and the date check happen before the user lookup, verification after it. This module is pure: it neither
//! waits nor reads a store.

mod canonical;
pub mod chunked;
mod credential;
pub mod post;
mod presign;
mod v2;
mod v4;

use hyper::header::{AUTHORIZATION, HeaderMap};
use larder_rows::Timestamp;

use crate::errors::{Code, S3Error};
use crate::target::S3Query;

pub use canonical::{PATH, QUERY};
pub(crate) use canonical::{restore_headers, unhex};
pub use chunked::ChunkSigner;
pub use credential::{ALGORITHM, Credential, SignedService};
pub use presign::PresignedGet;
pub use v4::SigningKeys;

/// Largest clock difference between client and server.
pub const SKEW_MICROS_MAX: u64 = 15 * 60 * 1_000_000;

/// The parts of a request that a signature can cover.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The raw path.
    pub path: &'a str,
    /// The raw query.
    pub raw_query: Option<&'a str>,
    /// The decoded query.
    pub query: &'a S3Query,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The host with its port, for requests without a `Host` header.
    pub host: Option<&'a str>,
    /// Further hosts that the client may have signed: a proxy may have replaced the header `Host`.
    pub other_hosts: [Option<&'a str>; 2],
    /// The bucket of a virtual-hosted request.
    pub host_bucket: Option<&'a str>,
    /// Arrival time.
    pub now: Timestamp,
    /// The region that signatures must name; `None` accepts any.
    pub region: Option<&'a str>,
    /// The service that they must name.
    pub service: SignedService,
}

/// The token of temporary credentials in the headers of a request; a presigned address has moved it into its query.
///
/// # Errors
/// `InvalidToken` for several.
pub fn security_token(headers: &HeaderMap) -> Result<Option<&str>, S3Error> {
    let mut tokens = headers.get_all(SECURITY_TOKEN).iter();
    match (tokens.next(), tokens.next()) {
        (None, _) => Ok(None),
        (Some(token), None) => token.to_str().map(|token| Some(token.trim())).map_err(|_| Code::InvalidToken.into()),
        (Some(_), Some(_)) => Err(Code::InvalidToken.into()),
    }
}

/// The header with the token of temporary credentials, and the field of a form.
pub const SECURITY_TOKEN: &str = "x-amz-security-token";

/// Where a request carries its signature, and in which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthScheme {
    /// `Authorization: AWS`
    V2Header,
    /// `AWSAccessKeyId`, `Signature` and `Expires` in the query.
    V2Query,
    /// `Authorization: AWS4-HMAC-SHA256`
    V4Header,
    /// `X-Amz-Signature` and the rest in the query.
    V4Query,
    /// Fields of a form.
    Form,
}

/// A parsed signature that is not yet verified.
#[derive(Debug)]
pub enum RequestSignature {
    /// Version 2.
    V2(v2::SignatureV2),
    /// Version 4.
    V4(Box<v4::SignatureV4>),
}

/// A verified signature.
#[derive(Debug, Clone)]
pub struct VerifiedSignature {
    /// Where the request carried it.
    pub scheme: AuthScheme,
    /// Verifies the chunks of a signed chunked body; version 4 only.
    pub signer: Option<ChunkSigner>,
    /// The SHA-256 that was signed for the body. A presigned address may carry it in its query alone.
    pub body: Option<[u8; 32]>,
}

impl RequestSignature {
    /// Parses the signature of a request; `None` if it has none.
    ///
    /// # Errors
    /// The signature is malformed, expired, outside the clock skew, or of an unsupported kind.
    pub fn from_request(request: &AuthRequest<'_>) -> Result<Option<Self>, S3Error> {
        let header = request.headers.get(AUTHORIZATION);
        let in_v2 = ["AWSAccessKeyId", "Signature"].iter().any(|name| request.query.has(name));
        let in_v4 =
            ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature"].iter().any(|name| request.query.has(name));
        let signs_body =
            header.is_some_and(|value| value.as_bytes().trim_ascii_start().starts_with(ALGORITHM.as_bytes()));
        if request.service != SignedService::S3 && (in_v2 || in_v4 || header.is_some() && !signs_body) {
            return Err(unsupported("Sign the request with version 4, in the header Authorization"));
        }
        match header {
            // Two signatures could name two users: the server must not choose.
            Some(_) if in_v2 || in_v4 => Err(several_mechanisms()),
            Some(value) => {
                let text = value.to_str().map_err(|_| unsupported(""))?;
                Self::from_header(request, text.trim()).map(Some)
            }
            None if in_v4 => v4::SignatureV4::from_query(request).map(|signature| Some(Self::V4(Box::new(signature)))),
            None if in_v2 => v2::SignatureV2::from_query(request).map(|signature| Some(Self::V2(signature))),
            None => Ok(None),
        }
    }

    fn from_header(request: &AuthRequest<'_>, value: &str) -> Result<Self, S3Error> {
        let Some((scheme, rest)) = value.split_once(' ') else {
            let message = "Authorization header is invalid -- one and only one ' ' (space) required";
            return Err(S3Error::argument("Authorization", value, message));
        };
        match scheme {
            "AWS" => v2::SignatureV2::from_header(request, rest.trim()).map(Self::V2),
            ALGORITHM => {
                v4::SignatureV4::from_header(request, rest.trim()).map(|signature| Self::V4(Box::new(signature)))
            }
            "AWS4-ECDSA-P256-SHA256" => Err(S3Error::header_not_offered("Authorization")),
            _ => Err(unsupported(value)),
        }
    }

    /// The access key id.
    #[must_use]
    pub fn access_key(&self) -> &str {
        match self {
            Self::V2(signature) => &signature.access_key,
            Self::V4(signature) => &signature.credential.access_key,
        }
    }

    /// Verifies the signature with the user's secret; `keys` keeps what is derived from it.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch` with the server's string to sign; `AccessDenied` for headers that must be signed and are
    /// not.
    pub fn verify(
        self,
        request: &AuthRequest<'_>,
        secret: &str,
        keys: &SigningKeys,
    ) -> Result<VerifiedSignature, S3Error> {
        match self {
            Self::V2(signature) => signature.verify(request, secret),
            Self::V4(signature) => signature.verify(request, secret, keys),
        }
    }
}

/// The declared payload of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Any bytes.
    Unsigned,
    /// Bytes with this SHA-256.
    Sha256([u8; 32]),
    /// Chunks (`aws-chunked`).
    Chunked {
        /// Whether each chunk is signed.
        signed: bool,
        /// Whether trailing headers follow the last chunk.
        trailer: bool,
    },
}

/// The header that declares the payload.
pub const CONTENT_SHA256: &str = "x-amz-content-sha256";

impl Payload {
    /// Reads the header; without it the payload is unsigned.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown value, `NotImplemented` for elliptic curve signatures.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, S3Error> {
        let Some(value) = headers.get(CONTENT_SHA256) else { return Ok(Self::Unsigned) };
        Self::parse(value.to_str().unwrap_or_default().trim())
    }

    /// Parses a header value.
    ///
    /// # Errors
    /// As [`of`](Self::from_headers).
    pub fn parse(value: &str) -> Result<Self, S3Error> {
        let chunked = |signed, trailer| Ok(Self::Chunked { signed, trailer });
        match value {
            "UNSIGNED-PAYLOAD" => Ok(Self::Unsigned),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunked(false, true),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunked(true, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunked(true, true),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" | "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
                Err(S3Error::header_not_offered("x-amz-content-sha256"))
            }
            _ => unhex(value).map(Self::Sha256).ok_or_else(|| {
                let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, \
                               STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                               STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
                S3Error::argument(CONTENT_SHA256, value, message)
            }),
        }
    }
}

/// 403 for an unknown access key id.
#[must_use]
pub fn unknown_key(access_key: &str) -> S3Error {
    S3Error::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", access_key)
}

fn several_mechanisms() -> S3Error {
    let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
                   parameter or the Authorization header should be specified";
    S3Error::argument("Authorization", "", message)
}

fn unsupported(value: &str) -> S3Error {
    S3Error::argument("Authorization", value, "Unsupported Authorization Type")
}

/// 403 for a clock difference above the limit.
fn skewed(sent: &str, now: Timestamp) -> S3Error {
    S3Error::from(Code::RequestTimeTooSkewed)
        .with("RequestTime", sent)
        .with("ServerTime", larder_s3_rules::dates::iso(now))
        .with("MaxAllowedSkewMilliseconds", (SKEW_MICROS_MAX / 1000).to_string())
}

/// 403 for an expired signature.
fn expired() -> S3Error {
    S3Error::new(Code::AccessDenied, "Request has expired")
}

/// 403 with the server's string to sign. Comparing it with the client's finds what the client or a proxy changed.
fn mismatch(access_key: &str, string_to_sign: &[u8], provided: &str) -> S3Error {
    S3Error::from(Code::SignatureDoesNotMatch)
        .with("AWSAccessKeyId", access_key)
        .with("StringToSign", String::from_utf8_lossy(string_to_sign))
        .with("SignatureProvided", provided)
        .with("StringToSignBytes", spaced_hex(string_to_sign))
}

/// Hexadecimal bytes separated by spaces, as in error documents.
fn spaced_hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

#[cfg(test)]
mod tests;
