//! Cuts a body into checked blocks, in buffers of a run of blocks each.

use bytes::{Buf, Bytes};
use larder_model::content::BlobId;
use larder_store::{BlobOwner, Result};

use super::format::{CHECK_BYTES, Head, Shape, block_check};
use super::{RUN_BLOCKS, Sizes};

/// A body on its way into a file.
pub(super) struct Frames {
    shape: Shape,
    buffer: Vec<u8>,
    /// Whole blocks in the buffer.
    blocks: u64,
    /// Bytes of the block under way.
    partial: u64,
    /// Number of the block under way.
    index: u64,
    check: crc32fast::Hasher,
}

impl Frames {
    /// A body of which nothing is there yet; its head is the first thing in the buffer.
    ///
    /// # Errors
    /// `Misuse` for an owner with names that are too long.
    pub(super) fn new(id: BlobId, owner: BlobOwner, sizes: Sizes) -> Result<Self> {
        let head = Head { id, owner, block: sizes.block }.encode()?;
        let seed = head.last_chunk().map_or(0, |check| u32::from_be_bytes(*check));
        let shape = Shape { seed, head: head.len() as u64, block: u64::from(sizes.block), length: 0 };
        let mut buffer = Vec::with_capacity(head.len() + run_bytes(&shape));
        buffer.extend_from_slice(&head);
        Ok(Self { shape, buffer, blocks: 0, partial: 0, index: 0, check: block_check(seed, 0) })
    }

    /// Takes bytes from the front, at most to the end of the block.
    pub(super) fn fill(&mut self, bytes: &mut Bytes) {
        let room = self.shape.block - self.partial;
        let count = room.min(bytes.len() as u64) as usize;
        self.check.update(&bytes[..count]);
        self.buffer.extend_from_slice(&bytes[..count]);
        bytes.advance(count);
        self.partial += count as u64;
        if self.partial == self.shape.block {
            self.seal();
        }
    }

    /// Whether the buffer must be taken before more is filled in.
    pub(super) fn is_full(&self) -> bool {
        self.blocks >= RUN_BLOCKS
    }

    /// Bytes in the buffer.
    pub(super) fn buffered(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Takes the buffer and goes on in `spare`.
    pub(super) fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        spare.reserve(run_bytes(&self.shape));
        self.blocks = 0;
        std::mem::replace(&mut self.buffer, spare)
    }

    /// The last bytes of the file.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.partial > 0 {
            self.seal();
        }
        self.buffer.extend_from_slice(&self.shape.foot());
        self.buffer
    }

    /// Ends the block under way.
    fn seal(&mut self) {
        let next = block_check(self.shape.seed, self.index + 1);
        let check = std::mem::replace(&mut self.check, next).finalize();
        self.buffer.extend_from_slice(&check.to_be_bytes());
        self.shape.length += self.partial;
        self.index += 1;
        self.blocks += 1;
        self.partial = 0;
    }
}

fn run_bytes(shape: &Shape) -> usize {
    (RUN_BLOCKS * (shape.block + CHECK_BYTES as u64)) as usize + super::format::FOOT_BYTES
}
