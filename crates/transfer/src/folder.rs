//! The folder of an export: its manifest and its segments.
//!
//! ```text
//! manifest.json      format, id, start and source; once complete: types, totals, every segment's digest
//! segment-000001 …   see [`crate::segment`]
//! lock               held while an export writes
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_store::Timestamp;
use serde::{Deserialize, Serialize};

use crate::segment::{self, ExportId};
use crate::totals::Totals;
use crate::{Error, Result};

const MANIFEST: &str = "manifest.json";
const LOCK: &str = "lock";
/// The pause between two tries of the lock, and their number: two seconds in all.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
const LOCK_TRIES: u32 = 40;
/// The one format that this version writes and reads.
const FORMAT: u32 = 1;

/// The manifest of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportManifest {
    /// Format of the folder.
    pub(crate) format: u32,
    /// Identity of the export: 32 letters and digits.
    pub(crate) id: String,
    /// Start of the export, in microseconds since 1970.
    pub(crate) begun: Timestamp,
    /// The exported node's name, for people.
    pub(crate) source: String,
    /// The contents, once the export is complete.
    pub(crate) complete: Option<ExportContents>,
}

/// The contents of a complete export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportContents {
    /// The bucket types created with an n_val, which a target must be able to hold.
    pub(crate) types: Vec<TypeCopies>,
    /// Counts and checksums.
    pub(crate) totals: Totals,
    /// SHA-256 of each segment, as hexadecimal digits.
    pub(crate) segments: Vec<String>,
}

/// A bucket type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TypeCopies {
    /// Its name, for people.
    pub(crate) name: String,
    /// The type's n_val.
    pub(crate) copies: u8,
}

impl ExportManifest {
    /// The manifest of a new export.
    pub(crate) fn new(id: &ExportId, begun: Timestamp, source: String) -> Self {
        let id = String::from_utf8_lossy(id).into_owned();
        Self { format: FORMAT, id, begun, source, complete: None }
    }

    /// The export's identity.
    pub(crate) fn id(&self, folder: &ExportFolder) -> Result<ExportId> {
        let id = self.id.as_bytes().try_into();
        id.map_err(|_| Error::damaged(&folder.dir.join(MANIFEST), "its id has not 32 bytes"))
    }
}

/// The folder of an export.
#[derive(Debug, Clone)]
pub(crate) struct ExportFolder {
    pub(crate) dir: PathBuf,
    /// The lock. A thread that still writes after its export was given up keeps it until it ends.
    #[expect(dead_code, reason = "held, not read")]
    held: Option<Arc<File>>,
}

impl ExportFolder {
    /// The folder of this name, created if it is missing. Only its owner may read it: it holds secrets.
    pub(crate) fn make(dir: &Path) -> Result<Self> {
        let outcome = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        outcome.map_err(|error| Error::file(dir, error))?;
        Ok(Self { dir: dir.to_owned(), held: None })
    }

    /// The folder of this name, which holds a complete export.
    pub(crate) fn open(dir: &Path) -> Result<(Self, ExportManifest, ExportContents)> {
        let folder = Self { dir: dir.to_owned(), held: None };
        let Some(manifest) = folder.manifest()? else {
            return Err(Error::Refused(format!("there is no export in {}", dir.display())));
        };
        let Some(complete) = manifest.complete.clone() else {
            let line = "the export in it was not finished: give the export command again";
            return Err(Error::Refused(format!("{}: {line}", dir.display())));
        };
        Ok((folder, manifest, complete))
    }

    /// Locks the folder against other exports while the result or a clone of it lives. Blocks up to two seconds for an export
    /// that is about to end.
    pub(crate) fn lock(self) -> Result<Self> {
        let path = self.dir.join(LOCK);
        let file = File::create(&path).map_err(|error| Error::file(&path, error))?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Self { held: Some(Arc::new(file)), ..self }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(Error::file(&path, error)),
            }
        }
        Err(Error::Refused(format!("another export into {} is running", self.dir.display())))
    }

    /// The manifest, if there is one.
    pub(crate) fn manifest(&self) -> Result<Option<ExportManifest>> {
        let path = self.dir.join(MANIFEST);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| Error::file(&path, error))?,
        };
        let json: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| Error::damaged(&path, error.to_string()))?;
        // The format is checked before the fields: another version may name others.
        if json.get("format") != Some(&FORMAT.into()) {
            return Err(Error::damaged(&path, format!("its format is not {FORMAT}, the one this version reads")));
        }
        serde_json::from_value(json).map(Some).map_err(|error| Error::damaged(&path, error.to_string()))
    }

    /// Writes the manifest whole or not at all.
    pub(crate) fn put_manifest(&self, manifest: &ExportManifest) -> Result<()> {
        let path = self.dir.join(MANIFEST);
        let json = serde_json::to_vec_pretty(manifest).map_err(|error| Error::file(&path, error.into()))?;
        segment::write_whole(&path, &json)
    }

    /// The number of segments, which have numbers from 1 without a gap.
    pub(crate) fn segments(&self) -> Result<u32> {
        let mut numbers = BTreeSet::new();
        for entry in fs::read_dir(&self.dir).map_err(|error| Error::file(&self.dir, error))? {
            let entry = entry.map_err(|error| Error::file(&self.dir, error))?;
            numbers.extend(entry.file_name().to_str().and_then(segment::segment_number));
        }
        let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        // A gap is a lost file: segments are written in order.
        match (1..=count).find(|number| !numbers.contains(number)) {
            Some(gap) => Err(Error::damaged(&self.dir.join(segment::segment_name(gap)), "it is missing")),
            None => Ok(count),
        }
    }

    /// Whether the folder holds files that belong to no export.
    pub(crate) fn has_others(&self) -> Result<bool> {
        let mut entries = fs::read_dir(&self.dir).map_err(|error| Error::file(&self.dir, error))?;
        // A crash before the first whole manifest leaves the lock and a partial manifest; the export starts anew.
        Ok(entries
            .any(|entry| entry.is_ok_and(|entry| entry.file_name() != LOCK && entry.file_name() != "manifest.part")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_segment_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ExportFolder::make(dir.path()).unwrap();
        for number in [1, 2, 4] {
            fs::write(dir.path().join(segment::segment_name(number)), "").unwrap();
        }
        let error = folder.segments().unwrap_err().to_string();
        assert!(error.contains("segment-000003") && error.contains("missing"), "{error}");
        fs::write(dir.path().join(segment::segment_name(3)), "").unwrap();
        fs::write(dir.path().join("segment-000005.part"), "").unwrap();
        assert_eq!(folder.segments().unwrap(), 4);
    }

    #[test]
    fn an_unknown_manifest_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MANIFEST), r#"{"format": 2}"#).unwrap();
        let error = ExportFolder::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("manifest.json is damaged: its format is not 1"), "{error}");
    }

    #[test]
    fn two_exports_never_write_into_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = ExportFolder::make(dir.path()).unwrap();
        let held = folder.clone().lock().unwrap();
        let copy = held.clone();
        drop(held);
        assert!(matches!(folder.clone().lock(), Err(Error::Refused(_))));
        drop(copy);
        assert!(folder.lock().is_ok());
    }
}
