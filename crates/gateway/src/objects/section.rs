//! Sections: the moments in which a write relies on what the catalogue says of its bucket.
//!
//! A heartbeat shows the number of the oldest catalogue that an open section relies on. So "every running gateway shows the
//! change" means that no write is under way that does not know it: rows 64 and 65 of the design's list of holes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_model::objects::{Bucket, BucketId, BucketState};
use larder_model::rows::Stamp;
use larder_store::{Level, Partition};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::commit::read_row;
use super::{Error, Objects, Result};
use crate::{Gateway, Rule};

/// Numbers of catalogues that sections rely on, each with how many.
#[derive(Debug, Default)]
pub(crate) struct Sections(Mutex<BTreeMap<Stamp, usize>>);

impl Sections {
    /// The oldest number relied on.
    pub(crate) fn oldest(&self) -> Option<Stamp> {
        self.0.lock().keys().next().copied()
    }

    fn leave(&self, number: Stamp) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                open.remove(&number);
            }
        }
    }
}

/// Pause between asking what became of a write.
const DECIDE_PAUSE: Duration = Duration::from_secs(1);
/// How long a write whose answer was lost may still come.
const LINGER: Duration = Duration::from_secs(300);

/// A write relies on its bucket until this is dropped. Keep it short: bodies are received before.
pub(super) struct Section<'a> {
    gateway: &'a Gateway,
    number: Stamp,
    /// Whether somebody else leaves it.
    handed_on: bool,
    /// The bucket as the section found it.
    pub(super) bucket: Arc<Bucket>,
}

impl Section<'_> {
    /// Keeps the section open behind the caller's back until the head says what became of its write.
    pub(super) fn linger(mut self, gateway: Arc<Gateway>, head: Partition) {
        self.handed_on = true;
        let number = self.number;
        tokio::spawn(async move {
            let end = Instant::now() + LINGER;
            while Instant::now() < end && read_row(&gateway, &head, &gateway.own(Level::Quorum)).await.is_err() {
                tokio::time::sleep(DECIDE_PAUSE).await;
            }
            gateway.sections.leave(number);
        });
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if !self.handed_on {
            self.gateway.sections.leave(self.number);
        }
    }
}

impl Objects {
    /// A bucket that takes requests, by name.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], and `TimedOut` when the catalogue cannot be checked in the time of a request.
    pub async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let found = timeout(self.gateway.config.timeout, self.find_bucket(name)).await;
        found.map_err(|_| crate::Error::TimedOut)?
    }

    async fn find_bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let catalogue = self.gateway.fresh().await?;
        let found = catalogue.s3_bucket(name).filter(|bucket| bucket.state == BucketState::Active);
        if let Some(bucket) = found {
            return Ok(Arc::clone(bucket));
        }
        // It may have been made through another gateway a moment ago.
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let found = catalogue.s3_bucket(name).filter(|bucket| bucket.state == BucketState::Active);
        found.map(Arc::clone).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))
    }

    /// Opens a section of a write to the bucket `id`, once called `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`] when it is gone, being deleted, or another one by now.
    pub(super) async fn section(&self, name: &str, id: BucketId) -> Result<Section<'_>> {
        let gateway = &*self.gateway;
        gateway.fresh().await?;
        let (catalogue, number) = {
            // Taken together: no heartbeat may show a newer number in between.
            let mut open = gateway.sections.0.lock();
            let catalogue = gateway.catalogue.load_full();
            let number = catalogue.number();
            if gateway.rule(Rule::HoldSections) {
                *open.entry(number).or_default() += 1;
            }
            (catalogue, number)
        };
        let found = catalogue.s3_bucket(name).filter(|bucket| bucket.id == id && bucket.state == BucketState::Active);
        if let Some(bucket) = found {
            return Ok(Section { gateway, number, handed_on: false, bucket: Arc::clone(bucket) });
        }
        gateway.sections.leave(number);
        Err(Error::NoSuchBucket(name.to_owned()))
    }
}
