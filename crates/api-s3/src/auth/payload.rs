//! The payload that a request declares in `x-amz-content-sha256`.

use hyper::header::HeaderMap;

use crate::errors::{Code, S3Error};

use super::canonical::unhex;

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
    pub fn of(headers: &HeaderMap) -> Result<Self, S3Error> {
        let Some(value) = headers.get(CONTENT_SHA256) else { return Ok(Self::Unsigned) };
        Self::parse(value.to_str().unwrap_or_default().trim())
    }

    /// Parses a header value.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn parse(value: &str) -> Result<Self, S3Error> {
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
                S3Error::argument(CONTENT_SHA256, value, message)
            }),
        }
    }
}
