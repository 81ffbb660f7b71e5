//! The blobs of a store, in the order of their ids: the small ones read ahead, the large ones in pieces.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use larder_model::content::BlobId;
use larder_store::{BlobOwner, BlobReader, Kind, ListedBlob};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::calls::{landed, patiently};
use crate::catalogue::Copies;
use crate::cursor::{Cursor, Name};
use crate::record::{BlobStart, PIECE_BYTES_MAX, Record};
use crate::totals::{BlobDigest, Totals};
use crate::{Ends, Error, Result};

const WHAT: &str = "reading a large body";
/// Blobs read at once; each may be [`PIECE_BYTES_MAX`] long.
const AHEAD: usize = 12;
/// Blobs listed at once: on the embedded engine that reads them too.
const PAGE: usize = 64;

/// Where the walk over blobs is.
pub(super) struct BlobWalk {
    ends: Ends,
    /// Listed, and the first of them being read.
    listed: VecDeque<ListedBlob>,
    ahead: VecDeque<JoinHandle<Result<Fetched>>>,
    /// Whether there may be more behind the last one listed.
    done: bool,
    inside: Option<Inside>,
}

/// What was found of a blob.
enum Fetched {
    /// It was removed meanwhile.
    Gone,
    /// All of it.
    Whole(Bytes),
    /// It is too long to be kept.
    Large(Box<dyn BlobReader>),
}

/// A blob whose beginning was answered.
struct Inside {
    id: BlobId,
    digest: BlobDigest,
    length: u64,
    at: u64,
    rest: Rest,
}

enum Rest {
    Whole(Bytes),
    Large(Box<dyn BlobReader>),
}

impl BlobWalk {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, listed: VecDeque::new(), ahead: VecDeque::new(), done: false, inside: None }
    }

    /// Whether a blob was begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The next record; `None` at the end.
    pub(super) async fn next(
        &mut self,
        cursor: &mut Cursor,
        totals: &mut Totals,
        copies: &Copies,
    ) -> Result<Option<Record>> {
        if let Some(inside) = self.inside.take() {
            return self.piece(inside, cursor, totals).await.map(Some);
        }
        loop {
            self.fill(cursor).await?;
            let (Some(ListedBlob { id, owner, .. }), Some(reading)) = (self.listed.pop_front(), self.ahead.pop_front())
            else {
                return Ok(None);
            };
            let (length, rest) = match landed(WHAT, reading.await)? {
                Fetched::Gone => {
                    cursor.next = Some(name_of(id));
                    continue;
                }
                Fetched::Whole(bytes) => (bytes.len() as u64, Rest::Whole(bytes)),
                Fetched::Large(reader) => (reader.length(), Rest::Large(reader)),
            };
            let owner = BlobOwner { partition: copies.place(owner.partition), row: owner.row };
            let digest = BlobDigest::new(id, &owner, length);
            if length == 0 {
                totals.blob(0, digest.finish());
                cursor.next = Some(name_of(id));
            } else {
                self.inside = Some(Inside { id, digest, length, at: 0, rest });
            }
            return Ok(Some(Record::Blob(BlobStart { id, owner, length })));
        }
    }

    async fn piece(&mut self, mut inside: Inside, cursor: &mut Cursor, totals: &mut Totals) -> Result<Record> {
        let bytes = match &mut inside.rest {
            Rest::Whole(bytes) => std::mem::take(bytes),
            Rest::Large(reader) => read_piece(reader.as_mut(), inside.at, inside.length).await?,
        };
        inside.at += bytes.len() as u64;
        inside.digest.update(&bytes);
        if inside.at == inside.length {
            totals.blob(inside.length, inside.digest.finish());
            cursor.next = Some(name_of(inside.id));
        } else {
            self.inside = Some(inside);
        }
        Ok(Record::Piece(bytes))
    }

    async fn fill(&mut self, cursor: &Cursor) -> Result<()> {
        if self.listed.is_empty() && !self.done {
            let last = cursor.next.as_ref().map(|name| id_of(&name.0)).transpose()?;
            let blobs = &self.ends.blobs;
            let page = patiently("listing large bodies", |_| blobs.list(last, PAGE)).await?;
            self.done = page.is_empty();
            self.listed = page.into();
        }
        while self.ahead.len() < AHEAD
            && let Some(blob) = self.listed.get(self.ahead.len())
        {
            let (id, ends) = (blob.id, self.ends.clone());
            self.ahead.push_back(tokio::spawn(async move { fetch(&ends, id).await }));
        }
        Ok(())
    }
}

impl Drop for BlobWalk {
    fn drop(&mut self) {
        self.ahead.iter().for_each(JoinHandle::abort);
    }
}

async fn fetch(ends: &Ends, id: BlobId) -> Result<Fetched> {
    let mut reader = match patiently(WHAT, |_| ends.blobs.open(id)).await {
        Ok(reader) => reader,
        Err(Error::Store { source, .. }) if source.kind == Kind::NoSuchBlob => return Ok(Fetched::Gone),
        Err(error) => return Err(error),
    };
    let length = reader.length();
    if length > PIECE_BYTES_MAX as u64 {
        return Ok(Fetched::Large(reader));
    }
    let bytes = if length == 0 { Bytes::new() } else { read_piece(reader.as_mut(), 0, length).await? };
    Ok(Fetched::Whole(bytes))
}

/// The next bytes of a blob: a whole piece, or what is left.
async fn read_piece(reader: &mut dyn BlobReader, at: u64, length: u64) -> Result<Bytes> {
    let wanted = usize::try_from(length - at).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
    let first = read_some(reader, at, wanted).await?;
    if first.len() == wanted {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(wanted);
    whole.extend_from_slice(&first);
    while whole.len() < wanted {
        let more = read_some(reader, at + whole.len() as u64, wanted - whole.len()).await?;
        whole.extend_from_slice(&more);
    }
    Ok(whole.freeze())
}

/// Some of the bytes of a blob, at least one.
async fn read_some(reader: &mut dyn BlobReader, at: u64, max: usize) -> Result<Bytes> {
    let reader = Mutex::new(reader);
    let read = |_| async { reader.lock().await.read(at, max).await };
    let bytes = patiently(WHAT, read).await?;
    if bytes.is_empty() || bytes.len() > max {
        return Err(Error::unreadable(WHAT, "it ends before its length"));
    }
    Ok(bytes)
}

fn name_of(id: BlobId) -> Name {
    Name(Bytes::copy_from_slice(&id.0))
}

fn id_of(name: &[u8]) -> Result<BlobId> {
    name.try_into().map(BlobId).map_err(|_| Error::unreadable(WHAT, "a place between large bodies that is none"))
}
