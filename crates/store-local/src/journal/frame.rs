//! The bytes of a journal: a file header, then one frame per group. Numbers are big endian, checksums are xxh3 (64 bits).
//!
//! ```text
//! header  "LRDJ" · version u8 · number u64 · first group u64 · chain u64 · checksum u64 of all before
//! frame   "LRGR" · checksum u64 of the rest · payload length u32 · group u64 · chain u64 · synced u64 · seqno u64 · payload
//! payload per write: tag u8 (tree × 2, + 1: a value follows) · key length u16 · [value length u32] · key · [value]
//! ```
//! `chain` is the checksum of the frame before, so a frame can follow one frame only. `synced` is the last group that was on
//! disk when the frame was written: a broken frame at or before it cannot be the torn end of an unsynced write.

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::journal::WriteGroup;
use crate::tree_id::TreeId;

const FILE_MAGIC: &[u8; 4] = b"LRDJ";
const FRAME_MAGIC: [u8; 4] = *b"LRGR";
const VERSION: u8 = 1;
/// Bytes of a file's header.
pub(crate) const HEADER_BYTES: usize = 37;
/// Bytes of a frame before its payload.
const FRAME_HEAD_BYTES: usize = 48;
/// The least length of a large value: copying it costs more than a slice of its own.
const LARGE_VALUE_BYTES: usize = 4096;
/// Offset of the bytes that a frame's checksum covers.
const CHECKED_FROM: usize = 12;

/// The header of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    /// Number of the file.
    pub(crate) number: u64,
    /// Number of the first group in it.
    pub(crate) first: u64,
    /// Checksum of the last frame of the file before.
    pub(crate) chain: u64,
}

impl JournalHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(FILE_MAGIC);
        out.push(VERSION);
        for number in [self.number, self.first, self.chain] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&xxh3_64(&out).to_be_bytes());
        out
    }

    /// Decodes a header; `None` when the bytes are no header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (checked, checksum) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 8);
        let known = checked.starts_with(FILE_MAGIC) && checked[4] == VERSION;
        if !known || checksum != xxh3_64(checked).to_be_bytes() {
            return None;
        }
        Some(Self { number: u64_at(checked, 5), first: u64_at(checked, 13), chain: u64_at(checked, 21) })
    }
}

/// A frame found in a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalFrame {
    /// Checksum of the frame; the next frame has it as its chain.
    pub(crate) checksum: u64,
    /// Number of the group.
    pub(crate) group: u64,
    /// Checksum of the frame before.
    pub(crate) chain: u64,
    /// The last group that was on disk when the frame was written.
    pub(crate) synced: u64,
    /// Sequence number of its writes.
    pub(crate) seqno: u64,
    /// The writes, encoded.
    payload: Bytes,
}

impl JournalFrame {
    /// Bytes of the whole frame.
    pub(crate) fn length(&self) -> usize {
        FRAME_HEAD_BYTES + self.payload.len()
    }

    /// The frame at the start of `bytes`; `None` when there is no whole one.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let head = bytes.get(..FRAME_HEAD_BYTES)?;
        if head[..4] != FRAME_MAGIC {
            return None;
        }
        let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
        // The length is not verified yet: the slice bounds it, so a wrong one reads and allocates nothing.
        let frame = bytes.get(..FRAME_HEAD_BYTES.checked_add(length)?)?;
        let checksum = u64_at(head, 4);
        if checksum != xxh3_64(&frame[CHECKED_FROM..]) {
            return None;
        }
        let payload = bytes.slice(FRAME_HEAD_BYTES..frame.len());
        let [group, chain, synced, seqno] = [16, 24, 32, 40].map(|at| u64_at(head, at));
        Some(Self { checksum, group, chain, synced, seqno, payload })
    }

    /// The writes; `None` when the payload does not decode, which the checksum rules out.
    pub(crate) fn writes(&self) -> Option<Vec<(TreeId, Bytes, Option<Bytes>)>> {
        let mut writes = Vec::new();
        let mut rest = self.payload.clone();
        while !rest.is_empty() {
            let tag = rest[0];
            let tree_id = TreeId::ALL.get(usize::from(tag / 2)).copied()?;
            let has_value = tag % 2 == 1;
            let head = if has_value { 7 } else { 3 };
            let lengths = rest.get(1..head)?;
            let key = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
            let value = match lengths.get(2..6) {
                Some(length) => u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize,
                None => 0,
            };
            if rest.len() < head + key + value {
                return None;
            }
            let _ = rest.split_to(head);
            let key = rest.split_to(key);
            let value = rest.split_to(value);
            writes.push((tree_id, key, has_value.then_some(value)));
        }
        Some(writes)
    }
}

/// The encoded frame of a group. It does not copy large values: they are written from their own memory.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    /// Everything but large values.
    inline: Vec<u8>,
    /// Large values, each with the number of inline bytes before it.
    large: Vec<(usize, Bytes)>,
}

impl FrameBuffer {
    /// Encodes the frame of a group in place of the last one; returns its checksum.
    pub(crate) fn encode(&mut self, group: &WriteGroup, chain: u64, synced: u64) -> u64 {
        let Self { inline, large } = self;
        inline.clear();
        large.clear();
        inline.extend_from_slice(&FRAME_MAGIC);
        inline.extend_from_slice(&[0; CHECKED_FROM]);
        for number in [group.number, chain, synced, group.seqno] {
            inline.extend_from_slice(&number.to_be_bytes());
        }
        for (tree_id, key, value) in &group.writes {
            inline.push(*tree_id as u8 * 2 + u8::from(value.is_some()));
            // The store refuses keys above 65,535 bytes and batches far below 4 GiB, so neither length is truncated.
            inline.extend_from_slice(&(key.len() as u16).to_be_bytes());
            if let Some(value) = value {
                inline.extend_from_slice(&(value.len() as u32).to_be_bytes());
            }
            inline.extend_from_slice(key);
            match value {
                Some(value) if value.len() >= LARGE_VALUE_BYTES => large.push((inline.len(), value.clone())),
                value => inline.extend_from_slice(value.as_deref().unwrap_or_default()),
            }
        }
        let payload = (self.length() - FRAME_HEAD_BYTES) as u32;
        // Length and checksum come last: the bytes that they cover are complete only here.
        self.inline[12..16].copy_from_slice(&payload.to_be_bytes());
        let checksum = self.checksum();
        self.inline[4..12].copy_from_slice(&checksum.to_be_bytes());
        checksum
    }

    /// Bytes of the whole frame.
    pub(crate) fn length(&self) -> usize {
        self.inline.len() + self.large.iter().map(|(_, value)| value.len()).sum::<usize>()
    }

    /// The frame's bytes, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.large.iter().map(|(at, _)| *at));
        let ends = self.large.iter().map(|(at, _)| *at).chain([self.inline.len()]);
        let values = self.large.iter().map(|(_, value)| &value[..]).chain([&[][..]]);
        let inline = begins.zip(ends).map(|(begin, end)| &self.inline[begin..end]);
        inline.zip(values).flat_map(|(inline, value)| [inline, value]).filter(|piece| !piece.is_empty())
    }

    /// Drops the large values, and its own memory above `kept` bytes.
    pub(crate) fn shrink(&mut self, kept: usize) {
        self.large.clear();
        self.inline.clear();
        self.inline.shrink_to(kept);
    }

    fn checksum(&self) -> u64 {
        if self.large.is_empty() {
            return xxh3_64(&self.inline[CHECKED_FROM..]);
        }
        let mut checksum = Xxh3Default::new();
        let mut before = CHECKED_FROM;
        for piece in self.pieces() {
            let skipped = before.min(piece.len());
            before -= skipped;
            checksum.update(&piece[skipped..]);
        }
        checksum.digest()
    }
}

/// Where the next frame of a damaged file may begin: the first frame magic at or after `from`.
pub(crate) fn next_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(FRAME_MAGIC.len()).position(|window| window == FRAME_MAGIC).map(|at| from + at)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group() -> impl Strategy<Value = WriteGroup> {
        let bytes = |max| proptest::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from);
        let tree_id = (0_usize..3).prop_map(|at| TreeId::ALL[at]);
        let value = prop_oneof![4 => bytes(200), 1 => bytes(3 * LARGE_VALUE_BYTES)];
        let write = (tree_id, bytes(40), proptest::option::of(value));
        let writes = proptest::collection::vec(write, 0..8);
        (any::<u64>(), any::<u64>(), writes).prop_map(|(number, seqno, writes)| WriteGroup { number, seqno, writes })
    }

    fn encoded(group: &WriteGroup, chain: u64, synced: u64) -> (Vec<u8>, u64) {
        // A buffer that held another frame before.
        let mut frame = FrameBuffer::default();
        frame.encode(
            &WriteGroup { number: 1, seqno: 1, writes: vec![(TreeId::Bulk, Bytes::new(), Some(vec![1; 9000].into()))] },
            0,
            0,
        );
        let checksum = frame.encode(group, chain, synced);
        let bytes: Vec<u8> = frame.pieces().flatten().copied().collect();
        assert_eq!(bytes.len(), frame.length());
        (bytes, checksum)
    }

    proptest! {
        #[test]
        fn frames_survive_a_round_trip(group in group(), chain: u64, synced: u64, rest: Vec<u8>) {
            let (mut bytes, checksum) = encoded(&group, chain, synced);
            let length = bytes.len();
            bytes.extend_from_slice(&rest);
            let frame = JournalFrame::decode(&bytes.into()).unwrap();
            prop_assert_eq!((frame.checksum, frame.chain, frame.synced, frame.length()), (checksum, chain, synced, length));
            prop_assert_eq!((frame.group, frame.seqno), (group.number, group.seqno));
            prop_assert_eq!(frame.writes().unwrap(), group.writes);
        }

        #[test]
        fn a_frame_with_a_flipped_bit_is_refused(group in group(), at: proptest::sample::Index, bit in 0_u8..8) {
            let (mut bytes, _) = encoded(&group, 1, 2);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(JournalFrame::decode(&bytes.into()), None);
        }
    }

    #[test]
    fn a_header_survives_a_round_trip_and_is_refused_with_a_flipped_bit() {
        let header = JournalHeader { number: 7, first: 1200, chain: 0xfeed };
        let bytes = header.encode();
        assert_eq!((bytes.len(), JournalHeader::decode(&bytes)), (HEADER_BYTES, Some(header)));
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalHeader::decode(&wrong), None);
        }
    }
}
