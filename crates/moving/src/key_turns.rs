//! The turns of keys: what a move does to a key, it does one thing after the other.

use larder_rows::address::Address;
use larder_rows::hash;
use tokio::sync::{Mutex, MutexGuard};

/// Keys of one number share their turn.
const TURNS: u64 = 1024;

/// The turns of all keys.
pub(crate) struct KeyTurns(Vec<Mutex<()>>);

impl Default for KeyTurns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl KeyTurns {
    /// Waits for the turn of a key. It is held from the read of what was moved to the end of the import.
    ///
    /// The holder waits for the source, for memory of its answers and for the store, and for no other turn.
    pub(crate) async fn wait(&self, address: &Address) -> Option<MutexGuard<'_, ()>> {
        let Address { bucket, key } = address;
        let number = hash::id64(&[&bucket.bucket_type, &bucket.bucket, key]) % TURNS;
        let turn = self.0.get(usize::try_from(number).unwrap_or_default())?;
        Some(turn.lock().await)
    }
}
