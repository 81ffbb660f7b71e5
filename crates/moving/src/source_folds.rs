//! Folds over the trees of a Riak (`tictacaae_active`): the clocks of a range of keys in one answer.
//!
//! They save requests and decide nothing alone: a key that a fold does not show, or shows with another clock, is read.

use std::time::Duration;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use tokio::time::timeout;

use crate::pass_folds::{FoldEnd, PassFolds};
use crate::rules::KeyClocks;
use crate::source::{GET, Source};
use crate::source_calls::{PlannedCall, SourceError, discard, read_body};

/// Time of a fold: it answers at its end.
const FOLD_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What the operator is told where folds show no key that a listing has.
pub(crate) const WITHOUT_TREES: &str = "a pass asks the source for the clock of each key: with tictacaae_active = active on every node it \
     shows those of a thousand at once";

impl Source {
    /// Begins a pass, which asks for folds if `is_on`.
    pub(crate) fn begin_folds(&self, is_on: bool) {
        *self.folds.lock() = PassFolds::begin(is_on);
    }

    /// The clocks of sorted keys of a bucket, as far as the source shows them; `None`: it shows none.
    ///
    /// # Errors
    /// [`WITHOUT_TREES`]: the operator may change that.
    pub(crate) async fn folded_clocks(
        &self,
        bucket: &BucketAddress,
        keys: &[Bytes],
    ) -> Result<Option<KeyClocks>, &'static str> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(None) };
        if !self.folds.lock().is_on() {
            return Ok(None);
        }
        let Some(target) = KeyClocks::target(bucket, first, last) else { return Ok(None) };
        // Without another try: each one is a fold in the source, and its keys are asked for in any case.
        let (end, clocks) = match timeout(FOLD_TIMEOUT, self.fold(&target, keys)).await {
            Ok(Ok(Some(clocks))) if clocks.is_empty() => (FoldEnd::Empty, None),
            Ok(Ok(Some(clocks))) => (FoldEnd::Shown, Some(clocks)),
            Ok(Ok(None)) => (FoldEnd::Unknown, None),
            // One that does not answer at all ends the pass at its keys.
            Ok(Err(_)) | Err(_) => (FoldEnd::Failed, None),
        };
        if self.folds.lock().note(end) { Err(WITHOUT_TREES) } else { Ok(clocks) }
    }

    /// `None`: the source has no such request.
    async fn fold(&self, target: &str, keys: &[Bytes]) -> Result<Option<KeyClocks>, SourceError> {
        let mut answer = self.calls().send_once(PlannedCall { target, time: FOLD_TIMEOUT, ..GET }).await?;
        match answer.status {
            200 => {}
            400..=499 | 501 => {
                discard(&mut answer).await;
                return Ok(None);
            }
            _ => return Err(self.calls().refused(&mut answer).await),
        }
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        Ok(KeyClocks::from_answer(&body, keys).map(Some)?)
    }
}
