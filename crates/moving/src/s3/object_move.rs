//! One key of a move from an S3 store: the versions that came since the last look are imported, the oldest first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use larder_api_s3::{source_checksum, source_metadata};
use larder_kv::ImportComparison;
use larder_rows::address::Address;
use larder_rows::ids::VersionId;
use larder_rows::{ActorId, MoveWish, MovedRow, MovedState, Timestamp, hash};
use larder_s3::Error;
use larder_s3::encryption::EncryptionChoice;
use larder_s3::import::{ImportFate, ImportPlace, ImportedIdentity, ImportedObject};
use larder_s3::put::UploadBody;
use larder_s3_rules::{Etag, Tag, Version};
use tokio::time::sleep;

use super::bucket_move::{S3Side, moved_bucket, stopped};
use super::{S3Fetched, SourceVersion};
use crate::move_run::{KeyFailure, KeyOutcome, MoveRun, MoveStopped, SweepKind, shown_name};
use crate::moved_key::is_lasting;
use crate::progress::MoveCount;
use crate::rules::{MovedObject, SourceVersionName};

/// Pauses before a version is copied again.
const COPY_PAUSES: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(2), Duration::from_secs(5)];
/// Most versions of a key that move: the newest ones.
pub(super) const VERSIONS_MAX: usize = 10_000;
/// The header with the way in which the source encrypts an object.
const ENCRYPTION: &str = "x-amz-server-side-encryption";
/// The header with the number of an object's tags.
const TAGS: &str = "x-amz-tagging-count";

/// A key as the source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedKey {
    pub(super) key: Bytes,
    /// Its versions, the newest first; none for a key that is not listed.
    pub(super) versions: Vec<SourceVersion>,
}

/// What became of a version.
enum CopyEnd {
    Fate(ImportFate),
    /// The source has it no more, or another one in its place: the next pass sees that.
    Changed,
}

/// The key that is worked on.
struct MovingObject<'a> {
    bucket: &'a str,
    listed: &'a ListedKey,
    identities: Arc<[ImportedIdentity]>,
    moved: MovedObject,
    state: MovedState,
    /// Whether the state is the one here: a deletion that began may not be.
    is_whole: bool,
    actor: ActorId,
}

impl ListedKey {
    /// Whether it has as many versions as move.
    pub(super) fn is_full(&self) -> bool {
        self.versions.len() >= VERSIONS_MAX
    }

    /// What its versions are in imports, the newest first.
    fn identities(&self) -> Arc<[ImportedIdentity]> {
        self.versions.iter().map(identity).collect()
    }

    /// A digest of all its versions.
    fn digest(&self) -> u64 {
        let mut text = Vec::new();
        for version in &self.versions {
            let SourceVersion { version_id, is_marker, etag, length, modified, .. } = version;
            text.extend_from_slice(format!("{version_id:?} {is_marker} {etag} {length} {}\n", modified.0).as_bytes());
        }
        hash::id64(&[&text])
    }

    /// The versions behind the last one that was imported, the oldest first.
    fn versions_after<'a>(&'a self, last: Option<&SourceVersionName>) -> Vec<&'a SourceVersion> {
        let Some(last) = last else { return self.versions.iter().rev().collect() };
        let newer: Vec<&SourceVersion> = match self.versions.iter().position(|version| name(version) == *last) {
            Some(at) => self.versions.iter().take(at).collect(),
            // It was removed or replaced at the source: the newest comes, with those that are newer than it was.
            None => {
                let is_new = |(at, version): &(usize, &SourceVersion)| *at == 0 || version.modified > last.modified;
                self.versions.iter().enumerate().filter(is_new).map(|(_, version)| version).collect()
            }
        };
        newer.into_iter().rev().collect()
    }
}

impl MoveRun<S3Side> {
    /// Brings a key to the state of its source. One that cannot be copied is set aside.
    ///
    /// # Errors
    /// The source or the store does not answer.
    pub(super) async fn sync_object(
        &self,
        bucket: &str,
        listed: &ListedKey,
        before: Option<MovedRow>,
        kind: SweepKind,
    ) -> Result<KeyOutcome, MoveStopped> {
        let shown = || shown_object(bucket, &listed.key);
        let why = match self.try_object(bucket, listed, before, kind).await {
            Ok(outcome) => {
                self.forget_aside(shown);
                return Ok(outcome);
            }
            Err(KeyFailure::Stopped(stopped)) => return Err(stopped),
            Err(KeyFailure::Aside(why)) => why,
            Err(KeyFailure::Unanswered(why)) => {
                // A source that answers otherwise has something wrong with this key alone.
                self.source.source.list_buckets().await?;
                why
            }
        };
        self.set_aside(shown(), why);
        Ok(KeyOutcome::default())
    }

    /// Brings a key to the state of its source.
    ///
    /// # Errors
    /// [`KeyFailure`].
    pub(super) async fn try_object(
        &self,
        bucket: &str,
        listed: &ListedKey,
        before: Option<MovedRow>,
        kind: SweepKind,
    ) -> Result<KeyOutcome, KeyFailure> {
        let (state, is_whole, moved) = match before {
            None => (MovedState::Here, false, MovedObject::default()),
            Some(row) => {
                let moved = MovedObject::decode(row.clock).map_err(|error| KeyFailure::Aside(error.to_string()))?;
                (row.state, row.complete, moved)
            }
        };
        let is_known =
            is_whole && state != MovedState::Deleted && !listed.versions.is_empty() && moved.listed == listed.digest();
        let mut object = MovingObject {
            bucket,
            listed,
            identities: listed.identities(),
            moved,
            state,
            is_whole,
            actor: self.order.actor,
        };
        if object.state == MovedState::Deleted && !object.is_whole {
            // Crash: the deletion was begun, and nobody noted its end.
            self.end_removal(&mut object).await?;
        }
        let changed = match (is_known, listed.versions.is_empty()) {
            (true, _) => false,
            (false, true) => self.remove_unlisted(&mut object).await?,
            (false, false) if object.state == MovedState::Kept => self.pass_over(&mut object).await?,
            (false, false) => self.copy_versions(&mut object).await?,
        };
        let comparison = match kind {
            SweepKind::Verify => Some(self.compare(&mut object).await?),
            SweepKind::Seed | SweepKind::Follow => None,
        };
        Ok(KeyOutcome { changed, comparison, is_doubted: false })
    }

    /// Imports the versions that came since; whether there were any.
    async fn copy_versions(&self, object: &mut MovingObject<'_>) -> Result<bool, KeyFailure> {
        let versions = object.listed.versions_after(object.moved.last.as_ref());
        let (mut is_whole, mut is_behind) = (true, false);
        object.is_whole = false;
        for (at, version) in versions.iter().enumerate() {
            match self.copy_version(object, version).await? {
                CopyEnd::Changed => is_whole = false,
                CopyEnd::Fate(ImportFate::Passed) => is_behind = true,
                CopyEnd::Fate(ImportFate::Imported(id)) => {
                    is_behind = false;
                    (object.state, object.moved.here) = (MovedState::Here, Some(id));
                    object.moved.last = Some(name(version));
                    // The last one is noted with the whole key, below.
                    if at + 1 < versions.len() {
                        self.write_moved(object).await?;
                    }
                }
                CopyEnd::Fate(ImportFate::Kept | ImportFate::Removed) => {
                    self.count(MoveCount::Kept, 1);
                    object.state = MovedState::Kept;
                    break;
                }
            }
        }
        if is_behind {
            // Race: who brought a newer version notes the key, and has seen more of it.
            return Ok(true);
        }
        object.moved.listed = object.listed.digest();
        object.is_whole = is_whole;
        self.write_moved(object).await?;
        Ok(!versions.is_empty())
    }

    /// Notes a change at the source of a key that a client changed here.
    async fn pass_over(&self, object: &mut MovingObject<'_>) -> Result<bool, KeyFailure> {
        (object.moved.listed, object.is_whole) = (object.listed.digest(), true);
        self.write_moved(object).await?;
        Ok(true)
    }

    async fn copy_version(&self, object: &MovingObject<'_>, version: &SourceVersion) -> Result<CopyEnd, KeyFailure> {
        let mut pauses = COPY_PAUSES.into_iter();
        loop {
            match self.try_copy(object, version).await {
                Err(KeyFailure::Stopped(_) | KeyFailure::Unanswered(_)) if pauses.len() > 0 => {
                    sleep(pauses.next().unwrap_or_default()).await;
                }
                other => return other,
            }
        }
    }

    async fn try_copy(&self, object: &MovingObject<'_>, version: &SourceVersion) -> Result<CopyEnd, KeyFailure> {
        let place = object.place();
        let identity = identity(version);
        if version.is_marker {
            let fate = self.source.objects.import_marker(&place, identity).await.map_err(failure)?;
            return Ok(CopyEnd::Fate(fate));
        }
        let (bucket, key) = (object.bucket, &object.listed.key);
        // Race: of an object that is replaced meanwhile the ACL is the older one, and its entity tag is another: it comes later.
        let acl = self.object_acl(bucket, key, version).await?;
        let Some(fetched) = self.source.source.get(bucket, key, version.version_id.as_deref()).await? else {
            return Ok(CopyEnd::Changed);
        };
        let headers = header_map(&fetched);
        if headers.get("etag").is_some_and(|etag| unquoted(etag) != version.etag) {
            return Ok(CopyEnd::Changed);
        }
        let imported = ImportedObject { acl, ..self.imported(object, version, headers, fetched).await? };
        let fate = self.source.objects.import(&place, identity, imported).await.map_err(failure)?;
        if matches!(fate, ImportFate::Imported(_)) {
            self.count(MoveCount::Copied, 1);
            self.count(MoveCount::Bytes, version.length);
        }
        Ok(CopyEnd::Fate(fate))
    }

    /// An object of the source, as it is to be here, without its ACL.
    async fn imported(
        &self,
        object: &MovingObject<'_>,
        version: &SourceVersion,
        headers: HeaderMap,
        fetched: S3Fetched,
    ) -> Result<ImportedObject, KeyFailure> {
        let mut metadata = source_metadata(&headers)
            .map_err(|error| KeyFailure::Aside(format!("{}: {}", error.code.name(), error.message)))?;
        if headers.get(TAGS).is_some_and(|count| count.as_bytes() != b"0") {
            let (bucket, key) = (object.bucket, &object.listed.key);
            let tags = self.source.source.tags(bucket, key, version.version_id.as_deref()).await?;
            metadata.tags = tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
        }
        let encryption = headers.get(ENCRYPTION);
        if encryption.is_some_and(|way| way.as_bytes() == b"AES256") {
            metadata.encryption = EncryptionChoice::Server;
        }
        // The tag of an object that the source encrypts need not be the MD5 of its bytes.
        let etag = Etag::parse(&version.etag).filter(|etag| etag.parts.is_none() && encryption.is_none());
        let upload_body = UploadBody {
            stream: fetched.body,
            length: Some(fetched.length.unwrap_or(version.length)),
            md5: etag.map(|etag| etag.md5),
            checksum: source_checksum(&headers),
        };
        Ok(ImportedObject { metadata, acl: None, upload_body })
    }

    /// Deletes a key here that the source lists no more, and does not have either.
    async fn remove_unlisted(&self, object: &mut MovingObject<'_>) -> Result<bool, KeyFailure> {
        if object.state != MovedState::Here {
            return Ok(false);
        }
        // A listing alone deletes nothing.
        if self.source.source.get(object.bucket, &object.listed.key, None).await?.is_some() {
            return Ok(false);
        }
        // Crash: a deletion that nobody noted would be taken for a client's.
        (object.state, object.is_whole) = (MovedState::Deleted, false);
        self.write_moved(object).await?;
        self.end_removal(object).await?;
        Ok(true)
    }

    async fn end_removal(&self, object: &mut MovingObject<'_>) -> Result<(), KeyFailure> {
        let fate = self.source.objects.remove_imported(&object.place()).await.map_err(failure)?;
        (object.state, object.moved.here) = match fate {
            ImportFate::Imported(marker) => (MovedState::Deleted, Some(marker)),
            ImportFate::Removed => (MovedState::Deleted, None),
            ImportFate::Kept | ImportFate::Passed => (MovedState::Kept, object.moved.here),
        };
        self.count(if fate == ImportFate::Kept { MoveCount::Kept } else { MoveCount::Deleted }, 1);
        (object.is_whole, object.moved.last) = (true, None);
        self.write_moved(object).await
    }

    async fn compare(&self, object: &mut MovingObject<'_>) -> Result<ImportComparison, KeyFailure> {
        let found = self.compare_once(object).await?;
        let newest = object.listed.versions.first();
        let Some(newest) = newest.filter(|_| found == ImportComparison::Differs) else { return Ok(found) };
        if self.order.wish != MoveWish::Repair {
            return Ok(found);
        }
        if let CopyEnd::Fate(ImportFate::Imported(id)) = self.copy_version(object, newest).await? {
            object.moved.here = Some(id);
            object.moved.last = Some(name(newest));
            self.write_moved(object).await?;
        }
        self.compare_once(object).await
    }

    async fn compare_once(&self, object: &MovingObject<'_>) -> Result<ImportComparison, KeyFailure> {
        if object.state == MovedState::Kept {
            return Ok(ImportComparison::ChangedHere);
        }
        let current = self.source.objects.current_version(object.bucket, &object.listed.key).await.map_err(failure)?;
        let here = current.as_ref().map(|current| current.id);
        if here != object.moved.here {
            return Ok(ImportComparison::ChangedHere);
        }
        let is_equal = match object.listed.versions.first() {
            Some(newest) => current.is_some_and(|current| is_same(&current, newest)),
            None => current.is_none_or(|current| current.object.is_none()),
        };
        Ok(if is_equal { ImportComparison::Equal } else { ImportComparison::Differs })
    }

    /// Notes that clients have changed a key here, and that no import comes to it.
    pub(super) async fn leave_to_clients(&self, bucket: &str, key: &Bytes) -> larder_core::Result<()> {
        let address = Address { bucket: moved_bucket(bucket), key: key.clone() };
        let row = moved_row(MovedState::Kept, true, &MovedObject::default());
        self.store.write_moved_row(&address, &row).await
    }

    async fn write_moved(&self, object: &MovingObject<'_>) -> Result<(), KeyFailure> {
        let row = moved_row(object.state, object.is_whole, &object.moved);
        let address = Address { bucket: moved_bucket(object.bucket), key: object.listed.key.clone() };
        self.store.write_moved_row(&address, &row).await.map_err(|error| KeyFailure::Stopped(error.into()))
    }
}

impl MovingObject<'_> {
    /// Where the next version goes.
    fn place(&self) -> ImportPlace {
        let after: Option<VersionId> = self.moved.here;
        let (bucket, key, listed) = (self.bucket.to_owned(), self.listed.key.clone(), Arc::clone(&self.identities));
        ImportPlace { bucket, key, after, listed, actor: self.actor }
    }
}

fn moved_row(state: MovedState, complete: bool, moved: &MovedObject) -> MovedRow {
    let clock = moved.encode();
    MovedRow { state, concurrent: false, complete, written: 0, stamp: Timestamp::ZERO, clock }
}

fn identity(version: &SourceVersion) -> ImportedIdentity {
    let null = version.version_id.as_deref().is_none_or(|id| id == "null");
    let etag = Etag::parse(&version.etag).filter(|_| !version.is_marker);
    ImportedIdentity { etag, modified: version.modified, null }
}

fn name(version: &SourceVersion) -> SourceVersionName {
    let SourceVersion { version_id, etag, modified, .. } = version;
    SourceVersionName { version_id: version_id.clone(), etag: etag.clone(), modified: *modified }
}

/// Whether a version here is the one that the source lists.
fn is_same(here: &Version, there: &SourceVersion) -> bool {
    match &here.object {
        None => there.is_marker,
        Some(object) => {
            let etag = Etag::parse(&there.etag);
            !there.is_marker && object.length() == there.length && etag.is_none_or(|etag| etag == object.etag)
        }
    }
}

/// An object on one line; a long key is cut.
pub(super) fn shown_object(bucket: &str, key: &[u8]) -> String {
    format!("s3://{}/{}", shown_name(bucket.as_bytes()), shown_name(key))
}

fn unquoted(etag: &HeaderValue) -> String {
    String::from_utf8_lossy(etag.as_bytes()).trim().trim_matches('"').to_owned()
}

/// The headers of an answer; those that are none are left out.
fn header_map(fetched: &S3Fetched) -> HeaderMap {
    let header = |(name, value): (&str, &Bytes)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::from_maybe_shared(value.clone()).ok()?))
    };
    fetched.headers.iter().filter_map(header).collect()
}

/// Why a version was not imported.
pub(super) fn failure(error: Error) -> KeyFailure {
    match error {
        Error::Gateway(error) if !is_lasting(&error) => KeyFailure::Stopped(error.into()),
        Error::BrokenBody(_) => KeyFailure::Unanswered(error.to_string()),
        Error::NoSuchBucket(_) | Error::OperationAborted => KeyFailure::Stopped(stopped(error)),
        _ => KeyFailure::Aside(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> SourceVersion {
        SourceVersion {
            version_id: Some(format!("v{number}")),
            etag: format!("{number}"),
            modified: Timestamp(number),
            ..SourceVersion::default()
        }
    }

    fn listed(numbers: &[u64]) -> ListedKey {
        ListedKey { key: "k".into(), versions: numbers.iter().rev().map(|number| version(*number)).collect() }
    }

    fn after(numbers: &[u64], last: Option<u64>) -> Vec<u64> {
        let last = last.map(|number| name(&version(number)));
        listed(numbers).versions_after(last.as_ref()).iter().map(|version| version.modified.0).collect()
    }

    #[test]
    fn versions_come_behind_the_last_one_also_when_it_is_gone() {
        assert_eq!(after(&[1, 2, 3], None), [1, 2, 3]);
        assert_eq!(after(&[1, 2, 3], Some(1)), [2, 3]);
        assert_eq!(after(&[1, 2, 3], Some(3)), [0; 0]);
        assert_eq!(after(&[1, 3, 4], Some(2)), [3, 4]);
        assert_eq!(after(&[1], Some(2)), [1], "the newest was removed there: the one before it is the newest");
    }

    #[test]
    fn each_change_of_a_listing_changes_its_digest() {
        let digest = listed(&[1, 2]).digest();
        assert_ne!(digest, listed(&[1]).digest());
        assert_ne!(digest, listed(&[2, 1]).digest());
        let mut other = listed(&[1, 2]);
        other.versions[0].is_marker = true;
        assert_ne!(digest, other.digest());
        assert_eq!(digest, listed(&[1, 2]).digest());
    }
}
