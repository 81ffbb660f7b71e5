//! Reads one blob: from its file, a run of blocks at a time, or from its row, which is held whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::{BlobReader, Result};

use super::disk::{blocking, failed};
use super::format::{CHECK_BYTES, FOOT_BYTES, HEAD_START_BYTES, Head, Shape, block_check, damaged};
use super::{RUN_BLOCKS, files::Files};

/// A blob of a bulk row, whose check was passed when it was opened.
pub(super) struct RowReader(pub(super) Bytes);

/// A blob file. The open file stays readable when its name is gone.
pub(super) struct FileReader {
    file: Arc<File>,
    shape: Shape,
    run: Run,
}

/// Blocks read last, their checks passed: a reader of small pieces reads and checks each block once.
#[derive(Default)]
struct Run {
    first: u64,
    blocks: Vec<Bytes>,
}

impl FileReader {
    /// Opens a file and checks its head, its foot and its length; blocks the thread.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Damaged`, `Io`.
    pub(super) fn open(files: &Files, id: BlobId) -> Result<Self> {
        let file = files.open_blob(id)?;
        let (_, shape) = read_shape(&file, id)?;
        Ok(Self { file: Arc::new(file), shape, run: Run::default() })
    }
}

#[async_trait]
impl BlobReader for RowReader {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0.slice(from..from.saturating_add(max).min(self.0.len())))
    }
}

#[async_trait]
impl BlobReader for FileReader {
    fn length(&self) -> u64 {
        self.shape.length
    }

    /// Answers at most to the end of a block, without copying.
    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if offset >= self.shape.length || max == 0 {
            return Ok(Bytes::new());
        }
        let index = offset / self.shape.block;
        let inside = (offset % self.shape.block) as usize;
        let block = match self.run.get(index) {
            Some(block) => block,
            None => {
                let wanted = (inside as u64).saturating_add(max as u64).div_ceil(self.shape.block);
                let count = wanted.clamp(1, RUN_BLOCKS).min(self.shape.blocks() - index);
                let (file, shape) = (self.file.clone(), self.shape);
                self.run = blocking(move || Run::load(&file, &shape, index, count)).await?;
                self.run.get(index).ok_or_else(|| damaged("block missing"))?
            }
        };
        Ok(block.slice(inside..inside.saturating_add(max).min(block.len())))
    }
}

impl Run {
    /// Reads `count` blocks and checks each.
    fn load(file: &File, shape: &Shape, first: u64, count: u64) -> Result<Self> {
        let bytes: usize = (first..first + count).map(|index| shape.block_bytes(index) + CHECK_BYTES).sum();
        let mut buffer = vec![0; bytes];
        read_at(file, &mut buffer, shape.block_at(first))?;
        let mut rest = Bytes::from(buffer);
        let mut blocks = Vec::with_capacity(count as usize);
        for index in first..first + count {
            let block = rest.split_to(shape.block_bytes(index));
            let mut check = block_check(shape.seed, index);
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
pub(super) fn read_shape(file: &File, id: BlobId) -> Result<(Head, Shape)> {
    let (head, head_bytes, seed) = read_head(file, id)?;
    let bytes = file.metadata().map_err(|error| failed("length of a blob", error))?.len();
    let foot_at = bytes.checked_sub(FOOT_BYTES as u64).filter(|&at| at >= head_bytes);
    let mut foot = [0; FOOT_BYTES];
    read_at(file, &mut foot, foot_at.ok_or_else(|| damaged("no foot"))?)?;
    let shape = Shape::read(&head, head_bytes, seed, &foot, bytes)?;
    Ok((head, shape))
}

/// Reads all blocks and checks each.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn check_blocks(file: &File, shape: &Shape) -> Result<()> {
    (0..shape.blocks()).try_for_each(|index| Run::load(file, shape, index, 1).map(drop))
}

/// Reads and checks the head of the file of `id`; answers its length in bytes and its check too.
///
/// # Errors
/// `Damaged`, `Io`.
pub(super) fn read_head(file: &File, id: BlobId) -> Result<(Head, u64, u32)> {
    let mut start = [0; HEAD_START_BYTES];
    read_at(file, &mut start, 0)?;
    let mut bytes = vec![0; Head::length(&start)?];
    read_at(file, &mut bytes, 0)?;
    let length = bytes.len() as u64;
    let (head, seed) = Head::decode(&bytes.into())?;
    if head.id != id {
        return Err(damaged("the file of another blob"));
    }
    Ok((head, length, seed))
}

/// Fills the buffer; a file that ends before is `Damaged`.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|error: io::Error| failed("read a blob", error))
}
