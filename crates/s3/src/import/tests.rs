//! Imports: versions keep what they were, and what clients write here stays.

use std::pin::pin;

use super::*;
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, id, run, until_it_waits, upload_body};
use crate::get::VersionSpec;
use crate::rules::{Retention, RetentionMode};

const LONG_AGO: Timestamp = Timestamp(1_500_000_000_123_000);

fn place(after: Option<VersionId>) -> ImportPlace {
    ImportPlace { bucket: BUCKET.into(), key: "key".into(), after, listed: [].into(), actor: ActorId(99) }
}

fn identity(number: u64) -> ImportedIdentity {
    let etag = Etag { md5: [7; 16], parts: Some(3) };
    ImportedIdentity { etag: Some(etag), modified: Timestamp(LONG_AGO.0 + number), null: false }
}

fn marker(number: u64) -> ImportedIdentity {
    ImportedIdentity { etag: None, ..identity(number) }
}

fn object(body: &Bytes) -> ImportedObject {
    ImportedObject { metadata: ObjectMetadata::default(), acl: None, upload_body: upload_body(body) }
}

impl BucketFixture {
    /// With a bucket to which the move of [`place`] brings keys.
    async fn moving_to() -> Self {
        let fixture = Self::new().await;
        fixture.objects.buckets.set_moving(BUCKET, Some(ActorId(99))).await.unwrap();
        fixture
    }

    async fn import(&self, after: Option<VersionId>, number: u64, body: &Bytes) -> ImportFate {
        self.objects.import(&place(after), identity(number), object(body)).await.unwrap()
    }

    async fn current(&self) -> Option<Version> {
        self.objects.current_version(BUCKET, &"key".into()).await.unwrap()
    }
}

fn imported(fate: ImportFate) -> VersionId {
    match fate {
        ImportFate::Imported(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_imported_object_keeps_its_tag_and_time() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        for (number, length) in [10, 100_000].into_iter().enumerate() {
            let (after, body) = (fixture.current().await.map(|current| current.id), bytes(1, length));
            let id = imported(fixture.import(after, number as u64, &body).await);
            let (found, got) = fixture.find(get_request("key")).await.unwrap();
            assert_eq!((found.version.id, found.version.modified, got), (id, identity(number as u64).modified, body));
            assert_eq!(found.version.object.unwrap().etag, identity(0).etag.unwrap());
            assert_eq!(found.version.owner, fixture.owner.id());
        }
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn what_a_client_wrote_meanwhile_stays() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let (old, own, new) = (bytes(1, 5000), bytes(2, 5000), bytes(3, 5000));
        let id = imported(fixture.import(None, 1, &old).await);
        fixture.put("key", &own).await;
        assert_eq!(fixture.import(Some(id), 2, &new).await, ImportFate::Kept);
        assert_eq!(fixture.objects.import_marker(&place(Some(id)), marker(3)).await.unwrap(), ImportFate::Kept);
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Kept);
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), own);
        fixture.delete("key", &VersionSpec::Current).await;
        assert_eq!(fixture.import(Some(id), 2, &new).await, ImportFate::Kept, "deleted here");
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Kept);
        assert_eq!(fixture.blobs().await.len(), 0);
    });
}

#[test]
fn an_import_that_nobody_noted_is_found_again() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let body = bytes(1, 5000);
        let id = imported(fixture.import(None, 1, &body).await);
        assert_eq!(fixture.import(None, 1, &body).await, ImportFate::Imported(id));
        fixture.versioning(Versioning::Enabled).await;
        let hidden = fixture.objects.import_marker(&place(Some(id)), marker(2)).await.unwrap();
        assert_eq!(fixture.objects.import_marker(&place(Some(id)), marker(2)).await.unwrap(), hidden);
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn an_unnoted_import_that_its_source_has_replaced_was_once_taken_for_a_clients_write() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let (old, new) = (bytes(1, 5000), bytes(2, 5000));
        imported(fixture.import(None, 1, &old).await);
        // Nobody noted it.
        imported(fixture.import(None, 2, &new).await);
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), new);
        assert_eq!(fixture.objects.remove_imported(&place(None)).await.unwrap(), ImportFate::Removed);
        assert_eq!(fixture.blobs().await.len(), 0);
    });
}

#[test]
fn versions_come_in_their_order_and_a_deletion_hides_them() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        fixture.versioning(Versioning::Enabled).await;
        let mut after = None;
        let mut ids = Vec::new();
        for number in 0..3 {
            after = Some(imported(fixture.import(after, number, &bytes(number, 2000)).await));
            ids.extend(after);
        }
        let hidden = imported(fixture.objects.import_marker(&place(after), marker(3)).await.unwrap());
        assert!(fixture.get("key", VersionSpec::Current).await.is_err());
        for (number, version) in ids.iter().enumerate() {
            assert_eq!(fixture.get("key", id(&version.text())).await.unwrap(), bytes(number as u64, 2000));
        }
        let last = imported(fixture.import(Some(hidden), 4, &bytes(4, 2000)).await);
        imported(fixture.objects.remove_imported(&place(Some(last))).await.unwrap());
        assert!(fixture.get("key", VersionSpec::Current).await.is_err());
        assert_eq!(fixture.get("key", id(&last.text())).await.unwrap(), bytes(4, 2000));
    });
}

#[test]
fn a_key_that_the_source_has_no_more_gives_its_space_back() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let id = imported(fixture.import(None, 1, &bytes(1, 5000)).await);
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Removed);
        assert_eq!((fixture.current().await, fixture.blobs().await.len()), (None, 0));
    });
}

#[test]
fn a_lock_needs_a_bucket_with_object_lock_and_wrong_bytes_leave_none() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let body = bytes(1, 5000);
        let retention = Retention { mode: RetentionMode::Compliance, until: LONG_AGO };
        let mut locked = object(&body);
        locked.metadata.lock = ObjectLock { retention: Some(retention), legal_hold: None };
        let refused = fixture.objects.import(&place(None), identity(1), locked).await;
        assert!(matches!(refused, Err(Error::InvalidRequest(_))), "{refused:?}");
        let mut wrong = object(&body);
        wrong.upload_body.md5 = Some([9; 16]);
        let refused = fixture.objects.import(&place(None), identity(1), wrong).await;
        assert!(matches!(refused, Err(Error::BadDigest)), "{refused:?}");
        assert_eq!((fixture.current().await, fixture.blobs().await.len()), (None, 0));
    });
}

#[test]
fn an_import_once_stood_for_a_clients_put_that_waited_behind_it() {
    run(async {
        let fixture = BucketFixture::moving_to().await;
        let turn = fixture.turn("key").await;
        let (old, new) = (bytes(1, 500), bytes(2, 500));
        let mut import = pin!(fixture.import(None, 1, &old));
        until_it_waits(import.as_mut()).await;
        let mut put = pin!(fixture.put("key", &new));
        until_it_waits(put.as_mut()).await;
        drop(turn);
        tokio::join!(import, put);
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), new);
    });
}

/// One of several importers of a key, in the midst of it.
struct Importer {
    /// The versions that it lists, the newest first.
    listed: Vec<u64>,
    /// Those that it has to import, the next one last.
    left: Vec<u64>,
    here: Option<VersionId>,
    last: Option<u64>,
    is_behind: bool,
}

/// What is noted of the key: the last version that was imported, and what it is here.
type Noted = Option<(u64, VersionId)>;

impl Importer {
    fn begin(listed: Vec<u64>, noted: Noted) -> Self {
        let last = noted.map(|(last, _)| last);
        let left = listed.iter().copied().filter(|number| last.is_none_or(|last| *number > last)).collect();
        Self { listed, left, here: noted.map(|(_, here)| here), last, is_behind: false }
    }

    /// Imports the next version; `false` at the end, or where a client changed the key.
    async fn step(&mut self, fixture: &BucketFixture) -> bool {
        let Some(number) = self.left.pop() else { return false };
        let listed = self.listed.iter().map(|number| identity_of_its_own(*number)).collect();
        let place = ImportPlace { listed, ..place(self.here) };
        let body = object(&bytes(number, 100));
        match fixture.objects.import(&place, identity_of_its_own(number), body).await.unwrap() {
            ImportFate::Imported(id) => (self.here, self.last, self.is_behind) = (Some(id), Some(number), false),
            ImportFate::Passed => self.is_behind = true,
            ImportFate::Kept | ImportFate::Removed => self.left.clear(),
        }
        true
    }

    fn noted(&self) -> Noted {
        if self.is_behind { None } else { self.last.zip(self.here) }
    }
}

fn identity_of_its_own(number: u64) -> ImportedIdentity {
    let etag = Etag { md5: [number as u8; 16], parts: None };
    ImportedIdentity { etag: Some(etag), ..identity(number) }
}

#[test]
fn of_several_importers_none_once_put_an_older_version_over_a_newer_one() {
    run(async {
        for seed in 0..150_u64 {
            let mut dice = seed;
            let mut roll = |below: u64| {
                dice = larder_rows::hash::id64(&[&dice.to_be_bytes()]);
                dice % below
            };
            let fixture = BucketFixture::new().await;
            let keeps = roll(2) == 0;
            if keeps {
                fixture.versioning(Versioning::Enabled).await;
            }
            fixture.objects.buckets.set_moving(BUCKET, Some(ActorId(99))).await.unwrap();
            let list = |newest: u64| if keeps { (1..=newest).rev().collect() } else { vec![newest] };
            let (mut newest, mut shown, mut noted) = (1, 0, Noted::None);
            let mut importers: Vec<Importer> = Vec::new();
            // What a client did: `None` nothing, `Some(None)` a deletion, `Some(body)` a put.
            let mut by_client: Option<Option<Bytes>> = None;
            for step in 0..40 {
                match roll(12) {
                    0 => newest += 1,
                    1 | 2 if importers.len() < 3 => importers.push(Importer::begin(list(newest), noted)),
                    3 if step > 20 && by_client.is_none() => {
                        by_client = Some((roll(2) == 0).then(|| bytes(77, 50)));
                        match by_client.as_ref().and_then(Option::as_ref) {
                            Some(body) => drop(fixture.put("key", body).await),
                            None => drop(fixture.delete("key", &VersionSpec::Current).await),
                        }
                    }
                    _ if importers.is_empty() => {}
                    more => {
                        let at = roll(importers.len() as u64) as usize;
                        if more > 10 {
                            // It is killed.
                            importers.remove(at);
                        } else if !importers[at].step(&fixture).await {
                            noted = importers.remove(at).noted().or(noted);
                        }
                    }
                }
                let got = fixture.get("key", VersionSpec::Current).await.ok();
                if let Some(by_client) = &by_client {
                    assert_eq!(got, *by_client, "seed {seed}, step {step}: what a client did is undone");
                    continue;
                }
                let number = (1..=newest).find(|number| got == Some(bytes(*number, 100))).unwrap_or(0);
                assert!(number >= shown, "seed {seed}, step {step}: {number} over {shown}");
                shown = number;
            }
            for _ in 0..2 {
                let mut last = Importer::begin(list(newest), noted);
                while last.step(&fixture).await {}
                noted = last.noted().or(noted);
            }
            if by_client.is_none() {
                assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), bytes(newest, 100), "seed {seed}");
            }
        }
    });
}
