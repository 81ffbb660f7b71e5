//! What the store has to hold.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::dates::{DAY, MINUTE, SECOND};
use super::digests::{hex, md5_hex};

/// How an object is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelEncryption {
    Plain,
    Server,
    /// With the customer's key of this number.
    Customer(u8),
}

/// A retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelRetention {
    pub(super) is_compliance: bool,
    /// Its end, in microseconds since 1970.
    pub(super) until: u64,
}

/// The lock of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ModelLock {
    pub(super) retention: Option<ModelRetention>,
    /// `None`: never set.
    pub(super) hold: Option<bool>,
}

/// Whether something is so at this moment. Object locks end by a clock of the store, which may lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    Yes,
    No,
    Unsure,
}

/// What an object carries besides its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ModelMetadata {
    pub(super) content_type: Option<String>,
    pub(super) colour: Option<String>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) is_public: bool,
}

/// The bytes of a version.
#[derive(Debug, Clone)]
pub(super) struct ModelObject {
    pub(super) bytes: Rc<Vec<u8>>,
    /// Lengths of its parts, if it was uploaded in parts.
    pub(super) parts: Option<Vec<usize>>,
    /// Its entity tag without quotes.
    pub(super) etag: String,
    pub(super) metadata: ModelMetadata,
    pub(super) encryption: ModelEncryption,
    pub(super) lock: ModelLock,
    /// The checksum that its put named, if the model knows of one.
    pub(super) sha256: Option<String>,
}

/// A version of a key.
#[derive(Debug, Clone)]
pub(super) struct ModelVersion {
    /// `None` until an answer has shown it: the lifecycle made a delete marker.
    pub(super) id: Option<String>,
    pub(super) modified: u64,
    /// `None`: a delete marker.
    pub(super) object: Option<ModelObject>,
}

impl ModelVersion {
    pub(super) fn is_null(&self) -> bool {
        self.id.as_deref() == Some("null")
    }

    pub(super) fn lock(&self) -> ModelLock {
        self.object.as_ref().map(|object| object.lock).unwrap_or_default()
    }
}

/// A part.
#[derive(Debug, Clone)]
pub(super) struct ModelPart {
    pub(super) bytes: Rc<Vec<u8>>,
    pub(super) etag: String,
}

/// An upload that is open.
#[derive(Debug, Clone)]
pub(super) struct ModelUpload {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) begun: u64,
    pub(super) parts: BTreeMap<u32, ModelPart>,
    pub(super) metadata: ModelMetadata,
    pub(super) encryption: ModelEncryption,
    pub(super) lock: ModelLock,
}

/// The versioning of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelVersioning {
    Never,
    Enabled,
    Suspended,
}

/// The default retention of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelDefault {
    pub(super) is_compliance: bool,
    pub(super) days: u64,
}

/// A lifecycle rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelRule {
    pub(super) prefix: &'static str,
    pub(super) days: Option<u64>,
    pub(super) expires_markers: bool,
    pub(super) noncurrent_days: Option<u64>,
    pub(super) abort_days: Option<u64>,
}

/// A bucket.
#[derive(Debug, Clone)]
pub(super) struct ModelBucket {
    pub(super) versioning: ModelVersioning,
    /// `Some`: it has object lock; the default retention inside.
    pub(super) lock: Option<Option<ModelDefault>>,
    pub(super) encrypts: bool,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) rules: Vec<ModelRule>,
    /// The versions of each key, newest first; no key has none.
    pub(super) keys: BTreeMap<String, Vec<ModelVersion>>,
    pub(super) uploads: Vec<ModelUpload>,
    /// Ids of versions and uploads that are gone.
    pub(super) gone: Vec<String>,
    pub(super) gone_uploads: Vec<String>,
}

impl ModelBucket {
    pub(super) fn new(has_lock: bool) -> Self {
        Self {
            versioning: if has_lock { ModelVersioning::Enabled } else { ModelVersioning::Never },
            lock: has_lock.then_some(None),
            encrypts: false,
            tags: BTreeMap::new(),
            rules: Vec::new(),
            keys: BTreeMap::new(),
            uploads: Vec::new(),
            gone: Vec::new(),
            gone_uploads: Vec::new(),
        }
    }

    pub(super) fn versions(&self, key: &str) -> &[ModelVersion] {
        self.keys.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The current version, if it is an object.
    pub(super) fn current(&self, key: &str) -> Option<&ModelObject> {
        self.versions(key).first()?.object.as_ref()
    }

    /// Adds a version as the current one; one that has no id of its own takes the place of the null version.
    pub(super) fn add(&mut self, key: &str, version: ModelVersion) {
        let versions = self.keys.entry(key.to_owned()).or_default();
        if version.is_null() {
            versions.retain(|other| !other.is_null());
        }
        versions.insert(0, version);
    }

    /// Removes one version.
    pub(super) fn remove(&mut self, key: &str, at: usize) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let removed = versions.remove(at);
        self.gone.extend(removed.id.filter(|id| id != "null"));
        if versions.is_empty() {
            self.keys.remove(key);
        }
    }

    /// The encryption of an object that names none.
    pub(super) fn default_encryption(&self) -> ModelEncryption {
        if self.encrypts { ModelEncryption::Server } else { ModelEncryption::Plain }
    }

    /// The lock of a new version that asks for this one, at a time.
    pub(super) fn new_lock(&self, asked: ModelLock, now: u64) -> ModelLock {
        let Some(Some(default)) = self.lock else { return asked };
        let own = ModelRetention { is_compliance: default.is_compliance, until: now + default.days * DAY };
        ModelLock { retention: asked.retention.or(Some(own)), ..asked }
    }
}

/// All buckets.
#[derive(Debug, Default)]
pub(super) struct ModelState {
    /// By the number in their names.
    pub(super) buckets: [Option<ModelBucket>; 3],
    /// How far the clock of locks may be behind, in microseconds, because the gateways did not run.
    pub(super) lag: u64,
}

impl ModelState {
    /// Whether a retention still holds.
    pub(super) fn holds(&self, retention: ModelRetention, now: u64) -> Certainty {
        // The end of a default retention is known to a second or so.
        if now + 5 * SECOND < retention.until {
            Certainty::Yes
        } else if now > retention.until + self.lag + 5 * MINUTE {
            Certainty::No
        } else {
            Certainty::Unsure
        }
    }

    /// Whether a version is protected from removal.
    pub(super) fn protects(&self, lock: ModelLock, now: u64, bypass: bool) -> Certainty {
        if lock.hold == Some(true) {
            return Certainty::Yes;
        }
        match lock.retention {
            Some(retention) if retention.is_compliance || !bypass => self.holds(retention, now),
            _ => Certainty::No,
        }
    }
}

/// The entity tag of an upload that was completed with these parts.
pub(super) fn completed_etag(parts: &[&ModelPart]) -> String {
    use md5::{Digest as _, Md5};
    let mut all = Md5::new();
    parts.iter().for_each(|part| all.update(Md5::digest(&*part.bytes)));
    format!("{}-{}", hex(&all.finalize()), parts.len())
}

/// The entity tag of these bytes, or of what an answer shows where no one can know it.
pub(super) fn etag(bytes: &[u8], encryption: ModelEncryption, shown: &str) -> String {
    match encryption {
        ModelEncryption::Customer(_) => shown.to_owned(),
        _ => md5_hex(bytes),
    }
}
