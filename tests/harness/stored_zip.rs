//! A zip archive whose files are stored as they are.

/// The archive of these files: names and texts.
#[must_use]
pub fn stored_zip(files: &[(&str, &str)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in files {
        let at = number(archive.len());
        // The same in both headers: version 2.0, no flags, stored, midnight of 1980-01-01.
        let mut fields = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        fields.extend(crc32(text.as_bytes()).to_le_bytes());
        fields.extend([number(text.len()), number(text.len())].concat());
        fields.extend([&number(name.len())[..2], &[0, 0]].concat());
        archive.extend([b"PK\x03\x04", &fields[..], name.as_bytes(), text.as_bytes()].concat());
        // No comment, the first disk, no attributes.
        directory.extend([b"PK\x01\x02", &[20, 0][..], &fields, &[0; 10], &at, name.as_bytes()].concat());
    }
    let count = number(files.len());
    let (length, at) = (number(directory.len()), number(archive.len()));
    archive.extend(directory);
    archive.extend([b"PK\x05\x06", &[0; 4][..], &count[..2], &count[..2], &length, &at, &[0, 0]].concat());
    archive
}

fn number(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a small archive").to_le_bytes()
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
