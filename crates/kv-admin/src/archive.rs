//! Files that are archives: the export of a MinIO's users is a zip file of JSON documents.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use serde_json::Value;
use zip::ZipArchive;

/// The first bytes of a zip file.
const ZIP_MARK: &[u8] = b"PK\x03\x04";
/// Most files of an archive.
const FILES_MAX: usize = 100;
/// Most bytes of a file, unpacked: far more than a request may have.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The text of a file; of an archive one JSON object with the documents of its files by their last names.
///
/// # Errors
/// The reason why it is no text.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.starts_with(ZIP_MARK) {
        return documents(bytes);
    }
    String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())
}

fn documents(bytes: Vec<u8>) -> Result<String, String> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| error.to_string())?;
    if archive.len() > FILES_MAX {
        return Err(format!("it has more than {FILES_MAX} files"));
    }
    let mut found = BTreeMap::new();
    for at in 0..archive.len() {
        let file = archive.by_index(at).map_err(|error| error.to_string())?;
        let name = file.name().map_err(|error| error.to_string())?;
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        if !name.ends_with(".json") {
            continue;
        }
        let mut document = Vec::new();
        let mut bounded = file.take(FILE_BYTES_MAX + 1);
        bounded.read_to_end(&mut document).map_err(|error| format!("{name}: {error}"))?;
        if document.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("{name} has more than {FILE_BYTES_MAX} bytes"));
        }
        let document: Value = serde_json::from_slice(&document).map_err(|_| format!("{name} is no JSON"))?;
        found.insert(name, document);
    }
    serde_json::to_string(&found).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn an_archive_is_one_document_of_its_files() {
        let bytes = archive(&[("iam-assets/users.json", "{\"a\":1}"), ("readme.txt", "x"), ("b.json", "null")]);
        assert_eq!(text(bytes).unwrap(), r#"{"b.json":null,"users.json":{"a":1}}"#);
        assert_eq!(text(b"plain".to_vec()).unwrap(), "plain");
    }

    #[test]
    fn archives_that_lie_are_errors() {
        let large = " ".repeat(FILE_BYTES_MAX as usize + 1);
        let many: Vec<String> = (0..=FILES_MAX).map(|at| format!("{at}.json")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "1")).collect();
        let whole = archive(&[("users.json", "{\"a\":1}")]);
        for bytes in [
            archive(&[("a.json", &large)]),
            archive(&[("a.json", "{")]),
            archive(&many),
            whole[..whole.len() / 2].to_vec(),
            vec![0xff, 0xfe],
        ] {
            assert!(text(bytes).is_err());
        }
    }
}
