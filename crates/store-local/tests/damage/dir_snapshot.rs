//! A snapshot of a directory in memory: a case writes it out, and compares it with the directory after a refused start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of the zero blocks that the written files leave out: engines preallocate their journals.
const PAGE: usize = 4096;

/// Every file below a directory by its relative path; a folder has no bytes. Sockets are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirSnapshot(pub BTreeMap<PathBuf, Option<Vec<u8>>>);

impl DirSnapshot {
    /// Reads a directory.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut found = BTreeMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(dir.join(&folder))? {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    found.insert(path.clone(), None);
                    open.push(path);
                } else if entry.file_type()?.is_file() {
                    found.insert(path, Some(fs::read(entry.path())?));
                }
            }
        }
        Ok(Self(found))
    }

    /// Writes the snapshot into an empty directory.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        // A folder comes before what is in it.
        for (path, bytes) in &self.0 {
            match bytes {
                None => fs::create_dir_all(dir.join(path))?,
                Some(bytes) => write_sparse(&dir.join(path), bytes)?,
            }
        }
        Ok(())
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.0.iter().filter_map(|(path, bytes)| Some((path.as_path(), bytes.as_deref()?)))
    }

    /// The differences to `other`, in words.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for path in self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path))) {
            match (self.0.get(path), other.0.get(path)) {
                (Some(one), Some(two)) if one == two => {}
                (Some(_), Some(_)) => differences.push(format!("{} is changed", path.display())),
                (Some(_), None) => differences.push(format!("{} is removed", path.display())),
                (None, _) => differences.push(format!("{} is new", path.display())),
            }
        }
        differences
    }
}

fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    let mut begin = 0;
    while begin < bytes.len() {
        // A run of pages that are all zeros, or all not.
        let is_hole = |at: usize| bytes[at..bytes.len().min(at + PAGE)].iter().all(|byte| *byte == 0);
        let hole = is_hole(begin);
        let mut end = begin + PAGE;
        while end < bytes.len() && is_hole(end) == hole {
            end += PAGE;
        }
        let end_of_run = end.min(bytes.len());
        if !hole {
            file.write_all_at(&bytes[begin..end_of_run], begin as u64)?;
        }
        begin = end_of_run;
    }
    Ok(())
}
