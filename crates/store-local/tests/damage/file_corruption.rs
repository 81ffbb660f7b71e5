//! One fault of one file.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use larder_testkit::SplitMix64;

use super::dir_snapshot::DirSnapshot;

const PAGE: usize = 4096;

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CorruptionKind {
    FlipBit,
    Truncate,
    Empty,
    ZeroPage,
    Delete,
    Append,
    Garble,
}

impl CorruptionKind {
    pub const ALL: [Self; 7] =
        [Self::FlipBit, Self::Truncate, Self::Empty, Self::ZeroPage, Self::Delete, Self::Append, Self::Garble];
}

/// The fault of one file.
#[derive(Debug, Clone)]
pub struct FileCorruption {
    pub kind: CorruptionKind,
    /// Relative to the data directory.
    pub path: PathBuf,
    /// The offset of the fault, and the file's length before it.
    at: usize,
    length: usize,
    /// The file's bytes after the fault; `None`: it is removed.
    after: Option<Vec<u8>>,
}

impl FileCorruption {
    /// A random fault that changes something. Every class of files is equally likely.
    pub fn random(tree: &DirSnapshot, random: &mut SplitMix64) -> Self {
        let classes = classes(tree);
        loop {
            let files = &classes[random.below(classes.len())].1;
            let (path, bytes) = files[random.below(files.len())];
            let kind = CorruptionKind::ALL[random.below(CorruptionKind::ALL.len())];
            let (at, after) = damaged_bytes(kind, bytes, random);
            if after.as_deref() != Some(bytes) {
                return Self { kind, path: path.to_owned(), at, length: bytes.len(), after };
            }
        }
    }

    /// Applies the fault to the file below `dir`.
    pub fn apply(&self, dir: &Path) -> io::Result<()> {
        match &self.after {
            Some(bytes) => fs::write(dir.join(&self.path), bytes),
            None => fs::remove_file(dir.join(&self.path)),
        }
    }

    /// Applies the fault to a snapshot.
    pub fn apply_to(&self, tree: &mut DirSnapshot) {
        match &self.after {
            Some(bytes) => tree.0.insert(self.path.clone(), Some(bytes.clone())),
            None => tree.0.remove(&self.path),
        };
    }
}

impl fmt::Display for FileCorruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} of {} bytes in {}", self.kind, self.at, self.length, self.path.display())
    }
}

/// The files of one class: the path without numbers, and each file.
type FileClass<'a> = (String, Vec<(&'a Path, &'a [u8])>);

fn classes(tree: &DirSnapshot) -> Vec<FileClass<'_>> {
    let mut classes: BTreeMap<String, Vec<(&Path, &[u8])>> = BTreeMap::new();
    for (path, bytes) in tree.files() {
        classes.entry(file_class(path)).or_default().push((path, bytes));
    }
    classes.into_iter().collect()
}

/// A path without its numbers and hexadecimal names.
pub fn file_class(path: &Path) -> String {
    let word = |part: &std::ffi::OsStr| {
        let text = part.to_string_lossy().into_owned();
        let stem = text.split('.').next().unwrap_or_default();
        if stem.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return text.replacen(stem, "#", 1);
        }
        text.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
    };
    path.iter().map(word).collect::<Vec<_>>().join("/")
}

fn damaged_bytes(kind: CorruptionKind, bytes: &[u8], random: &mut SplitMix64) -> (usize, Option<Vec<u8>>) {
    let mut after = bytes.to_vec();
    let at = place(bytes, random);
    match kind {
        CorruptionKind::FlipBit => after.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        CorruptionKind::Truncate => after.truncate(at),
        CorruptionKind::Empty => after.clear(),
        CorruptionKind::ZeroPage => after.iter_mut().skip(at - at % PAGE).take(PAGE).for_each(|byte| *byte = 0),
        CorruptionKind::Delete => return (0, None),
        CorruptionKind::Append => {
            let length = 1 + random.below(5000);
            after.extend(random.bytes(length));
        }
        CorruptionKind::Garble => {
            let length = 1 + random.below(200);
            let garbage = random.bytes(length);
            after.iter_mut().skip(at).zip(garbage).for_each(|(byte, wrong)| *byte = wrong);
        }
    }
    (at, Some(after))
}

/// A random offset in a file, more often in its metadata: at its beginning, at its end, and at the end of the written bytes.
fn place(bytes: &[u8], random: &mut SplitMix64) -> usize {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    match random.below(8) {
        0 => random.below(bytes.len().min(64)),
        1 => bytes.len().saturating_sub(1 + random.below(bytes.len().min(PAGE))),
        2 => written.saturating_sub(1 + random.below(written.min(PAGE))),
        3 => random.below(bytes.len()),
        _ => random.below(written),
    }
}
