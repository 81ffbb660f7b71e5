//! The lease of a blob whose row is being written.

use std::time::Duration;

use tokio::runtime::Handle;

/// How long a write whose outcome is unknown may still take effect.
const UNKNOWN_OUTCOME_LEASE: Duration = Duration::from_secs(300);

/// Keeps sweepers away from a blob while a row that names it may be written: until the write is answered, and five minutes more
/// when the outcome is unknown. That is so when the answer was lost, and when the client is gone: the write's future is
/// dropped then, while the store may still carry out the batch.
pub struct ReferenceLease(Option<Box<dyn Send + Sync>>);

impl ReferenceLease {
    /// Takes over the lease of a blob that a row is about to name; `None` for a body without a blob.
    pub fn new(lease: Option<Box<dyn Send + Sync>>) -> Self {
        Self(lease)
    }

    /// Ends the lease: the row is written, or will never be.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for ReferenceLease {
    fn drop(&mut self) {
        // Race: the store may still hold the batch, and a sweep now could remove the bytes of a live row [invariant 96].
        // Without a runtime the process is about to end, and its leases with it.
        if let (Some(lease), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(UNKNOWN_OUTCOME_LEASE).await;
                drop(lease);
            });
        }
    }
}
