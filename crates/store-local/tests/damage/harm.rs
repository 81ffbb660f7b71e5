//! One thing that goes wrong with one file.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::tree::Tree;

const PAGE: usize = 4096;

/// SplitMix64: the same numbers for the same seed.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(8)).flat_map(|_| self.number().to_le_bytes()).take(length).collect()
    }
}

/// What may happen to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HarmKind {
    FlipBit,
    Truncate,
    Empty,
    ZeroPage,
    Delete,
    Append,
    Garble,
}

impl HarmKind {
    pub const ALL: [Self; 7] =
        [Self::FlipBit, Self::Truncate, Self::Empty, Self::ZeroPage, Self::Delete, Self::Append, Self::Garble];
}

/// What happens to one file.
#[derive(Debug, Clone)]
pub struct Harm {
    pub kind: HarmKind,
    /// Relative to the data directory.
    pub path: PathBuf,
    /// Where in it, and the length it had.
    at: usize,
    length: usize,
    /// What it holds afterwards; `None`: it is gone.
    after: Option<Vec<u8>>,
}

impl Harm {
    /// One that changes something. Every sort of file is as likely, however many or large they are.
    pub fn random(tree: &Tree, random: &mut Random) -> Self {
        let sorts = sorts(tree);
        loop {
            let files = &sorts[random.below(sorts.len())].1;
            let (path, bytes) = files[random.below(files.len())];
            let kind = HarmKind::ALL[random.below(HarmKind::ALL.len())];
            let (at, after) = harmed(kind, bytes, random);
            if after.as_deref() != Some(bytes) {
                return Self { kind, path: path.to_owned(), at, length: bytes.len(), after };
            }
        }
    }

    /// Does it to the file below `dir`.
    pub fn apply(&self, dir: &Path) -> io::Result<()> {
        match &self.after {
            Some(bytes) => fs::write(dir.join(&self.path), bytes),
            None => fs::remove_file(dir.join(&self.path)),
        }
    }

    /// The same to what is in memory.
    pub fn apply_to(&self, tree: &mut Tree) {
        match &self.after {
            Some(bytes) => tree.0.insert(self.path.clone(), Some(bytes.clone())),
            None => tree.0.remove(&self.path),
        };
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} of {} bytes in {}", self.kind, self.at, self.length, self.path.display())
    }
}

/// Files of one sort: the path with numbers taken out, and each.
type Sort<'a> = (String, Vec<(&'a Path, &'a [u8])>);

fn sorts(tree: &Tree) -> Vec<Sort<'_>> {
    let mut sorts: BTreeMap<String, Vec<(&Path, &[u8])>> = BTreeMap::new();
    for (path, bytes) in tree.files() {
        sorts.entry(sort_of(path)).or_default().push((path, bytes));
    }
    sorts.into_iter().collect()
}

/// A path with its numbers taken out, hexadecimal names too.
pub fn sort_of(path: &Path) -> String {
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

fn harmed(kind: HarmKind, bytes: &[u8], random: &mut Random) -> (usize, Option<Vec<u8>>) {
    let mut after = bytes.to_vec();
    let at = place(bytes, random);
    match kind {
        HarmKind::FlipBit => after.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        HarmKind::Truncate => after.truncate(at),
        HarmKind::Empty => after.clear(),
        HarmKind::ZeroPage => after.iter_mut().skip(at - at % PAGE).take(PAGE).for_each(|byte| *byte = 0),
        HarmKind::Delete => return (0, None),
        HarmKind::Append => {
            let length = 1 + random.below(5000);
            after.extend(random.bytes(length));
        }
        HarmKind::Garble => {
            let length = 1 + random.below(200);
            let garbage = random.bytes(length);
            after.iter_mut().skip(at).zip(garbage).for_each(|(byte, wrong)| *byte = wrong);
        }
    }
    (at, Some(after))
}

/// Somewhere in a file, more often where it describes itself: at its beginning, its end, and the end of what was written.
fn place(bytes: &[u8], random: &mut Random) -> usize {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    match random.below(8) {
        0 => random.below(bytes.len().min(64)),
        1 => bytes.len().saturating_sub(1 + random.below(bytes.len().min(PAGE))),
        2 => written.saturating_sub(1 + random.below(written.min(PAGE))),
        3 => random.below(bytes.len()),
        _ => random.below(written),
    }
}
