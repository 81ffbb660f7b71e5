//! Verification of a body's SHA-256.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::errors::{Code, S3Error};

/// An incremental SHA-256 with its expected value.
#[derive(Debug)]
pub(super) struct PayloadDigest {
    expected: [u8; 32],
    hasher: Sha256,
}

impl PayloadDigest {
    pub(super) fn new(expected: [u8; 32]) -> Self {
        Self { expected, hasher: Sha256::new() }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Verifies the digest in constant time.
    pub(super) fn verify(self) -> Result<(), S3Error> {
        let computed = self.hasher.finalize();
        if computed.as_slice().ct_eq(&self.expected).into() {
            return Ok(());
        }
        Err(S3Error::from(Code::XAmzContentSHA256Mismatch)
            .with("ClientComputedContentSHA256", hex::encode(self.expected))
            .with("S3ComputedContentSHA256", hex::encode(computed)))
    }
}
