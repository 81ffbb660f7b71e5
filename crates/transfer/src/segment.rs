//! A segment: records, then a trailer with the scan's cursor and the totals so far.
//!
//! ```text
//! "LARDEREX" · version u8 · number u32 · export id 32 bytes
//! length u32 · record                          as many as there are
//! 0 u32 · trailer JSON · its length u32 · SHA-256 of all before
//! ```
//! It is written as a `.part` file and renamed once it is on disk: a segment exists whole or not at all.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cursor::ScanCursor;
use crate::folder::ExportFolder;
use crate::totals::Totals;
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"LARDEREX";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 8 + 1 + 4 + 32;
const DIGEST_BYTES: u64 = 32;
/// Longest record, in bytes.
const RECORD_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Longest trailer: a cursor holds a page of partitions, each with a key of up to 36 KiB, as digits.
const TRAILER_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Bytes per read.
const READ_BYTES: usize = 256 * 1024;
/// The extension of a file until it is whole.
const PART: &str = "part";

/// Identity of an export.
pub(crate) type ExportId = [u8; 32];

/// The trailer after the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentTrailer {
    /// Where the next segment begins.
    pub(crate) cursor: ScanCursor,
    /// The totals from the first segment up to here.
    pub(crate) totals: Totals,
}

/// The file name of a segment.
pub(crate) fn segment_name(number: u32) -> String {
    format!("segment-{number:06}")
}

/// The number in a segment's name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("segment-")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

/// A segment being written.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    file: File,
    part: PathBuf,
    path: PathBuf,
    digest: Sha256,
    /// The lock of the folder: no other export writes here while this lives.
    _folder: ExportFolder,
}

impl SegmentWriter {
    /// Begins a segment. The rest of an earlier attempt is overwritten.
    pub(crate) fn create(folder: ExportFolder, number: u32, id: &ExportId) -> Result<Self> {
        let path = folder.dir.join(segment_name(number));
        let part = path.with_extension(PART);
        let file = File::create(&part).map_err(|error| Error::file(&part, error))?;
        let mut writer = Self { file, part, path, digest: Sha256::new(), _folder: folder };
        writer.append(&[&MAGIC[..], &[VERSION], &number.to_be_bytes(), id].concat())?;
        Ok(writer)
    }

    /// Appends framed records.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.digest.update(bytes);
        self.file.write_all(bytes).map_err(|error| Error::file(&self.part, error))
    }

    /// Ends the segment and returns its digest; the segment is then on disk under its name.
    pub(crate) fn finish(mut self, trailer: &SegmentTrailer) -> Result<[u8; 32]> {
        let json = serde_json::to_vec(trailer).map_err(|error| Error::file(&self.part, error.into()))?;
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        // The empty record ends the records, so a reader needs no count.
        self.append(&[&0_u32.to_be_bytes()[..], &json, &length.to_be_bytes()].concat())?;
        let digest: [u8; 32] = self.digest.finalize().into();
        // The digest and the sync come before the rename: after a crash the name never stands for a partial file.
        let put = |mut file: &File| file.write_all(&digest).and_then(|()| file.sync_all());
        put(&self.file).map_err(|error| Error::file(&self.part, error))?;
        publish(&self.part, &self.path)?;
        Ok(digest)
    }
}

/// Appends a record after its length.
pub(crate) fn frame(out: &mut Vec<u8>, record: &[u8]) {
    out.extend_from_slice(&u32::try_from(record.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(record);
}

/// Renames a file that is on disk, and makes the new name durable.
fn publish(part: &Path, path: &Path) -> Result<()> {
    fs::rename(part, path).map_err(|error| Error::file(path, error))?;
    // Without this sync a power cut may undo the rename after the export counted the segment.
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::file(dir, error))
}

/// Writes a small file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = path.with_extension(PART);
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| Error::file(&part, error))?;
    publish(&part, path)
}

/// The records of a whole segment.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: BufReader<File>,
    path: PathBuf,
    /// Bytes of records that are left, with the empty record at the end.
    left: u64,
}

impl SegmentReader {
    /// Opens a segment after a check of its digest, and returns its trailer and the digest.
    pub(crate) fn open(dir: &Path, number: u32, id: &ExportId) -> Result<(Self, SegmentTrailer, [u8; 32])> {
        let path = dir.join(segment_name(number));
        // The trailer is only used after the digest of the whole file has passed.
        let (trailer, records_end) = trailer(&path)?;
        let digest = check(&path)?;
        let io = |error| Error::file(&path, error);
        let mut file = BufReader::with_capacity(READ_BYTES, File::open(&path).map_err(io)?);
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).map_err(io)?;
        let expected = [&MAGIC[..], &[VERSION], &number.to_be_bytes(), id].concat();
        if head[..9] != expected[..9] {
            return Err(Error::damaged(&path, "it is no segment, or of an unknown version"));
        }
        if head[9..] != expected[9..] {
            return Err(Error::damaged(&path, "it belongs to another export, or has another number"));
        }
        let left = records_end.saturating_sub(HEAD_BYTES as u64);
        Ok((Self { file, path, left }, trailer, digest))
    }

    /// The next records, at least `bytes_wanted` bytes of them where there are as many; none at the end.
    pub(crate) fn records(&mut self, bytes_wanted: usize) -> Result<Vec<Bytes>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_wanted {
            let mut length = [0; 4];
            self.file.read_exact(&mut length).map_err(|error| Error::file(&self.path, error))?;
            let length = u32::from_be_bytes(length);
            // Bound: a wrong length must not allocate more than a record can have.
            let after = self.left.checked_sub(4 + u64::from(length)).filter(|_| length <= RECORD_BYTES_MAX);
            let Some(after) = after else { return Err(Error::damaged(&self.path, "a record that ends nowhere")) };
            if length == 0 {
                // The empty record stays unread, so a further call finds the end again.
                let back = self.file.seek_relative(-4);
                back.map_err(|error| Error::file(&self.path, error))?;
                break;
            }
            self.left = after;
            let mut record = vec![0; length as usize];
            self.file.read_exact(&mut record).map_err(|error| Error::file(&self.path, error))?;
            bytes += record.len();
            records.push(Bytes::from(record));
        }
        Ok(records)
    }
}

/// The trailer of a segment, and the offset where its records end. It does not check the digest.
pub(crate) fn trailer(path: &Path) -> Result<(SegmentTrailer, u64)> {
    let io = |error| Error::file(path, error);
    let mut file = File::open(path).map_err(io)?;
    let all = file.metadata().map_err(io)?.len();
    let short =
        || Error::damaged(path, "it does not end as a segment does: bytes of it were cut off, or others appended");
    let at = all.checked_sub(DIGEST_BYTES + 4).ok_or_else(short)?;
    file.seek(SeekFrom::Start(at)).map_err(io)?;
    let mut length = [0; 4];
    file.read_exact(&mut length).map_err(io)?;
    let length = u32::from_be_bytes(length);
    // Bound: a wrong length must not read the whole file into memory.
    let begin = at.checked_sub(u64::from(length)).filter(|_| length <= TRAILER_BYTES_MAX).ok_or_else(short)?;
    file.seek(SeekFrom::Start(begin)).map_err(io)?;
    let mut json = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut json).map_err(io)?;
    let trailer = serde_json::from_slice(&json).map_err(|error| Error::damaged(path, error.to_string()))?;
    Ok((trailer, begin))
}

/// Reads a whole file, compares it with the digest at its end, and returns the digest.
fn check(path: &Path) -> Result<[u8; 32]> {
    let io = |error| Error::file(path, error);
    let mut file = File::open(path).map_err(io)?;
    let all = file.metadata().map_err(io)?.len();
    let mut body = (&mut file).take(all.saturating_sub(DIGEST_BYTES));
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match body.read(&mut buffer).map_err(io)? {
            0 => break,
            count => digest.update(&buffer[..count]),
        }
    }
    let mut stored = [0; 32];
    file.read_exact(&mut stored).map_err(io)?;
    if digest.finalize()[..] != stored {
        return Err(Error::damaged(path, "its checksum is wrong"));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: ExportId = [b'i'; 32];

    fn write(dir: &Path, records: &[&[u8]]) -> (SegmentTrailer, [u8; 32]) {
        let mut writer = SegmentWriter::create(ExportFolder::make(dir).unwrap(), 1, &ID).unwrap();
        for record in records {
            let mut framed = Vec::new();
            frame(&mut framed, record);
            writer.append(&framed).unwrap();
        }
        let trailer = SegmentTrailer { cursor: ScanCursor::default(), totals: Totals::default() };
        let digest = writer.finish(&trailer).unwrap();
        (trailer, digest)
    }

    #[test]
    fn a_segment_returns_its_records_and_leaves_no_part_file() {
        let dir = tempfile::tempdir().unwrap();
        let (trailer, digest) = write(dir.path(), &[b"one", b"three"]);
        let (mut reader, read_trailer, stored) = SegmentReader::open(dir.path(), 1, &ID).unwrap();
        assert_eq!((read_trailer, stored), (trailer, digest));
        assert_eq!(reader.records(1).unwrap(), ["one"]);
        assert_eq!(reader.records(100).unwrap(), ["three"]);
        assert!(reader.records(100).unwrap().is_empty() && reader.records(100).unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_segment_of_another_export_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[]);
        let refused = SegmentReader::open(dir.path(), 1, &[b'j'; 32]).unwrap_err().to_string();
        assert!(refused.contains("segment-000001") && refused.contains("another export"), "{refused}");
        fs::rename(dir.path().join(segment_name(1)), dir.path().join(segment_name(2))).unwrap();
        assert!(matches!(SegmentReader::open(dir.path(), 2, &ID), Err(Error::Damaged { .. })));
    }

    #[test]
    fn segment_names_carry_their_numbers() {
        assert_eq!(segment_number(&segment_name(42)), Some(42));
        assert_eq!(segment_number(&segment_name(1_234_567)), Some(1_234_567));
        for name in ["segment-42", "segment-000042.part", "segment-", "manifest.json"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_segment_is_refused_at_any_byte(at: usize, bit in 0..8_u8, is_cut: bool) {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &[b"one", &[7; 300]]);
            let path = dir.path().join(segment_name(1));
            let mut bytes = fs::read(&path).unwrap();
            let at = at % bytes.len();
            if is_cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            fs::write(&path, bytes).unwrap();
            let refused = SegmentReader::open(dir.path(), 1, &ID).map(|_| ()).unwrap_err().to_string();
            prop_assert!(refused.contains("segment-000001"), "{}", refused);
        }
    }
}
