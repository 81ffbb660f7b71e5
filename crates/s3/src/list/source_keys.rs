//! The keys of a listing in a moving bucket: those here, and those that are still at the source alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::commit::{HeadStore, ObjectLocation};
use super::super::{Error, Result};
use super::{ListObjects, MergedEntries};
use crate::object_source::{ObjectSource, RemoteKey, SourceAway};
use crate::rules::entry::ListedObject;
use crate::rules::{Bucket, ListingEntry};

/// The last code point: no key begins with a prefix and sorts behind the prefix and this, but for those that have it themselves.
const LAST_CHARACTER: &[u8] = "\u{10ffff}".as_bytes();

/// Longest time for the keys of the source in one page.
const LISTING_MAX: Duration = Duration::from_secs(20);

/// The entries of a page, in key order.
pub(super) struct ListedEntries<'a> {
    pub(super) here: MergedEntries<'a>,
    /// The next entry here, if it was read.
    pub(super) next: Option<(Bytes, ListingEntry)>,
    /// The keys of the source, in a moving bucket.
    pub(super) there: Option<SourceKeys>,
    pub(super) heads: &'a HeadStore,
}

/// The keys of the source, read in pages.
pub(super) struct SourceKeys {
    source: Arc<dyn ObjectSource>,
    bucket: Arc<Bucket>,
    prefix: Bytes,
    keys: VecDeque<RemoteKey>,
    /// The last key of the page before.
    last: Option<Bytes>,
    deadline: Instant,
    /// The key after which the next page begins; `None` at the end.
    after: Option<Bytes>,
}

impl ListedEntries<'_> {
    /// The next key with its entry. An entry here counts: it is newer than the source, or a client deleted the key.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, ListingEntry)>> {
        loop {
            let Some((key, entry, is_settled)) = self.next_of_both().await? else { return Ok(None) };
            // Race: the entries here may have been read before the move copied the key; its head tells.
            let is_gone = is_settled
                && match &self.there {
                    Some(there) => there.is_gone(self.heads, &key).await?,
                    None => false,
                };
            if !is_gone {
                return Ok(Some((key, entry)));
            }
        }
    }

    /// The next key, and whether it is the source's alone and the move has done with it.
    async fn next_of_both(&mut self) -> Result<Option<(Bytes, ListingEntry, bool)>> {
        let here = |entry: Option<(Bytes, ListingEntry)>| entry.map(|(key, entry)| (key, entry, false));
        if self.next.is_none()
            && let Some(row) = self.here.next().await?
        {
            self.next = Some((row.name, ListingEntry::decode(row.value)?));
        }
        let Some(there) = &mut self.there else { return Ok(here(self.next.take())) };
        let first_here = self.next.as_ref().map(|(key, _)| key);
        let Some(first) = there.first().await? else { return Ok(here(self.next.take())) };
        if first_here.is_none_or(|first_here| first < first_here) {
            return Ok(there.pop());
        }
        if first_here == Some(first) {
            there.pop();
        }
        Ok(here(self.next.take()))
    }

    /// Skips keys before `key`.
    pub(super) fn seek(&mut self, key: &Bytes) {
        self.next.take_if(|(next, _)| *next < *key);
        self.here.seek(key);
        if let Some(there) = &mut self.there {
            there.seek(key);
        }
    }
}

impl SourceKeys {
    /// The keys of a moving bucket from `begin` on; `None` in another bucket.
    pub(super) fn from(heads: &HeadStore, bucket: &Arc<Bucket>, request: &ListObjects, begin: &Bytes) -> Option<Self> {
        let mut keys = Self {
            source: heads.read_through.source(bucket)?,
            bucket: Arc::clone(bucket),
            prefix: request.prefix.clone(),
            keys: VecDeque::new(),
            last: None,
            deadline: Instant::now() + LISTING_MAX,
            after: Some(Bytes::new()),
        };
        if *begin != request.prefix {
            keys.seek(begin);
        }
        Some(keys)
    }

    /// The next key.
    async fn first(&mut self) -> Result<Option<&Bytes>> {
        while self.keys.is_empty()
            && let Some(after) = &self.after
        {
            // Bound: a source could list for ever.
            if Instant::now() >= self.deadline {
                return Err(Error::NotMovedYet);
            }
            let page = self.source.keys(&self.bucket.name, &self.prefix, after).await;
            let page = page.map_err(|SourceAway| Error::NotMovedYet)?;
            self.after = page.next;
            self.take(page.keys);
        }
        Ok(self.keys.front().map(|first| &first.key))
    }

    /// Takes a page, but for keys that are not in order or not asked for.
    fn take(&mut self, keys: Vec<RemoteKey>) {
        for remote in keys {
            if remote.key.starts_with(&self.prefix) && self.last.as_ref().is_none_or(|last| *last < remote.key) {
                self.last = Some(remote.key.clone());
                self.keys.push_back(remote);
            }
        }
    }

    fn pop(&mut self) -> Option<(Bytes, ListingEntry, bool)> {
        let RemoteKey { key, etag, length, modified, is_settled } = self.keys.pop_front()?;
        let object = ListedObject { etag, length, storage_class: None, checksum: None };
        let entry = ListingEntry { modified, owner: self.bucket.owner.clone(), object: Some(object) };
        Some((key, entry, is_settled))
    }

    /// Whether a key has no object here.
    async fn is_gone(&self, heads: &HeadStore, key: &Bytes) -> Result<bool> {
        let partition = ObjectLocation::new(&self.bucket, key).partition();
        let current = heads.read_head(&partition, &heads.options()).await?.head.current;
        Ok(current.is_none_or(|current| current.object.is_none()))
    }

    fn seek(&mut self, key: &Bytes) {
        while self.keys.front().is_some_and(|first| first.key < *key) {
            self.keys.pop_front();
        }
        if self.keys.is_empty()
            && let Some(after) = &mut self.after
        {
            // The next page begins at the key: keys below a common prefix are not read at all.
            *after = (*after).clone().max(key_before(key));
        }
    }
}

/// A key such that all keys after it are `key`, or behind it. It is text if the key is, or if it is what follows a text.
fn key_before(key: &[u8]) -> Bytes {
    match key.split_last() {
        None => Bytes::new(),
        Some((0, rest)) => Bytes::copy_from_slice(rest),
        Some((last, rest)) => [rest, &[last - 1], LAST_CHARACTER].concat().into(),
    }
}
