//! Random requests for one key through two gateways, against a model of its versions and their locks.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_testkit::{SplitMix64, case_seeds};

use super::*;
use crate::Caller;
use crate::buckets::NewBucket;
use crate::buckets::testing::{S3TestStore, new_caller};
use crate::commit::testing::{BUCKET, bytes, get_request, id, put_request, run};
use crate::copy::CopyObject;
use crate::encryption::EncryptionChoice;
use crate::put::{ObjectMetadata, PutObject, WriteConditions};
use crate::rules::RetentionMode;

const KEY: Bytes = Bytes::from_static(b"key");
const MINUTE: u64 = 60_000_000;
const STEPS: usize = 120;

/// The versions with their locks, and the gateways.
struct LockModel {
    gateways: Vec<Arc<Objects>>,
    owner: Caller,
    dice: SplitMix64,
    versions: BTreeMap<String, ObjectLock>,
    refused: usize,
}

/// The published rule, written once more: what protects a version from a removal.
fn is_protected(lock: ObjectLock, now: Timestamp, bypass: bool) -> bool {
    let retained = lock
        .retention
        .is_some_and(|Retention { mode, until }| now < until && !(mode == RetentionMode::Governance && bypass));
    lock.legal_hold == Some(true) || retained
}

/// What a retention refuses.
fn refuses(lock: ObjectLock, next: Option<Retention>, now: Timestamp, bypass: bool) -> bool {
    let Some(present) = lock.retention.filter(|present| now < present.until) else { return false };
    let extends = next.is_some_and(|next| next.mode == present.mode && next.until >= present.until);
    let is_bypassed = bypass && present.mode == RetentionMode::Governance;
    !extends && !is_bypassed
}

impl LockModel {
    fn gateway(&mut self) -> Arc<Objects> {
        Arc::clone(self.dice.pick(&self.gateways))
    }

    fn now(&self) -> Timestamp {
        self.gateways[0].gateway.context().now()
    }

    fn retention(&mut self) -> Option<Retention> {
        let mode = *self.dice.pick(&[RetentionMode::Governance, RetentionMode::Compliance]);
        let until = self.now() + (1 + self.dice.number_below(20)) * MINUTE;
        self.dice.chance(700).then(|| Retention::new(mode, until))
    }

    fn lock(&mut self) -> ObjectLock {
        let legal_hold = *self.dice.pick(&[None, None, Some(false), Some(true)]);
        ObjectLock { retention: self.retention(), legal_hold }
    }

    fn bypass(&mut self) -> GovernanceBypass {
        *self.dice.pick(&[GovernanceBypass::Absent, GovernanceBypass::Requested])
    }

    fn version(&mut self) -> Option<(String, ObjectLock)> {
        let all: Vec<_> = self.versions.iter().map(|(id, lock)| (id.clone(), *lock)).collect();
        (!all.is_empty()).then(|| self.dice.pick(&all).clone())
    }

    async fn step(&mut self) {
        let (objects, owner) = (self.gateway(), self.owner.clone());
        let (lock, bypass) = (self.lock(), self.bypass());
        let asks = bypass == GovernanceBypass::Requested;
        let version = self.version();
        match (self.dice.below(10), version) {
            (0..=2, _) => {
                let metadata = ObjectMetadata { lock, ..ObjectMetadata::default() };
                let stored = objects.put(&owner, PutObject { metadata, ..put_request("key", &bytes(1, 10)) }).await;
                self.versions.insert(stored.unwrap().version_id.unwrap(), lock);
            }
            (3, Some((source, _))) => {
                let request = CopyObject {
                    source: crate::get::GetObject { version: id(&source), ..get_request("key") },
                    bucket: BUCKET.into(),
                    key: KEY,
                    replace: Some(ObjectMetadata::default()),
                    tags: None,
                    acl: crate::acl_choice::AclChoice::Private,
                    keeps_acl: false,
                    own: Vec::new(),
                    encryption: EncryptionChoice::BucketDefault,
                    changes_more: false,
                    checksum: None,
                    lock,
                    conditions: WriteConditions::default(),
                };
                let copied = objects.copy(&owner, request).await.unwrap().stored;
                self.versions.insert(copied.version_id.unwrap(), lock);
            }
            (4, Some((target, mut lock))) => {
                lock.legal_hold = Some(self.dice.chance(500));
                let held = lock.legal_hold == Some(true);
                objects.put_legal_hold(&owner, BUCKET, &KEY, &id(&target), held).await.unwrap();
                self.versions.insert(target, lock);
            }
            (5..=6, Some((target, present))) => {
                let refused = refuses(present, lock.retention, self.now(), asks);
                let next = lock.retention;
                let put = objects.put_retention(&owner, BUCKET, &KEY, &id(&target), next, bypass).await;
                assert_eq!(put.is_err(), refused, "{present:?} {next:?} {bypass:?}: {put:?}");
                self.refused += usize::from(refused);
                if !refused {
                    self.versions.insert(target, ObjectLock { retention: next, ..present });
                }
            }
            (7, Some((target, present))) => {
                let protected = is_protected(present, self.now(), asks);
                let deleted = objects.delete(&owner, BUCKET, &KEY, &id(&target), None, bypass).await;
                assert_eq!(deleted.is_err(), protected, "{present:?} {bypass:?}: {deleted:?}");
                self.refused += usize::from(protected);
                if !protected {
                    self.versions.remove(&target);
                }
            }
            (8, _) => {
                objects.delete(&owner, BUCKET, &KEY, &VersionSpec::Current, None, bypass).await.unwrap();
            }
            _ => {
                let minutes = 1 + self.dice.number_below(8);
                tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
                self.tick().await;
            }
        }
    }

    /// As the servers do each minute, twice: a gateway whose lock clock has just begun learns the time of the other one.
    async fn tick(&self) {
        for gateway in self.gateways.iter().chain(&self.gateways) {
            gateway.lock_clock.tick().await.unwrap();
        }
    }

    /// Every version of the model is there, with its lock.
    async fn check(&mut self) {
        for (version, lock) in self.versions.clone() {
            let objects = self.gateway();
            let wanted = crate::get::GetObject { version: id(&version), ..get_request("key") };
            let found = objects.head(&self.owner, &wanted).await.unwrap();
            assert_eq!((found.lock, found.version.lock()), (lock, lock), "{version}");
        }
    }
}

#[test]
fn random_requests_keep_every_locked_version() {
    let mut refused = 0;
    for seed in case_seeds(6, 1_000) {
        refused += run(async {
            let stores = S3TestStore::new();
            let gateways = vec![stores.gateway().await, stores.gateway().await];
            let owner = new_caller(&gateways[0], "owner").await;
            let new = NewBucket { has_lock: true, ..NewBucket::default() };
            gateways[0].buckets.create_with(&owner, BUCKET, new).await.unwrap();
            let (dice, versions) = (SplitMix64::new(seed), BTreeMap::new());
            let mut model = LockModel { gateways, owner, dice, versions, refused: 0 };
            for _ in 0..STEPS {
                model.step().await;
                model.check().await;
            }
            model.refused
        });
    }
    assert!(refused > 0, "no lock was ever tested");
}
