//! The journals of the engine below, read before it opens them: it cuts off what it cannot read, we want to know first.
//!
//! ```text
//! <number>.jnl       batches, then zeros or the end of the file; the one with the greatest number is written to
//! batch              start · items · end
//! start              01 · items u32 · sequence u64
//! item               02 · kind u8 · compression u8 · keyspace u64 · lengths: key u16, value u32, stored u32
//!                    · key · stored value
//! end                03 · xxh3 of the items u64 · "FJL" 03
//! ```
//! Numbers are little endian. Every batch is a group of ours and carries its number in the row [`keys::GROUP_KEY`].
//!
//! A batch that is not whole ends a journal. In the last one it is what a power cut leaves of a group that was not synced: it
//! is cut off here, for the engine refuses a journal whose last batch has all its bytes but wrong ones. Whether it *was*
//! synced, and whether groups are missing between journals, is judged by their numbers.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::{entry, keys};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";
/// Bytes of an item behind its tag and before its key.
const ITEM_HEAD_BYTES: usize = 20;

/// What the journals of a directory hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Journals {
    /// The first and the last group.
    pub(crate) groups: Option<(u64, u64)>,
    /// Groups that are missing between two others: first and last.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// The last journal, where its last whole batch begins and ends, and whether anything but zeros follows.
    pub(crate) tail: Option<Tail>,
}

/// The end of the journal that is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Which file.
    pub(crate) path: PathBuf,
    /// Where its last whole batch begins.
    pub(crate) last: u64,
    /// Where its last whole batch ends.
    pub(crate) end: u64,
    /// Whether a batch begins there that is not whole.
    pub(crate) torn: bool,
}

impl Journals {
    /// Reads all journals of the engine's directory; none when there is no such directory.
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        let mut journals = Self::default();
        for path in paths(dir)? {
            journals.read_one(path)?;
        }
        Ok(journals)
    }

    fn read_one(&mut self, path: PathBuf) -> io::Result<()> {
        let mut reader = Reader::open(&path)?;
        let (mut last, mut end) = (0, 0);
        while let Some(group) = reader.batch()? {
            (last, end) = (end, reader.at);
            if let Some(group) = group {
                self.note(group);
            }
        }
        self.tail = Some(Tail { path, last, end, torn: reader.torn });
        Ok(())
    }

    fn note(&mut self, group: u64) {
        let (first, last) = self.groups.unwrap_or((group, group));
        if group > last + 1 {
            self.gaps.push((last + 1, group - 1));
        }
        self.groups = Some((first, last.max(group)));
    }
}

impl Tail {
    /// Cuts off the batch that is not whole.
    pub(crate) fn cut(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.end)?;
        file.sync_all()
    }
}

fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbered = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = name.and_then(|name| name.parse::<u64>().ok()) {
            numbered.push((number, path));
        }
    }
    numbered.sort();
    Ok(numbered.into_iter().map(|(_, path)| path).collect())
}

struct Reader {
    file: BufReader<File>,
    length: u64,
    /// Bytes read so far.
    at: u64,
    /// Whether the bytes at the end were no batch.
    torn: bool,
    hasher: Xxh3,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let file = BufReader::with_capacity(256 * 1024, file);
        Ok(Self { file, length, at: 0, torn: false, hasher: Xxh3::new() })
    }

    /// The next whole batch, with the number of its group if it has one; `None` at the end.
    fn batch(&mut self) -> io::Result<Option<Option<u64>>> {
        match self.take::<1>()? {
            None | Some([0]) => return Ok(None),
            Some([START]) => {}
            Some(_) => return Ok(self.broken()),
        }
        let Some(head) = self.take::<12>()? else { return Ok(self.broken()) };
        let [a, b, c, d, ..] = head;
        self.hasher.reset();
        let mut group = None;
        for _ in 0..u32::from_le_bytes([a, b, c, d]) {
            match self.item()? {
                Some(found) => group = found.or(group),
                None => return Ok(self.broken()),
            }
        }
        let hash = self.hasher.digest().to_le_bytes();
        match self.take::<13>()? {
            Some([END, end @ ..]) if end[..8] == hash && &end[8..] == TRAILER => Ok(Some(group)),
            _ => Ok(self.broken()),
        }
    }

    /// One item: the number of the group if it is the row that holds it. `None` when it is no item.
    fn item(&mut self) -> io::Result<Option<Option<u64>>> {
        let Some([ITEM]) = self.take::<1>()? else { return Ok(None) };
        let Some(head) = self.take::<ITEM_HEAD_BYTES>()? else { return Ok(None) };
        self.hasher.update(&[ITEM]);
        self.hasher.update(&head);
        let key_length = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let stored_length = u32::from_le_bytes([head[16], head[17], head[18], head[19]]) as usize;
        let Some(bytes) = self.bytes(key_length + stored_length)? else { return Ok(None) };
        self.hasher.update(&bytes);
        let is_group = &bytes[..key_length] == keys::GROUP_KEY;
        let group = is_group.then(|| entry::decode_group(Bytes::copy_from_slice(&bytes[key_length..])).ok());
        Ok(Some(group.flatten()))
    }

    fn broken<T>(&mut self) -> Option<T> {
        self.torn = true;
        None
    }

    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        if self.at + N as u64 > self.length {
            return Ok(None);
        }
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    fn bytes(&mut self, length: usize) -> io::Result<Option<Vec<u8>>> {
        if self.at + length as u64 > self.length {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        self.file.read_exact(&mut bytes)?;
        self.at += length as u64;
        Ok(Some(bytes))
    }
}
