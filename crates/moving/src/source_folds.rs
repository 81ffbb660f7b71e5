//! Folds over the trees of a Riak (`tictacaae_active`): the clocks of a range of keys in one answer.
//!
//! They save requests and decide nothing alone: a key that a fold does not show, or shows with another clock, is read.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use tokio::time::timeout;

use crate::rules::KeyClocks;
use crate::source::{GET, Source};
use crate::source_calls::{LISTING_TIMEOUT, PlannedCall, SourceError, discard, read_body, while_broken};

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What the operator is told where folds show no key that a listing has.
pub(crate) const WITHOUT_TREES: &str = "a pass asks the source for the clock of each key: with tictacaae_active = active on every node it \
     shows those of a thousand at once";

impl Source {
    /// Begins a pass; `wanted` says whether it asks for folds, until one is refused or shows nothing.
    pub(crate) fn ask_folds(&self, wanted: bool) {
        self.folds.store(wanted, Ordering::Relaxed);
    }

    /// The clocks of sorted keys of a bucket, as far as the source shows them; `None`: it does not.
    ///
    /// # Errors
    /// [`WITHOUT_TREES`]: the operator may change that.
    pub(crate) async fn folded_clocks(
        &self,
        bucket: &BucketAddress,
        keys: &[Bytes],
    ) -> Result<Option<KeyClocks>, &'static str> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(None) };
        let Some(target) = KeyClocks::target(bucket, first, last).filter(|_| self.folds.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        // A source could send a byte a minute.
        let answer = timeout(LISTING_TIMEOUT, while_broken(|| self.fold(&target))).await;
        match answer.unwrap_or(Ok(None)) {
            Ok(Some(clocks)) if keys.iter().any(|key| clocks.get(key).is_some()) => Ok(Some(clocks)),
            Ok(Some(_)) => {
                self.ask_folds(false);
                Err(WITHOUT_TREES)
            }
            // Too many keys that no listing shows: the next range may be another one.
            Err(SourceError::TooLarge) => Ok(None),
            Ok(None) | Err(_) => {
                // An older Riak, a Larder, or a node that takes too long. One that does not answer at all ends the pass at its keys.
                self.ask_folds(false);
                Ok(None)
            }
        }
    }

    /// `None`: it is refused.
    async fn fold(&self, target: &str) -> Result<Option<KeyClocks>, SourceError> {
        let mut answer = self.calls().send(PlannedCall { target, ..GET }).await?;
        if answer.status != 200 {
            discard(&mut answer).await;
            return Ok(None);
        }
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        Ok(KeyClocks::from_answer(&body).map(Some)?)
    }
}
