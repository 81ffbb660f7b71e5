//! The blobs of a store, in the order of their ids: small ones are prefetched, large ones read in pieces.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, BlobReader, Kind, ListedBlob};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::catalogue::TypeCatalogue;
use crate::cursor::{HexBytes, ScanCursor};
use crate::record::{BlobStart, PIECE_BYTES_MAX, SegmentRecord};
use crate::retry::{join_result, with_retries};
use crate::totals::{BlobDigest, Totals};
use crate::{Error, Result, StorePair};

const WHAT: &str = "reading a large body";
/// Most blobs read at once; each may be [`PIECE_BYTES_MAX`] long.
const PREFETCH_BLOBS: usize = 12;
/// Blobs per page of the list. The embedded engine reads their bytes to list them.
const PAGE_BLOBS: usize = 64;

/// The scan of the blobs.
pub(super) struct BlobWalk {
    stores: StorePair,
    /// Listed blobs; `prefetch` reads the first of them.
    listed: VecDeque<ListedBlob>,
    prefetch: VecDeque<JoinHandle<Result<FetchedBlob>>>,
    /// Whether the list has no further page.
    done: bool,
    inside: Option<OpenBlob>,
}

/// The result of opening a blob.
enum FetchedBlob {
    /// The blob was removed after it was listed.
    Gone,
    /// All bytes of a small blob.
    Whole(Bytes),
    /// The reader of a large blob.
    Large(Box<dyn BlobReader>),
}

/// A blob whose start record was returned.
struct OpenBlob {
    id: BlobId,
    digest: BlobDigest,
    length: u64,
    at: u64,
    rest: BlobRemainder,
}

enum BlobRemainder {
    Whole(Bytes),
    Large(Box<dyn BlobReader>),
}

impl BlobWalk {
    pub(super) fn new(stores: StorePair) -> Self {
        Self { stores, listed: VecDeque::new(), prefetch: VecDeque::new(), done: false, inside: None }
    }

    /// Whether the scan is inside a blob.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The next record; `None` at the end.
    pub(super) async fn next(
        &mut self,
        cursor: &mut ScanCursor,
        totals: &mut Totals,
        copies: &TypeCatalogue,
    ) -> Result<Option<SegmentRecord>> {
        if let Some(inside) = self.inside.take() {
            return self.piece(inside, cursor, totals).await.map(Some);
        }
        loop {
            self.fill(cursor).await?;
            let (Some(ListedBlob { id, owner, .. }), Some(reading)) =
                (self.listed.pop_front(), self.prefetch.pop_front())
            else {
                return Ok(None);
            };
            let (length, rest) = match join_result(WHAT, reading.await)? {
                FetchedBlob::Gone => {
                    // The cursor passes a removed blob too: the next page begins after it.
                    cursor.next = Some(hex_name(id));
                    continue;
                }
                FetchedBlob::Whole(bytes) => (bytes.len() as u64, BlobRemainder::Whole(bytes)),
                FetchedBlob::Large(reader) => (reader.length(), BlobRemainder::Large(reader)),
            };
            let owner = BlobOwner { partition: copies.with_copies(owner.partition), row: owner.row };
            let digest = BlobDigest::new(id, &owner, length);
            if length == 0 {
                totals.blob(0, digest.finish());
                cursor.next = Some(hex_name(id));
            } else {
                self.inside = Some(OpenBlob { id, digest, length, at: 0, rest });
            }
            return Ok(Some(SegmentRecord::Blob(BlobStart { id, owner, length })));
        }
    }

    async fn piece(
        &mut self,
        mut inside: OpenBlob,
        cursor: &mut ScanCursor,
        totals: &mut Totals,
    ) -> Result<SegmentRecord> {
        let bytes = match &mut inside.rest {
            BlobRemainder::Whole(bytes) => std::mem::take(bytes),
            BlobRemainder::Large(reader) => read_piece(reader.as_mut(), inside.at, inside.length).await?,
        };
        inside.at += bytes.len() as u64;
        inside.digest.update(&bytes);
        if inside.at == inside.length {
            totals.blob(inside.length, inside.digest.finish());
            // Only now: a resumed scan begins after the last whole blob.
            cursor.next = Some(hex_name(inside.id));
        } else {
            self.inside = Some(inside);
        }
        Ok(SegmentRecord::Piece(bytes))
    }

    async fn fill(&mut self, cursor: &ScanCursor) -> Result<()> {
        if self.listed.is_empty() && !self.done {
            let last = cursor.next.as_ref().map(|name| decode_id(&name.0)).transpose()?;
            let blobs = &self.stores.blobs;
            let page = with_retries("listing large bodies", |_| blobs.list(last, PAGE_BLOBS)).await?;
            self.done = page.is_empty();
            self.listed = page.into();
        }
        while self.prefetch.len() < PREFETCH_BLOBS
            && let Some(blob) = self.listed.get(self.prefetch.len())
        {
            let (id, stores) = (blob.id, self.stores.clone());
            self.prefetch.push_back(tokio::spawn(async move { fetch(&stores, id).await }));
        }
        Ok(())
    }
}

impl Drop for BlobWalk {
    fn drop(&mut self) {
        self.prefetch.iter().for_each(JoinHandle::abort);
    }
}

async fn fetch(stores: &StorePair, id: BlobId) -> Result<FetchedBlob> {
    let mut reader = match with_retries(WHAT, |_| stores.blobs.open(id)).await {
        Ok(reader) => reader,
        Err(Error::Store { source, .. }) if source.kind == Kind::NoSuchBlob => return Ok(FetchedBlob::Gone),
        Err(error) => return Err(error),
    };
    let length = reader.length();
    if length > PIECE_BYTES_MAX as u64 {
        return Ok(FetchedBlob::Large(reader));
    }
    let bytes = if length == 0 { Bytes::new() } else { read_piece(reader.as_mut(), 0, length).await? };
    Ok(FetchedBlob::Whole(bytes))
}

/// The next bytes of a blob: a whole piece, or the rest.
async fn read_piece(reader: &mut dyn BlobReader, at: u64, length: u64) -> Result<Bytes> {
    let piece_bytes = usize::try_from(length - at).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
    let first = read_some(reader, at, piece_bytes).await?;
    if first.len() == piece_bytes {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(piece_bytes);
    whole.extend_from_slice(&first);
    while whole.len() < piece_bytes {
        let more = read_some(reader, at + whole.len() as u64, piece_bytes - whole.len()).await?;
        whole.extend_from_slice(&more);
    }
    Ok(whole.freeze())
}

/// Some of the bytes of a blob, at least one.
async fn read_some(reader: &mut dyn BlobReader, at: u64, max: usize) -> Result<Bytes> {
    let reader = Mutex::new(reader);
    let read = |_| async { reader.lock().await.read(at, max).await };
    let bytes = with_retries(WHAT, read).await?;
    // An engine that returns no bytes would make the scan read for ever.
    if bytes.is_empty() || bytes.len() > max {
        return Err(Error::unreadable(WHAT, "it ends before its length"));
    }
    Ok(bytes)
}

fn hex_name(id: BlobId) -> HexBytes {
    HexBytes(Bytes::copy_from_slice(&id.0))
}

fn decode_id(name: &[u8]) -> Result<BlobId> {
    name.try_into().map(BlobId).map_err(|_| Error::unreadable(WHAT, "a place between large bodies that is none"))
}
