//! The head of a record, and the checks of blocks.
//!
//! ```text
//! version u8 · bytes in a full block (varint) · table u8 · n_val u8 · partition (varint length, bytes) · row (the same)
//! ```

use bytes::Bytes;
use larder_model::codec::{DecodeError, Decoder, Encoder};
use larder_model::content::BlobId;
use larder_store::{BlobOwner, Error, Kind, Partition, Result, Table};

const VERSION: u8 = 1;
/// Bytes of a body in a full block.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks in a partition: 16 MiB.
pub(super) const GROUP_BLOCKS: u64 = 64;
const BLOCK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One time that a blob was written: when, in microseconds, and by which process. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Run {
    /// When it began; no other run of this process has the same.
    pub(super) born: u64,
    /// The process.
    pub(super) by: u64,
}

/// What the record of a blob says from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes in a full block.
    pub(super) block: usize,
    /// The row that the blob belongs to.
    pub(super) owner: BlobOwner,
}

impl Run {
    /// As a name in rows: runs sort by their beginning.
    pub(super) fn name(self) -> Bytes {
        let mut name = Encoder::with_capacity(16);
        name.u64(self.born);
        name.u64(self.by);
        name.finish()
    }

    /// Reads a name.
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn of_name(name: Bytes) -> Result<Self> {
        let mut rest = Decoder::new(name);
        let mut read = || Ok(Self { born: rest.u64()?, by: rest.u64()? });
        read().map_err(broken)
    }
}

impl Head {
    /// The bytes.
    pub(super) fn encode(&self) -> Bytes {
        let BlobOwner { partition, row } = &self.owner;
        let mut out = Encoder::with_capacity(partition.key.len() + row.len() + 16);
        out.u8(VERSION);
        out.varint(self.block as u64);
        out.u8(partition.table.code());
        out.u8(partition.n_val);
        out.bytes(&partition.key);
        out.bytes(row);
        out.finish()
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// `Damaged`, also for an unknown version.
    pub(super) fn decode(bytes: Bytes) -> Result<Self> {
        let mut rest = Decoder::new(bytes);
        let head = Self::fields(&mut rest).map_err(broken)?;
        rest.finish().map_err(broken)?;
        Ok(head)
    }

    fn fields(rest: &mut Decoder) -> std::result::Result<Self, DecodeError> {
        rest.version(VERSION)?;
        let block = rest.count(BLOCK_BYTES_MAX)?;
        if block == 0 {
            return Err(DecodeError::Invalid("block size"));
        }
        let table = Table::from_code(rest.u8()?).ok_or(DecodeError::Invalid("table"))?;
        let n_val = rest.u8()?;
        let key = rest.bytes()?;
        Ok(Self { block, owner: BlobOwner { partition: Partition { table, n_val, key }, row: rest.bytes()? } })
    }
}

/// Group and number of a block.
pub(super) fn place(index: u64) -> (i32, i32) {
    ((index / GROUP_BLOCKS) as i32, (index % GROUP_BLOCKS) as i32)
}

/// The check of a block: of its place as well, so that bytes of another blob, or in another order, do not pass.
pub(super) fn check(id: BlobId, run: Run, index: u64, bytes: &[u8]) -> i32 {
    let mut check = crc32fast::Hasher::new();
    check.update(&id.0);
    check.update(&run.name());
    check.update(&index.to_be_bytes());
    check.update(bytes);
    check.finalize().cast_signed()
}

/// An id as it was stored.
///
/// # Errors
/// `Damaged`.
pub(super) fn id_of(bytes: &[u8]) -> Result<BlobId> {
    bytes.try_into().map(BlobId).map_err(|_| Error::new(Kind::Damaged, "blob record: an id that is none"))
}

fn broken(error: DecodeError) -> Error {
    Error::caused(Kind::Damaged, "blob record", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let partition = Partition { table: Table::Objects, n_val: 5, key: Bytes::from_static(b"key") };
        Head { block: BLOCK_BYTES, owner: BlobOwner { partition, row: Bytes::from_static(b"row") } }
    }

    #[test]
    fn a_head_has_these_bytes() {
        let golden = b"\x01\x80\x80\x10\x01\x05\x03key\x03row";
        assert_eq!(head().encode(), golden[..]);
        assert_eq!(Head::decode(Bytes::from_static(golden)).expect("a head"), head());
    }

    #[test]
    fn a_head_cut_off_or_of_another_version_is_damaged() {
        let bytes = head().encode();
        for end in 0..bytes.len() {
            assert_eq!(Head::decode(bytes.slice(..end)).map_err(|error| error.kind), Err(Kind::Damaged));
        }
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(Head::decode(newer.into()).map_err(|error| error.kind), Err(Kind::Damaged));
    }

    #[test]
    fn runs_come_back_and_sort_by_their_beginning() {
        let (early, late) = (Run { born: 1, by: 9 }, Run { born: 256, by: 0 });
        assert_eq!(Run::of_name(late.name()).expect("a run"), late);
        assert!(early.name() < late.name());
        assert!(Run::of_name(Bytes::from_static(b"short")).is_err());
    }

    #[test]
    fn a_block_passes_in_its_place_alone() {
        let run = Run { born: 1, by: 2 };
        let good = check(BlobId([1; 24]), run, 3, b"bytes");
        assert_ne!(good, check(BlobId([2; 24]), run, 3, b"bytes"));
        assert_ne!(good, check(BlobId([1; 24]), Run { born: 2, by: 2 }, 3, b"bytes"));
        assert_ne!(good, check(BlobId([1; 24]), run, 4, b"bytes"));
        assert_ne!(good, check(BlobId([1; 24]), run, 3, b"Bytes"));
    }

    #[test]
    fn sixty_four_blocks_are_a_group() {
        assert_eq!([place(0), place(63), place(64)], [(0, 0), (0, 63), (1, 0)]);
    }
}
