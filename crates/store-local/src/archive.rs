//! Archives: the container format in which lsm-tree writes tables, files of large values and versions.
//!
//! ```text
//! sections · contents · trailer                                                                            little endian
//! contents   "TOC!" · entries u32 · per entry position u64, length u64, length of its name u16, name
//! trailer    "SFA!" · 01 · 00 · xxh3 (128 bits) of the contents · position u64 of the contents · length u64 of the contents
//! ```
//! The reader of `sfa` allocates memory for the stated number of entries before it verifies the checksum of the contents. One
//! wrong byte there asks for 200 GB, which aborts the process, so [`check`] precedes every open.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const TRAILER_BYTES: i64 = 38;
/// Offset in the trailer of the position of the contents.
const POSITION_AT: i64 = 22;
const CONTENTS_MAGIC: &[u8; 4] = b"TOC!";
/// Bytes of an entry without its name.
const ENTRY_BYTES_MIN: u64 = 18;

/// Reads the contents of an archive.
///
/// # Errors
/// Any I/O error, and any damage of the contents.
pub(crate) fn open(path: &Path) -> Result<sfa::Reader, sfa::Error> {
    check(path)?;
    sfa::Reader::new(path)
}

/// Checks that an archive states no more entries than fit into it. Its reader finds all other damage.
///
/// # Errors
/// Any I/O error; `InvalidData` for too many entries.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let Some(entries) = entries(&mut file, length)? else { return Ok(()) };
    if u64::from(entries) > length / ENTRY_BYTES_MIN {
        let text = format!("its contents are damaged: they say {entries} sections, more than {length} bytes can hold");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(())
}

/// Whether the fields of the trailer that no reader compares fit the file.
///
/// # Errors
/// Any I/O error.
pub(crate) fn is_trailer_whole(file: &File) -> io::Result<bool> {
    let mut trailer = [0; TRAILER_BYTES as usize];
    let Some(begin) = file.metadata()?.len().checked_sub(trailer.len() as u64) else { return Ok(false) };
    file.read_exact_at(&mut trailer, begin)?;
    let number = |at: usize| trailer[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (position, length) = (number(POSITION_AT as usize), number(POSITION_AT as usize + 8));
    Ok(trailer[4..6] == [1, 0] && position.checked_add(length) == Some(begin))
}

/// The stated number of entries; `None`: there are no contents at the trailer's position.
fn entries(file: &mut File, length: u64) -> io::Result<Option<u32>> {
    let (mut position, mut begin) = ([0; 8], [0; 8]);
    if length < TRAILER_BYTES.unsigned_abs() {
        return Ok(None);
    }
    file.seek(SeekFrom::End(POSITION_AT - TRAILER_BYTES))?;
    file.read_exact(&mut position)?;
    let position = u64::from_le_bytes(position);
    // The reader of archives reports a position outside the file; only the count must be checked here.
    if position > length - TRAILER_BYTES.unsigned_abs() {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(position))?;
    file.read_exact(&mut begin)?;
    let entries = u32::from_le_bytes([begin[4], begin[5], begin[6], begin[7]]);
    Ok((begin[..4] == *CONTENTS_MAGIC).then_some(entries))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn contents_that_state_too_many_sections_are_refused_before_memory_is_allocated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        let mut writer = sfa::Writer::from_writer(File::create(&path).unwrap());
        writer.start("one").unwrap();
        writer.write_all(&[7; 100]).unwrap();
        writer.start("two").unwrap();
        writer.write_all(&[7; 100]).unwrap();
        writer.finish().unwrap();
        assert_eq!(open(&path).unwrap().toc().len(), 2);

        let whole = std::fs::read(&path).unwrap();
        let contents = whole.windows(4).position(|bytes| bytes == CONTENTS_MAGIC).unwrap();
        for flipped in contents + 4..contents + 8 {
            let mut bytes = whole.clone();
            bytes[flipped] ^= 0x80;
            std::fs::write(&path, &bytes).unwrap();
            assert!(open(&path).is_err(), "byte {flipped}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(open(&path).is_err(), "cut to {length}");
        }
    }
}
