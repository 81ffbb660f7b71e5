use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use larder_core::{Config, Core};
use larder_store::Clock;
use larder_testkit::VirtualClock;
use tokio::time::Instant;

use super::*;
use crate::acl_choice::AclChoice;
use crate::buckets::NewBucket;
use crate::buckets::testing::{BEGIN, S3TestStore, caller, new_caller, ports_over, version, write_versions};
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, id, put_request, run};
use crate::copy::CopyObject;
use crate::encryption::EncryptionChoice;
use crate::get::GetObject;
use crate::lock_clock::LockClock;
use crate::put::{ObjectMetadata, PutObject, WriteConditions};
use crate::rules::lifecycle::{Lifecycle, LifecycleFilter, LifecycleRule, NoncurrentExpiration};
use crate::rules::policy::BucketPolicy;
use crate::rules::{BucketLock, DefaultRetention, Object, RetentionMode, RetentionPeriod, User, Versioning};
use crate::{Objects, ObjectsConfig};

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;
const GOVERNANCE: RetentionMode = RetentionMode::Governance;
const COMPLIANCE: RetentionMode = RetentionMode::Compliance;
const KEY: Bytes = Bytes::from_static(b"key");

/// A bucket with object lock.
async fn locked() -> BucketFixture {
    let fixture = BucketFixture::new().await;
    set_default(&fixture, None).await;
    fixture
}

async fn set_default(fixture: &BucketFixture, default_retention: Option<DefaultRetention>) {
    let change = |bucket: &mut Bucket| {
        bucket.versioning = Versioning::Enabled;
        bucket.object_lock = Some(BucketLock { default_retention });
        Ok(())
    };
    fixture.objects.buckets.configure(&fixture.owner, BUCKET, change).await.unwrap();
}

fn hours(fixture: &BucketFixture, mode: RetentionMode, hours: u64) -> Retention {
    Retention::new(mode, fixture.objects.gateway.context().now() + hours * HOUR)
}

/// Puts a version with a lock; returns its id.
async fn put(fixture: &BucketFixture, lock: ObjectLock) -> Result<String> {
    let metadata = ObjectMetadata { lock, ..ObjectMetadata::default() };
    let request = PutObject { metadata, ..put_request("key", &bytes(1, 10)) };
    Ok(fixture.objects.put(&fixture.owner, request).await?.version_id.unwrap())
}

async fn retained(fixture: &BucketFixture, mode: RetentionMode, length: u64) -> String {
    let retention = Some(hours(fixture, mode, length));
    put(fixture, ObjectLock { retention, legal_hold: None }).await.unwrap()
}

async fn remove(fixture: &BucketFixture, version: &str, bypass: GovernanceBypass) -> Result<()> {
    fixture.objects.delete(&fixture.owner, BUCKET, &KEY, &id(version), None, bypass).await.map(|_| ())
}

async fn retain(
    fixture: &BucketFixture,
    version: &str,
    next: Option<Retention>,
    bypass: GovernanceBypass,
) -> Result<()> {
    fixture.objects.put_retention(&fixture.owner, BUCKET, &KEY, &id(version), next, bypass).await
}

async fn hold(fixture: &BucketFixture, version: &str, is_on: bool) -> Result<()> {
    fixture.objects.put_legal_hold(&fixture.owner, BUCKET, &KEY, &id(version), is_on).await
}

fn admin() -> Caller {
    caller(&Arc::new(User { id: "admin".into(), admin: true, enabled: true, ..User::default() }))
}

const ASKED: GovernanceBypass = GovernanceBypass::Requested;
const PLAIN: GovernanceBypass = GovernanceBypass::Absent;

macro_rules! assert_locked {
    ($outcome:expr) => {
        assert!(matches!($outcome, Err(Error::Locked)), stringify!($outcome))
    };
}

#[test]
fn a_compliance_version_survives_every_caller_and_every_path() {
    run(async {
        let fixture = locked().await;
        let version = retained(&fixture, COMPLIANCE, 30).await;
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        assert_locked!(remove(&fixture, &version, ASKED).await);
        let objects = &fixture.objects;
        assert_locked!(objects.delete(&admin(), BUCKET, &KEY, &id(&version), None, ASKED).await);
        assert_locked!(retain(&fixture, &version, None, ASKED).await);
        assert_locked!(retain(&fixture, &version, Some(hours(&fixture, COMPLIANCE, 29)), ASKED).await);
        assert_locked!(retain(&fixture, &version, Some(hours(&fixture, GOVERNANCE, 60)), ASKED).await);
        let nothing = objects.put_retention(&admin(), BUCKET, &KEY, &id(&version), None, ASKED).await;
        assert_locked!(nothing);
        // Overwritten in each way, it stays below.
        fixture.put("key", &bytes(2, 20)).await;
        fixture.put_parts("key", &[bytes(3, 5000)]).await;
        fixture.delete("key", &VersionSpec::Current).await;
        assert_locked!(remove(&fixture, &version, ASKED).await);
        assert!(matches!(objects.buckets.delete(&fixture.owner, BUCKET).await, Err(Error::BucketNotEmpty)));
        assert!(matches!(
            objects.users.delete(&fixture.owner.user.as_ref().unwrap().key_id).await,
            Err(Error::UserHasBuckets)
        ));
        objects.sweeper.sweep().await.unwrap();
        assert_eq!(fixture.get("key", id(&version)).await.unwrap(), bytes(1, 10));
        let found = fixture.find(GetObject { version: id(&version), ..get_request("key") }).await.unwrap().0;
        assert_eq!(found.lock.retention.unwrap().mode, COMPLIANCE);
    });
}

#[test]
fn a_governance_retention_is_bypassed_with_the_permission_alone() {
    run(async {
        let fixture = locked().await;
        let deny = r#"{"Statement":[
            {"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/*"},
            {"Effect":"Deny","Principal":"*","Action":"s3:BypassGovernanceRetention","Resource":"arn:aws:s3:::bucket/*"}]}"#;
        let version = retained(&fixture, GOVERNANCE, 30).await;
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        assert_locked!(retain(&fixture, &version, Some(hours(&fixture, GOVERNANCE, 1)), PLAIN).await);
        let set = |policy: Option<&str>| {
            let policy = policy.map(|text| Arc::new(BucketPolicy::parse(BUCKET, text).unwrap()));
            let change = move |bucket: &mut Bucket| {
                bucket.policy.clone_from(&policy);
                Ok(())
            };
            let (objects, owner) = (Arc::clone(&fixture.objects), fixture.owner.clone());
            async move { objects.buckets.configure(&owner, BUCKET, change).await.unwrap() }
        };
        set(Some(deny)).await;
        assert!(matches!(remove(&fixture, &version, ASKED).await, Err(Error::AccessDenied)));
        assert!(matches!(retain(&fixture, &version, None, ASKED).await, Err(Error::AccessDenied)));
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        set(None).await;
        retain(&fixture, &version, Some(hours(&fixture, GOVERNANCE, 1)), ASKED).await.unwrap();
        remove(&fixture, &version, ASKED).await.unwrap();
    });
}

#[test]
fn a_legal_hold_is_released_and_not_bypassed() {
    run(async {
        let fixture = locked().await;
        let version = put(&fixture, ObjectLock { retention: None, legal_hold: Some(true) }).await.unwrap();
        assert_locked!(remove(&fixture, &version, ASKED).await);
        assert!(fixture.objects.legal_hold(&fixture.owner, BUCKET, &KEY, &id(&version)).await.unwrap());
        hold(&fixture, &version, false).await.unwrap();
        assert!(!fixture.objects.legal_hold(&fixture.owner, BUCKET, &KEY, &VersionSpec::Current).await.unwrap());
        remove(&fixture, &version, PLAIN).await.unwrap();
        let missing = fixture.objects.legal_hold(&fixture.owner, BUCKET, &KEY, &VersionSpec::Current).await;
        assert!(matches!(missing, Err(Error::NoSuchKey)));
    });
}

#[test]
fn a_retention_ends_with_time_and_stays_visible() {
    run(async {
        let fixture = locked().await;
        let version = retained(&fixture, COMPLIANCE, 3).await;
        tokio::time::sleep(Duration::from_secs(3 * 3_600 - 60)).await;
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        tokio::time::sleep(Duration::from_secs(120)).await;
        let ended = fixture.objects.retention(&fixture.owner, BUCKET, &KEY, &id(&version)).await.unwrap();
        assert_eq!(ended.mode, COMPLIANCE);
        retain(&fixture, &version, Some(hours(&fixture, GOVERNANCE, 1)), PLAIN).await.unwrap();
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        tokio::time::sleep(Duration::from_secs(3_700)).await;
        remove(&fixture, &version, PLAIN).await.unwrap();
    });
}

#[test]
fn the_default_of_the_bucket_counts_from_the_creation() {
    run(async {
        let fixture = locked().await;
        let default = DefaultRetention { mode: COMPLIANCE, period: RetentionPeriod::Days(2) };
        set_default(&fixture, Some(default)).await;
        let two_days = hours(&fixture, COMPLIANCE, 48);
        let lock = fixture.put("key", &bytes(1, 10)).await.version.lock();
        assert_eq!(lock, ObjectLock { retention: Some(two_days), legal_hold: None });
        let own = Some(hours(&fixture, GOVERNANCE, 1));
        let own = ObjectLock { retention: own, legal_hold: Some(false) };
        let version = put(&fixture, own).await.unwrap();
        assert_eq!(fixture.head("key").await.current.unwrap().lock(), own);
        // A copy has the default, not the lock of its source; and the source keeps its own.
        let request = CopyObject {
            source: get_request("key"),
            bucket: BUCKET.into(),
            key: KEY,
            replace: Some(ObjectMetadata::default()),
            tags: None,
            acl: AclChoice::Private,
            keeps_acl: false,
            own: Vec::new(),
            encryption: EncryptionChoice::BucketDefault,
            changes_more: false,
            checksum: None,
            lock: ObjectLock::default(),
            conditions: WriteConditions::default(),
        };
        let copied = fixture.objects.copy(&fixture.owner, request).await.unwrap().stored.version;
        assert_eq!(copied.lock(), ObjectLock { retention: Some(two_days), legal_hold: None });
        assert_locked!(remove(&fixture, &version, PLAIN).await);
        // An upload's default begins when it is completed.
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let made = fixture.put_parts("key", &[bytes(3, 5000)]).await;
        assert_eq!(made.lock().retention, Some(hours(&fixture, COMPLIANCE, 48)));
        let marker = fixture.delete("key", &VersionSpec::Current).await;
        remove(&fixture, &marker.version_id.unwrap(), PLAIN).await.unwrap();
        set_default(&fixture, None).await;
        assert_eq!(fixture.put("key", &bytes(1, 10)).await.version.lock(), ObjectLock::default());
    });
}

#[test]
fn a_client_that_asks_for_a_bypass_in_every_bucket_was_refused_where_there_is_none() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.versioning(Versioning::Enabled).await;
        let version = fixture.put("key", &bytes(1, 10)).await.version_id.unwrap();
        remove(&fixture, &version, ASKED).await.unwrap();
    });
}

#[test]
fn a_bucket_without_locks_takes_none_and_one_with_locks_keeps_them() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.versioning(Versioning::Suspended).await;
        let held = ObjectLock { retention: None, legal_hold: Some(false) };
        let version = fixture.put("key", &bytes(1, 10)).await.version_id.unwrap();
        assert!(matches!(put(&fixture, held).await, Err(Error::InvalidRequest(_))));
        assert!(matches!(hold(&fixture, &version, true).await, Err(Error::InvalidRequest(_))));
        let objects = &fixture.objects;
        let set = async |versioning, object_lock| {
            let change = |bucket: &mut Bucket| {
                (bucket.versioning, bucket.object_lock) = (versioning, object_lock);
                Ok(())
            };
            objects.buckets.configure(&fixture.owner, BUCKET, change).await
        };
        let lock = Some(BucketLock::default());
        let refused = |outcome| assert!(matches!(outcome, Err(Error::InvalidBucketState(_))), "{outcome:?}");
        refused(set(Versioning::Suspended, lock).await);
        refused(set(Versioning::Off, lock).await);
        set(Versioning::Enabled, lock).await.unwrap();
        refused(set(Versioning::Suspended, lock).await);
        refused(set(Versioning::Enabled, None).await);
        // An object that is older than the lock may get one.
        assert_eq!(version, "null");
        hold(&fixture, &version, true).await.unwrap();
        fixture.put("key", &bytes(2, 10)).await;
        assert_locked!(remove(&fixture, &version, ASKED).await);
        let new = |has_lock| NewBucket { has_lock, ..NewBucket::default() };
        objects.buckets.create_with(&fixture.owner, "other", new(false)).await.unwrap();
        let again = objects.buckets.create_with(&fixture.owner, "other", new(true)).await;
        assert!(matches!(again, Err(Error::BucketExists { own: true })), "a lock that is not made is not answered");
        objects.buckets.create_with(&fixture.owner, BUCKET, new(true)).await.unwrap();
        objects.buckets.create_with(&fixture.owner, BUCKET, new(false)).await.unwrap();
        assert_eq!(objects.buckets.find(BUCKET).await.unwrap().object_lock, lock);
    });
}

#[test]
fn a_retention_in_the_past_is_refused_before_the_lock_is_looked_at() {
    run(async {
        let fixture = locked().await;
        let version = retained(&fixture, COMPLIANCE, 3).await;
        let past = Retention { until: fixture.objects.gateway.context().now(), mode: COMPLIANCE };
        assert!(matches!(
            retain(&fixture, &version, Some(past), PLAIN).await,
            Err(Error::InvalidArgument { argument: RequestArgument::RetainUntilDate, .. })
        ));
        assert!(matches!(
            put(&fixture, ObjectLock { retention: Some(past), legal_hold: None }).await,
            Err(Error::InvalidArgument { argument: RequestArgument::RetainUntilHeader, .. })
        ));
    });
}

#[test]
fn lifecycle_rules_skip_what_is_locked_and_take_it_up_again() {
    run(async {
        let fixture = locked().await;
        let noncurrent = Some(NoncurrentExpiration { days: 1, keep: None });
        let filter = LifecycleFilter { prefix: Some(String::new()), ..LifecycleFilter::default() };
        let rule = LifecycleRule { id: "r".into(), enabled: true, filter, noncurrent, ..LifecycleRule::default() };
        let change = |bucket: &mut Bucket| {
            bucket.lifecycle = Some(Lifecycle { rules: vec![rule.clone()] });
            Ok(())
        };
        fixture.objects.buckets.configure(&fixture.owner, BUCKET, change).await.unwrap();
        let retention = Some(hours(&fixture, GOVERNANCE, 1));
        let old = |days: u64, lock| {
            let mut version = version(BEGIN - days * DAY, false, Some(10));
            version.object = version.object.map(|object| Object { lock, ..object });
            version
        };
        let held = old(8, ObjectLock { retention: None, legal_hold: Some(true) });
        let retained = old(7, ObjectLock { retention, legal_hold: None });
        let free = old(6, ObjectLock::default());
        let bucket = fixture.objects.buckets.find(BUCKET).await.unwrap();
        let versions = [old(5, ObjectLock::default()), free, retained.clone(), held.clone()];
        write_versions(&fixture.objects, &bucket, &KEY, &versions).await;
        let pass = fixture.objects.lifecycle.run().await.unwrap();
        assert_eq!((pass.removed, pass.failed), (1, 0), "the version without a lock");
        for version in [&held, &retained] {
            fixture.get("key", id(&version.id.text())).await.unwrap();
        }
        hold(&fixture, &held.id.text(), false).await.unwrap();
        assert_eq!(fixture.objects.lifecycle.run().await.unwrap().removed, 1);
        tokio::time::sleep(Duration::from_secs(3_700)).await;
        assert_eq!(fixture.objects.lifecycle.run().await.unwrap().removed, 1);
    });
}

#[test]
fn a_reader_without_permission_sees_no_lock() {
    run(async {
        let fixture = locked().await;
        let retention = Some(hours(&fixture, COMPLIANCE, 3));
        let lock = ObjectLock { retention, legal_hold: Some(true) };
        put(&fixture, lock).await.unwrap();
        let reader = new_caller(&fixture.objects, "reader").await.with_action(S3Action::GetObject);
        for (actions, expected) in [
            (r#"["s3:GetObject"]"#, ObjectLock::default()),
            (r#"["s3:GetObject","s3:GetObjectRetention"]"#, ObjectLock { legal_hold: None, ..lock }),
            (r#"["s3:GetObject","s3:GetObjectLegalHold"]"#, ObjectLock { retention: None, ..lock }),
        ] {
            let policy = format!(
                r#"{{"Statement":{{"Effect":"Allow","Principal":"*","Action":{actions},"Resource":"arn:aws:s3:::bucket/*"}}}}"#
            );
            let policy = Arc::new(BucketPolicy::parse(BUCKET, &policy).unwrap());
            let change = |bucket: &mut Bucket| {
                bucket.policy = Some(Arc::clone(&policy));
                Ok(())
            };
            fixture.objects.buckets.configure(&fixture.owner, BUCKET, change).await.unwrap();
            let found = fixture.objects.head(&reader, &get_request("key")).await.unwrap();
            assert_eq!(found.lock, expected, "{actions}");
            let context = || reader.access_context.clone();
            if let Some(found) = fixture.objects.try_head(reader.clone(), context, &get_request("key")) {
                assert_eq!(found.lock, expected, "{actions}, at once");
            }
        }
    });
}

/// A machine's clock that can be set.
struct SettableClock {
    inner: VirtualClock,
    offset: AtomicI64,
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.inner.now().0.saturating_add_signed(self.offset.load(Ordering::Relaxed)))
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }
}

/// A gateway with a clock that can be set.
async fn settable(stores: &S3TestStore, start: Instant, offset: i64) -> (Arc<Objects>, Arc<SettableClock>) {
    let clock = Arc::new(SettableClock { inner: VirtualClock(start), offset: AtomicI64::new(offset) });
    let store = Arc::clone(&stores.store);
    let ports = ports_over(Arc::clone(&store) as _, store as _, Arc::new(VirtualClock(start)), 77);
    let ports = larder_core::GatewayPorts { clock: Arc::clone(&clock) as _, ..ports };
    let config = Config { node: "settable".into(), single_process: true, ..Config::default() };
    (Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), ObjectsConfig::default()), clock)
}

#[test]
fn a_clock_that_was_set_ahead_once_freed_locked_versions() {
    run(async {
        let (start, fixture) = (Instant::now(), locked().await);
        let version = retained(&fixture, COMPLIANCE, 12).await;
        fixture.objects.lock_clock.tick().await.unwrap();
        let year = 366 * DAY as i64;
        // Both over a restart and while the server runs.
        let (objects, clock) = settable(&fixture.stores, start, year).await;
        let remove = async || objects.delete(&fixture.owner, BUCKET, &KEY, &id(&version), None, ASKED).await;
        for _ in 0..9 {
            assert_locked!(remove().await);
            objects.lock_clock.tick().await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        clock.offset.store(0, Ordering::Relaxed);
        assert_locked!(remove().await);
        tokio::time::sleep(Duration::from_secs(44_000)).await;
        remove().await.unwrap();
    });
}

#[test]
fn a_clock_that_was_set_back_once_shortened_new_locks() {
    run(async {
        let (start, fixture) = (Instant::now(), locked().await);
        set_default(&fixture, Some(DefaultRetention { mode: COMPLIANCE, period: RetentionPeriod::Days(1) })).await;
        let (objects, clock) = settable(&fixture.stores, start, 0).await;
        objects.lock_clock.tick().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        objects.lock_clock.tick().await.unwrap();
        clock.offset.store(-30 * DAY as i64, Ordering::Relaxed);
        let until = async || {
            let stored = objects.put(&fixture.owner, put_request("key", &bytes(1, 10))).await.unwrap();
            stored.version.lock().retention.unwrap().until
        };
        let right = fixture.objects.gateway.context().now() + DAY;
        assert!(until().await >= right);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(until().await >= right + 60_000_000, "the monotonic clock goes on");
        // A restart begins with the stored time.
        let restarted = LockClock::new(&objects.gateway);
        assert!(restarted.read().await.unwrap().begins + DAY >= right);
    });
}
