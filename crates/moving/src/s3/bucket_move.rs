//! The buckets of an S3 store: which of them move, and what they are here.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_api_s3::BucketDocument;
use larder_rows::MoveWish;
use larder_rows::address::BucketAddress;
use larder_s3::acl::AclChoice;
use larder_s3::buckets::NewBucket;
use larder_s3::{Caller, Error, Objects};
use larder_s3_rules::{S3Action, User};

use super::S3Source;
use crate::move_run::{MoveRun, MoveSource, MoveSteps, MoveStopped, SweepKind};
use crate::progress::MoveVerification;

/// In place of a bucket type, in the rows about moved keys.
pub(super) const S3_TYPE: &[u8] = b"s3";
/// What a move by passes asks of its operator.
const PASSES_NOTE: &str = "the source is followed by passes over its listings: let clients use this server when the seed begins, verify when the source has \
     no writers, then finish";
/// What does not come along without being asked for.
const ACL_NOTE: &str = "ACLs do not move: move start --acls brings them, with one request more for each object";

/// An S3 store as a source, and the objects of this one.
pub(crate) struct S3Side {
    pub(crate) source: S3Source,
    pub(crate) objects: Arc<Objects>,
}

impl MoveSource for S3Side {
    fn requests(&self) -> u64 {
        self.source.requests()
    }
}

#[async_trait]
impl MoveSteps for MoveRun<S3Side> {
    /// The buckets that move.
    type Scope = Vec<String>;

    async fn check(&self) -> Result<Vec<String>, MoveStopped> {
        self.tell(PASSES_NOTE.to_owned());
        if !self.brings_acls() {
            self.tell(ACL_NOTE.to_owned());
        }
        let listed = self.source.source.list_buckets().await?;
        let named = self.order.s3.as_ref().map(|terms| &terms.buckets[..]).unwrap_or_default();
        let noted = self.noted_buckets().await?;
        if let Some(missing) = named.iter().find(|name| !listed.contains(name) && !noted.contains(*name)) {
            return Err(MoveStopped(format!("the source has no bucket {}", missing.escape_debug())));
        }
        // One that the source has no more is looked at for its keys.
        let all: BTreeSet<String> = listed.into_iter().chain(noted).collect();
        Ok(all.into_iter().filter(|name| named.is_empty() || named.contains(name)).collect())
    }

    async fn prepare(&self, buckets: &Vec<String>) -> Result<(), MoveStopped> {
        // Clients may come before their keys: each bucket is there from here on, and asks the source.
        let noted = self.noted_buckets().await?;
        for name in buckets {
            self.bucket_is_here(name, noted.contains(name)).await?;
        }
        Ok(())
    }

    async fn close(&self) -> Result<(), MoveStopped> {
        let all = self.source.objects.buckets.all().await.map_err(stopped)?;
        let moving = all.iter().filter(|bucket| bucket.moving.is_some()).map(|bucket| bucket.name.clone());
        // Crash: a bucket that moves no more may still have markers. Race: a leader of before may have begun another one again.
        for name in self.noted_buckets().await?.into_iter().chain(moving).collect::<BTreeSet<_>>() {
            match self.close_bucket(&name).await {
                Ok(()) | Err(Error::NoSuchBucket(_)) => {}
                Err(error) => return Err(stopped(error)),
            }
        }
        Ok(())
    }

    async fn pass(self: Arc<Self>, buckets: &Vec<String>, kind: SweepKind) -> Result<MoveVerification, MoveStopped> {
        let mut found = self.begin_pass(kind);
        let noted = self.noted_buckets().await?;
        self.note(|progress| progress.sweep.buckets_known = buckets.len() as u64);
        for name in buckets {
            self.begin_bucket(name.clone());
            if self.bucket_is_here(name, noted.contains(name)).await? {
                self.pass_bucket(name, kind, &mut found).await?;
            }
            self.note(|progress| progress.sweep.buckets += 1);
        }
        self.end_pass(&mut found);
        Ok(found)
    }
}

impl MoveRun<S3Side> {
    async fn noted_buckets(&self) -> Result<BTreeSet<String>, MoveStopped> {
        let noted = self.store.buckets().await?.into_iter().filter(|bucket| bucket.bucket_type == S3_TYPE);
        Ok(noted.map(|bucket| String::from_utf8_lossy(&bucket.bucket).into_owned()).collect())
    }

    /// Ends the move of a bucket here, and removes the delete markers that it needed in one without versioning.
    async fn close_bucket(&self, name: &str) -> larder_s3::Result<()> {
        let (objects, mut after) = (&self.source.objects, Bytes::new());
        objects.buckets.set_moving(name, None).await?;
        loop {
            let (keys, next) = objects.marked_keys(name, &after).await?;
            for key in &keys {
                let mark = objects.current_version(name, key).await?;
                let is_clients = mark.is_some_and(|mark| mark.id.actor() != self.order.actor);
                if self.order.wish == MoveWish::Cancel && is_clients {
                    // A move that goes on later leaves the key as its client did.
                    self.leave_to_clients(name, key).await?;
                }
                objects.remove_mark(name, key).await?;
            }
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Makes a bucket that comes for the first time, with its configuration; whether its keys may come.
    async fn bucket_is_here(&self, name: &str, is_noted: bool) -> Result<bool, MoveStopped> {
        let is_here = self.make_unless_here(name, is_noted).await?;
        if is_here {
            // Race: from here on each deletion leaves a marker, so no import brings back what a client deletes [invariant 201].
            self.source.objects.buckets.set_moving(name, Some(self.order.actor)).await.map_err(stopped)?;
        }
        Ok(is_here)
    }

    async fn make_unless_here(&self, name: &str, is_noted: bool) -> Result<bool, MoveStopped> {
        let (owner, address) = (self.owner().await?, moved_bucket(name));
        match self.source.objects.buckets.find(name).await {
            Ok(bucket) if bucket.owner != owner.id => {
                self.tell(format!("bucket {name} is another user's here, and does not move"));
                return Ok(false);
            }
            Ok(_) if is_noted => return Ok(true),
            // Crash: it was made, and the rest of its configuration was not.
            Ok(_) if self.store.is_making(&address).await? => self.configure_all(name, &owner).await?,
            Ok(_) => self.tell(format!("bucket {name} exists here, and keeps its configuration")),
            Err(Error::NoSuchBucket(_)) if is_noted => {
                self.tell(format!("bucket {name} was deleted here, and moves no more"));
                return Ok(false);
            }
            Err(Error::NoSuchBucket(_)) => {
                if let Err(why) = self.make_bucket(name, &owner).await? {
                    self.tell(format!("bucket {name} does not move: {why}"));
                    return Ok(false);
                }
            }
            Err(error) => return Err(stopped(error)),
        }
        self.store.note_bucket(&address).await?;
        Ok(true)
    }

    /// The user who owns the buckets here.
    async fn owner(&self) -> Result<Arc<User>, MoveStopped> {
        let id = self.order.s3.as_ref().map(|terms| terms.owner.as_str()).unwrap_or_default();
        let user = self.source.objects.users.find_by_id(id).await.map_err(stopped)?;
        user.ok_or_else(|| MoveStopped("the user who owns the moved buckets is gone".to_owned()))
    }

    /// Makes a bucket as it is at the source; the inner error says why it cannot be here.
    async fn make_bucket(&self, name: &str, owner: &Arc<User>) -> Result<Result<(), String>, MoveStopped> {
        let lock = BucketDocument::ObjectLock.parameter();
        let has_lock = self.source.source.bucket_document(name, lock).await?.is_some();
        self.store.note_making(&moved_bucket(name)).await?;
        let new = NewBucket { acl: AclChoice::Private, has_lock, ..NewBucket::default() };
        match self.source.objects.buckets.create_with(&caller(owner, S3Action::CreateBucket), name, new).await {
            Ok(()) => {}
            Err(Error::Gateway(error)) => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
        }
        self.configure_all(name, owner).await?;
        Ok(Ok(()))
    }

    /// Gives a bucket all the configurations that it has at the source.
    async fn configure_all(&self, name: &str, owner: &Arc<User>) -> Result<(), MoveStopped> {
        for document in BucketDocument::ALL {
            if let Some(text) = self.source.source.bucket_document(name, document.parameter()).await? {
                self.configure(name, *document, &text, &caller(owner, document.action())).await?;
            }
        }
        // Ownership controls say whether a bucket has ACLs, and a public access block whom they may name.
        self.move_bucket_acl(name, owner).await
    }

    /// Tells that a document of a bucket is refused here.
    pub(super) fn tell_refused(&self, bucket: &str, document: &str, why: &str) {
        self.tell(format!("bucket {bucket}: its {document} is not taken: {why}"));
    }

    /// Gives a bucket one of its configurations. One that is refused here is told.
    async fn configure(
        &self,
        name: &str,
        document: BucketDocument,
        text: &Bytes,
        caller: &Caller,
    ) -> Result<(), MoveStopped> {
        let refused = |why: String| self.tell_refused(name, document.parameter(), &why);
        let change = match document.read(name, text) {
            Ok(change) => change,
            Err(error) => {
                refused(format!("{}: {}", error.code.name(), error.message));
                return Ok(());
            }
        };
        let changed = self.source.objects.buckets.configure(caller, name, |bucket| {
            change(bucket);
            Ok(())
        });
        match changed.await {
            Ok(()) => Ok(()),
            Err(Error::Gateway(error)) => Err(error.into()),
            Err(error) => {
                refused(error.to_string());
                Ok(())
            }
        }
    }
}

pub(super) fn caller(owner: &Arc<User>, action: S3Action) -> Caller {
    Caller { user: Some(Arc::clone(owner)), action: Some(action), ..Caller::default() }
}

/// A bucket in the rows about moved keys.
pub(super) fn moved_bucket(name: &str) -> BucketAddress {
    BucketAddress { bucket_type: Bytes::from_static(S3_TYPE), bucket: Bytes::copy_from_slice(name.as_bytes()) }
}

pub(super) fn stopped(error: Error) -> MoveStopped {
    MoveStopped(error.to_string())
}
