//! Keys of a moving bucket that are not here yet: they are asked of the source of the move.
//!
//! ```text
//! a request that needs a key ── no version here ──> ObjectSource::bring ──> the version is imported, and the request goes on
//! a page of keys             ── keys of both ──────> ObjectSource::keys      an entry here counts, also that of a delete marker
//! ```
//! So clients can change over before their objects did. Whatever a client does here leaves a version, which no import replaces: a
//! deletion in a moving bucket leaves a delete marker. When the move has ended, it removes those of buckets without versioning.

#[cfg(test)]
mod tests;

use std::sync::Weak;

use bytes::Bytes;
use larder_rows::codec::name_after;

use super::commit::{HeadStore, ObjectLocation};
use super::events::ChangeEvent;
use super::list::MergedEntries;
use super::object_source::{ObjectSource, SourceAway};
use super::{Error, Objects, Result};
use crate::rules::{Bucket, ListingEntry, Versioning};

/// Entries that are looked at for delete markers at a time.
const MARKERS_PAGE: usize = 1000;

impl Objects {
    /// Asks this source for the missing keys of moving buckets. The first one counts.
    pub fn read_through(&self, source: Weak<dyn ObjectSource>) {
        self.heads.read_through.set(source);
    }

    /// A page of the keys with a delete marker in a bucket without versioning, after a key; and the key after which the next page
    /// begins, `None` at the end.
    ///
    /// # Errors
    /// `NoSuchBucket`, and any error of the store.
    pub async fn marked_keys(&self, bucket: &str, after: &Bytes) -> Result<(Vec<Bytes>, Option<Bytes>)> {
        let bucket = self.buckets.find(bucket).await?;
        if bucket.versioning != Versioning::Off {
            return Ok((Vec::new(), None));
        }
        let begin = if after.is_empty() { after.clone() } else { name_after(after) };
        let mut rows = MergedEntries::new(&self.heads, bucket.id, Some((begin, None)), MARKERS_PAGE);
        let (mut keys, mut last) = (Vec::new(), None);
        for _ in 0..MARKERS_PAGE {
            let Some(row) = rows.next().await? else { return Ok((keys, None)) };
            if ListingEntry::decode(row.value)?.object.is_none() {
                keys.push(row.name.clone());
            }
            last = Some(row.name);
        }
        Ok((keys, last))
    }

    /// Removes the delete marker of a key in a bucket without versioning. No receiver of events is told: its deletion was.
    ///
    /// # Errors
    /// `NoSuchBucket`, and any error of the store.
    pub async fn remove_mark(&self, bucket: &str, key: &Bytes) -> Result<()> {
        let bucket = self.buckets.find(bucket).await?;
        let location = ObjectLocation::new(&bucket, key);
        let mut cas = self.heads.cas_loop(&location, None).reclaiming();
        loop {
            let attempt = cas.next_attempt().await?;
            let is_mark = attempt.bucket().versioning == Versioning::Off && attempt.bucket().moving.is_none();
            let mark = attempt.head.current.clone().filter(|current| is_mark && current.null);
            let Some(mark) = mark.filter(|mark| mark.object.is_none() && !attempt.head.older) else { return Ok(()) };
            let next = attempt.remove(&mark, false).await?;
            if attempt.commit(next, &ChangeEvent::silent()).await? {
                return Ok(());
            }
        }
    }
}

impl HeadStore {
    /// Brings a key that has no version here before it changes, if the current version `decides` about the change. In a bucket that
    /// keeps versions it always comes: versions of the source would not come below one of a client.
    ///
    /// # Errors
    /// As [`Self::bring_absent`].
    pub(super) async fn bring_before_change(&self, bucket: &Bucket, key: &Bytes, decides: bool) -> Result<()> {
        if decides || bucket.versioning != Versioning::Off { self.bring_absent(bucket, key).await } else { Ok(()) }
    }

    /// Brings a key that has no version here, or perhaps not the newest one, before its versions decide an answer.
    ///
    /// # Errors
    /// `NotMovedYet`, and any error of the store.
    pub(super) async fn bring_absent(&self, bucket: &Bucket, key: &Bytes) -> Result<()> {
        let Some(source) = self.read_through.source(bucket) else { return Ok(()) };
        let partition = ObjectLocation::new(bucket, key).partition();
        let current = self.read_head(&partition, &self.options()).await?.head.current;
        if current.is_some_and(|current| !bucket.may_be_partial(&current)) {
            return Ok(());
        }
        source.bring(&bucket.name, key).await.map_err(|SourceAway| Error::NotMovedYet)
    }
}
