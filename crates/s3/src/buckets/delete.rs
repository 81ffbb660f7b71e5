//! Deletion of a bucket: close it on every gateway, scan it, then remove or reopen it.
//!
//! ```text
//! open ──close──> closing ──(no running write saw it open)──> scan ──empty──> gone
//!   ^                                                         └──not empty──> open
//! ```
//! If the deleter dies, the next request that needs the name takes the deletion over after a minute. It closes the bucket
//! anew, so the first deleter cannot finish: it expects the version of its own closing change.

use larder_core::types::{Catalogue, CatalogueEdit};
use larder_rows::Timestamp;
use larder_rows::limits::KEY_VIEW_SHARDS;
use larder_store::{Partition, ReadQuery};

use super::super::{Caller, Error, Result};
use super::{Buckets, catalogue_key};
use crate::catalogue::S3Catalogue;
use crate::rules::{Bucket, BucketId, BucketState};

/// The time after which a closing bucket counts as abandoned: longer than any wait of its deleter.
const CLOSING_MAX_MICROS: u64 = 60_000_000;

/// A closing bucket, and the catalogue version that closed it.
struct ClosedBucket<'a> {
    name: &'a str,
    id: BucketId,
    number: Timestamp,
}

impl Buckets {
    /// Deletes an empty bucket: closes it on every gateway, scans it, and removes or reopens it. Its open uploads go with it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BucketNotEmpty`, `OperationAborted` while another request deletes it.
    pub async fn delete(&self, caller: &Caller, name: &str) -> Result<()> {
        let catalogue = self.gateway.catalogue().refreshed().await?;
        let bucket =
            S3Catalogue::within(&catalogue).bucket(name).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
        caller.check(bucket, &caller.action()?.on_bucket())?;
        // A bucket that is visibly not empty is not closed: its clients would notice. One that moves may have keys at the source.
        if bucket.moving.is_some() || bucket.state == BucketState::Active && !self.is_empty(bucket.id).await? {
            return Err(Error::BucketNotEmpty);
        }
        let id = bucket.id;
        let number = self.close(name, id, false).await?;
        self.end_closing(&ClosedBucket { name, id, number }).await
    }

    /// Finishes an abandoned deletion of this name: the bucket is then gone or open.
    pub(crate) async fn settle_closing(&self, name: &str) -> Result<()> {
        let catalogue = self.gateway.catalogue().refreshed().await?;
        let Some(bucket) =
            S3Catalogue::within(&catalogue).bucket(name).filter(|bucket| bucket.state == BucketState::Closing)
        else {
            return Ok(());
        };
        let id = bucket.id;
        let ended = async {
            let number = self.close(name, id, true).await?;
            self.end_closing(&ClosedBucket { name, id, number }).await
        };
        match ended.await {
            Err(Error::BucketNotEmpty | Error::NoSuchBucket(_)) => Ok(()),
            ended => ended,
        }
    }

    /// Finishes every abandoned deletion.
    pub(crate) async fn settle_all_closing(&self) -> Result<()> {
        let catalogue = self.gateway.catalogue().fresh().await?;
        for name in S3Catalogue::within(&catalogue).closing().keys() {
            match self.settle_closing(name).await {
                Ok(()) | Err(Error::OperationAborted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes an abandoned closing bucket, or an open one unless `abandoned_only`. Returns the version of the change.
    async fn close(&self, name: &str, id: BucketId, abandoned_only: bool) -> Result<Timestamp> {
        let edit = self.gateway.catalogue().change(|catalogue| {
            let bucket = same(catalogue, name, id).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            // Bound: an earlier takeover would fail a deleter that still waits for the other gateways.
            let can_close = match S3Catalogue::within(catalogue).closing().get(name) {
                Some(closed) => self.gateway.context().now() >= closed.saturating_add(CLOSING_MAX_MICROS),
                None => !abandoned_only,
            };
            if !can_close {
                return Err(Error::OperationAborted);
            }
            if bucket.moving.is_some() {
                return Err(Error::BucketNotEmpty);
            }
            let closing = Bucket { state: BucketState::Closing, ..bucket.clone() };
            Ok(CatalogueEdit::Write(catalogue_key(name), closing.to_json()))
        });
        edit.await
    }

    /// Removes a closed bucket if it is empty once every gateway has closed it; otherwise reopens it.
    async fn end_closing(&self, closed: &ClosedBucket<'_>) -> Result<()> {
        let looked = async {
            // Race: a put that saw the bucket open must end before the scan, or the scan misses its object [invariant 64].
            self.gateway.members().await_propagation(closed.number).await?;
            self.is_empty(closed.id).await
        };
        match looked.await {
            // Race: no put comes after the scan, since every gateway refuses puts to a closing bucket [invariant 64].
            Ok(true) => self.change_closed(closed, |_| CatalogueEdit::Remove(catalogue_key(closed.name))).await,
            Ok(false) => {
                self.reopen(closed).await?;
                Err(Error::BucketNotEmpty)
            }
            Err(error) => {
                // Crash: a gateway that dies before this leaves the bucket closed until another request takes over.
                if let Err(error) = self.reopen(closed).await {
                    tracing::warn!(%error, bucket = closed.name, "reopening failed; the bucket stays closed until a create, delete or sweep");
                }
                Err(error)
            }
        }
    }

    async fn reopen(&self, closed: &ClosedBucket<'_>) -> Result<()> {
        let open = |bucket: &Bucket| {
            let open = Bucket { state: BucketState::Active, ..bucket.clone() };
            CatalogueEdit::Write(catalogue_key(closed.name), open.to_json())
        };
        self.change_closed(closed, open).await
    }

    /// Changes a bucket that is still closed by the same change.
    async fn change_closed(&self, closed: &ClosedBucket<'_>, edit: impl Fn(&Bucket) -> CatalogueEdit) -> Result<()> {
        let change = self.gateway.catalogue().change(|catalogue| {
            let bucket = same(catalogue, closed.name, closed.id);
            // Race: another request may have closed the bucket anew; only the last one to close it ends the deletion.
            let is_last = S3Catalogue::within(catalogue).closing().get(closed.name) == Some(&closed.number);
            bucket.filter(|_| is_last).map(&edit).ok_or(Error::OperationAborted)
        });
        change.await.map(|_| ())
    }

    /// Whether no key of a bucket has a version or a delete marker.
    async fn is_empty(&self, id: BucketId) -> Result<bool> {
        for shard in 0..KEY_VIEW_SHARDS {
            let page =
                self.gateway.context().read_at_quorum(&Partition::entries(id, shard), &ReadQuery::all(1)).await?;
            if !page.rows.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The bucket of this name, if it has this id.
fn same<'a>(catalogue: &'a Catalogue, name: &str, id: BucketId) -> Option<&'a Bucket> {
    S3Catalogue::within(catalogue).bucket(name).map(|bucket| &**bucket).filter(|bucket| bucket.id == id)
}
