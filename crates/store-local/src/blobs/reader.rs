//! Readers of one blob: from its file, a run of blocks at a time, or from its bulk row, which is in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::{BlobReader, Result, slice_of};

use super::disk::{failed, run_blocking};
use super::format::{BlobFileHead, BlobLayout, CHECK_BYTES, FOOT_BYTES, HEAD_START_BYTES, block_check, damaged};
use super::{RUN_BLOCKS, files::BlobFolder};

/// A blob in a bulk row, whose check passed at the open.
pub(super) struct BulkRowReader(pub(super) Bytes);

/// A blob file. An open file stays readable after its removal.
pub(super) struct BlobFileReader {
    file: Arc<File>,
    layout: BlobLayout,
    run: BlockRun,
}

/// The blocks read last, with passed checks: a reader of small pieces reads and checks each block once.
#[derive(Default)]
struct BlockRun {
    first: u64,
    blocks: Vec<Bytes>,
}

impl BlobFileReader {
    /// Opens a file and checks its head, its foot and its length; blocks the thread.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Damaged`, `Io`.
    pub(super) fn open(files: &BlobFolder, id: BlobId) -> Result<Self> {
        let file = files.open_blob(id)?;
        let (_, layout) = read_layout(&file, id)?;
        Ok(Self { file: Arc::new(file), layout, run: BlockRun::default() })
    }
}

#[async_trait]
impl BlobReader for BulkRowReader {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        Ok(slice_of(&self.0, offset, max))
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
        let block = match self.run.get(index) {
            Some(block) => block,
            None => {
                let wanted = (inside as u64).saturating_add(max as u64).div_ceil(self.layout.block);
                // Bound: a reader holds one run of blocks, whatever its client asks for.
                let count = wanted.clamp(1, RUN_BLOCKS).min(self.layout.blocks() - index);
                let (file, layout) = (self.file.clone(), self.layout);
                self.run = run_blocking(move || BlockRun::load(&file, &layout, index, count)).await?;
                self.run.get(index).ok_or_else(|| damaged("block missing"))?
            }
        };
        Ok(block.slice(inside..inside.saturating_add(max).min(block.len())))
    }
}

impl BlockRun {
    /// Reads `count` blocks and checks each.
    fn load(file: &File, layout: &BlobLayout, first: u64, count: u64) -> Result<Self> {
        let bytes: usize = (first..first + count).map(|index| layout.block_bytes(index) + CHECK_BYTES).sum();
        let mut buffer = vec![0; bytes];
        read_at(file, &mut buffer, layout.block_at(first))?;
        let mut rest = Bytes::from(buffer);
        let mut blocks = Vec::with_capacity(count as usize);
        for index in first..first + count {
            let block = rest.split_to(layout.block_bytes(index));
            let mut check = block_check(layout.seed, index);
            check.update(&block);
            if *rest.split_to(CHECK_BYTES) != check.finalize().to_be_bytes() {
                return Err(damaged(&format!("check of block {index}")));
            }
            blocks.push(block);
        }
        Ok(Self { first, blocks })
    }

    fn get(&self, index: u64) -> Option<&Bytes> {
        self.blocks.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
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
    (0..layout.blocks()).try_for_each(|index| BlockRun::load(file, layout, index, 1).map(drop))
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
