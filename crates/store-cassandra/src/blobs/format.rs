//! The header of a record, and the checksums of blocks.
//!
//! ```text
//! version u8 · bytes in a full block (varint) · table u8 · n_val u8 · partition (varint length, bytes) · row (the same)
//! ```

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Error, Kind, Partition, Result, Table};

const VERSION: u8 = 1;
/// Bytes of a body in a full block.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks in a partition: 16 MiB.
pub(super) const GROUP_BLOCKS: u64 = 64;
const BLOCK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One writing of a blob: its start in microseconds, and the process. No other run is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlobRun {
    /// Start of the run; no other run of this process has the same.
    pub(super) began: u64,
    /// The process.
    pub(super) process: u64,
}

/// The part of a record that is written first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// Bytes in a full block.
    pub(super) block: usize,
    /// The row that the blob belongs to.
    pub(super) owner: BlobOwner,
}

impl BlobRun {
    /// The name of the run in rows: names sort by the start of the runs.
    pub(super) fn name(self) -> Bytes {
        let mut name = FieldEncoder::with_capacity(16);
        name.u64(self.began);
        name.u64(self.process);
        name.finish()
    }

    /// Decodes a name.
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn decode(name: Bytes) -> Result<Self> {
        let mut rest = FieldDecoder::new(name);
        let mut read = || Ok(Self { began: rest.u64()?, process: rest.u64()? });
        read().map_err(damaged)
    }
}

impl RecordHeader {
    /// Encodes the header.
    pub(super) fn encode(&self) -> Bytes {
        let BlobOwner { partition, row } = &self.owner;
        let mut out = FieldEncoder::with_capacity(partition.key.len() + row.len() + 16);
        out.u8(VERSION);
        out.varint(self.block as u64);
        out.u8(partition.table.code());
        out.u8(partition.copies);
        out.bytes(&partition.key);
        out.bytes(row);
        out.finish()
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// `Damaged`, also for an unknown version.
    pub(super) fn decode(bytes: Bytes) -> Result<Self> {
        let mut rest = FieldDecoder::new(bytes);
        let head = Self::fields(&mut rest).map_err(damaged)?;
        rest.finish().map_err(damaged)?;
        Ok(head)
    }

    fn fields(rest: &mut FieldDecoder) -> std::result::Result<Self, DecodeError> {
        rest.version(VERSION)?;
        let block = rest.count(BLOCK_BYTES_MAX)?;
        if block == 0 {
            return Err(DecodeError::Invalid("block size"));
        }
        let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
        let copies = rest.u8()?;
        let key = rest.bytes()?;
        Ok(Self { block, owner: BlobOwner { partition: Partition { table, copies, key }, row: rest.bytes()? } })
    }
}

/// The group of a block, and its number in the group.
pub(super) fn block_place(index: u64) -> (i32, i32) {
    ((index / GROUP_BLOCKS) as i32, (index % GROUP_BLOCKS) as i32)
}

/// The checksum of a block. It covers the block's place, so a block of another blob or in another order fails.
pub(super) fn block_checksum(id: BlobId, run: BlobRun, index: u64, bytes: &[u8]) -> i32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.0);
    hasher.update(&run.name());
    hasher.update(&index.to_be_bytes());
    hasher.update(bytes);
    hasher.finalize().cast_signed()
}

/// Decodes a stored id.
///
/// # Errors
/// `Damaged`.
pub(super) fn decode_id(bytes: &[u8]) -> Result<BlobId> {
    bytes.try_into().map(BlobId).map_err(|_| Error::new(Kind::Damaged, "blob record: an id of a wrong length"))
}

fn damaged(error: DecodeError) -> Error {
    Error::caused(Kind::Damaged, "blob record", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        let partition = Partition { table: Table::Objects, copies: 5, key: Bytes::from_static(b"key") };
        RecordHeader { block: BLOCK_BYTES, owner: BlobOwner { partition, row: Bytes::from_static(b"row") } }
    }

    #[test]
    fn a_header_has_its_golden_bytes() {
        let golden = b"\x01\x80\x80\x10\x01\x05\x03key\x03row";
        assert_eq!(header().encode(), golden[..]);
        assert_eq!(RecordHeader::decode(Bytes::from_static(golden)).expect("a header"), header());
    }

    #[test]
    fn a_truncated_header_or_another_version_is_damaged() {
        let bytes = header().encode();
        for end in 0..bytes.len() {
            assert_eq!(RecordHeader::decode(bytes.slice(..end)).map_err(|error| error.kind), Err(Kind::Damaged));
        }
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(RecordHeader::decode(newer.into()).map_err(|error| error.kind), Err(Kind::Damaged));
    }

    #[test]
    fn runs_decode_to_themselves_and_sort_by_their_start() {
        let (early, late) = (BlobRun { began: 1, process: 9 }, BlobRun { began: 256, process: 0 });
        assert_eq!(BlobRun::decode(late.name()).expect("a run"), late);
        assert!(early.name() < late.name());
        assert!(BlobRun::decode(Bytes::from_static(b"short")).is_err());
    }

    #[test]
    fn a_block_passes_its_checksum_only_in_its_place() {
        let run = BlobRun { began: 1, process: 2 };
        let checksum = block_checksum(BlobId([1; 24]), run, 3, b"bytes");
        assert_ne!(checksum, block_checksum(BlobId([2; 24]), run, 3, b"bytes"));
        assert_ne!(checksum, block_checksum(BlobId([1; 24]), BlobRun { began: 2, process: 2 }, 3, b"bytes"));
        assert_ne!(checksum, block_checksum(BlobId([1; 24]), run, 4, b"bytes"));
        assert_ne!(checksum, block_checksum(BlobId([1; 24]), run, 3, b"Bytes"));
    }

    #[test]
    fn sixty_four_blocks_are_a_group() {
        assert_eq!([block_place(0), block_place(63), block_place(64)], [(0, 0), (0, 63), (1, 0)]);
    }
}
