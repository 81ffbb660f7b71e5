//! Pages of keys and common prefixes. Pure: a page tells the caller which rows to read next.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_rows::codec::{name_after, prefix_successor};

/// The parameters of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyQuery {
    /// The prefix of the keys to list.
    pub prefix: Bytes,
    /// Keys with the same text up to the first delimiter after the prefix are one common prefix. Empty: there are none.
    pub delimiter: Bytes,
    /// The marker: keys up to this one are already listed, and the common prefix that it lies in. Empty: none are.
    pub after: Bytes,
    /// Whether `after` has further entries: versions or uploads after a second marker. The caller leaves out the listed ones.
    pub after_has_more: bool,
    /// Most entries of the page, keys and common prefixes together.
    pub max: usize,
}

/// The next entry that a page needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPageStep {
    /// The next entry.
    Next,
    /// The next entry from this key on: the entries before it do not change the page.
    SkipTo(Bytes),
    /// No entry: the page is complete.
    Full,
}

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrPrefix<T> {
    /// A key.
    Key(Bytes, T),
    /// A common prefix.
    Prefix(Bytes),
}

/// Builds a page. The caller pushes entries in the order of their keys, and those of one key in the order of the listing, until
/// the page is full or there are no more. Then it calls [`finish`](Self::finish).
#[derive(Debug)]
pub struct KeyPage<T> {
    query: KeyQuery,
    /// The common prefix that was listed last, on this page or the one before.
    last_prefix: Option<Bytes>,
    listed: Vec<KeyOrPrefix<T>>,
    truncated: bool,
}

/// A finished page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPageResult<T> {
    /// Keys and common prefixes in one order.
    pub listed: Vec<KeyOrPrefix<T>>,
    /// Whether there are further entries.
    pub truncated: bool,
    /// The marker for the next page, if there is one: the last key or common prefix of this page.
    pub next: Option<Bytes>,
}

impl<T> KeyPage<T> {
    /// An empty page.
    #[must_use]
    pub fn new(query: KeyQuery) -> Self {
        // A marker inside a common prefix stands for the whole prefix.
        let mut page = Self { query, last_prefix: None, listed: Vec::new(), truncated: false };
        page.last_prefix = page.common_prefix(&page.query.after.clone());
        page
    }

    /// The range of keys to read: its first key, and the first key after it (`None`: no bound). `None` when there is nothing to
    /// read.
    #[must_use]
    pub fn read_range(&self) -> Option<(Bytes, Option<Bytes>)> {
        if self.query.max == 0 {
            return None;
        }
        let begin = match &self.last_prefix {
            // The whole prefix is listed: its keys are skipped without reading them.
            Some(prefix) => prefix_successor(prefix)?,
            None if self.query.after.is_empty() || self.query.after_has_more => self.query.after.clone(),
            None => name_after(&self.query.after),
        };
        let end = prefix_successor(&self.query.prefix);
        (end.as_ref().is_none_or(|end| begin < *end)).then(|| (begin.max(self.query.prefix.clone()), end))
    }

    /// Whether the entries of this key are listed one by one. For other keys [`Self::roll_up`] does, which needs no entry: the
    /// caller saves reading it.
    #[must_use]
    pub fn is_listed_alone(&self, key: &Bytes) -> bool {
        key.starts_with(&self.query.prefix) && !self.is_already_listed(key) && self.common_prefix(key).is_none()
    }

    /// Adds an entry.
    pub fn push(&mut self, key: Bytes, entry: T) -> KeyPageStep {
        if self.is_listed_alone(&key) { self.list(KeyOrPrefix::Key(key, entry)) } else { self.roll_up(&key) }
    }

    /// Adds a key that is not listed alone: it lists the key's common prefix, or skips a key outside of the query.
    pub fn roll_up(&mut self, key: &Bytes) -> KeyPageStep {
        if !key.starts_with(&self.query.prefix) {
            return if *key < self.query.prefix {
                KeyPageStep::SkipTo(self.query.prefix.clone())
            } else {
                KeyPageStep::Full
            };
        }
        match self.common_prefix(key) {
            Some(prefix) if self.last_prefix.as_ref() == Some(&prefix) => {
                // One seek instead of reading every key of the prefix.
                prefix_successor(&prefix).map_or(KeyPageStep::Full, KeyPageStep::SkipTo)
            }
            _ if self.is_already_listed(key) => KeyPageStep::Next,
            Some(prefix) => match self.list(KeyOrPrefix::Prefix(prefix.clone())) {
                KeyPageStep::Full => KeyPageStep::Full,
                _ => {
                    let step = prefix_successor(&prefix).map_or(KeyPageStep::Full, KeyPageStep::SkipTo);
                    self.last_prefix = Some(prefix);
                    step
                }
            },
            None => KeyPageStep::Next,
        }
    }

    /// The page, when it is full or there are no more entries.
    #[must_use]
    pub fn finish(self) -> KeyPageResult<T> {
        let next = self.listed.last().filter(|_| self.truncated).map(|last| last.name().clone());
        KeyPageResult { listed: self.listed, truncated: self.truncated, next }
    }

    /// Lists an entry, or marks the page as truncated when it has no room.
    fn list(&mut self, entry: KeyOrPrefix<T>) -> KeyPageStep {
        if self.listed.len() >= self.query.max {
            // A page of no entries ends the listing: the next page would have no marker.
            self.truncated = self.query.max > 0;
            return KeyPageStep::Full;
        }
        self.listed.push(entry);
        KeyPageStep::Next
    }

    /// Whether earlier pages listed this key.
    fn is_already_listed(&self, key: &Bytes) -> bool {
        let after = &self.query.after;
        !after.is_empty() && (key < after || (key == after && !self.query.after_has_more))
    }

    /// The common prefix that a key is rolled up into, if any.
    fn common_prefix(&self, key: &Bytes) -> Option<Bytes> {
        let (prefix, delimiter) = (&self.query.prefix, &self.query.delimiter);
        let rest = key.strip_prefix(&prefix[..]).filter(|_| !delimiter.is_empty())?;
        let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        Some(key.slice(..prefix.len() + at + delimiter.len()))
    }
}

impl<T> KeyOrPrefix<T> {
    /// The key, or the common prefix.
    #[must_use]
    pub fn name(&self) -> &Bytes {
        match self {
            Self::Key(key, _) => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}
