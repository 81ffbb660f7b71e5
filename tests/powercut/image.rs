//! A tree of files in memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use crate::powercut::content::FileContent;
use crate::powercut::disk::EntryName;

/// A file or a directory with all below it.
#[derive(Debug, Clone)]
pub enum DirImage {
    /// A file.
    File(Arc<FileContent>),
    /// A directory.
    Dir(BTreeMap<EntryName, DirImage>),
}

impl Default for DirImage {
    fn default() -> Self {
        Self::Dir(BTreeMap::new())
    }
}

impl DirImage {
    /// Reads a directory, without entries that are neither files nor directories, such as sockets.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                entries.insert(entry.file_name().into_vec(), Self::load(&entry.path())?);
            } else if kind.is_file() {
                entries.insert(entry.file_name().into_vec(), Self::File(Arc::new(FileContent::load(&entry.path())?)));
            }
        }
        Ok(Self::Dir(entries))
    }

    /// Makes the files and directories at this path. A directory may exist already.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::File(content) => content.store(path),
            Self::Dir(entries) => {
                if !path.is_dir() {
                    fs::create_dir(path)?;
                }
                entries.iter().try_for_each(|(name, image)| image.store(&path.join(OsStr::from_bytes(name))))
            }
        }
    }

    /// The differences of two trees, a line each.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        self.compare(other, "", &mut lines);
        lines
    }

    fn compare(&self, other: &Self, path: &str, lines: &mut Vec<String>) {
        match (self, other) {
            (Self::File(left), Self::File(right)) if left.reads_as(right) => {}
            (Self::File(left), Self::File(right)) => {
                lines.push(format!("{path}: {} and {} bytes, or other bytes", left.length(), right.length()));
            }
            (Self::Dir(left), Self::Dir(right)) => {
                for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
                    let path = format!("{path}/{}", String::from_utf8_lossy(name));
                    match (left.get(name), right.get(name)) {
                        (Some(left), Some(right)) => left.compare(right, &path, lines),
                        (Some(_), None) => lines.push(format!("{path} is only in the first")),
                        _ => lines.push(format!("{path} is only in the second")),
                    }
                }
            }
            _ => lines.push(format!("{path} is a file here and a directory there")),
        }
    }
}

#[cfg(test)]
impl DirImage {
    /// The bytes of a file.
    pub fn bytes(&self) -> Vec<u8> {
        let Self::File(content) = self else { return Vec::new() };
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        content.store(file.path()).and_then(|()| fs::read(file.path())).expect("it can be stored")
    }

    /// The paths with their texts, a line each.
    pub fn listing(&self) -> String {
        let mut lines = String::new();
        self.list("", &mut lines);
        lines
    }

    fn list(&self, path: &str, lines: &mut String) {
        match self {
            Self::File(_) => lines.push_str(&format!("{path} {}\n", String::from_utf8_lossy(&self.bytes()))),
            Self::Dir(entries) => {
                if !path.is_empty() {
                    lines.push_str(&format!("{path}/\n"));
                }
                let below = |name: &EntryName| match path {
                    "" => String::from_utf8_lossy(name).into_owned(),
                    _ => format!("{path}/{}", String::from_utf8_lossy(name)),
                };
                entries.iter().for_each(|(name, image)| image.list(&below(name), lines));
            }
        }
    }
}
