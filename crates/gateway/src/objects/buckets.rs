//! Buckets and their configurations: rows of the catalogue.

use std::sync::Arc;

use larder_model::objects::Bucket;

use super::acl::AclChoice;
use super::{Caller, Objects, Result};

/// A page of buckets.
#[derive(Debug, Clone)]
pub struct BucketsPage {
    /// The buckets, by name.
    pub buckets: Vec<Arc<Bucket>>,
    /// The name behind which the next page begins; `None` at the end.
    pub next: Option<String>,
}

impl Objects {
    /// Creates a bucket; its caller owns it.
    ///
    /// # Errors
    /// `AccessDenied` for nobody, `InvalidBucketName`, `BucketExists`, `TooManyBuckets`, `OperationAborted` while one of this
    /// name is being deleted, and what a list of grants may be refused for.
    pub async fn create_bucket(&self, caller: &Caller, name: &str, acl: AclChoice) -> Result<()> {
        unimplemented!()
    }

    /// Deletes an empty bucket: it is closed everywhere, looked at, and then gone or open again. Its open uploads go with it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BucketNotEmpty`.
    pub async fn delete_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        unimplemented!()
    }

    /// The bucket, if the caller may do `action` (as policies name it) on it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn bucket_for(&self, caller: &Caller, name: &str, action: &'static str) -> Result<Arc<Bucket>> {
        unimplemented!()
    }

    /// The caller's buckets behind `after` whose names begin with `prefix`, at most `max`.
    ///
    /// # Errors
    /// `AccessDenied` for nobody.
    pub async fn list_buckets(&self, caller: &Caller, prefix: &str, after: &str, max: usize) -> Result<BucketsPage> {
        unimplemented!()
    }

    /// Changes the configuration of a bucket; holds on every running gateway once this is answered.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, and what `change` answers.
    pub async fn configure(
        &self,
        caller: &Caller,
        name: &str,
        action: &'static str,
        change: impl Fn(&mut Bucket) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        unimplemented!()
    }
}
