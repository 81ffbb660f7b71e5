//! The unread body of a request, with the client that pays for its memory.

use larder_admission::MemorySpent;

use crate::{PacedIncoming, Requester};

/// An unread body, and the client that sends it.
#[derive(Debug)]
pub struct ArrivingBody<'a> {
    incoming: PacedIncoming,
    requester: &'a Requester<'a>,
}

impl<'a> ArrivingBody<'a> {
    /// The body that this client sends.
    #[must_use]
    pub fn new(incoming: PacedIncoming, requester: &'a Requester<'a>) -> Self {
        Self { incoming, requester }
    }

    /// Bytes in all, where the client states them.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.incoming.length()
    }

    /// The body, once the request holds `memory` bytes in all.
    ///
    /// # Errors
    /// [`MemorySpent`]: the caller answers that the server is busy.
    pub async fn admit(self, memory: u64) -> Result<PacedIncoming, MemorySpent> {
        self.requester.hold(memory).await?;
        Ok(self.incoming)
    }

    /// The body and its client, where the headers decide how much memory is needed.
    #[must_use]
    pub fn into_parts(self) -> (PacedIncoming, &'a Requester<'a>) {
        (self.incoming, self.requester)
    }
}
