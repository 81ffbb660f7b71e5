//! The notices that wait, as operators see and drop them.

use std::collections::BTreeMap;

use larder_rows::Timestamp;
use larder_rows::address::BucketAddress;

use super::Outbox;
use super::places::TakenPlace;

/// The notices of a bucket for one webhook that wait on this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The address of the webhook.
    pub url: String,
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
    /// Those for this webhook; `None`: for any.
    pub url: Option<String>,
}

impl WebhookChoice {
    fn includes(&self, taken: &TakenPlace) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| *bucket == taken.bucket)
            && self.url.as_ref().is_none_or(|url| *url == taken.url)
    }
}

impl Outbox {
    /// The notices that wait, by bucket and webhook.
    pub(crate) fn backlogs(&self) -> Vec<WebhookBacklog> {
        let mut sums: BTreeMap<(BucketAddress, String), (usize, Timestamp)> = BTreeMap::new();
        for taken in self.state.lock().places.notices() {
            let sum = sums.entry((taken.bucket.clone(), taken.url.clone())).or_insert((0, taken.since));
            *sum = (sum.0 + 1, sum.1.min(taken.since));
        }
        let backlog = |((bucket, url), (waiting, oldest))| WebhookBacklog { bucket, url, waiting, oldest };
        sums.into_iter().map(backlog).collect()
    }

    /// Drops notices; returns their number. One that is under way is sent once more at most.
    pub(crate) fn drop_notices(&self, choice: &WebhookChoice) -> usize {
        let mut dropped = 0;
        {
            let state = &mut *self.state.lock();
            for taken in state.places.notices().filter(|taken| choice.includes(taken)) {
                taken.is_dropped = true;
                dropped += 1;
            }
            state.queue.remove(|waiting| state.places.is_dropped(waiting.place));
        }
        self.wake.notify_one();
        dropped
    }
}
