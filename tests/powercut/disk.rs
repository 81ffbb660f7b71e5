//! A model of files and directories, for the state after a power cut.
//!
//! ```text
//! file        bytes that the last sync covers   +  writes since, each kept, dropped or torn at a cut
//! directory   names that the last sync covers   +  changes since, of which a cut keeps the first few
//! ```
//! A sync covers the calls that had *ended* when it began; calls in flight may be missing. The sync of a file covers its bytes
//! and its length; only a sync of the directory covers its name. Changes of one directory become durable in their order, a
//! rename across two directories in both or in none. Writes between two syncs may become durable in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::harness::SplitMix64;

use crate::powercut::content::FileContent;
use crate::powercut::image::DirImage;
use crate::powercut::trace::TraceLine;

/// A file or directory, independent of its names.
pub type InodeNumber = usize;
/// A name in a directory.
pub type EntryName = Vec<u8>;

/// The files below the directory of the record.
#[derive(Debug, Clone)]
pub struct DiskModel {
    inodes: Vec<DiskInode>,
    /// Changes of directories that no sync covers, in order.
    changes: Vec<DirChange>,
}

#[derive(Debug, Clone)]
enum DiskInode {
    File { synced: Arc<FileContent>, unsynced: Vec<(TraceLine, FileWrite)>, length: u64 },
    Dir { synced: DirEntries, now: DirEntries },
}

type DirEntries = BTreeMap<EntryName, InodeNumber>;

/// A change of the bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileWrite {
    /// Bytes at an offset.
    Bytes(u64, Arc<Vec<u8>>),
    /// A new length.
    Length(u64),
    /// At least this length.
    Grow(u64),
    /// A hole: its offset and its length.
    Zero(u64, u64),
}

/// A change of one directory, or of two at once.
#[derive(Debug, Clone)]
struct DirChange {
    ended: TraceLine,
    entries: Vec<(InodeNumber, EntryName, Option<InodeNumber>)>,
}

/// The share of unsynced changes that a cut keeps, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptShare {
    /// The share of writes.
    pub writes: usize,
    /// The share of changes of directories.
    pub names: usize,
}

impl KeptShare {
    /// A random share from nothing to everything; often the worst: names without their bytes, or bytes without their names.
    pub fn any(random: &mut SplitMix64) -> Self {
        let part = |random: &mut SplitMix64| match random.below(4) {
            0 => 0,
            1 => 100,
            _ => 1 + random.below(99),
        };
        match random.below(8) {
            0..=2 => Self { writes: 0, names: 100 },
            3 => Self { writes: 100, names: 0 },
            _ => Self { writes: part(random), names: part(random) },
        }
    }
}

impl DiskModel {
    /// The top directory.
    pub const ROOT: InodeNumber = 0;

    /// A disk with the files of `image`, synced.
    pub fn new(image: &DirImage) -> Self {
        let mut disk = Self { inodes: Vec::new(), changes: Vec::new() };
        disk.adopt(image);
        disk
    }

    fn adopt(&mut self, image: &DirImage) -> InodeNumber {
        let inode = self.inodes.len();
        match image {
            DirImage::File(content) => {
                let (synced, length) = (content.clone(), content.length());
                self.inodes.push(DiskInode::File { synced, unsynced: Vec::new(), length });
            }
            DirImage::Dir(entries) => {
                self.inodes.push(DiskInode::Dir { synced: DirEntries::new(), now: DirEntries::new() });
                let entries: DirEntries =
                    entries.iter().map(|(name, image)| (name.clone(), self.adopt(image))).collect();
                self.inodes[inode] = DiskInode::Dir { synced: entries.clone(), now: entries };
            }
        }
        inode
    }

    /// The inode of a name now.
    pub fn find(&self, dir: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
        match &self.inodes[dir] {
            DiskInode::Dir { now, .. } => now.get(name).copied(),
            DiskInode::File { .. } => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self, inode: InodeNumber) -> bool {
        matches!(self.inodes[inode], DiskInode::Dir { .. })
    }

    /// The length of a file now.
    pub fn length(&self, file: InodeNumber) -> u64 {
        match &self.inodes[file] {
            DiskInode::File { length, .. } => *length,
            DiskInode::Dir { .. } => 0,
        }
    }

    /// Makes an empty file.
    pub fn make_file(&mut self, dir: InodeNumber, name: &[u8], ended: TraceLine) -> InodeNumber {
        self.make(dir, name, ended, DiskInode::File { synced: Arc::default(), unsynced: Vec::new(), length: 0 })
    }

    /// Makes an empty directory.
    pub fn make_dir(&mut self, dir: InodeNumber, name: &[u8], ended: TraceLine) -> InodeNumber {
        self.make(dir, name, ended, DiskInode::Dir { synced: DirEntries::new(), now: DirEntries::new() })
    }

    fn make(&mut self, dir: InodeNumber, name: &[u8], ended: TraceLine, node: DiskInode) -> InodeNumber {
        self.inodes.push(node);
        let inode = self.inodes.len() - 1;
        self.change(ended, vec![(dir, name.to_vec(), Some(inode))]);
        inode
    }

    /// Gives a file another name.
    pub fn link(&mut self, inode: InodeNumber, dir: InodeNumber, name: &[u8], ended: TraceLine) {
        self.change(ended, vec![(dir, name.to_vec(), Some(inode))]);
    }

    /// Renames, in one directory or across two.
    pub fn rename(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8]), ended: TraceLine) {
        let Some(inode) = self.find(from.0, from.1) else { return };
        self.change(ended, vec![(from.0, from.1.to_vec(), None), (to.0, to.1.to_vec(), Some(inode))]);
    }

    /// Removes a name.
    pub fn unlink(&mut self, dir: InodeNumber, name: &[u8], ended: TraceLine) {
        self.change(ended, vec![(dir, name.to_vec(), None)]);
    }

    fn change(&mut self, ended: TraceLine, entries: Vec<(InodeNumber, EntryName, Option<InodeNumber>)>) {
        for (dir, name, inode) in &entries {
            if let DiskInode::Dir { now, .. } = &mut self.inodes[*dir] {
                set(now, name, *inode);
            }
        }
        self.changes.push(DirChange { ended, entries });
    }

    /// Changes the bytes of a file.
    pub fn write(&mut self, file: InodeNumber, write: FileWrite, ended: TraceLine) {
        let DiskInode::File { unsynced, length, .. } = &mut self.inodes[file] else { return };
        match &write {
            FileWrite::Bytes(at, bytes) => *length = (*length).max(at + bytes.len() as u64),
            FileWrite::Length(to) => *length = *to,
            FileWrite::Grow(to) => *length = (*length).max(*to),
            FileWrite::Zero(..) => {}
        }
        unsynced.push((ended, write));
    }

    /// Ends a sync of a file or directory that began at this line.
    pub fn sync(&mut self, inode: InodeNumber, began: TraceLine) {
        match &mut self.inodes[inode] {
            DiskInode::File { synced, unsynced, .. } => {
                let synced = Arc::make_mut(synced);
                unsynced.retain(|(ended, write)| {
                    let covered = *ended < began;
                    if covered {
                        apply(synced, write);
                    }
                    !covered
                });
            }
            DiskInode::Dir { .. } => self.sync_dir(inode, began),
        }
    }

    /// Ends a sync of all files that began at this line.
    pub fn sync_all(&mut self, began: TraceLine) {
        (0..self.inodes.len()).for_each(|inode| self.sync(inode, began));
    }

    /// Syncs a directory. A change of two directories makes the earlier changes of the other one durable too.
    fn sync_dir(&mut self, dir: InodeNumber, began: TraceLine) {
        let mut dirs = BTreeSet::from([dir]);
        let mut covered = vec![false; self.changes.len()];
        for (at, change) in self.changes.iter().enumerate().rev().filter(|(_, change)| change.ended < began) {
            if change.entries.iter().any(|(dir, ..)| dirs.contains(dir)) {
                dirs.extend(change.entries.iter().map(|(dir, ..)| *dir));
                covered[at] = true;
            }
        }
        let mut covered = covered.into_iter();
        for change in std::mem::take(&mut self.changes) {
            if covered.next() == Some(true) {
                for (dir, name, inode) in &change.entries {
                    if let DiskInode::Dir { synced, .. } = &mut self.inodes[*dir] {
                        set(synced, name, *inode);
                    }
                }
            } else {
                self.changes.push(change);
            }
        }
    }

    /// The files after a cut at this time.
    pub fn cut(&self, share: KeptShare, random: &mut SplitMix64) -> DirImage {
        let mut dirs: BTreeMap<InodeNumber, DirEntries> = BTreeMap::new();
        let mut blocked = BTreeSet::new();
        for change in &self.changes {
            let is_blocked = change.entries.iter().any(|(dir, ..)| blocked.contains(dir));
            if is_blocked || random.below(100) >= share.names {
                blocked.extend(change.entries.iter().map(|(dir, ..)| *dir));
                continue;
            }
            for (dir, name, inode) in &change.entries {
                set(dirs.entry(*dir).or_insert_with(|| self.synced_entries(*dir)), name, *inode);
            }
        }
        self.image(Self::ROOT, &dirs, &mut |content, unsynced| lose(content, unsynced, share, random))
    }

    /// The files without a cut.
    pub fn whole(&self) -> DirImage {
        let now = |node: &DiskInode| match node {
            DiskInode::Dir { now, .. } => Some(now.clone()),
            DiskInode::File { .. } => None,
        };
        let dirs = self.inodes.iter().enumerate().filter_map(|(inode, node)| Some((inode, now(node)?))).collect();
        self.image(Self::ROOT, &dirs, &mut |content, unsynced| {
            unsynced.iter().for_each(|(_, write)| apply(content, write));
        })
    }

    fn synced_entries(&self, dir: InodeNumber) -> DirEntries {
        match &self.inodes[dir] {
            DiskInode::Dir { synced, .. } => synced.clone(),
            DiskInode::File { .. } => DirEntries::new(),
        }
    }

    fn image(
        &self,
        inode: InodeNumber,
        dirs: &BTreeMap<InodeNumber, DirEntries>,
        unsynced: &mut impl FnMut(&mut FileContent, &[(TraceLine, FileWrite)]),
    ) -> DirImage {
        match &self.inodes[inode] {
            DiskInode::File { synced, unsynced: writes, .. } if writes.is_empty() => DirImage::File(synced.clone()),
            DiskInode::File { synced, unsynced: writes, .. } => {
                let mut content = FileContent::clone(synced);
                unsynced(&mut content, writes);
                DirImage::File(Arc::new(content))
            }
            DiskInode::Dir { synced, .. } => {
                let entries = dirs.get(&inode).unwrap_or(synced);
                DirImage::Dir(
                    entries.iter().map(|(name, inode)| (name.clone(), self.image(*inode, dirs, unsynced))).collect(),
                )
            }
        }
    }
}

fn set(entries: &mut DirEntries, name: &[u8], inode: Option<InodeNumber>) {
    match inode {
        Some(inode) => drop(entries.insert(name.to_vec(), inode)),
        None => drop(entries.remove(name)),
    }
}

fn apply(content: &mut FileContent, write: &FileWrite) {
    match write {
        FileWrite::Bytes(at, bytes) => content.write(*at, bytes),
        FileWrite::Length(length) => content.set_length(*length),
        FileWrite::Grow(length) => content.set_length(content.length().max(*length)),
        FileWrite::Zero(at, count) => content.zero(*at, *count),
    }
}

/// Applies some unsynced writes: the first ones, or any of them; some are torn.
fn lose(content: &mut FileContent, unsynced: &[(TraceLine, FileWrite)], share: KeptShare, random: &mut SplitMix64) {
    let in_order = random.below(2) == 0;
    for (_, write) in unsynced {
        if random.below(100) < share.writes {
            apply(content, write);
            continue;
        }
        if share.writes > 0 && random.below(2) == 0 {
            tear(content, write, random);
        }
        if in_order {
            return;
        }
    }
}

/// Applies a part of a write: its beginning, or some of its sectors. The length may be that of the whole write.
fn tear(content: &mut FileContent, write: &FileWrite, random: &mut SplitMix64) {
    let FileWrite::Bytes(at, bytes) = write else { return };
    if random.below(2) == 0 {
        return content.write(*at, &bytes[..random.below(bytes.len().max(1))]);
    }
    let sector = *random.pick(&[512, 4096]);
    let first = (sector - at % sector).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at(first);
    let mut offset = *at;
    for part in std::iter::once(head).chain(rest.chunks(sector as usize)) {
        if random.below(2) == 0 {
            content.write(offset, part);
        }
        offset += part.len() as u64;
    }
    if random.below(2) == 0 {
        content.set_length(content.length().max(at + bytes.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: KeptShare = KeptShare { writes: 0, names: 0 };
    const EVERYTHING: KeptShare = KeptShare { writes: 100, names: 100 };

    fn empty() -> DiskModel {
        DiskModel::new(&DirImage::default())
    }

    fn bytes(at: u64, bytes: &[u8]) -> FileWrite {
        FileWrite::Bytes(at, Arc::new(bytes.to_vec()))
    }

    fn cut(disk: &DiskModel, share: KeptShare) -> String {
        disk.cut(share, &mut SplitMix64::new(1)).listing()
    }

    #[test]
    fn a_synced_file_without_its_directory_is_lost() {
        let mut disk = empty();
        let file = disk.make_file(DiskModel::ROOT, b"f", 0);
        disk.write(file, bytes(0, b"abc"), 1);
        disk.sync(file, 2);
        assert_eq!(cut(&disk, NOTHING), "");
        disk.sync(DiskModel::ROOT, 3);
        assert_eq!(cut(&disk, NOTHING), "f abc\n");
    }

    #[test]
    fn a_sync_covers_only_writes_that_had_ended_when_it_began() {
        let mut disk = empty();
        let file = disk.make_file(DiskModel::ROOT, b"f", 0);
        disk.sync(DiskModel::ROOT, 1);
        disk.write(file, bytes(0, b"ab"), 2);
        disk.write(file, bytes(2, b"cd"), 5);
        disk.sync(file, 4);
        assert_eq!(cut(&disk, NOTHING), "f ab\n");
        assert_eq!(cut(&disk, EVERYTHING), "f abcd\n");
        assert_eq!(disk.whole().listing(), "f abcd\n");
    }

    #[test]
    fn a_rename_over_a_file_leaves_the_old_or_the_new_one() {
        let mut disk = empty();
        let old = disk.make_file(DiskModel::ROOT, b"f", 0);
        disk.write(old, bytes(0, b"old"), 1);
        disk.sync_all(2);
        let new = disk.make_file(DiskModel::ROOT, b"f.tmp", 3);
        disk.write(new, bytes(0, b"new"), 4);
        disk.sync(new, 5);
        disk.rename((DiskModel::ROOT, b"f.tmp"), (DiskModel::ROOT, b"f"), 6);
        let mut random = SplitMix64::new(3);
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let share = KeptShare::any(&mut random);
            seen.insert(disk.cut(share, &mut random).listing());
        }
        let expected = ["f old\n", "f old\nf.tmp new\n", "f new\n"].map(str::to_owned);
        assert_eq!(seen, BTreeSet::from(expected));
    }

    #[test]
    fn a_rename_across_directories_is_in_both_or_in_none() {
        let mut disk = empty();
        let (from, to) = (disk.make_dir(DiskModel::ROOT, b"a", 0), disk.make_dir(DiskModel::ROOT, b"b", 0));
        disk.make_file(from, b"f", 0);
        disk.sync_all(1);
        disk.rename((from, b"f"), (to, b"f"), 2);
        assert_eq!(cut(&disk, NOTHING), "a/\na/f \nb/\n");
        disk.sync(to, 3);
        assert_eq!(cut(&disk, NOTHING), "a/\nb/\nb/f \n");
    }

    #[test]
    fn an_unlink_is_undone_until_its_directory_is_synced() {
        let mut disk = empty();
        disk.make_file(DiskModel::ROOT, b"f", 0);
        disk.sync_all(1);
        disk.unlink(DiskModel::ROOT, b"f", 2);
        assert_eq!(cut(&disk, NOTHING), "f \n");
        assert_eq!(cut(&disk, EVERYTHING), "");
        disk.sync(DiskModel::ROOT, 3);
        assert_eq!(cut(&disk, NOTHING), "");
    }

    #[test]
    fn a_directory_whose_name_is_lost_is_lost_with_all_in_it() {
        let mut disk = empty();
        let dir = disk.make_dir(DiskModel::ROOT, b"d", 0);
        let file = disk.make_file(dir, b"f", 1);
        disk.sync(file, 2);
        disk.sync(dir, 2);
        assert_eq!(cut(&disk, NOTHING), "");
        assert_eq!(cut(&disk, EVERYTHING), "d/\nd/f \n");
    }

    #[test]
    fn a_torn_write_changes_nothing_outside_of_it() {
        let mut disk = empty();
        let file = disk.make_file(DiskModel::ROOT, b"f", 0);
        disk.write(file, bytes(0, &[1; 3000]), 1);
        disk.sync_all(2);
        disk.write(file, bytes(700, &[2; 1500]), 3);
        let mut random = SplitMix64::new(5);
        let mut partly = 0;
        for _ in 0..200 {
            let DirImage::Dir(entries) = disk.cut(KeptShare { writes: 40, names: 0 }, &mut random) else {
                panic!("no directory")
            };
            let bytes = entries[&b"f".to_vec()].bytes();
            assert_eq!((bytes.len(), &bytes[..700], &bytes[2200..]), (3000, &[1; 700][..], &[1; 800][..]));
            let new = bytes.iter().filter(|byte| **byte == 2).count();
            partly += usize::from(new > 0 && new < 1500);
        }
        assert!(partly > 20, "{partly} of 200 were torn");
    }
}
