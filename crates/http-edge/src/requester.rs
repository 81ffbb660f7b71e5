//! Who sent a request, and the memory that it holds until its answer is out.

use std::net::IpAddr;

use larder_admission::{ClientAccount, HeldMemory, MemorySpent};
use parking_lot::Mutex;

/// What is held so far: the draws, and their bytes.
#[derive(Debug, Default)]
struct Held {
    draws: Vec<HeldMemory>,
    bytes: u64,
}

/// A request's client. What is held for the request is given back when its answer was sent or broke off.
#[derive(Debug)]
pub struct Requester<'a> {
    /// Where the client is.
    pub address: IpAddr,
    account: &'a ClientAccount,
    held: Mutex<Held>,
}

/// So much a request holds without being counted: connections are bounded, and this is in what each of them costs.
pub const UNCOUNTED_BYTES: u64 = 16 * 1024;

impl<'a> Requester<'a> {
    /// The client of one request.
    #[must_use]
    pub fn new(address: IpAddr, account: &'a ClientAccount) -> Self {
        Self { address, account, held: Mutex::default() }
    }

    /// Holds so many bytes of memory in all, what it holds already among them; waits for some seconds when others have
    /// them. What a body took is there for the answer: a write that was carried out does not wait once more.
    ///
    /// # Errors
    /// [`MemorySpent`]: the request is to be answered that the server is busy.
    pub async fn hold(&self, bytes: u64) -> Result<(), MemorySpent> {
        let missing = bytes.saturating_sub(self.held.lock().bytes.max(UNCOUNTED_BYTES));
        if missing > 0 {
            let draw = self.account.draw(missing).await?;
            let mut held = self.held.lock();
            held.draws.push(draw);
            held.bytes = bytes;
        }
        Ok(())
    }

    /// What is held, for who sends the answer.
    pub(crate) fn into_held(self) -> Vec<HeldMemory> {
        self.held.into_inner().draws
    }
}
