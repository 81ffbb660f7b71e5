//! Reads a table block by block, whole or damaged.
//!
//! ```text
//! block, block, …, index, filter, description, trailer      each block: header with its lengths and its checksum, entries
//! ```
//! The data blocks are at the front, one after the other, so the reader needs no index, filter or metadata. A block with a good
//! header and bad bytes is skipped alone. After a damaged header the index gives the offset of the next block; if the index is
//! damaged, too, the rest of the table is lost: bytes that look like a block may be part of a value.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use lsm_tree::coding::Decode as _;
use lsm_tree::table::block::decoder::ParsedItem as _;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, BlockHandle, BlockOffset, DataBlock, IndexBlock};
use lsm_tree::{CompressionType, InternalValue, Table, ValueType};
use xxhash_rust::xxh3::xxh3_128;

use super::address::LostKeys;
use crate::archive;
use crate::large_values::ValueHandle;
use crate::precheck::open_table;
use crate::tree_id::TreeId;
use crate::version_file::{self, TreeFile};

/// The version of tables that lsm-tree 3.1 writes.
const TABLE_VERSION: u8 = 3;

/// The range of the keys that damage may hit.
pub(super) type KeyBounds = (Bound<Bytes>, Bound<Bytes>);

/// The reader of one table.
pub(super) struct TableReader {
    file: File,
    global_seqno: u64,
    compression: CompressionType,
    /// The offset and the last key of each block; `None`: the index is damaged.
    index: Option<Vec<(u64, Bytes)>>,
    /// The end of the data blocks, if known.
    end: Option<u64>,
    at: u64,
    last: Option<Bytes>,
}

/// The next part of a table.
pub(super) enum TablePart {
    /// The entries of a block.
    Entries(VecDeque<InternalValue>),
    /// An unreadable block, with the range of its keys; the next part closes an open end.
    Damaged {
        /// Its offset in the file.
        at: u64,
        /// The range.
        keys: KeyBounds,
    },
}

impl TableReader {
    /// Opens a table, whole or damaged.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn open(file: &TreeFile) -> io::Result<(Self, Option<Table>)> {
        let table = open_table(file).ok();
        let path: &PathBuf = &file.path;
        let handle = File::open(path)?;
        let toc = catch_unwind(AssertUnwindSafe(|| archive::open(path))).ok().and_then(Result::ok);
        let end = toc.and_then(|archive| Some(archive.toc().section(b"tli")?.pos()));
        let mut reader = Self {
            file: handle,
            global_seqno: file.global_seqno,
            compression: CompressionType::None,
            index: table.as_ref().and_then(|table| read_index(table, path)),
            end,
            at: 0,
            last: None,
        };
        reader.compression = match &table {
            Some(table) => table.metadata.data_block_compression,
            None => reader.guess_compression(),
        };
        Ok((reader, table))
    }

    /// All blocks of a table have one compression; a block shorter than its entries is compressed.
    fn guess_compression(&self) -> CompressionType {
        let mut at = 0;
        while let Some(header) = self.header(at) {
            if header.data_length != header.uncompressed_length {
                return CompressionType::Lz4;
            }
            at += block_bytes(&header);
        }
        CompressionType::None
    }

    /// The header at `at`, if it is a whole one of a data block.
    fn header(&self, at: u64) -> Option<Header> {
        if self.end.is_some_and(|end| at >= end) {
            return None;
        }
        self.any_header(at).filter(|header| header.block_type == BlockType::Data)
    }

    fn any_header(&self, at: u64) -> Option<Header> {
        let mut bytes = vec![0; Header::serialized_len()];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Header::decode_from(&mut &bytes[..]).ok()
    }

    /// Whether the data blocks end here.
    fn is_at_end(&self) -> bool {
        match self.end {
            Some(end) => self.at >= end,
            None => self.any_header(self.at).is_some_and(|header| header.block_type != BlockType::Data),
        }
    }

    /// Reads the current block; `None` when its bytes are wrong.
    fn entries(&self, header: &Header) -> Option<VecDeque<InternalValue>> {
        let handle = BlockHandle::new(BlockOffset(self.at), u32::try_from(block_bytes(header)).ok()?);
        // lsm-tree panics over entries that do not decode.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let block = DataBlock::new(Block::from_file(&self.file, handle, self.compression).ok()?);
            let entries = block.iter().map(|entry| entry.materialize(block.as_slice()));
            Some(entries.collect::<VecDeque<_>>())
        }));
        let mut entries = read.ok().flatten().filter(|entries| !entries.is_empty())?;
        entries.iter_mut().for_each(|entry| entry.key.seqno += self.global_seqno);
        Some(entries)
    }

    /// Skips the current, damaged block; returns the range of its keys.
    fn skip(&mut self, header: Option<&Header>) -> KeyBounds {
        let from = self.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let next = |offset: u64| {
            let index = self.index.as_ref()?;
            let at = index.iter().position(|(begin, _)| *begin > offset);
            let here = at.map_or(index.len(), |at| at).checked_sub(1)?;
            Some((at.map(|at| index[at].0), index[here].1.clone()))
        };
        // The index comes first: the header's own length may be the damage.
        let (next_at, to) = match (next(self.at), header) {
            (Some((next_at, last)), _) => (next_at.or(self.end), Bound::Included(last)),
            (None, Some(header)) => (Some(self.at + block_bytes(header)), Bound::Unbounded),
            (None, None) => (None, Bound::Unbounded),
        };
        if let Bound::Included(last) = &to {
            self.last = Some(last.clone());
        }
        // Without an offset the rest of the table is lost.
        self.at = next_at.unwrap_or(u64::MAX);
        (from, to)
    }
}

impl Iterator for TableReader {
    type Item = TablePart;

    fn next(&mut self) -> Option<TablePart> {
        if self.at == u64::MAX || self.is_at_end() {
            return None;
        }
        let header = self.header(self.at);
        let entries = header.as_ref().and_then(|header| self.entries(header));
        match (entries, &header) {
            (Some(entries), Some(header)) => {
                self.at += block_bytes(header);
                self.last = entries.back().map(|entry| Bytes::copy_from_slice(&entry.key.user_key));
                Some(TablePart::Entries(entries))
            }
            _ => Some(TablePart::Damaged { at: self.at, keys: self.skip(header.as_ref()) }),
        }
    }
}

/// The sections of a table that are made of blocks.
const BLOCK_SECTIONS: [&[u8]; 6] = [b"data", b"tli", b"index", b"filter_tli", b"filter", b"meta"];

/// Whether every part of a table with a checksum of its own passes that, and the list without one says what the entries say. If its
/// bytes are not those that were written, it is another table then, not a damaged one.
pub(super) fn is_whole_inside(table: &TreeFile) -> bool {
    let path = &table.path;
    let read = || {
        let file = File::open(path).ok()?;
        let archive = archive::open(path).ok()?;
        let version = archive.toc().section(b"table_version")?;
        let mut bytes = [0];
        file.read_exact_at(&mut bytes, version.pos()).ok()?;
        let sections = BLOCK_SECTIONS.iter().filter_map(|name| archive.toc().section(name));
        let are_whole = sections.into_iter().all(|section| blocks_pass(&file, section.pos(), section.len()));
        let is_whole = bytes == [TABLE_VERSION] && archive::is_trailer_whole(&file).ok()? && are_whole;
        let list = archive.toc().section(b"linked_blob_files").map(|section| (section.pos(), section.len()));
        Some(is_whole && lists_its_values(table, list)?)
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten().unwrap_or(false)
}

/// Whether the list of files of large values, which has no checksum, says what the entries say.
fn lists_its_values(file: &TreeFile, section: Option<(u64, u64)>) -> Option<bool> {
    let (reader, _) = TableReader::open(file).ok()?;
    let listed = section.map_or(Some(BTreeMap::new()), |(begin, length)| read_list(&reader.file, begin, length))?;
    let mut sums = BTreeMap::<u64, [u64; 3]>::new();
    for part in reader {
        let TablePart::Entries(entries) = part else { return Some(false) };
        for entry in entries.into_iter().filter(|entry| entry.key.value_type == ValueType::Indirection) {
            let handle = ValueHandle::decode(entry.value.into())?;
            let [values, bytes, stored] = sums.entry(handle.file).or_default();
            *values += 1;
            *bytes += handle.bytes();
            *stored += handle.stored_bytes();
        }
    }
    Some(sums == listed)
}

/// The list in a section with this offset and length: a count u32; of each file its id, values, bytes and stored bytes, u64 each.
/// Not through lsm-tree, which asks for as much memory as a wrong count says.
fn read_list(file: &File, begin: u64, length: u64) -> Option<BTreeMap<u64, [u64; 3]>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, begin).ok()?;
    let (count, rows) = bytes.split_first_chunk::<4>()?;
    let (rows, rest) = rows.as_chunks::<8>();
    let (rows, odd) = rows.as_chunks::<4>();
    let is_exact = rest.is_empty() && odd.is_empty() && rows.len() == u32::from_le_bytes(*count) as usize;
    let row = |row: &[[u8; 8]; 4]| {
        let [id, values, bytes, stored] = row.map(u64::from_le_bytes);
        (id, [values, bytes, stored])
    };
    is_exact.then(|| rows.iter().map(row).collect())
}

/// Whether the bytes are blocks, one after the other, whose checksums pass.
fn blocks_pass(file: &File, begin: u64, length: u64) -> bool {
    let mut at = begin;
    while at < begin + length {
        let mut header = vec![0; Header::serialized_len()];
        let read = file.read_exact_at(&mut header, at).ok().and_then(|()| Header::decode_from(&mut &header[..]).ok());
        // Bound: a wrong length must not ask for more memory than the file has bytes.
        let Some(header) = read.filter(|header| block_bytes(header) <= begin + length - at) else { return false };
        let mut content = vec![0; header.data_length as usize];
        let is_there = file.read_exact_at(&mut content, at + Header::serialized_len() as u64).is_ok();
        if !is_there || header.checksum.into_u128() != xxh3_128(&content) {
            return false;
        }
        at += block_bytes(&header);
    }
    at == begin + length
}

fn block_bytes(header: &Header) -> u64 {
    Header::serialized_len() as u64 + u64::from(header.data_length)
}

/// The offsets and last keys of a table's blocks; `None` when a part of the index is damaged.
fn read_index(table: &Table, path: &PathBuf) -> Option<Vec<(u64, Bytes)>> {
    let file = File::open(path).ok()?;
    let compression = table.metadata.index_block_compression;
    let read = |handle: BlockHandle| {
        let block = Block::from_file(&file, handle, compression).ok()?;
        (block.header.block_type == BlockType::Index).then(|| IndexBlock::new(block))
    };
    let handles = |block: &IndexBlock| {
        let handles = block.iter().map(|handle| handle.materialize(block.as_slice()));
        handles.collect::<Vec<_>>()
    };
    catch_unwind(AssertUnwindSafe(|| {
        let top = handles(&read(table.regions.tli)?);
        let mut blocks = Vec::new();
        for handle in top {
            match table.regions.index {
                None => blocks.push(handle),
                Some(_) => blocks.extend(handles(&read(*handle.as_ref())?)),
            }
        }
        Some(blocks.into_iter().map(|block| (*block.offset(), Bytes::copy_from_slice(block.end_key()))).collect())
    }))
    .ok()
    .flatten()
}

/// Most blocks that are named one by one.
const NAMED_MAX: usize = 20;

/// Names the damaged blocks between two keys, in the background: it reads every table with such keys.
pub(crate) fn name_in_background(tree_id: TreeId, folder: PathBuf, from: &[u8], to: Option<&[u8]>) {
    let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
    let name = move || {
        for line in lines(tree_id, &folder, &from, to.as_deref()) {
            tracing::error!("{line}");
        }
    };
    // Without a thread the damage stays unnamed: `larder check` names it as well.
    let _ = std::thread::Builder::new().name("larder-damage".into()).spawn(name);
}

/// One line for each damaged block, up to the bound.
pub(crate) fn lines(tree_id: TreeId, folder: &Path, from: &[u8], to: Option<&[u8]>) -> Vec<String> {
    // A compaction may replace files meanwhile; those that are gone are no longer read by anyone.
    let files = version_file::read(folder).map(|files| files.tables).unwrap_or_default();
    let mut lines = Vec::new();
    for file in files {
        let is_asked = open_table(&file).is_ok_and(|table| {
            let keys = &table.metadata.key_range;
            **keys.max() >= *from && to.is_none_or(|to| **keys.min() <= *to)
        });
        let Some((reader, _)) = is_asked.then(|| TableReader::open(&file).ok()).flatten() else { continue };
        for part in reader {
            let TablePart::Damaged { at, keys: (from, to) } = part else { continue };
            // Bound: a file of zeros has a damaged block every few bytes.
            if lines.len() == NAMED_MAX {
                return lines;
            }
            let keys = LostKeys::range(tree_id, &from, &to);
            let path = file.path.display();
            lines.push(format!(
                "{path}, byte {at}: a block is damaged, it had {keys}; stop the server and run `larder repair` to go on without it"
            ));
        }
    }
    lines
}
