//! The body of a request that was not read yet, with the client that pays for its memory.

use larder_admission::MemorySpent;

use crate::{PacedIncoming, Requester};

/// A body of which nothing was read, and whose it is.
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

    /// Bytes in all, where the client said so.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.incoming.length()
    }

    /// The bytes, once the request holds so many bytes of memory in all.
    ///
    /// # Errors
    /// [`MemorySpent`]: the request is to be answered that the server is busy.
    pub async fn admit(self, memory: u64) -> Result<PacedIncoming, MemorySpent> {
        self.requester.hold(memory).await?;
        Ok(self.incoming)
    }

    /// The bytes and their client, where the headers have to say first how much memory is needed.
    #[must_use]
    pub fn into_parts(self) -> (PacedIncoming, &'a Requester<'a>) {
        (self.incoming, self.requester)
    }
}
