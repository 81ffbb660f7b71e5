//! Deleting a bucket: closed everywhere, looked at, then gone or open again.
//!
//! ```text
//! open ──close──> closing ──(no write under way knows it as open)──> look ──empty──> gone
//!   ^                                                                  └──not empty──> open
//! ```
//! A closing bucket whose deleter died is taken over after a minute by the next who wants its name. Who takes it over closes
//! it anew, so the one before cannot end what it has begun: the number of the change that closed it has moved on.

use larder_model::limits::KEY_VIEW_SHARDS;
use larder_model::objects::{Bucket, BucketId, BucketState};
use larder_model::rows::{Micros, Stamp};
use larder_store::{Level, Partition, ReadQuery};

use super::super::{Caller, Error, Objects, Result};
use super::{check, key_of};
use crate::Rule;
use crate::types::{Catalogue, Edit};

/// When a bucket that is being deleted counts as left behind: longer than any wait of its deleter.
const CLOSING_MAX_MICROS: Micros = 60_000_000;

/// A bucket that was closed, and by which change.
struct Closed<'a> {
    name: &'a str,
    id: BucketId,
    number: Stamp,
}

impl Objects {
    /// Deletes an empty bucket: it is closed everywhere, looked at, and then gone or open again. Its open uploads go with it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BucketNotEmpty`, `OperationAborted` while somebody else is deleting it.
    pub async fn delete_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let bucket = catalogue.s3_bucket(name).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
        check(caller, bucket, "s3:DeleteBucket")?;
        // What can be seen to be in use is not closed at all: its clients would notice.
        if bucket.state == BucketState::Active && !self.is_empty(bucket.id).await? {
            return Err(Error::BucketNotEmpty);
        }
        let id = bucket.id;
        let number = self.close(name, id, false).await?;
        self.end_closing(&Closed { name, id, number }).await
    }

    /// Ends the deletion of a bucket of this name if it was left behind: the bucket is gone or open then.
    pub(in crate::objects) async fn settle_closing(&self, name: &str) -> Result<()> {
        self.gateway.refresh().await?;
        let catalogue = self.gateway.fresh().await?;
        let Some(bucket) = catalogue.s3_bucket(name).filter(|bucket| bucket.state == BucketState::Closing) else {
            return Ok(());
        };
        let id = bucket.id;
        let ended = async {
            let number = self.close(name, id, true).await?;
            self.end_closing(&Closed { name, id, number }).await
        };
        match ended.await {
            Err(Error::BucketNotEmpty | Error::NoSuchBucket(_)) => Ok(()),
            ended => ended,
        }
    }

    /// Ends every deletion that was left behind.
    pub(in crate::objects) async fn settle_all_closing(&self) -> Result<()> {
        let catalogue = self.gateway.fresh().await?;
        for name in catalogue.s3_closing().keys() {
            match self.settle_closing(name).await {
                Ok(()) | Err(Error::OperationAborted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes a bucket that was left behind closed, or one that is open unless `left_behind` alone is meant. Answers the number
    /// of the change.
    async fn close(&self, name: &str, id: BucketId, left_behind: bool) -> Result<Stamp> {
        let edit = self.gateway.change_as(|catalogue| {
            let bucket = same(catalogue, name, id).ok_or_else(|| Error::NoSuchBucket(name.to_owned()))?;
            let may = match catalogue.s3_closing().get(name) {
                Some(closed) => self.gateway.now() >= closed.saturating_add(CLOSING_MAX_MICROS),
                None => !left_behind,
            };
            if !may {
                return Err(Error::OperationAborted);
            }
            let closing = Bucket { state: BucketState::Closing, ..bucket.clone() };
            Ok(Edit::Write(key_of(name), closing.to_json()))
        });
        edit.await
    }

    /// Removes a closed bucket that is empty once every gateway has closed it, and opens any other again.
    async fn end_closing(&self, closed: &Closed<'_>) -> Result<()> {
        let looked = async {
            if self.gateway.rule(Rule::CloseBuckets) {
                self.gateway.seen_by_all(closed.number).await?;
            }
            self.is_empty(closed.id).await
        };
        match looked.await {
            Ok(true) => self.change_closed(closed, |_| Edit::Remove(key_of(closed.name))).await,
            Ok(false) => {
                self.reopen(closed).await?;
                Err(Error::BucketNotEmpty)
            }
            Err(error) => {
                if let Err(error) = self.reopen(closed).await {
                    tracing::warn!(%error, bucket = closed.name, "a bucket stays closed until somebody wants it again");
                }
                Err(error)
            }
        }
    }

    async fn reopen(&self, closed: &Closed<'_>) -> Result<()> {
        let open = |bucket: &Bucket| {
            let open = Bucket { state: BucketState::Active, ..bucket.clone() };
            Edit::Write(key_of(closed.name), open.to_json())
        };
        self.change_closed(closed, open).await
    }

    /// Changes a bucket that is closed still, and by the same change.
    async fn change_closed(&self, closed: &Closed<'_>, edit: impl Fn(&Bucket) -> Edit) -> Result<()> {
        let change = self.gateway.change_as(|catalogue| {
            let bucket = same(catalogue, closed.name, closed.id);
            let own = catalogue.s3_closing().get(closed.name) == Some(&closed.number);
            bucket.filter(|_| own).map(&edit).ok_or(Error::OperationAborted)
        });
        change.await.map(|_| ())
    }

    /// Whether no key of a bucket has a version or a delete marker.
    async fn is_empty(&self, id: BucketId) -> Result<bool> {
        for shard in 0..KEY_VIEW_SHARDS {
            let options = self.gateway.own(Level::Quorum);
            let any = ReadQuery::all(1);
            let page = self.gateway.ports.store.read(&Partition::entries(id, shard), &any, &options).await?;
            if !page.rows.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The bucket of this name, if it is the one of this id.
fn same<'a>(catalogue: &'a Catalogue, name: &str, id: BucketId) -> Option<&'a Bucket> {
    catalogue.s3_bucket(name).map(|bucket| &**bucket).filter(|bucket| bucket.id == id)
}
