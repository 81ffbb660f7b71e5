//! Blobs of keys that no version names.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::objects::UploadId;
use larder_model::rows::{Change, Row};
use larder_store::{Batch, ListedBlob, Partition, Table};

use super::Sweep;
use super::named::Wanted;
use crate::Rule;
use crate::metrics::Event;
use crate::objects::{Objects, Result};

/// How long the mark of a sweeper stays, in microseconds: longer than any write takes.
const MARK_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
/// The value of a mark: a version byte, nothing else.
const MARK_VALUE: &[u8] = &[1];

/// Blobs of one key, each with the name of its owner's row.
type Owned = Vec<(BlobId, Bytes)>;

impl Objects {
    /// Looks at every blob that belongs to a key. What one page has of a key is decided together.
    pub(super) async fn sweep_blobs(&self, done: &mut Sweep) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.gateway.ports.blobs.list(after, LISTING_PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            let mut keys: BTreeMap<Partition, Owned> = BTreeMap::new();
            for ListedBlob { id, owner, .. } in page.into_iter().filter(|blob| !blob.leased) {
                if owner.partition.table == Table::Heads {
                    keys.entry(owner.partition).or_default().push((id, owner.row));
                }
            }
            for (key, blobs) in keys {
                match self.sweep_key(&key, blobs).await {
                    Ok(removed) => done.blobs += removed,
                    Err(error) => done.fails("the bodies of an object", &error),
                }
            }
        }
    }

    /// Removes those of the blobs of a key that nobody names.
    async fn sweep_key(&self, key: &Partition, blobs: Owned) -> Result<u64> {
        let uploads: HashMap<BlobId, UploadId> =
            blobs.iter().filter_map(|(id, row)| Some((*id, upload_of(row)?))).collect();
        let mut wanted = self.without_alive(blobs, &uploads).await?;
        if wanted.is_found() {
            return Ok(0);
        }
        wanted = self.unnamed(key, &wanted).await?;
        if !wanted.is_found() && self.gateway.rule(Rule::FenceSweeper) {
            wanted = self.fenced(key, wanted).await?;
        }
        if !wanted.is_found() {
            // A power cut must not bring a version back that named them.
            self.on_disk().await?;
        }
        let mut removed = 0;
        for blob in wanted.blobs {
            // Asked last: who pins it from now on finds that the object is gone.
            let read = uploads.get(&blob).is_some_and(|upload| self.pins.holds_upload(upload));
            if read && self.gateway.rule(Rule::PinReaders) {
                continue;
            }
            self.gateway.ports.blobs.remove(blob).await?;
            self.gateway.metrics.event(Event::BlobSwept);
            removed += 1;
        }
        Ok(removed)
    }

    /// The blobs, but not those of uploads that have not ended: these are the uploads'.
    async fn without_alive(&self, blobs: Owned, uploads: &HashMap<BlobId, UploadId>) -> Result<Wanted> {
        let mut alive: HashMap<UploadId, bool> = HashMap::new();
        for upload in uploads.values() {
            if !alive.contains_key(upload) {
                let head = self.read_upload(*upload).await?;
                alive.insert(*upload, head.is_some_and(|head| head.upload.state.is_alive()));
            }
        }
        let is_alive = |blob: &BlobId| uploads.get(blob).and_then(|upload| alive.get(upload)) == Some(&true);
        let blobs = blobs.into_iter().map(|(blob, _)| blob).filter(|blob| !is_alive(blob)).collect();
        let ended = alive.into_iter().filter(|(_, alive)| !alive).map(|(upload, _)| upload);
        Ok(Wanted { blobs, uploads: ended.collect(), ..Wanted::default() })
    }

    /// What nobody can name any more: marked, the head touched, and looked for again.
    async fn fenced(&self, key: &Partition, wanted: Wanted) -> Result<Wanted> {
        let Some((bucket, name)) = key.of_head() else { return Ok(Wanted::default()) };
        for blob in &wanted.blobs {
            self.mark(*blob).await?;
        }
        self.touch(bucket, &name).await?;
        let left = self.unnamed_now(key, &wanted).await?;
        for named in wanted.blobs.difference(&left.blobs) {
            self.unmark(*named).await?;
        }
        Ok(left)
    }

    async fn mark(&self, blob: BlobId) -> Result<()> {
        let stamp = self.gateway.issue().await?;
        let expires = Some(self.gateway.now().saturating_add(MARK_MICROS));
        let mark = Row { name: Bytes::new(), value: Bytes::from_static(MARK_VALUE), stamp, expires };
        let batch = Batch::of(Partition::doomed(blob), vec![Change::Put(mark)]);
        Ok(self.gateway.ports.store.apply(batch, &self.options().reclaiming()).await?)
    }

    /// Takes a mark back: whoever set it, the blob is named now.
    async fn unmark(&self, blob: BlobId) -> Result<()> {
        let gone = Change::Clear { stamp: self.gateway.issue().await? };
        let batch = Batch::of(Partition::doomed(blob), vec![gone]);
        Ok(self.gateway.ports.store.apply(batch, &self.options().reclaiming()).await?)
    }
}

/// The upload whose part a blob was: its owner's row is the upload's id and the number of the part.
fn upload_of(row: &[u8]) -> Option<UploadId> {
    let (id, number) = row.split_at_checked(16)?;
    Some(UploadId(id.try_into().ok()?)).filter(|_| number.len() == 2)
}
