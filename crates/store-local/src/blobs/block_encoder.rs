//! Encodes a body as checked blocks, one buffer per run of blocks.

use bytes::{Buf, Bytes};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Result};

use super::format::{BlobFileHead, BlobLayout, CHECK_BYTES, block_check};
use super::{BlobSizes, RUN_BLOCKS};

/// The encoder of one blob file.
pub(super) struct BlockEncoder {
    layout: BlobLayout,
    buffer: Vec<u8>,
    /// Whole blocks in the buffer.
    blocks: u64,
    /// Bytes in the current block.
    partial: u64,
    /// Number of the current block.
    index: u64,
    check: crc32fast::Hasher,
}

impl BlockEncoder {
    /// The encoder of an empty body; the buffer begins with the head.
    ///
    /// # Errors
    /// `Misuse` for an owner whose names are too long.
    pub(super) fn new(id: BlobId, owner: BlobOwner, sizes: BlobSizes) -> Result<Self> {
        let head = BlobFileHead { id, owner, block: sizes.block }.encode()?;
        let seed = head.last_chunk().map_or(0, |check| u32::from_be_bytes(*check));
        let layout = BlobLayout { seed, head: head.len() as u64, block: u64::from(sizes.block), length: 0 };
        let mut buffer = Vec::with_capacity(head.len() + run_bytes(&layout));
        buffer.extend_from_slice(&head);
        Ok(Self { layout, buffer, blocks: 0, partial: 0, index: 0, check: block_check(seed, 0) })
    }

    /// Takes bytes from the front, at most to the end of the current block.
    pub(super) fn fill(&mut self, bytes: &mut Bytes) {
        let room = self.layout.block - self.partial;
        let count = room.min(bytes.len() as u64) as usize;
        self.check.update(&bytes[..count]);
        self.buffer.extend_from_slice(&bytes[..count]);
        bytes.advance(count);
        self.partial += count as u64;
        if self.partial == self.layout.block {
            self.seal();
        }
    }

    /// Whether the buffer holds a full run and must be taken.
    pub(super) fn is_full(&self) -> bool {
        self.blocks >= RUN_BLOCKS
    }

    /// Bytes in the buffer.
    pub(super) fn buffered(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Takes the buffer and continues in `spare`.
    pub(super) fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        spare.reserve(run_bytes(&self.layout));
        self.blocks = 0;
        std::mem::replace(&mut self.buffer, spare)
    }

    /// The last bytes of the file, with its foot.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.partial > 0 {
            self.seal();
        }
        self.buffer.extend_from_slice(&self.layout.foot());
        self.buffer
    }

    /// Ends the current block with its check.
    fn seal(&mut self) {
        let next = block_check(self.layout.seed, self.index + 1);
        let check = std::mem::replace(&mut self.check, next).finalize();
        self.buffer.extend_from_slice(&check.to_be_bytes());
        self.layout.length += self.partial;
        self.index += 1;
        self.blocks += 1;
        self.partial = 0;
    }
}

fn run_bytes(layout: &BlobLayout) -> usize {
    (RUN_BLOCKS * (layout.block + CHECK_BYTES as u64)) as usize + super::format::FOOT_BYTES
}
