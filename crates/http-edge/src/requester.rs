//! The client of a request, and the memory that the request holds until its answer is out.

use std::net::IpAddr;

use larder_admission::{ClientAccount, HeldMemory, MemorySpent};
use parking_lot::Mutex;

/// The draws of a request so far, and their bytes.
#[derive(Debug, Default)]
struct RequestDraws {
    draws: Vec<HeldMemory>,
    bytes: u64,
}

/// A request's client. Its draws are given back when the answer was sent or broke off.
#[derive(Debug)]
pub struct Requester<'a> {
    /// Where the client is.
    pub address: IpAddr,
    account: &'a ClientAccount,
    held: Mutex<RequestDraws>,
}

/// Bytes that a request holds uncounted: connections are bounded, and these are in what each of them costs.
pub(crate) const UNCOUNTED_BYTES: u64 = 16 * 1024;

impl<'a> Requester<'a> {
    /// The client of one request.
    #[must_use]
    pub fn new(address: IpAddr, account: &'a ClientAccount) -> Self {
        Self { address, account, held: Mutex::default() }
    }

    /// Holds so many bytes of memory in all, what it holds already among them; waits for some seconds when others have
    /// them. The answer uses what the body took: a write that was carried out does not wait once more.
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

    /// The draws, to be held until the answer is out.
    pub(crate) fn into_held(self) -> Vec<HeldMemory> {
        self.held.into_inner().draws
    }
}
