//! Reading an object.

use std::ops::Range;

use bytes::Bytes;
use larder_model::objects::Version;
use larder_model::rows::Micros;

use super::{Caller, Objects, Result};

/// Which version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VersionSpec {
    /// The current one.
    #[default]
    Current,
    /// The one of this id, as it came; `null` is one.
    Id(String),
}

/// Which bytes of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Window {
    /// All.
    #[default]
    Whole,
    /// From the first to the last offset, included; without a last one to the end.
    Range(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
    /// Those of this part, counted from 1.
    Part(u16),
}

/// What must hold of an object that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// `If-Match`: one of these entity tags, `*` any.
    pub if_match: Option<Vec<String>>,
    /// `If-None-Match`: none of these.
    pub if_none_match: Option<Vec<String>>,
    /// `If-Modified-Since`.
    pub modified_since: Option<Micros>,
    /// `If-Unmodified-Since`.
    pub unmodified_since: Option<Micros>,
    /// Whether a hit of `If-None-Match` or `If-Modified-Since` is a failed precondition too: the source of a copy.
    pub always_precondition: bool,
}

/// A get.
#[derive(Debug, Clone, Default)]
pub struct GetObject {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// Which version.
    pub version: VersionSpec,
    /// Which bytes.
    pub window: Window,
    /// What must hold.
    pub conditions: ReadConditions,
}

/// An object that was found.
#[derive(Debug)]
pub struct Found {
    /// The version, an object.
    pub version: Version,
    /// Its id as clients see it; `None` in a bucket that never kept versions.
    pub version_id: Option<String>,
    /// The bytes that were asked for.
    pub window: Range<u64>,
    /// Whether only some of the bytes were asked for.
    pub partial: bool,
    /// How many parts it was made of, when it was asked for a part.
    pub parts_count: Option<u32>,
    /// When and by which rule the lifecycle will remove it.
    pub expires: Option<(Micros, String)>,
}

impl Objects {
    /// What is known of an object, without its bytes.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchKey` (`AccessDenied` to who may not list the bucket), `NoSuchVersion`,
    /// `BadVersionId`, `DeleteMarker`, `PreconditionFailed`, `NotModified`, `InvalidRange`, `InvalidPartNumber`.
    pub async fn head(&self, caller: &Caller, request: &GetObject) -> Result<Found> {
        unimplemented!()
    }

    /// An object and a reader of the bytes asked for. They stay readable until the reader is dropped.
    ///
    /// # Errors
    /// As [`Self::head`], and `Damaged`.
    pub async fn get(&self, caller: &Caller, request: &GetObject) -> Result<(Found, ObjectReader)> {
        unimplemented!()
    }
}

/// Reads the bytes of a window, front to back.
pub struct ObjectReader;

impl ObjectReader {
    /// The next piece, at most `max` bytes (a MiB at most whatever `max`); empty at the end.
    ///
    /// # Errors
    /// `Damaged`: never wrong bytes.
    pub async fn next(&mut self, max: usize) -> Result<Bytes> {
        unimplemented!()
    }
}
