//! The bytes of a file, in pages that copies share. Holes take no memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
/// The most bytes of one write call.
const RUN: usize = 256 * 1024;

/// The bytes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileContent {
    length: u64,
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl FileContent {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes bytes; the file grows when they end after its end.
    pub fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, offset) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = bytes.len().min(PAGE - offset);
            let kept = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new(vec![0; PAGE])));
            kept[offset..offset + count].copy_from_slice(&bytes[..count]);
            at += count as u64;
            bytes = &bytes[count..];
        }
        self.length = self.length.max(at);
    }

    /// Truncates or extends the file.
    pub fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
            // The last page was not full: zeroed in part it is still there, behind the end.
            self.pages.split_off(&length.div_ceil(PAGE as u64));
        }
        self.length = length;
    }

    /// Zeroes a range; the length stays.
    pub fn zero(&mut self, at: u64, count: u64) {
        let end = at.saturating_add(count);
        let pages: Vec<u64> =
            self.pages.range(at / PAGE as u64..end.div_ceil(PAGE as u64)).map(|(page, _)| *page).collect();
        for page in pages {
            let begin = page * PAGE as u64;
            let (from, to) = (at.saturating_sub(begin).min(PAGE as u64), (end - begin).min(PAGE as u64));
            if (from, to) == (0, PAGE as u64) {
                self.pages.remove(&page);
            } else if let Some(kept) = self.pages.get_mut(&page) {
                Arc::make_mut(kept)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Writes a file that has these bytes.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        let (mut run, mut at) = (Vec::new(), 0);
        for (page, bytes) in &self.pages {
            let begin = page * PAGE as u64;
            if begin != at + run.len() as u64 || run.len() >= RUN {
                file.write_all_at(&run, at)?;
                run.clear();
                at = begin;
            }
            let count = (self.length - begin).min(PAGE as u64) as usize;
            run.extend_from_slice(&bytes[..count]);
        }
        file.write_all_at(&run, at)?;
        file.set_len(self.length)
    }

    /// Reads a file.
    pub fn load(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        let mut content = Self::default();
        for (number, page) in bytes.chunks(PAGE).enumerate().filter(|(_, page)| **page != [0; PAGE][..page.len()]) {
            content.write((number * PAGE) as u64, page);
        }
        content.length = bytes.len() as u64;
        Ok(content)
    }

    /// Whether a reader sees the same bytes: pages of zeros equal holes.
    pub fn reads_as(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.written(), other.written());
        self.length == other.length
            && std::iter::from_fn(|| match (left.next(), right.next()) {
                (None, None) => None,
                (left, right) => Some(left == right),
            })
            .all(|same| same)
    }

    fn written(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let pages = self.pages.iter().map(|(page, bytes)| (*page, bytes.as_slice()));
        pages.filter(|(_, bytes)| **bytes != [0; PAGE])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_across_pages_holes_and_truncation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut content = FileContent::default();
        content.write(4090, &[7; 10]);
        content.write(20_000, b"end");
        content.set_length(20_002);
        content.zero(4095, 2);
        content.store(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 20_002);
        assert_eq!(bytes[4088..4102], [0, 0, 7, 7, 7, 7, 7, 0, 0, 7, 7, 7, 0, 0]);
        assert_eq!(&bytes[20_000..], b"en");
        assert!(FileContent::load(&path).unwrap().reads_as(&content));
        content.set_length(30_000);
        content.store(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[20_000..20_004], *b"en\0\0");
    }

    #[test]
    fn a_file_cut_below_a_last_page_that_is_not_full_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut content = FileContent::default();
        content.write(0, &[7; 10_000]);
        content.set_length(100);
        content.store(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 100]);
    }
}
