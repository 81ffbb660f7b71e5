//! What the body of a request has to be: `x-amz-content-sha256`.

use hyper::header::HeaderMap;

use crate::errors::{Code, Fault};

use super::canonical::unhex;

/// What the body has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Anything.
    Unsigned,
    /// What has this SHA-256.
    Sha256([u8; 32]),
    /// In chunks (`aws-chunked`).
    Chunked {
        /// Each with its signature.
        signed: bool,
        /// With headers behind the last.
        trailer: bool,
    },
}

/// The header that says it.
pub const CONTENT_SHA256: &str = "x-amz-content-sha256";

impl Payload {
    /// Reads the header; without one the body is not signed.
    ///
    /// # Errors
    /// `InvalidArgument` for a value there is none of, `NotImplemented` for elliptic curves.
    pub fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let Some(value) = headers.get(CONTENT_SHA256) else { return Ok(Self::Unsigned) };
        Self::parse(value.to_str().unwrap_or_default().trim())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn parse(value: &str) -> Result<Self, Fault> {
        let chunked = |signed, trailer| Ok(Self::Chunked { signed, trailer });
        match value {
            "UNSIGNED-PAYLOAD" => Ok(Self::Unsigned),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunked(false, true),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunked(true, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunked(true, true),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" | "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
                Err(Code::NotImplemented.into())
            }
            _ => unhex(value).map(Self::Sha256).ok_or_else(|| {
                let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, \
                               STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                               STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
                Fault::argument(CONTENT_SHA256, value, message)
            }),
        }
    }
}
