//! The keys of a listing in a moving bucket: those here, and those that are still at the source alone.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::super::commit::HeadStore;
use super::super::{Error, Result};
use super::{ListObjects, MergedEntries};
use crate::object_source::{ObjectSource, RemoteKey, SourceAway};
use crate::rules::entry::ListedObject;
use crate::rules::{Bucket, ListingEntry};

/// The last code point: no key begins with a prefix and sorts behind the prefix and this, but for those that have it themselves.
const LAST_CHARACTER: &[u8] = "\u{10ffff}".as_bytes();

/// The entries of a page, in key order.
pub(super) struct ListedEntries<'a> {
    pub(super) here: MergedEntries<'a>,
    /// The next entry here, if it was read.
    pub(super) next: Option<(Bytes, ListingEntry)>,
    /// The keys of the source, in a moving bucket.
    pub(super) there: Option<SourceKeys>,
}

/// The keys of the source, read in pages.
pub(super) struct SourceKeys {
    source: Arc<dyn ObjectSource>,
    bucket: String,
    owner: String,
    prefix: Bytes,
    keys: VecDeque<RemoteKey>,
    /// The key after which the next page begins; `None` at the end.
    after: Option<Bytes>,
}

impl ListedEntries<'_> {
    /// The next key with its entry. An entry here counts: it is newer than the source, or a client deleted the key.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, ListingEntry)>> {
        if self.next.is_none()
            && let Some(row) = self.here.next().await?
        {
            self.next = Some((row.name, ListingEntry::decode(row.value)?));
        }
        let Some(there) = &mut self.there else { return Ok(self.next.take()) };
        let here = self.next.as_ref().map(|(key, _)| key);
        let Some(first) = there.first().await? else { return Ok(self.next.take()) };
        if here.is_none_or(|here| first < here) {
            return Ok(there.pop());
        }
        if here == Some(first) {
            there.pop();
        }
        Ok(self.next.take())
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
    pub(super) fn from(heads: &HeadStore, bucket: &Bucket, request: &ListObjects, begin: &Bytes) -> Option<Self> {
        let mut keys = Self {
            source: heads.read_through.source(bucket)?,
            bucket: bucket.name.clone(),
            owner: bucket.owner.clone(),
            prefix: request.prefix.clone(),
            keys: VecDeque::new(),
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
            let page = self.source.keys(&self.bucket, &self.prefix, after).await;
            let page = page.map_err(|SourceAway| Error::NotMovedYet)?;
            (self.keys, self.after) = (page.keys.into(), page.next);
        }
        Ok(self.keys.front().map(|first| &first.key))
    }

    fn pop(&mut self) -> Option<(Bytes, ListingEntry)> {
        let RemoteKey { key, etag, length, modified } = self.keys.pop_front()?;
        let object = ListedObject { etag, length, storage_class: None, checksum: None };
        Some((key, ListingEntry { modified, owner: self.owner.clone(), object: Some(object) }))
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
