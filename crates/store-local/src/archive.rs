//! Archives: how the engine below writes tables, files of large values and versions.
//!
//! ```text
//! sections · contents · trailer                                                                            little endian
//! contents   "TOC!" · entries u32 · per entry position u64, length u64, length of its name u16, name
//! trailer    "SFA!" · 01 · 00 · xxh3 (128 bits) of the contents · position u64 of the contents · length u64 of the contents
//! ```
//! Its reader takes memory for as many entries as the contents say before it holds them against their checksum. One wrong byte
//! asks for 200 GB there, which ends the process, so no archive is opened before [`check`].

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const TRAILER_BYTES: i64 = 38;
/// Where in the trailer the position of the contents is.
const POSITION_AT: i64 = 22;
const CONTENTS_MAGIC: &[u8; 4] = b"TOC!";
/// Bytes of an entry without its name.
const ENTRY_BYTES_MIN: u64 = 18;

/// Reads the contents of an archive.
///
/// # Errors
/// What the machine answers, and what is wrong with the contents.
pub(crate) fn open(path: &Path) -> Result<sfa::Reader, sfa::Error> {
    check(path)?;
    sfa::Reader::new(path)
}

/// Checks that the contents of an archive say no more entries than fit into it. Its reader finds all other damage.
///
/// # Errors
/// What the machine answers; `InvalidData` when they do.
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

/// How many entries the contents say; `None`: there are none where the trailer says.
fn entries(file: &mut File, length: u64) -> io::Result<Option<u32>> {
    let (mut position, mut begin) = ([0; 8], [0; 8]);
    if length < TRAILER_BYTES.unsigned_abs() {
        return Ok(None);
    }
    file.seek(SeekFrom::End(POSITION_AT - TRAILER_BYTES))?;
    file.read_exact(&mut position)?;
    let position = u64::from_le_bytes(position);
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
    fn contents_that_said_too_many_sections_once_ended_the_process() {
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
        for harmed in contents + 4..contents + 8 {
            let mut bytes = whole.clone();
            bytes[harmed] ^= 0x80;
            std::fs::write(&path, &bytes).unwrap();
            assert!(open(&path).is_err(), "byte {harmed}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(open(&path).is_err(), "cut to {length}");
        }
    }
}
