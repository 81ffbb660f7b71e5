//! Keys of a moving bucket: those of the source are found, and what clients do here stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use larder_rows::{ActorId, Timestamp};
use parking_lot::Mutex;

use super::*;
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, put_request, run, upload_body};
use crate::conditions::WriteConditions;
use crate::get::VersionSpec;
use crate::import::{ImportFate, ImportPlace, ImportedIdentity, ImportedObject};
use crate::list::{KeyOrPrefix, ListObjects, ListVersions, VersionsPage};
use crate::object_lock::GovernanceBypass;
use crate::object_source::{RemoteKey, RemoteKeyPage};
use crate::put::ObjectMetadata;
use crate::rules::access::AccessContext;
use crate::rules::{Etag, S3Action};

/// The times of the source's objects.
const LONG_AGO: Timestamp = Timestamp(1_500_000_000_000_000);

/// A source whose objects have the bytes of their keys.
struct KnownKeys {
    objects: Arc<Objects>,
    keys: BTreeSet<Bytes>,
    /// Keys of a page.
    page: usize,
    is_away: Mutex<bool>,
    /// Whether its pages are in no order, and have keys twice.
    is_confused: Mutex<bool>,
    brings: AtomicUsize,
    pages: AtomicUsize,
}

impl KnownKeys {
    fn new(fixture: &BucketFixture, keys: &[&str], page: usize) -> Arc<Self> {
        let keys = keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect();
        let counters = || AtomicUsize::new(0);
        let objects = Arc::clone(&fixture.objects);
        let source = Self {
            objects,
            keys,
            page,
            is_away: Mutex::new(false),
            is_confused: Mutex::default(),
            brings: counters(),
            pages: counters(),
        };
        let source = Arc::new(source);
        let weak: Weak<Self> = Arc::downgrade(&source);
        fixture.objects.read_through(weak);
        source
    }

    async fn import(&self, key: &Bytes) -> Result<ImportFate> {
        let identity = ImportedIdentity { etag: None, modified: LONG_AGO, null: true };
        let (bucket, key) = (BUCKET.to_owned(), key.clone());
        let object = ImportedObject { metadata: ObjectMetadata::default(), acl: None, upload_body: upload_body(&key) };
        let place = ImportPlace { bucket, key, after: None, listed: [identity].into(), actor: ActorId(99) };
        self.objects.import(&place, identity, object).await
    }
}

#[async_trait]
impl ObjectSource for KnownKeys {
    async fn bring(&self, _: &str, key: &Bytes) -> std::result::Result<(), SourceAway> {
        self.brings.fetch_add(1, Ordering::Relaxed);
        if *self.is_away.lock() {
            return Err(SourceAway);
        }
        if self.keys.contains(key) {
            self.import(key).await.unwrap();
        }
        Ok(())
    }

    async fn keys(&self, _: &str, prefix: &Bytes, after: &Bytes) -> std::result::Result<RemoteKeyPage, SourceAway> {
        self.pages.fetch_add(1, Ordering::Relaxed);
        if *self.is_away.lock() {
            return Err(SourceAway);
        }
        let mut rest = self.keys.iter().filter(|key| key.starts_with(prefix) && *key > after);
        let mut keys: Vec<RemoteKey> = rest.by_ref().take(self.page).map(listed).collect();
        let next = rest.next().and(keys.last()).map(|last| last.key.clone());
        if *self.is_confused.lock() {
            keys.extend(keys.clone().into_iter().rev());
            keys.push(listed(&"0".into()));
        }
        Ok(RemoteKeyPage { keys, next })
    }
}

fn listed(key: &Bytes) -> RemoteKey {
    let etag = Etag { md5: [1; 16], parts: None };
    RemoteKey { key: key.clone(), etag, length: key.len() as u64, modified: LONG_AGO, is_settled: false }
}

impl BucketFixture {
    async fn moving(&self, moving: bool) {
        self.objects.buckets.set_moving(BUCKET, moving.then_some(ActorId(99))).await.unwrap();
    }

    /// The keys and common prefixes of all pages.
    async fn listing(&self, prefix: &str, delimiter: &str, max: usize) -> Vec<String> {
        let (mut lines, mut after) = (Vec::new(), Bytes::new());
        loop {
            let (prefix, delimiter) = (Bytes::copy_from_slice(prefix.as_bytes()), delimiter.to_owned().into());
            let request = ListObjects { bucket: BUCKET.into(), prefix, delimiter, after, max };
            let page = self.objects.list(&self.owner.with_action(S3Action::ListBucket), &request).await.unwrap();
            assert!(page.lines.len() <= max);
            lines.extend(page.lines.into_iter().map(|line| match line {
                KeyOrPrefix::Key(key, _) | KeyOrPrefix::Prefix(key) => String::from_utf8(key.to_vec()).unwrap(),
            }));
            match page.next {
                Some(next) => after = next,
                None => return lines,
            }
        }
    }

    async fn versions(&self) -> VersionsPage {
        let objects = ListObjects { bucket: BUCKET.into(), max: 10, ..ListObjects::default() };
        let request = ListVersions { objects, version: None };
        self.objects.list_versions(&self.owner.with_action(S3Action::ListBucketVersions), &request).await.unwrap()
    }

    async fn delete_on(&self, key: &str, tag: &str) -> Result<crate::delete::DeletedObject> {
        let (key, tags) = (Bytes::copy_from_slice(key.as_bytes()), Some(vec![tag.to_owned()]));
        let caller = self.owner.with_action(S3Action::DeleteObject);
        self.objects.delete(&caller, BUCKET, &key, &VersionSpec::Current, tags, GovernanceBypass::Absent).await
    }
}

#[test]
fn a_key_that_had_not_moved_yet_was_once_not_found() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b", "c", "d"], 2);
        assert!(matches!(fixture.get("a", VersionSpec::Current).await, Err(Error::NoSuchKey)), "it does not move");
        fixture.moving(true).await;
        assert_eq!(fixture.get("a", VersionSpec::Current).await.unwrap(), "a");
        assert_eq!(fixture.get("a", VersionSpec::Current).await.unwrap(), "a");
        assert_eq!(source.brings.load(Ordering::Relaxed), 1, "it is here since the first one");
        assert!(matches!(fixture.get("nothing", VersionSpec::Current).await, Err(Error::NoSuchKey)));
        let only_new = WriteConditions { if_none_match: Some(vec!["*".to_owned()]), ..WriteConditions::default() };
        let put = crate::put::PutObject { conditions: only_new, ..put_request("b", &bytes(1, 10)) };
        let put = fixture.objects.put(&fixture.owner, put).await;
        assert!(matches!(put, Err(Error::PreconditionFailed(_))), "{put:?}");
        assert!(fixture.delete_on("c", "\"00000000000000000000000000000000\"").await.is_err(), "another tag");
        assert_eq!(fixture.get("c", VersionSpec::Current).await.unwrap(), "c");
        *source.is_away.lock() = true;
        assert!(matches!(fixture.get("d", VersionSpec::Current).await, Err(Error::NotMovedYet)), "it may be there");
        fixture.put("d", &bytes(2, 10)).await;
        assert_eq!(fixture.get("d", VersionSpec::Current).await.unwrap(), bytes(2, 10));
    });
}

#[test]
fn a_put_before_its_turn_once_lost_the_versions_of_the_source() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b", "c"], 2);
        fixture.versioning(Versioning::Enabled).await;
        fixture.moving(true).await;
        fixture.put("a", &bytes(1, 10)).await;
        fixture.delete("b", &VersionSpec::Current).await;
        let versions = fixture.versions().await;
        assert_eq!(versions.lines.len(), 4, "{versions:?}");
        *source.is_away.lock() = true;
        let put = fixture.objects.put(&fixture.owner, put_request("c", &bytes(1, 10))).await;
        assert!(matches!(put, Err(Error::NotMovedYet)), "{put:?}");
    });
}

#[test]
fn the_first_of_several_versions_was_once_read_while_the_others_came() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b"], 2);
        fixture.versioning(Versioning::Enabled).await;
        fixture.moving(true).await;
        source.import(&"a".into()).await.unwrap();
        let at_once = || fixture.objects.try_head(fixture.owner.clone(), AccessContext::default, &get_request("a"));
        assert!(at_once().is_none(), "the source may have a newer one");
        *source.is_away.lock() = true;
        assert!(matches!(fixture.get("a", VersionSpec::Current).await, Err(Error::NotMovedYet)));
        *source.is_away.lock() = false;
        assert_eq!(fixture.get("a", VersionSpec::Current).await.unwrap(), "a");
        fixture.put("a", &bytes(1, 10)).await;
        *source.is_away.lock() = true;
        assert_eq!(fixture.get("a", VersionSpec::Current).await.unwrap(), bytes(1, 10), "a client's is the newest");
        fixture.moving(false).await;
        assert!(at_once().is_some());
    });
}

#[test]
fn a_deletion_of_the_null_version_once_let_the_source_bring_it_back() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b"], 2);
        fixture.moving(true).await;
        fixture.put("b", &bytes(1, 10)).await;
        for key in ["a", "b", "a", "b"] {
            let deleted = fixture.delete(key, &VersionSpec::Id("null".to_owned())).await;
            assert!(!deleted.marker, "{key}: {deleted:?}");
            assert_eq!(source.import(&key.into()).await.unwrap(), ImportFate::Kept, "{key}");
            assert!(matches!(fixture.get(key, VersionSpec::Current).await, Err(Error::NoSuchKey)), "{key}");
        }
        assert_eq!(fixture.listing("", "", 10).await, [""; 0]);
    });
}

#[test]
fn a_bucket_whose_keys_were_at_the_source_was_once_deleted() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.moving(true).await;
        let caller = fixture.owner.with_action(S3Action::DeleteBucket);
        assert!(matches!(fixture.objects.buckets.delete(&caller, BUCKET).await, Err(Error::BucketNotEmpty)));
        fixture.moving(false).await;
        fixture.objects.buckets.delete(&caller, BUCKET).await.unwrap();
    });
}

#[test]
fn an_import_that_outlived_its_move_once_brought_a_deleted_key_back() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a"], 2);
        fixture.moving(true).await;
        fixture.delete("a", &VersionSpec::Current).await;
        fixture.moving(false).await;
        fixture.objects.remove_mark(BUCKET, &"a".into()).await.unwrap();
        assert!(matches!(source.import(&"a".into()).await, Err(Error::OperationAborted)));
        assert_eq!(fixture.blobs().await.len(), 0);
    });
}

#[test]
fn a_source_without_order_once_doubled_the_keys_of_a_page() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b", "c", "d", "e"], 2);
        *source.is_confused.lock() = true;
        fixture.moving(true).await;
        assert_eq!(fixture.listing("", "", 3).await, ["a", "b", "c", "d", "e"]);
    });
}

#[test]
fn a_stranger_brings_no_key() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a"], 2);
        fixture.moving(true).await;
        let stranger = crate::buckets::testing::anonymous(S3Action::GetObject);
        assert!(matches!(fixture.objects.get(&stranger, &get_request("a")).await, Err(Error::AccessDenied)));
        assert_eq!(source.brings.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_key_that_a_client_deleted_before_its_turn_once_came_with_the_pass() {
    run(async {
        let fixture = BucketFixture::new().await;
        let source = KnownKeys::new(&fixture, &["a", "b", "c"], 2);
        fixture.moving(true).await;
        fixture.get("b", VersionSpec::Current).await.unwrap();
        for key in ["a", "b"] {
            let deleted = fixture.delete(key, &VersionSpec::Current).await;
            assert_eq!((deleted.marker, deleted.version_id), (false, None), "{key}: the marker is the move's");
            assert_eq!(source.import(&key.into()).await.unwrap(), ImportFate::Kept, "{key}");
            assert!(matches!(fixture.get(key, VersionSpec::Current).await, Err(Error::NoSuchKey)), "{key}");
        }
        assert_eq!(fixture.listing("", "", 10).await, ["c"]);
        let versions = fixture.versions().await;
        assert!(versions.lines.is_empty(), "{versions:?}");
        fixture.put("b", &bytes(2, 10)).await;
        assert_eq!(fixture.get("b", VersionSpec::Current).await.unwrap(), bytes(2, 10));
    });
}

#[test]
fn the_marks_of_a_move_go_with_it() {
    run(async {
        let fixture = BucketFixture::new().await;
        let _source = KnownKeys::new(&fixture, &[], 2);
        fixture.moving(true).await;
        for key in ["a", "b", "c"] {
            fixture.put(key, &bytes(1, 10)).await;
            fixture.delete(key, &VersionSpec::Current).await;
        }
        fixture.put("c", &bytes(2, 10)).await;
        fixture.objects.remove_mark(BUCKET, &"a".into()).await.unwrap();
        fixture.moving(false).await;
        let (keys, next) = fixture.objects.marked_keys(BUCKET, &Bytes::new()).await.unwrap();
        assert_eq!((keys, next), (vec!["a".into(), "b".into()], None), "none goes while the bucket moves");
        for key in ["a", "b", "c"] {
            fixture.objects.remove_mark(BUCKET, &key.into()).await.unwrap();
        }
        assert_eq!(fixture.objects.marked_keys(BUCKET, &Bytes::new()).await.unwrap(), (Vec::new(), None));
        assert_eq!(fixture.get("c", VersionSpec::Current).await.unwrap(), bytes(2, 10));
        fixture.delete("c", &VersionSpec::Current).await;
        assert_eq!(fixture.objects.marked_keys(BUCKET, &Bytes::new()).await.unwrap(), (Vec::new(), None));
        fixture.versioning(Versioning::Suspended).await;
        fixture.delete("c", &VersionSpec::Current).await;
        assert_eq!(fixture.objects.marked_keys(BUCKET, &Bytes::new()).await.unwrap().0.len(), 0, "it has versions");
        fixture.objects.remove_mark(BUCKET, &"c".into()).await.unwrap();
        assert!(fixture.objects.current_version(BUCKET, &"c".into()).await.unwrap().is_some());
    });
}

#[test]
fn a_page_of_keys_has_those_of_both_sides() {
    run(async {
        let names = ["a", "a/1", "a/2", "a/3", "a/b/1", "b", "c/1", "c/2", "d", "e/1", "ü/1", "ü/2", "üb"];
        for round in 0..24_u64 {
            let fixture = BucketFixture::new().await;
            let mut dice = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut roll = |below: u64| {
                dice = larder_rows::hash::id64(&[&dice.to_be_bytes()]);
                dice % below
            };
            let there: Vec<&str> = names.into_iter().filter(|_| roll(2) == 0).collect();
            let source = KnownKeys::new(&fixture, &there, 1 + roll(4) as usize);
            fixture.moving(true).await;
            let mut shown: BTreeSet<&str> = there.iter().copied().collect();
            for key in names {
                match roll(4) {
                    0 => {
                        fixture.put(key, &bytes(1, 5)).await;
                        shown.insert(key);
                    }
                    1 => {
                        fixture.delete(key, &VersionSpec::Current).await;
                        shown.remove(key);
                    }
                    _ => {}
                }
            }
            for (prefix, delimiter) in [("", ""), ("", "/"), ("a", "/"), ("a/", "/"), ("ü", "/"), ("c/", ""), ("x", "")]
            {
                let max = 1 + roll(5) as usize;
                let expected = grouped(&shown, prefix, delimiter);
                assert_eq!(fixture.listing(prefix, delimiter, max).await, expected, "{round} {prefix:?} {delimiter:?}");
            }
            *source.is_away.lock() = true;
            let request = ListObjects { bucket: BUCKET.into(), max: 5, ..ListObjects::default() };
            let page = fixture.objects.list(&fixture.owner.with_action(S3Action::ListBucket), &request).await;
            assert!(matches!(page, Err(Error::NotMovedYet)), "a page without the source's keys looks whole: {page:?}");
        }
    });
}

#[test]
fn keys_below_a_common_prefix_are_not_read_at_the_source() {
    run(async {
        let fixture = BucketFixture::new().await;
        let names: Vec<String> = (0..500).map(|key| format!("a/{key}")).chain(["b".to_owned()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let source = KnownKeys::new(&fixture, &names, 10);
        fixture.moving(true).await;
        assert_eq!(fixture.listing("", "/", 100).await, ["a/", "b"]);
        assert!(source.pages.load(Ordering::Relaxed) <= 3, "{:?}", source.pages);
    });
}

/// What a listing shows of these keys.
fn grouped(keys: &BTreeSet<&str>, prefix: &str, delimiter: &str) -> Vec<String> {
    let mut lines = BTreeMap::new();
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        let rest = &key[prefix.len()..];
        let end = (!delimiter.is_empty()).then(|| rest.find(delimiter)).flatten();
        let line = end.map_or_else(|| (*key).to_owned(), |end| key[..prefix.len() + end + delimiter.len()].to_owned());
        lines.insert(line, ());
    }
    lines.into_keys().collect()
}
