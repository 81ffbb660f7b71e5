//! Signatures: which user sent a request, and what the body has to be.
//!
//! ```text
//! request ── Claim::of (pure: what is claimed) ──> access key ── the user's secret ──> Claim::check ──> Checked
//!                 v2 header, query · v4 header, query            post: forms       chunked: bodies signed in pieces
//! ```
//! A claim is read and dated before the user is looked up, and checked after: nothing here waits or knows a store.

mod canonical;
pub mod chunked;
pub mod date;
mod payload;
pub mod post;
mod v2;
mod v4;

use hyper::header::{AUTHORIZATION, HeaderMap};
use larder_model::rows::Micros;

use crate::errors::{Code, Fault};
use crate::query::Query;

pub use canonical::PATH;
pub(crate) use canonical::hex;
#[cfg(test)]
pub(crate) use canonical::unhex;
pub use chunked::Signer;
pub use payload::{CONTENT_SHA256, Payload};
pub(crate) use v2::move_headers;

/// How far the clocks of client and server may be apart.
pub const SKEW_MICROS_MAX: u64 = 15 * 60 * 1_000_000;

/// What of a request is signed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path as it came.
    pub path: &'a str,
    /// Its query as it came.
    pub raw_query: Option<&'a str>,
    /// Its query, decoded.
    pub query: &'a Query,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The host it came to, with its port, when that is not in its headers.
    pub host: Option<&'a str>,
    /// The bucket, if the host names it.
    pub host_bucket: Option<&'a str>,
    /// When it came.
    pub now: Micros,
    /// The region that signatures must be for; `None`: any.
    pub region: Option<&'a str>,
}

/// How a request is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `Authorization: AWS`
    V2Header,
    /// `AWSAccessKeyId`, `Signature`, `Expires` in the query.
    V2Query,
    /// `Authorization: AWS4-HMAC-SHA256`
    V4Header,
    /// `X-Amz-Signature` and the rest in the query.
    V4Query,
    /// In the fields of a form.
    Form,
}

/// A signature that was read but not checked.
#[derive(Debug)]
pub enum Claim {
    /// Version 2.
    V2(v2::Claim),
    /// Version 4.
    V4(Box<v4::Claim>),
}

/// A signature that holds.
#[derive(Debug, Clone)]
pub struct Checked {
    /// How it was given.
    pub scheme: Scheme,
    /// Signs the chunks of a body that is signed in pieces; version 4 only.
    pub signer: Option<Signer>,
    /// The SHA-256 that the body was signed with, which a presigned address may have in its query alone.
    pub body: Option<[u8; 32]>,
}

impl Claim {
    /// Reads the signature of a request; `None`: it has none.
    ///
    /// # Errors
    /// What is malformed, out of date, or not offered.
    pub fn of(request: &Request<'_>) -> Result<Option<Self>, Fault> {
        let header = request.headers.get(AUTHORIZATION);
        let in_v2 = ["AWSAccessKeyId", "Signature"].iter().any(|name| request.query.has(name));
        let in_v4 =
            ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature"].iter().any(|name| request.query.has(name));
        match header {
            Some(_) if in_v2 || in_v4 => Err(only_one()),
            Some(value) => {
                let text = value.to_str().map_err(|_| unsupported(""))?;
                Self::of_header(request, text.trim()).map(Some)
            }
            None if in_v4 => v4::Claim::of_query(request).map(|claim| Some(Self::V4(Box::new(claim)))),
            None if in_v2 => v2::Claim::of_query(request).map(|claim| Some(Self::V2(claim))),
            None => Ok(None),
        }
    }

    fn of_header(request: &Request<'_>, value: &str) -> Result<Self, Fault> {
        let Some((scheme, rest)) = value.split_once(' ') else {
            let message = "Authorization header is invalid -- one and only one ' ' (space) required";
            return Err(Fault::argument("Authorization", value, message));
        };
        match scheme {
            "AWS" => v2::Claim::of_header(request, rest.trim()).map(Self::V2),
            v4::ALGORITHM => v4::Claim::of_header(request, rest.trim()).map(|claim| Self::V4(Box::new(claim))),
            "AWS4-ECDSA-P256-SHA256" => Err(Code::NotImplemented.into()),
            _ => Err(unsupported(value)),
        }
    }

    /// The access key id it was made with.
    #[must_use]
    pub fn access_key(&self) -> &str {
        match self {
            Self::V2(claim) => &claim.access_key,
            Self::V4(claim) => &claim.credential.access_key,
        }
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`, with what was signed here; `AccessDenied` for headers that are not signed but must be.
    pub fn check(self, request: &Request<'_>, secret: &str) -> Result<Checked, Fault> {
        match self {
            Self::V2(claim) => claim.check(request, secret),
            Self::V4(claim) => claim.check(request, secret),
        }
    }
}

/// 403, nobody has this key.
#[must_use]
pub fn unknown_key(access_key: &str) -> Fault {
    Fault::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", access_key)
}

fn only_one() -> Fault {
    let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
                   parameter or the Authorization header should be specified";
    Fault::argument("Authorization", "", message)
}

fn unsupported(value: &str) -> Fault {
    Fault::argument("Authorization", value, "Unsupported Authorization Type")
}

/// 403, the clocks are too far apart.
fn skewed(sent: &str, now: Micros) -> Fault {
    Fault::from(Code::RequestTimeTooSkewed)
        .with("RequestTime", sent)
        .with("ServerTime", crate::dates::iso(now))
        .with("MaxAllowedSkewMilliseconds", (SKEW_MICROS_MAX / 1000).to_string())
}

/// 403, out of date.
fn expired() -> Fault {
    Fault::new(Code::AccessDenied, "Request has expired")
}

/// 403, and what was signed here: the one hint that finds out what a client or a proxy did differently.
fn mismatch(access_key: &str, string_to_sign: &[u8], provided: &str) -> Fault {
    Fault::from(Code::SignatureDoesNotMatch)
        .with("AWSAccessKeyId", access_key)
        .with("StringToSign", String::from_utf8_lossy(string_to_sign))
        .with("SignatureProvided", provided)
        .with("StringToSignBytes", spelled(string_to_sign))
}

/// Bytes as error documents spell them: two digits each, with spaces between.
fn spelled(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&canonical::hex(&[*byte]));
    }
    text
}

#[cfg(test)]
mod tests;
