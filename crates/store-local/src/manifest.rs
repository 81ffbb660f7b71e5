//! The file `manifest`: the files that must exist when a start opens the data directory.
//!
//! ```text
//! larder manifest 1
//! tree packed 12                                       the tree's version file is v12 or a later one
//! journal 7 1200 00c0ffee00c0ffee 1500 8801 0123456789abcdef 67108912
//! journal 8 1501 0123456789abcdef                      number, first group, chain; sealed: last group, seqno, checksum, length
//! check 9e8d7c6b5a493827                               xxh3 of all before
//! ```
//! Every change replaces the file: `manifest.new` is written, synced and renamed, and the directory is synced, before anything
//! relies on the change.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::io_errors::{if_there, is_transient, write_synced};
use crate::journal::{JournalEnd, JournalHeader, ManifestJournal};
use crate::threads::Mutex;
use crate::tree_id::{PerTree, TreeId};

const FIRST_LINE: &str = "larder manifest 1";
const NAME: &str = "manifest";
const NEW_NAME: &str = "manifest.new";

/// The files that must exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EngineManifest {
    /// The least version of each tree, in the order of [`TreeId::ALL`].
    pub(crate) trees: PerTree<u64>,
    /// Journal files, ascending; the last one is active.
    pub(crate) journals: Vec<ManifestJournal>,
}

impl EngineManifest {
    /// The text of the file.
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for tree_id in TreeId::ALL {
            let _ = writeln!(text, "tree {} {}", tree_id.name(), self.trees[tree_id as usize]);
        }
        for ManifestJournal { header, sealed } in &self.journals {
            let _ = write!(text, "journal {} {} {:016x}", header.number, header.first, header.chain);
            if let Some(end) = sealed {
                let _ = write!(text, " {} {} {:016x} {}", end.group, end.seqno, end.checksum, end.length);
            }
            text.push('\n');
        }
        let _ = writeln!(text, "check {:016x}", xxh3_64(text.as_bytes()));
        text
    }

    /// Parses the text; `None` when a byte of it is wrong.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let (checked, check) = text.split_at_checked(text.rfind("check ")?)?;
        if check != format!("check {:016x}\n", xxh3_64(checked.as_bytes())) {
            return None;
        }
        let mut lines = checked.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut manifest = Self::default();
        for line in lines {
            let words = line.split(' ').collect::<Vec<_>>();
            match words[..] {
                ["tree", name, version] => {
                    let tree_id = TreeId::ALL.into_iter().find(|tree_id| tree_id.name() == name)?;
                    manifest.trees[tree_id as usize] = version.parse().ok()?;
                }
                ["journal", ref fields @ ..] => manifest.journals.push(decode_journal(fields)?),
                // A newer program may have written the line: skipping it could open a directory without files that must exist.
                _ => return None,
            }
        }
        Some(manifest)
    }
}

fn decode_journal(fields: &[&str]) -> Option<ManifestJournal> {
    let [number, first, chain, rest @ ..] = fields else { return None };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let header = JournalHeader { number: number.parse().ok()?, first: first.parse().ok()?, chain: hex(chain)? };
    let sealed = match rest {
        [] => None,
        [group, seqno, checksum, length] => Some(JournalEnd {
            group: group.parse().ok()?,
            seqno: seqno.parse().ok()?,
            checksum: hex(checksum)?,
            length: length.parse().ok()?,
        }),
        _ => return None,
    };
    Some(ManifestJournal { header, sealed })
}

/// Path of the manifest in a data directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Reads the manifest of a data directory: `None` when there is none, an error text when it is damaged.
///
/// # Errors
/// Any I/O error.
pub(crate) fn read(dir: &Path) -> io::Result<Option<Result<EngineManifest, String>>> {
    let path = path(dir);
    let Some(bytes) = if_there(fs::read(&path))? else { return Ok(None) };
    let manifest = String::from_utf8(bytes).ok().and_then(|text| EngineManifest::decode(&text));
    Ok(Some(manifest.ok_or_else(|| format!("{} is damaged: it says which files must be there", path.display()))))
}

/// A failed change of the manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    /// The manifest is as before: the next try may succeed.
    #[error("{0}")]
    Kept(io::Error),
    /// The disk may have the old manifest or the new one.
    #[error("{0}")]
    InDoubt(io::Error),
}

impl From<ManifestError> for io::Error {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::Kept(error) | ManifestError::InDoubt(error) => error,
        }
    }
}

/// The manifest, open for changes.
pub(crate) struct ManifestFile {
    dir: PathBuf,
    /// Held open: syncing the directory must not fail for want of a descriptor.
    handle: File,
    manifest: Mutex<EngineManifest>,
}

impl ManifestFile {
    /// The manifest of `dir` as it was read, or the first one, which is not written yet.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn new(dir: &Path, manifest: EngineManifest) -> io::Result<Self> {
        Ok(Self { dir: dir.to_owned(), handle: File::open(dir)?, manifest: Mutex::new(manifest) })
    }

    /// Hands the manifest in memory to `look`.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&EngineManifest) -> T) -> T {
        look(&self.manifest.lock())
    }

    /// Changes the manifest; the change is on disk once this returns.
    ///
    /// # Errors
    /// `Kept`: nothing changed. `InDoubt`: the journal takes no more writes.
    pub(crate) fn change(&self, change: impl FnOnce(&mut EngineManifest)) -> Result<(), ManifestError> {
        // The lock is held over the write: two changes must not write `manifest.new` at once.
        let mut manifest = self.manifest.lock();
        let mut changed = manifest.clone();
        change(&mut changed);
        let new = self.dir.join(NEW_NAME);
        // The bytes before the rename: a crash leaves the old manifest or the new one, never a part.
        let written = write_synced(&new, changed.encode().as_bytes()).map_err(ManifestError::Kept);
        let replaced = written.and_then(|()| {
            fs::rename(&new, path(&self.dir)).map_err(|error| match is_transient(&error) {
                true => ManifestError::Kept(error),
                false => ManifestError::InDoubt(error),
            })
        });
        // On a full disk the unfinished file takes space that the next try needs.
        replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
        *manifest = changed;
        // The rename is done: a failed sync leaves open which manifest a power cut leaves.
        self.handle.sync_all().map_err(ManifestError::InDoubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> EngineManifest {
        let header = |number, first, chain| JournalHeader { number, first, chain };
        let end = JournalEnd { group: 1500, seqno: 8801, checksum: 0x0123_4567_89ab_cdef, length: 67_108_912 };
        EngineManifest {
            trees: [12, 3, 0, 7],
            journals: vec![
                ManifestJournal { header: header(7, 1200, 0x00c0_ffee), sealed: Some(end) },
                ManifestJournal { header: header(8, 1501, end.checksum), sealed: None },
            ],
        }
    }

    #[test]
    fn a_failed_write_once_ended_all_writes_although_nothing_had_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = ManifestFile::new(dir.path(), manifest()).unwrap();
        // A folder of the new file's name lets its creation fail.
        fs::create_dir(dir.path().join(NEW_NAME)).unwrap();
        let failed = file.change(|manifest| manifest.trees = [1, 1, 1, 1]);
        assert!(matches!(failed, Err(ManifestError::Kept(_))), "{failed:?}");
        assert_eq!(file.read(|manifest| manifest.trees), [12, 3, 0, 7]);
        fs::remove_dir(dir.path().join(NEW_NAME)).unwrap();
        file.change(|manifest| manifest.trees = [1, 1, 1, 1]).unwrap();
        assert_eq!(read(dir.path()).unwrap().unwrap().unwrap().trees, [1, 1, 1, 1]);
    }

    #[test]
    fn a_manifest_survives_a_round_trip() {
        assert_eq!(EngineManifest::decode(&manifest().encode()), Some(manifest()));
    }

    #[test]
    fn a_flipped_bit_a_cut_and_an_appended_byte_are_refused() {
        let text = manifest().encode().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut wrong = text.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let decoded = String::from_utf8(wrong).ok().and_then(|text| EngineManifest::decode(&text));
            assert_eq!(decoded, None, "bit {bit}");
        }
        for cut in 0..text.len() {
            let cut = String::from_utf8(text[..cut].to_vec()).unwrap();
            assert_eq!(EngineManifest::decode(&cut), None);
        }
        assert_eq!(EngineManifest::decode(&(manifest().encode() + "\n")), None);
    }
}
