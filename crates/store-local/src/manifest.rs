//! The file `manifest`: what must be there when a start opens the data directory.
//!
//! ```text
//! larder manifest 1
//! tree packed 12                                       its version file is v12 or a later one
//! journal 7 1200 00c0ffee00c0ffee 1500 8801 0123456789abcdef 67108912
//! journal 8 1501 0123456789abcdef                      number, first group, chain; sealed: last group, seqno, checksum, length
//! check 9e8d7c6b5a493827                               xxh3 of all before
//! ```
//! It is replaced whole: written beside, synced, renamed, and its directory synced, before anything relies on it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::disk::is_transient;
use crate::journal::{JournalEnd, JournalHeader, ManifestedJournal};
use crate::spaces::Space;

const FIRST_LINE: &str = "larder manifest 1";
const NAME: &str = "manifest";
const NEW_NAME: &str = "manifest.new";

/// What must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The version that each tree has at least, as in [`Space::ALL`].
    pub(crate) trees: [u64; 3],
    /// Journal files, ascending; the last one is active.
    pub(crate) journals: Vec<ManifestedJournal>,
}

impl Manifest {
    /// Its text.
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for space in Space::ALL {
            let _ = writeln!(text, "tree {} {}", space.name(), self.trees[space as usize]);
        }
        for ManifestedJournal { header, sealed } in &self.journals {
            let _ = write!(text, "journal {} {} {:016x}", header.number, header.first, header.chain);
            if let Some(end) = sealed {
                let _ = write!(text, " {} {} {:016x} {}", end.group, end.seqno, end.checksum, end.length);
            }
            text.push('\n');
        }
        let _ = writeln!(text, "check {:016x}", xxh3_64(text.as_bytes()));
        text
    }

    /// Reads its text back; `None` when a byte of it is wrong.
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
                    let space = Space::ALL.into_iter().find(|space| space.name() == name)?;
                    manifest.trees[space as usize] = version.parse().ok()?;
                }
                ["journal", ref fields @ ..] => manifest.journals.push(decode_journal(fields)?),
                _ => return None,
            }
        }
        Some(manifest)
    }
}

fn decode_journal(fields: &[&str]) -> Option<ManifestedJournal> {
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
    Some(ManifestedJournal { header, sealed })
}

/// Path of the manifest in a data directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Reads the manifest of a data directory: `None` when there is none, an error text when it is damaged.
///
/// # Errors
/// What the machine answers.
pub(crate) fn read(dir: &Path) -> io::Result<Option<Result<Manifest, String>>> {
    let path = path(dir);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let manifest = String::from_utf8(bytes).ok().and_then(|text| Manifest::decode(&text));
    Ok(Some(manifest.ok_or_else(|| format!("{} is damaged: it says which files must be there", path.display()))))
}

/// The manifest, open for changes.
pub(crate) struct ManifestFile {
    dir: PathBuf,
    /// Held open: syncing the directory must not fail for want of a descriptor.
    handle: File,
    manifest: Mutex<Manifest>,
}

impl ManifestFile {
    /// The manifest of `dir` as it was read, or as it is to be written first.
    ///
    /// # Errors
    /// What the machine answers.
    pub(crate) fn new(dir: &Path, manifest: Manifest) -> io::Result<Self> {
        Ok(Self { dir: dir.to_owned(), handle: File::open(dir)?, manifest: Mutex::new(manifest) })
    }

    /// Looks at it.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Manifest) -> T) -> T {
        look(&self.manifest.lock())
    }

    /// Changes it; on disk once this returns.
    ///
    /// # Errors
    /// A transient error: nothing changed. Any other: the disk may have the old or the new one, and no journal may be
    /// written any more.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Manifest)) -> io::Result<()> {
        let mut manifest = self.manifest.lock();
        let mut changed = manifest.clone();
        change(&mut changed);
        let new = self.dir.join(NEW_NAME);
        let replaced = write_synced(&new, changed.encode().as_bytes()).and_then(|()| fs::rename(&new, path(&self.dir)));
        replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
        *manifest = changed;
        // From here on a reader may see the new one: a failure is not one that passes.
        self.handle.sync_all().map_err(|error| match is_transient(&error) {
            true => io::Error::other(format!("syncing the directory of the manifest: {error}")),
            false => error,
        })
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let header = |number, first, chain| JournalHeader { number, first, chain };
        let end = JournalEnd { group: 1500, seqno: 8801, checksum: 0x0123_4567_89ab_cdef, length: 67_108_912 };
        Manifest {
            trees: [12, 3, 0],
            journals: vec![
                ManifestedJournal { header: header(7, 1200, 0x00c0_ffee), sealed: Some(end) },
                ManifestedJournal { header: header(8, 1501, end.checksum), sealed: None },
            ],
        }
    }

    #[test]
    fn it_comes_back() {
        assert_eq!(Manifest::decode(&manifest().encode()), Some(manifest()));
    }

    #[test]
    fn no_wrong_bit_no_cut_and_nothing_appended_passes() {
        let text = manifest().encode().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut wrong = text.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let decoded = String::from_utf8(wrong).ok().and_then(|text| Manifest::decode(&text));
            assert_eq!(decoded, None, "bit {bit}");
        }
        for cut in 0..text.len() {
            let cut = String::from_utf8(text[..cut].to_vec()).unwrap();
            assert_eq!(Manifest::decode(&cut), None);
        }
        assert_eq!(Manifest::decode(&(manifest().encode() + "\n")), None);
    }
}
