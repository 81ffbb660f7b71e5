//! What waits in the outbox, for its operator.

use std::collections::{BTreeMap, HashMap};

use larder_rows::Timestamp;
use larder_rows::address::BucketAddress;
use tokio::time::Instant;

use super::Outbox;
use super::places::TakenPlace;

/// The notices of a bucket for one receiver that wait on this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The address of the webhook, or the name of the target of events.
    pub receiver: String,
    /// Notices that wait or are under way.
    pub waiting: usize,
    /// When the oldest of them was written.
    pub oldest: Timestamp,
}

/// Which notices to drop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookChoice {
    /// Those of this bucket; `None`: of any.
    pub bucket: Option<BucketAddress>,
    /// Those for this receiver; `None`: for any.
    pub receiver: Option<String>,
    /// Whether they are events of S3 objects, or else of key-value writes.
    pub is_of_events: bool,
}

impl WebhookBacklog {
    /// Whether its notices are events of S3 objects.
    #[must_use]
    pub fn is_of_events(&self) -> bool {
        is_of_s3(&self.bucket)
    }
}

/// A bucket of S3 has no type.
fn is_of_s3(bucket: &BucketAddress) -> bool {
    bucket.bucket_type.is_empty()
}

impl WebhookChoice {
    fn includes(&self, taken: &TakenPlace) -> bool {
        is_of_s3(&taken.bucket) == self.is_of_events
            && self.bucket.as_ref().is_none_or(|bucket| *bucket == taken.bucket)
            && self.receiver.as_ref().is_none_or(|receiver| *receiver == taken.receiver)
    }
}

impl Outbox {
    /// Notices of the bucket that has the most.
    #[must_use]
    pub fn waiting_most(&self) -> usize {
        let mut sums: HashMap<BucketAddress, usize> = HashMap::new();
        for taken in self.state.lock().places.notices() {
            *sums.entry(taken.bucket.clone()).or_default() += 1;
        }
        sums.into_values().max().unwrap_or(0)
    }

    /// The notices that wait, by bucket and receiver.
    #[must_use]
    pub fn backlogs(&self) -> Vec<WebhookBacklog> {
        let mut sums: BTreeMap<(BucketAddress, String), (usize, Timestamp)> = BTreeMap::new();
        for taken in self.state.lock().places.notices() {
            let sum = sums.entry((taken.bucket.clone(), taken.receiver.clone())).or_insert((0, taken.since));
            *sum = (sum.0 + 1, sum.1.min(taken.since));
        }
        let backlog = |((bucket, receiver), (waiting, oldest))| WebhookBacklog { bucket, receiver, waiting, oldest };
        sums.into_iter().map(backlog).collect()
    }

    /// Drops notices; returns their number. One that is under way is sent once more at most.
    pub fn drop_notices(&self, choice: &WebhookChoice) -> usize {
        let mut dropped = 0;
        {
            let state = &mut *self.state.lock();
            for taken in state.places.notices().filter(|taken| choice.includes(taken)) {
                taken.is_dropped = true;
                dropped += 1;
            }
            state.queue.remove(|waiting| state.places.is_dropped(waiting.place), Instant::now());
        }
        self.wake.notify_one();
        dropped
    }
}
