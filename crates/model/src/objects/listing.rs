//! Pages of keys and common prefixes, and of parts. Pure: whoever reads the rows asks a page what to read next.

mod parts;
#[cfg(test)]
mod tests;

pub use parts::{PartsPage, parts_page};

use bytes::Bytes;

/// What a client asked to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyQuery {
    /// What keys begin with.
    pub prefix: Bytes,
    /// Where keys are cut: what they have in common up to its first occurrence behind the prefix is one entry. Empty: nowhere.
    pub delimiter: Bytes,
    /// Keys up to this one have been listed; a common prefix it lies in has been, too. Empty: nothing has been.
    pub after: Bytes,
    /// Whether `after` has entries left (versions or uploads behind a second marker): whoever feeds them leaves out the
    /// others.
    pub after_again: bool,
    /// Most keys and common prefixes together.
    pub max: usize,
}

/// What to feed next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next entry.
    Next,
    /// The next entry that is not below this key: those before it change nothing.
    SkipTo(Bytes),
    /// None: the page is complete.
    Full,
}

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed<T> {
    /// A key.
    Key(Bytes, T),
    /// A prefix that several keys may have in common.
    Prefix(Bytes),
}

/// A page: feed it entries in the order of their keys, those of one key in the order they are to be listed, until it is full
/// or there are no more, and then [`finish`](Self::finish) it.
#[derive(Debug)]
pub struct KeyPage<T> {
    query: KeyQuery,
    /// The common prefix that was listed last, here or on the page before.
    rolled: Option<Bytes>,
    listed: Vec<Listed<T>>,
    truncated: bool,
}

/// A finished page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPageResult<T> {
    /// Keys and common prefixes in one order.
    pub listed: Vec<Listed<T>>,
    /// Whether anything follows.
    pub truncated: bool,
    /// Where the next page goes on, if anything follows: the last key or common prefix of this one.
    pub next: Option<Bytes>,
}

impl<T> KeyPage<T> {
    /// An empty page.
    #[must_use]
    pub fn new(query: KeyQuery) -> Self {
        let mut page = Self { query, rolled: None, listed: Vec::new(), truncated: false };
        page.rolled = page.common_prefix(&page.query.after.clone());
        page
    }

    /// The first key that may be fed, and the first behind the last one (`None`: no bound). `None` altogether when there is
    /// nothing to read.
    #[must_use]
    pub fn range(&self) -> Option<(Bytes, Option<Bytes>)> {
        if self.query.max == 0 {
            return None;
        }
        let begin = match &self.rolled {
            Some(rolled) => behind_prefix(rolled)?,
            None if self.query.after.is_empty() || self.query.after_again => self.query.after.clone(),
            None => [&self.query.after[..], &[0]].concat().into(),
        };
        let end = behind_prefix(&self.query.prefix);
        (end.as_ref().is_none_or(|end| begin < *end)).then(|| (begin.max(self.query.prefix.clone()), end))
    }

    /// Whether the entries of this key would be listed one by one, page or no page: otherwise only [`Self::pass`] it, which
    /// saves reading what it has.
    #[must_use]
    pub fn lists(&self, key: &Bytes) -> bool {
        key.starts_with(&self.query.prefix) && !self.is_behind(key) && self.common_prefix(key).is_none()
    }

    /// Takes an entry.
    pub fn push(&mut self, key: Bytes, entry: T) -> Step {
        if self.lists(&key) { self.take(Listed::Key(key, entry)) } else { self.pass(&key) }
    }

    /// Takes a key that is not listed by itself: one in a common prefix, or one outside what was asked for.
    pub fn pass(&mut self, key: &Bytes) -> Step {
        if !key.starts_with(&self.query.prefix) {
            return if *key < self.query.prefix { Step::SkipTo(self.query.prefix.clone()) } else { Step::Full };
        }
        match self.common_prefix(key) {
            Some(prefix) if self.rolled.as_ref() == Some(&prefix) => {
                behind_prefix(&prefix).map_or(Step::Full, Step::SkipTo)
            }
            _ if self.is_behind(key) => Step::Next,
            Some(prefix) => match self.take(Listed::Prefix(prefix.clone())) {
                Step::Full => Step::Full,
                _ => {
                    let step = behind_prefix(&prefix).map_or(Step::Full, Step::SkipTo);
                    self.rolled = Some(prefix);
                    step
                }
            },
            None => Step::Next,
        }
    }

    /// The page, once it is full or nothing is left to feed.
    #[must_use]
    pub fn finish(self) -> KeyPageResult<T> {
        let next = self.listed.last().filter(|_| self.truncated).map(|last| last.name().clone());
        KeyPageResult { listed: self.listed, truncated: self.truncated, next }
    }

    /// Lists an entry, or finds that the page has no room for it.
    fn take(&mut self, entry: Listed<T>) -> Step {
        if self.listed.len() >= self.query.max {
            // A page of no entries ends the listing: there would be no marker to go on from.
            self.truncated = self.query.max > 0;
            return Step::Full;
        }
        self.listed.push(entry);
        Step::Next
    }

    /// Whether pages before this one were up to this key or further.
    fn is_behind(&self, key: &Bytes) -> bool {
        let after = &self.query.after;
        !after.is_empty() && (key < after || (key == after && !self.query.after_again))
    }

    /// The common prefix that a key is rolled up into.
    fn common_prefix(&self, key: &Bytes) -> Option<Bytes> {
        let (prefix, delimiter) = (&self.query.prefix, &self.query.delimiter);
        let rest = key.strip_prefix(&prefix[..]).filter(|_| !delimiter.is_empty())?;
        let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        Some(key.slice(..prefix.len() + at + delimiter.len()))
    }
}

impl<T> Listed<T> {
    /// The key, or the common prefix.
    #[must_use]
    pub fn name(&self) -> &Bytes {
        match self {
            Self::Key(key, _) => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

impl<T> KeyPageResult<T> {
    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = (&Bytes, &T)> {
        self.listed.iter().filter_map(|listed| match listed {
            Listed::Key(key, entry) => Some((key, entry)),
            Listed::Prefix(_) => None,
        })
    }

    /// The common prefixes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = &Bytes> {
        self.listed.iter().filter_map(|listed| match listed {
            Listed::Key(..) => None,
            Listed::Prefix(prefix) => Some(prefix),
        })
    }
}

/// The first key behind all that begin with `prefix`; `None` when nothing is.
#[must_use]
pub fn behind_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte < 0xff)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind.into())
}
