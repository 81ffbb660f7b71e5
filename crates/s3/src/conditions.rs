//! Conditions on reads and writes, and byte ranges. Pure.

use std::ops::Range;

use larder_rows::Timestamp;

use crate::object_location::client_version_id;
use crate::rules::{Bucket, Etag, SystemHeader, Version, VersionId};
use crate::{Error, Result};

/// Headers that a 304 answer repeats.
const CACHE_HEADERS: [SystemHeader; 2] = [SystemHeader::CacheControl, SystemHeader::Expires];

/// The bytes of an object a request names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadWindow {
    /// All.
    #[default]
    Whole,
    /// From the first to the last offset, inclusive; without a last one, to the end.
    Range(u64, Option<u64>),
    /// The last bytes, this many.
    Last(u64),
    /// Those of this part, counted from 1.
    Part(u16),
}

/// Conditions on an object to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// `If-Match`: entity tags of which one must match, `*` any.
    pub if_match: Option<Vec<String>>,
    /// `If-None-Match`: entity tags of which none may match.
    pub if_none_match: Option<Vec<String>>,
    /// `If-Modified-Since`.
    pub modified_since: Option<Timestamp>,
    /// `If-Unmodified-Since`.
    pub unmodified_since: Option<Timestamp>,
    /// Whether a hit of `If-None-Match` or `If-Modified-Since` is a failed precondition: for the source of a copy.
    pub always_precondition: bool,
    /// `If-Range`: the object a range belongs to; another object is read whole.
    pub if_range: Option<IfRange>,
}

/// The object of which a client has some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfRange {
    /// The object with this entity tag.
    Tag(String),
    /// The object last modified in this second.
    Modified(Timestamp),
    /// No object: the header is malformed or weak.
    Nothing,
}

/// Conditions on the current version at the commit. A delete marker counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-Match`: one of these entity tags (`*` any) must be current.
    pub if_match: Option<Vec<String>>,
    /// `If-None-Match`: none of these (`*`: no object) may be current.
    pub if_none_match: Option<Vec<String>>,
    /// This version must be current. A copy of an object onto itself is another version with the same entity tag.
    pub if_version: Option<VersionId>,
}

impl ReadConditions {
    /// Checks the conditions on a version. An `If-Match` that matches overrides `If-Unmodified-Since`, and a given
    /// `If-None-Match` overrides `If-Modified-Since` (RFC 9110, 13.2.2), of which a date after `now` says nothing (13.1.3).
    ///
    /// # Errors
    /// `PreconditionFailed`, `NotModified`.
    pub(crate) fn check(&self, bucket: &Bucket, version: &Version, now: impl FnOnce() -> Timestamp) -> Result<()> {
        let Some(object) = &version.object else { return Ok(()) };
        let etag = object.etag;
        // HTTP dates have whole seconds.
        let newer_than = |since: Timestamp| version.modified.as_secs() > since.as_secs();
        match (&self.if_match, self.unmodified_since) {
            (Some(tags), _) if !matches_etag(tags, Some(etag)) => return Err(Error::PreconditionFailed("If-Match")),
            (None, Some(since)) if newer_than(since) => return Err(Error::PreconditionFailed("If-Unmodified-Since")),
            _ => {}
        }
        let had = match (&self.if_none_match, self.modified_since) {
            (Some(tags), _) if matches_etag(tags, Some(etag)) => "If-None-Match",
            (None, Some(since)) if !newer_than(since) && since <= now() => "If-Modified-Since",
            _ => return Ok(()),
        };
        if self.always_precondition {
            return Err(Error::PreconditionFailed(had));
        }
        let headers = object.headers.iter().filter(|(name, _)| CACHE_HEADERS.contains(name));
        Err(Error::NotModified {
            etag,
            modified: version.modified,
            version: client_version_id(bucket, version),
            headers: headers.cloned().collect(),
        })
    }

    /// The window after `If-Range`: a client would append a range of another object to the bytes it has.
    pub(crate) fn window(&self, version: &Version, window: ReadWindow) -> ReadWindow {
        let is_range = matches!(window, ReadWindow::Range(..) | ReadWindow::Last(_));
        let fits = match &self.if_range {
            None => true,
            Some(IfRange::Tag(tag)) => {
                let etag = version.object.as_ref().map(|object| object.etag);
                tag != "*" && matches_etag(std::slice::from_ref(tag), etag)
            }
            Some(IfRange::Modified(when)) => version.modified.as_secs() == when.as_secs(),
            Some(IfRange::Nothing) => false,
        };
        if is_range && !fits { ReadWindow::Whole } else { window }
    }
}

impl WriteConditions {
    /// Whether there are no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none() && self.if_version.is_none()
    }

    /// Whether the answer says something of an entity tag.
    pub(crate) fn ask_for_tags(&self) -> bool {
        [&self.if_match, &self.if_none_match].into_iter().flatten().any(|tags| ask_for_tags(tags))
    }

    /// Checks the conditions on the current version.
    ///
    /// # Errors
    /// `PreconditionFailed`; `NoSuchKey` for an `If-Match` without an object.
    pub(crate) fn check(&self, current: Option<&Version>) -> Result<()> {
        let etag = current.and_then(|current| current.object.as_ref()).map(|object| object.etag);
        if let Some(tags) = &self.if_match {
            match etag {
                None => return Err(Error::NoSuchKey),
                Some(_) if !matches_etag(tags, etag) => return Err(Error::PreconditionFailed("If-Match")),
                Some(_) => {}
            }
        }
        if self.if_version.is_some() && self.if_version != current.map(|current| current.id) {
            return Err(Error::PreconditionFailed("the version"));
        }
        match &self.if_none_match {
            Some(tags) if matches_etag(tags, etag) => Err(Error::PreconditionFailed("If-None-Match")),
            _ => Ok(()),
        }
    }
}

/// Whether a condition asks for more than that there is an object.
pub(crate) fn ask_for_tags(tags: &[String]) -> bool {
    tags.iter().any(|tag| tag.trim() != "*")
}

/// Whether one of the given `tags` is this entity tag; `*` matches any. Weak tags count: ours never stand for different
/// bytes.
pub(crate) fn matches_etag(tags: &[String], etag: Option<Etag>) -> bool {
    let Some(etag) = etag else { return false };
    let strong = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    tags.iter().map(|tag| tag.trim()).any(|tag| tag == "*" || Etag::parse(&strong(tag)) == Some(etag))
}

/// The bytes of a window over an object of `length` bytes in one piece.
///
/// # Errors
/// `InvalidRange`, `InvalidPartNumber`.
pub(crate) fn window_range(window: ReadWindow, length: u64) -> Result<Range<u64>> {
    match window {
        ReadWindow::Whole | ReadWindow::Part(1) => Ok(0..length),
        ReadWindow::Part(_) => Err(Error::InvalidPartNumber),
        ReadWindow::Range(first, last) => {
            let end = last.map_or(length, |last| last.saturating_add(1).min(length));
            if first < end { Ok(first..end) } else { Err(Error::InvalidRange { length }) }
        }
        ReadWindow::Last(count) => {
            let first = length.saturating_sub(count);
            if first < length { Ok(first..length) } else { Err(Error::InvalidRange { length }) }
        }
    }
}
