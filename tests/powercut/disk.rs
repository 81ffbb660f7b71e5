//! Files and directories as a power cut finds them.
//!
//! ```text
//! file        what the last sync covers  +  writes since, each kept, dropped or torn at a cut
//! directory   what the last sync covers  +  changes since, of which a cut keeps the first so many
//! ```
//! A sync covers what had *ended* when it began: what was under way may be missing. The sync of a file covers its bytes and
//! its length, not its name: only a sync of the directory covers that. Changes of one directory become durable in their
//! order, a rename across two of them in both or in none. Nothing is said of the order of writes between two syncs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_tests::Random;

use crate::content::Content;
use crate::image::Image;
use crate::trace::Line;

/// A file or directory, whatever its names.
pub type Inode = usize;
/// A name in a directory.
pub type Name = Vec<u8>;

/// What lies below the directory where the record began.
#[derive(Debug, Clone)]
pub struct Disk {
    inodes: Vec<Node>,
    /// Changes of directories that no sync covers, in order.
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Node {
    File { synced: Arc<Content>, unsynced: Vec<(Line, Write)>, length: u64 },
    Dir { synced: Entries, now: Entries },
}

type Entries = BTreeMap<Name, Inode>;

/// A change of the bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Bytes at a place.
    Bytes(u64, Arc<Vec<u8>>),
    /// A new length.
    Length(u64),
    /// At least this length.
    Grow(u64),
    /// A hole, and how long it is.
    Zero(u64, u64),
}

/// A change of one directory, or of two at once.
#[derive(Debug, Clone)]
struct Change {
    ended: Line,
    entries: Vec<(Inode, Name, Option<Inode>)>,
}

/// How much of what no sync covers a cut keeps: a part of a hundred of the writes, and of the changes of directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Luck {
    /// Of writes.
    pub writes: usize,
    /// Of changes of directories.
    pub names: usize,
}

impl Luck {
    /// Nothing, everything, or anything between; often the worst: a removal without the write that replaces, or a name
    /// without its bytes, or the other way round.
    pub fn any(random: &mut Random) -> Self {
        let part = |random: &mut Random| match random.below(4) {
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

impl Disk {
    /// The directory where everything begins.
    pub const ROOT: Inode = 0;

    /// A disk that has what `image` has, synced.
    pub fn new(image: &Image) -> Self {
        let mut disk = Self { inodes: Vec::new(), changes: Vec::new() };
        disk.adopt(image);
        disk
    }

    fn adopt(&mut self, image: &Image) -> Inode {
        let inode = self.inodes.len();
        match image {
            Image::File(content) => {
                let (synced, length) = (content.clone(), content.length());
                self.inodes.push(Node::File { synced, unsynced: Vec::new(), length });
            }
            Image::Dir(entries) => {
                self.inodes.push(Node::Dir { synced: Entries::new(), now: Entries::new() });
                let entries: Entries = entries.iter().map(|(name, image)| (name.clone(), self.adopt(image))).collect();
                self.inodes[inode] = Node::Dir { synced: entries.clone(), now: entries };
            }
        }
        inode
    }

    /// What has this name now.
    pub fn find(&self, dir: Inode, name: &[u8]) -> Option<Inode> {
        match &self.inodes[dir] {
            Node::Dir { now, .. } => now.get(name).copied(),
            Node::File { .. } => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self, inode: Inode) -> bool {
        matches!(self.inodes[inode], Node::Dir { .. })
    }

    /// The length of a file now.
    pub fn length(&self, file: Inode) -> u64 {
        match &self.inodes[file] {
            Node::File { length, .. } => *length,
            Node::Dir { .. } => 0,
        }
    }

    /// Makes an empty file.
    pub fn make_file(&mut self, dir: Inode, name: &[u8], ended: Line) -> Inode {
        self.make(dir, name, ended, Node::File { synced: Arc::default(), unsynced: Vec::new(), length: 0 })
    }

    /// Makes an empty directory.
    pub fn make_dir(&mut self, dir: Inode, name: &[u8], ended: Line) -> Inode {
        self.make(dir, name, ended, Node::Dir { synced: Entries::new(), now: Entries::new() })
    }

    fn make(&mut self, dir: Inode, name: &[u8], ended: Line, node: Node) -> Inode {
        self.inodes.push(node);
        let inode = self.inodes.len() - 1;
        self.change(ended, vec![(dir, name.to_vec(), Some(inode))]);
        inode
    }

    /// Gives a file a name besides those it has.
    pub fn link(&mut self, inode: Inode, dir: Inode, name: &[u8], ended: Line) {
        self.change(ended, vec![(dir, name.to_vec(), Some(inode))]);
    }

    /// Gives another name, in this or another directory.
    pub fn rename(&mut self, from: (Inode, &[u8]), to: (Inode, &[u8]), ended: Line) {
        let Some(inode) = self.find(from.0, from.1) else { return };
        self.change(ended, vec![(from.0, from.1.to_vec(), None), (to.0, to.1.to_vec(), Some(inode))]);
    }

    /// Takes a name away.
    pub fn unlink(&mut self, dir: Inode, name: &[u8], ended: Line) {
        self.change(ended, vec![(dir, name.to_vec(), None)]);
    }

    fn change(&mut self, ended: Line, entries: Vec<(Inode, Name, Option<Inode>)>) {
        for (dir, name, inode) in &entries {
            if let Node::Dir { now, .. } = &mut self.inodes[*dir] {
                set(now, name, *inode);
            }
        }
        self.changes.push(Change { ended, entries });
    }

    /// Changes the bytes of a file.
    pub fn write(&mut self, file: Inode, write: Write, ended: Line) {
        let Node::File { unsynced, length, .. } = &mut self.inodes[file] else { return };
        match &write {
            Write::Bytes(at, bytes) => *length = (*length).max(at + bytes.len() as u64),
            Write::Length(to) => *length = *to,
            Write::Grow(to) => *length = (*length).max(*to),
            Write::Zero(..) => {}
        }
        unsynced.push((ended, write));
    }

    /// A sync of a file or directory, which began at this line, has ended.
    pub fn sync(&mut self, inode: Inode, began: Line) {
        match &mut self.inodes[inode] {
            Node::File { synced, unsynced, .. } => {
                let synced = Arc::make_mut(synced);
                unsynced.retain(|(ended, write)| {
                    let covered = *ended < began;
                    if covered {
                        apply(synced, write);
                    }
                    !covered
                });
            }
            Node::Dir { .. } => self.sync_dir(inode, began),
        }
    }

    /// A sync of everything, which began at this line, has ended.
    pub fn sync_all(&mut self, began: Line) {
        (0..self.inodes.len()).for_each(|inode| self.sync(inode, began));
    }

    /// A change that touches two directories brings with it what came before it in the other.
    fn sync_dir(&mut self, dir: Inode, began: Line) {
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
                    if let Node::Dir { synced, .. } = &mut self.inodes[*dir] {
                        set(synced, name, *inode);
                    }
                }
            } else {
                self.changes.push(change);
            }
        }
    }

    /// What a cut leaves now.
    pub fn cut(&self, luck: Luck, random: &mut Random) -> Image {
        let mut dirs: BTreeMap<Inode, Entries> = BTreeMap::new();
        let mut blocked = BTreeSet::new();
        for change in &self.changes {
            let is_blocked = change.entries.iter().any(|(dir, ..)| blocked.contains(dir));
            if is_blocked || random.below(100) >= luck.names {
                blocked.extend(change.entries.iter().map(|(dir, ..)| *dir));
                continue;
            }
            for (dir, name, inode) in &change.entries {
                set(dirs.entry(*dir).or_insert_with(|| self.synced_entries(*dir)), name, *inode);
            }
        }
        self.image(Self::ROOT, &dirs, &mut |content, unsynced| lose(content, unsynced, luck, random))
    }

    /// What there is without a cut.
    pub fn whole(&self) -> Image {
        let now = |node: &Node| match node {
            Node::Dir { now, .. } => Some(now.clone()),
            Node::File { .. } => None,
        };
        let dirs = self.inodes.iter().enumerate().filter_map(|(inode, node)| Some((inode, now(node)?))).collect();
        self.image(Self::ROOT, &dirs, &mut |content, unsynced| {
            unsynced.iter().for_each(|(_, write)| apply(content, write));
        })
    }

    fn synced_entries(&self, dir: Inode) -> Entries {
        match &self.inodes[dir] {
            Node::Dir { synced, .. } => synced.clone(),
            Node::File { .. } => Entries::new(),
        }
    }

    fn image(
        &self,
        inode: Inode,
        dirs: &BTreeMap<Inode, Entries>,
        unsynced: &mut impl FnMut(&mut Content, &[(Line, Write)]),
    ) -> Image {
        match &self.inodes[inode] {
            Node::File { synced, unsynced: writes, .. } if writes.is_empty() => Image::File(synced.clone()),
            Node::File { synced, unsynced: writes, .. } => {
                let mut content = Content::clone(synced);
                unsynced(&mut content, writes);
                Image::File(Arc::new(content))
            }
            Node::Dir { synced, .. } => {
                let entries = dirs.get(&inode).unwrap_or(synced);
                Image::Dir(
                    entries.iter().map(|(name, inode)| (name.clone(), self.image(*inode, dirs, unsynced))).collect(),
                )
            }
        }
    }
}

fn set(entries: &mut Entries, name: &[u8], inode: Option<Inode>) {
    match inode {
        Some(inode) => drop(entries.insert(name.to_vec(), inode)),
        None => drop(entries.remove(name)),
    }
}

fn apply(content: &mut Content, write: &Write) {
    match write {
        Write::Bytes(at, bytes) => content.write(*at, bytes),
        Write::Length(length) => content.set_length(*length),
        Write::Grow(length) => content.set_length(content.length().max(*length)),
        Write::Zero(at, count) => content.zero(*at, *count),
    }
}

/// Applies some of the writes that no sync covers: the first so many, or any of them; some are torn.
fn lose(content: &mut Content, unsynced: &[(Line, Write)], luck: Luck, random: &mut Random) {
    let in_order = random.below(2) == 0;
    for (_, write) in unsynced {
        if random.below(100) < luck.writes {
            apply(content, write);
            continue;
        }
        if luck.writes > 0 && random.below(2) == 0 {
            tear(content, write, random);
        }
        if in_order {
            return;
        }
    }
}

/// Applies a part of a write: its beginning, or some of its sectors, where the length may be that of the whole.
fn tear(content: &mut Content, write: &Write, random: &mut Random) {
    let Write::Bytes(at, bytes) = write else { return };
    if random.below(2) == 0 {
        return content.write(*at, &bytes[..random.below(bytes.len().max(1))]);
    }
    let sector = *random.pick(&[512, 4096]);
    let first = (sector - at % sector).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at(first);
    let mut place = *at;
    for part in std::iter::once(head).chain(rest.chunks(sector as usize)) {
        if random.below(2) == 0 {
            content.write(place, part);
        }
        place += part.len() as u64;
    }
    if random.below(2) == 0 {
        content.set_length(content.length().max(at + bytes.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Luck = Luck { writes: 0, names: 0 };
    const EVERYTHING: Luck = Luck { writes: 100, names: 100 };

    fn empty() -> Disk {
        Disk::new(&Image::default())
    }

    fn bytes(at: u64, bytes: &[u8]) -> Write {
        Write::Bytes(at, Arc::new(bytes.to_vec()))
    }

    fn cut(disk: &Disk, luck: Luck) -> String {
        disk.cut(luck, &mut Random::seeded(1)).listing()
    }

    #[test]
    fn a_synced_file_without_its_directory_is_lost() {
        let mut disk = empty();
        let file = disk.make_file(Disk::ROOT, b"f", 0);
        disk.write(file, bytes(0, b"abc"), 1);
        disk.sync(file, 2);
        assert_eq!(cut(&disk, NOTHING), "");
        disk.sync(Disk::ROOT, 3);
        assert_eq!(cut(&disk, NOTHING), "f abc\n");
    }

    #[test]
    fn a_sync_covers_only_what_had_ended_when_it_began() {
        let mut disk = empty();
        let file = disk.make_file(Disk::ROOT, b"f", 0);
        disk.sync(Disk::ROOT, 1);
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
        let old = disk.make_file(Disk::ROOT, b"f", 0);
        disk.write(old, bytes(0, b"old"), 1);
        disk.sync_all(2);
        let new = disk.make_file(Disk::ROOT, b"f.tmp", 3);
        disk.write(new, bytes(0, b"new"), 4);
        disk.sync(new, 5);
        disk.rename((Disk::ROOT, b"f.tmp"), (Disk::ROOT, b"f"), 6);
        let mut random = Random::seeded(3);
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let luck = Luck::any(&mut random);
            seen.insert(disk.cut(luck, &mut random).listing());
        }
        let expected = ["f old\n", "f old\nf.tmp new\n", "f new\n"].map(str::to_owned);
        assert_eq!(seen, BTreeSet::from(expected));
    }

    #[test]
    fn a_rename_across_directories_is_in_both_or_in_none() {
        let mut disk = empty();
        let (from, to) = (disk.make_dir(Disk::ROOT, b"a", 0), disk.make_dir(Disk::ROOT, b"b", 0));
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
        disk.make_file(Disk::ROOT, b"f", 0);
        disk.sync_all(1);
        disk.unlink(Disk::ROOT, b"f", 2);
        assert_eq!(cut(&disk, NOTHING), "f \n");
        assert_eq!(cut(&disk, EVERYTHING), "");
        disk.sync(Disk::ROOT, 3);
        assert_eq!(cut(&disk, NOTHING), "");
    }

    #[test]
    fn a_directory_whose_name_is_lost_is_lost_with_all_in_it() {
        let mut disk = empty();
        let dir = disk.make_dir(Disk::ROOT, b"d", 0);
        let file = disk.make_file(dir, b"f", 1);
        disk.sync(file, 2);
        disk.sync(dir, 2);
        assert_eq!(cut(&disk, NOTHING), "");
        assert_eq!(cut(&disk, EVERYTHING), "d/\nd/f \n");
    }

    #[test]
    fn a_torn_write_changes_nothing_outside_of_it() {
        let mut disk = empty();
        let file = disk.make_file(Disk::ROOT, b"f", 0);
        disk.write(file, bytes(0, &[1; 3000]), 1);
        disk.sync_all(2);
        disk.write(file, bytes(700, &[2; 1500]), 3);
        let mut random = Random::seeded(5);
        let mut partly = 0;
        for _ in 0..200 {
            let Image::Dir(entries) = disk.cut(Luck { writes: 40, names: 0 }, &mut random) else {
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
