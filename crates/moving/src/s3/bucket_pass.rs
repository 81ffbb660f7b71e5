//! A pass over one bucket: its listing, side by side with the rows of the keys that were moved.
//!
//! ```text
//! listing, by key    a a a │ b │ d d …        each key with all of its versions, the newest first
//! moved rows         a     │   │ c d          c is not listed: it is looked at, and perhaps deleted here
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use larder_kv::ImportComparison;
use larder_rows::address::Address;
use larder_rows::{MovedRow, MovedState};
use tokio::task::JoinSet;

use super::bucket_move::{S3Side, moved_bucket};
use super::object_move::{ListedKey, VERSIONS_MAX, shown_object};
use super::{SourceVersion, SourceVersionMarker};
use crate::move_run::{KeyOutcome, MoveRun, MoveStopped, SweepKind};
use crate::move_store::MovedKeyPages;
use crate::progress::MoveVerification;

/// Keys that are worked on at a time.
const KEYS_AT_ONCE: usize = 16;

/// A key that was worked on, by its name on one line.
type EndedObject = (String, Result<KeyOutcome, MoveStopped>);

/// Keys from one on, up to the one before another.
#[derive(Debug, Clone, Default)]
struct KeyRange {
    from: Bytes,
    until: Option<Bytes>,
}

impl KeyRange {
    fn holds(&self, key: &Bytes) -> bool {
        *key >= self.from && self.until.as_ref().is_none_or(|until| key < until)
    }
}

/// A pass over a bucket.
struct BucketPass<'a> {
    run: &'a Arc<MoveRun<S3Side>>,
    bucket: &'a str,
    kind: SweepKind,
    found: &'a mut MoveVerification,
    under_way: JoinSet<EndedObject>,
}

impl MoveRun<S3Side> {
    /// Brings every key of a bucket to the state of the source.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(super) async fn pass_bucket(
        self: &Arc<Self>,
        bucket: &str,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        let mut pass = BucketPass { run: self, bucket, kind, found, under_way: JoinSet::new() };
        let (mut listing, mut after) = (KeyListing::default(), None::<SourceVersionMarker>);
        loop {
            let page = match self.source.source.list_versions(bucket, after.as_ref()).await {
                Err(error) if error.is_absent_bucket() => {
                    self.tell(format!("bucket {bucket} is gone at the source: what was copied of it stays"));
                    return Ok(());
                }
                page => page?,
            };
            after = page.next;
            if !self.source.source.lists_versions(bucket) {
                self.tell(format!("bucket {bucket}: the source lists no versions, so its current objects move"));
            }
            let (range, keys) = listing.add(page.versions, after.is_none());
            if std::mem::take(&mut listing.has_left_out) {
                self.tell(format!("bucket {bucket} has keys of more than {VERSIONS_MAX} versions: the newest move"));
            }
            self.note(|progress| progress.sweep.keys_known += keys.len() as u64);
            pass.pass_range(&range, keys).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

impl BucketPass<'_> {
    async fn pass_range(&mut self, range: &KeyRange, keys: Vec<ListedKey>) -> Result<(), MoveStopped> {
        let mut rows = self.meet_rows(range, &keys).await?;
        for listed in keys {
            let before = match rows.remove(&listed.key) {
                // The source lists it out of order.
                None if !range.holds(&listed.key) => {
                    let address = Address { bucket: moved_bucket(self.bucket), key: listed.key.clone() };
                    self.run.store.moved_row(&address).await?
                }
                row => row,
            };
            self.begin(listed, before).await?;
        }
        while !self.under_way.is_empty() {
            self.end_next().await?;
        }
        Ok(())
    }

    /// The rows of the listed keys of a range. Other moved keys in it are looked at on the way.
    async fn meet_rows(
        &mut self,
        range: &KeyRange,
        keys: &[ListedKey],
    ) -> Result<BTreeMap<Bytes, MovedRow>, MoveStopped> {
        let listed: BTreeSet<&Bytes> = keys.iter().map(|listed| &listed.key).collect();
        let mut pages = MovedKeyPages::new(moved_bucket(self.bucket), range.from.clone(), range.until.clone());
        let mut rows = BTreeMap::new();
        while let Some(page) = self.run.store.next_moved_keys(&mut pages).await? {
            for (key, row) in page {
                if listed.contains(&key) {
                    rows.insert(key, row);
                } else if self.asks_for_unlisted(&row) {
                    // Bound: a bucket may have lost all of its keys.
                    self.begin(ListedKey { key, versions: Vec::new() }, Some(row)).await?;
                }
            }
        }
        Ok(rows)
    }

    /// Whether a moved key that is not listed is looked at.
    fn asks_for_unlisted(&self, row: &MovedRow) -> bool {
        match self.kind {
            SweepKind::Seed => false,
            SweepKind::Follow => row.state != MovedState::Deleted || !row.complete,
            SweepKind::Verify => true,
        }
    }

    async fn begin(&mut self, listed: ListedKey, before: Option<MovedRow>) -> Result<(), MoveStopped> {
        while self.under_way.len() >= KEYS_AT_ONCE {
            self.end_next().await?;
        }
        let (run, bucket, kind) = (Arc::clone(self.run), self.bucket.to_owned(), self.kind);
        self.under_way.spawn(async move {
            let outcome = run.sync_object(&bucket, &listed, before, kind).await;
            (shown_object(&bucket, &listed.key), outcome)
        });
        Ok(())
    }

    async fn end_next(&mut self) -> Result<(), MoveStopped> {
        let Some(ended) = self.under_way.join_next().await else { return Ok(()) };
        let (key, outcome) = ended.map_err(|error| MoveStopped(error.to_string()))?;
        let outcome = outcome.map_err(|MoveStopped(why)| MoveStopped(format!("{key}: {why}")))?;
        if outcome.comparison == Some(ImportComparison::Differs) {
            self.run.note_difference(key);
        }
        self.run.end_key(outcome, self.kind, self.found);
        Ok(())
    }
}

/// Groups the versions of a listing by their keys, over the borders of its pages.
#[derive(Debug, Default)]
struct KeyListing {
    /// The last key, of which the next page may have more.
    open: Option<ListedKey>,
    /// The first key that no range had yet.
    from: Bytes,
    /// Whether a key has more versions than move.
    has_left_out: bool,
}

impl KeyListing {
    /// The keys that a page completes, and the range of keys that they are all of.
    fn add(&mut self, versions: Vec<SourceVersion>, is_last: bool) -> (KeyRange, Vec<ListedKey>) {
        let mut done = Vec::new();
        for version in versions {
            match &mut self.open {
                Some(open) if open.key == version.key => {
                    if !open.is_full() {
                        open.versions.push(version);
                    } else {
                        self.has_left_out = true;
                    }
                }
                open => {
                    let next = ListedKey { key: version.key.clone(), versions: vec![version] };
                    done.extend(open.replace(next));
                }
            }
        }
        if is_last {
            done.extend(self.open.take());
        }
        let until = self.open.as_ref().map(|open| open.key.clone());
        let from = until.clone().unwrap_or_default();
        let from = std::mem::replace(&mut self.from, from);
        (KeyRange { from, until }, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(keys: &str) -> Vec<SourceVersion> {
        let version = |key: char| SourceVersion { key: key.to_string().into(), ..SourceVersion::default() };
        keys.chars().map(version).collect()
    }

    fn shown((range, keys): (KeyRange, Vec<ListedKey>)) -> String {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let keys: String = keys.iter().map(|key| format!("{}{}", text(&key.key), key.versions.len())).collect();
        format!("{}..{} {keys}", text(&range.from), range.until.as_ref().map(text).unwrap_or_default())
    }

    #[test]
    fn keys_are_whole_over_the_borders_of_pages_and_ranges_have_no_gap() {
        let mut listing = KeyListing::default();
        assert_eq!(shown(listing.add(versions("aab"), false)), "..b a2");
        assert_eq!(shown(listing.add(versions("bb"), false)), "b..b ");
        assert_eq!(shown(listing.add(versions("bcd"), false)), "b..d b4c1");
        assert_eq!(shown(listing.add(versions(""), true)), "d.. d1");
        assert_eq!(shown(KeyListing::default().add(versions(""), true)), ".. ");
    }
}
