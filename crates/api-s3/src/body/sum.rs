//! The SHA-256 that a body has to have.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::auth;
use crate::errors::{Code, Fault};

/// A sum under way.
#[derive(Debug)]
pub(super) struct Sum {
    expected: [u8; 32],
    hash: Sha256,
}

impl Sum {
    pub(super) fn new(expected: [u8; 32]) -> Self {
        Self { expected, hash: Sha256::new() }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Whether it is the one that was expected.
    pub(super) fn check(self) -> Result<(), Fault> {
        let computed = self.hash.finalize();
        if computed.as_slice().ct_eq(&self.expected).into() {
            return Ok(());
        }
        Err(Fault::from(Code::XAmzContentSHA256Mismatch)
            .with("ClientComputedContentSHA256", auth::hex(&self.expected))
            .with("S3ComputedContentSHA256", auth::hex(&computed)))
    }
}
