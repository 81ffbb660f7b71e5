//! Readers of one blob: from its file, a block at a time, or from its bulk row, which is in memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, BlobReader, Kind, Result, body_slice};

use super::disk::{failed, read_cached, run_blocking};
use super::files::BlobFolder;
use super::format::{BlobFileHead, BlobLayout, CHECK_BYTES, FOOT_BYTES, HEAD_START_BYTES, block_check, damaged};
use super::writer::{BUFFER_BYTES_MAX, BlockBuffers};
use super::{bulk_row, folders};

/// A blob in a bulk row, whose check passed at the open.
pub(super) struct BulkRowReader(pub(super) Bytes);

/// A blob file. An open file stays readable after its removal.
pub(super) struct BlobFileReader {
    file: Arc<File>,
    layout: BlobLayout,
    /// The block read last and its number; its check passed. A reader of small pieces reads and checks each block once.
    block: Option<(u64, Bytes)>,
    buffers: BlockBuffers,
    /// Whether blocks in the page cache are read on the caller's thread.
    reads_at_once: bool,
    /// The number of blocks that were.
    blocks_at_once: u64,
}

/// After so many blocks from the page cache a reader lets other tasks of its thread run.
const BLOCKS_PER_YIELD: u64 = 4;

impl BlobFileReader {
    /// Opens a file and checks its head, its foot and its length; blocks the thread.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Damaged`, `Io`.
    pub(super) fn open(files: &BlobFolder, id: BlobId) -> Result<Self> {
        let file = files.open_blob(id)?;
        let (_, layout) = read_layout(&file, id)?;
        let reads_at_once = layout.stored_bytes(0) <= BUFFER_BYTES_MAX;
        Ok(Self {
            file: Arc::new(file),
            layout,
            block: None,
            buffers: BlockBuffers::default(),
            reads_at_once,
            blocks_at_once: 0,
        })
    }

    /// Reads a block, with its check.
    async fn load(&mut self, index: u64) -> Result<Bytes> {
        // Dropped first: its buffer may then serve the next block.
        self.block = None;
        let (file, layout) = (self.file.clone(), self.layout);
        let mut buffer = self.buffers.take(layout.stored_bytes(index));
        let read = if self.reads_at_once { read_cached(&file, &mut buffer, layout.block_at(index)) } else { Some(0) };
        // A file system that cannot tell what is in memory is not asked again.
        self.reads_at_once &= read.is_some();
        let read = read.unwrap_or(0);
        // The hand-over to another thread and back costs more than the copy of a block from memory.
        let buffer = if read == buffer.len() {
            check_block(&layout, index, &buffer)?;
            self.blocks_at_once += 1;
            // A client that keeps up never makes its download wait: without this all others of the thread would.
            if self.blocks_at_once.is_multiple_of(BLOCKS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
            buffer
        } else {
            run_blocking(move || read_block(&file, &layout, index, buffer, read)).await?
        };
        let block = self.buffers.keep(buffer.freeze()).slice(..layout.block_bytes(index));
        self.block = Some((index, block.clone()));
        Ok(block)
    }
}

#[async_trait]
impl BlobReader for BulkRowReader {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        Ok(body_slice(&self.0, offset, max))
    }
}

#[async_trait]
impl BlobReader for BlobFileReader {
    fn length(&self) -> u64 {
        self.layout.length
    }

    /// Returns bytes up to the end of one block at most, without copying.
    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if offset >= self.layout.length || max == 0 {
            return Ok(Bytes::new());
        }
        let index = offset / self.layout.block;
        let inside = (offset % self.layout.block) as usize;
        let block = match &self.block {
            Some((number, block)) if *number == index => block.clone(),
            _ => self.load(index).await?,
        };
        Ok(block.slice(inside..inside.saturating_add(max).min(block.len())))
    }
}

/// Reads the rest of a block, of which the buffer has `read` bytes, and checks it.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn read_block(
    file: &File,
    layout: &BlobLayout,
    index: u64,
    mut buffer: BytesMut,
    read: usize,
) -> Result<BytesMut> {
    read_at(file, &mut buffer[read..], layout.block_at(index) + read as u64)?;
    check_block(layout, index, &buffer)?;
    Ok(buffer)
}

/// Compares a block with the check behind it.
fn check_block(layout: &BlobLayout, index: u64, stored: &[u8]) -> Result<()> {
    let mut check = block_check(layout.seed, index);
    match stored.split_last_chunk::<CHECK_BYTES>() {
        Some((block, stored)) => {
            check.update(block);
            if *stored == check.finalize().to_be_bytes() {
                Ok(())
            } else {
                Err(damaged(&format!("check of block {index}")))
            }
        }
        None => Err(damaged("block missing")),
    }
}

/// Reads and checks the head, the foot and the length of the file of `id`.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn read_layout(file: &File, id: BlobId) -> Result<(BlobFileHead, BlobLayout)> {
    let (head, head_bytes, seed) = read_head(file, id)?;
    let bytes = file.metadata().map_err(|error| failed("length of a blob", error))?.len();
    // A truncated file has no valid foot: it fails here, before a reader gets a byte of it.
    let foot_at = bytes.checked_sub(FOOT_BYTES as u64).filter(|&at| at >= head_bytes);
    let mut foot = [0; FOOT_BYTES];
    read_at(file, &mut foot, foot_at.ok_or_else(|| damaged("no foot"))?)?;
    let layout = BlobLayout::read(&head, head_bytes, seed, &foot, bytes)?;
    Ok((head, layout))
}

/// Reads all blocks and checks each.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn check_blocks(file: &File, layout: &BlobLayout) -> Result<()> {
    let mut buffer = BytesMut::new();
    for index in 0..layout.blocks() {
        buffer.resize(layout.stored_bytes(index), 0);
        buffer = read_block(file, layout, index, buffer, 0)?;
    }
    Ok(())
}

/// Reads and checks the head of the file of `id`; returns its length in bytes and its check, too.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn read_head(file: &File, id: BlobId) -> Result<(BlobFileHead, u64, u32)> {
    let mut start = [0; HEAD_START_BYTES];
    read_at(file, &mut start, 0)?;
    let mut bytes = vec![0; BlobFileHead::length(&start)?];
    read_at(file, &mut bytes, 0)?;
    let length = bytes.len() as u64;
    let (head, seed) = BlobFileHead::decode(&bytes.into())?;
    // A file under a wrong name would return the bytes of another blob.
    if head.id != id {
        return Err(damaged("the file of another blob"));
    }
    Ok((head, length, seed))
}

/// Fills the buffer; a shorter file is `Damaged`.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|error: io::Error| failed("read a blob", error))
}

/// Ids of the files in one folder, sorted.
///
/// # Errors
/// Any I/O error.
pub(crate) fn ids(root: &Path, shard: u8) -> io::Result<Vec<BlobId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folders::shard(root, shard))? {
        let id = entry?.file_name().to_str().and_then(BlobId::from_hex);
        ids.extend(id.filter(|id| id.0[0] == shard));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Reads and checks every byte of the file of `id`; returns the row that owns the blob, too, when the head is whole.
///
/// # Errors
/// `Damaged`, `Io`.
pub(crate) fn verify_file(path: &Path, id: BlobId) -> (Result<()>, Option<BlobOwner>) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return (Err(failed("open a blob", error)), None),
    };
    let owner = match read_head(&file, id) {
        Ok((head, ..)) => Some(head.owner),
        Err(error) => return (Err(error), None),
    };
    let checked = read_layout(&file, id).and_then(|(_, layout)| check_blocks(&file, &layout));
    // An unreadable sector is damage; a file that may not be opened is not.
    (checked.map_err(|error| larder_store::Error { kind: Kind::Damaged, ..error }), owner)
}

/// The row that owns the body in a bulk row; its name has a check of its own.
pub(crate) fn row_owner(id: BlobId, value: Bytes) -> Option<BlobOwner> {
    bulk_row::owner(id, value).ok()
}
