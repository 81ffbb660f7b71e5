//! Reads the journal before anything is opened: all that the manifest names is there, whole and in one chain, or the start
//! is refused and says what is missing. Nothing is changed here.

use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::journal::file::{JournalEnd, ManifestedJournal, path};
use crate::journal::frame::{Frame, HEADER_BYTES, JournalHeader, next_mark};

/// What the scan of all files found.
#[derive(Debug)]
pub(crate) struct JournalScan {
    /// The active file and where its whole frames end.
    pub(crate) active: (JournalHeader, JournalEnd),
    /// What is damaged, a line each; empty when nothing is missing.
    pub(crate) damage: Vec<String>,
}

/// Reads all files that the manifest names. `synced` is the last group known to be on disk.
///
/// # Errors
/// What the machine answers, except that a file is not there: that is damage.
pub(crate) fn scan(dir: &Path, journals: &[ManifestedJournal], synced: u64) -> io::Result<JournalScan> {
    let mut damage = Vec::new();
    let mut seqno = 0;
    let mut active = None;
    for journal in journals {
        let path = path(dir, journal.header.number);
        let bytes = match fs::read(&path) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                damage.push(missing(&path, journal, synced));
                continue;
            }
            Err(error) => return Err(error),
        };
        let end = match judge(&bytes, journal, synced, seqno) {
            Ok(end) => end,
            Err(what) => {
                damage.push(format!("{}: {what}", path.display()));
                JournalEnd::empty(&journal.header, seqno)
            }
        };
        seqno = seqno.max(end.seqno);
        active = Some((journal.header, end));
    }
    let none = JournalHeader { number: 0, first: 1, chain: 0 };
    let active = active.unwrap_or((none, JournalEnd::empty(&none, seqno)));
    Ok(JournalScan { active, damage })
}

/// Hands every whole frame of a file to `found`, in order. With `salvage` it goes on behind what is damaged.
///
/// # Errors
/// What the machine answers, and what `found` answers.
pub(crate) fn replay<E: From<io::Error>>(
    dir: &Path,
    journal: &ManifestedJournal,
    salvage: bool,
    mut found: impl FnMut(&Frame) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = match fs::read(path(dir, journal.header.number)) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound && salvage => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let end = journal.sealed.map_or(bytes.len(), |end| usize::try_from(end.length).unwrap_or(usize::MAX));
    let mut at = HEADER_BYTES;
    while at < end.min(bytes.len()) {
        match Frame::decode(&bytes.slice(at..)) {
            Some(frame) => {
                found(&frame)?;
                at += frame.length();
            }
            None if salvage => match next_mark(&bytes, at + 1) {
                Some(next) => at = next,
                None => break,
            },
            None => break,
        }
    }
    Ok(())
}

fn missing(path: &Path, journal: &ManifestedJournal, synced: u64) -> String {
    let first = journal.header.first;
    match journal.sealed {
        Some(end) => format!("{} is missing: groups {first} to {} were in it", path.display(), end.group),
        None if synced >= first => {
            format!("{} is missing: groups {first} to {synced} at least were in it", path.display())
        }
        None => format!("{} is missing: groups from {first} on were in it", path.display()),
    }
}

/// Where the frames of a file end, or what is wrong with it.
fn judge(bytes: &Bytes, journal: &ManifestedJournal, synced: u64, seqno: u64) -> Result<JournalEnd, String> {
    let first = journal.header.first;
    if JournalHeader::decode(bytes) != Some(journal.header) {
        let last = journal.sealed.map_or(synced, |end| end.group);
        return Err(match last >= first {
            true => format!("its header is damaged: groups {first} to {last} cannot be told"),
            false => "its header is damaged".to_owned(),
        });
    }
    let end = walk(bytes, &journal.header, seqno);
    match journal.sealed {
        // What lies behind the seal was never part of the journal.
        Some(sealed) if end.group >= sealed.group => Ok(sealed),
        Some(sealed) => Err(format!("groups {} to {} are damaged", end.group + 1, sealed.group)),
        None if end.group < synced => Err(format!("groups {} to {synced} are missing", end.group + 1)),
        None => match known_on_disk(bytes, &end) {
            Some(known) => Err(format!("groups {} to {known} are damaged", end.group + 1)),
            None => Ok(end),
        },
    }
}

/// The end of the whole frames that follow each other.
fn walk(bytes: &Bytes, header: &JournalHeader, seqno: u64) -> JournalEnd {
    let mut end = JournalEnd::empty(header, seqno);
    let mut at = HEADER_BYTES;
    while let Some(frame) = bytes.get(at..).and_then(|_| Frame::decode(&bytes.slice(at..))) {
        if frame.chain != end.checksum || frame.group != end.group + 1 {
            break;
        }
        at += frame.length();
        end = JournalEnd { group: frame.group, seqno: frame.seqno, checksum: frame.checksum, length: at as u64 };
    }
    end
}

/// The last group behind `end` that a later frame knows to have been on disk: then the end is no torn write.
fn known_on_disk(bytes: &Bytes, end: &JournalEnd) -> Option<u64> {
    let mut known = None;
    let mut at = usize::try_from(end.length).ok()?;
    while let Some(mark) = next_mark(bytes, at) {
        match Frame::decode(&bytes.slice(mark..)) {
            Some(frame) => {
                known = known.max(Some(frame.synced).filter(|synced| *synced > end.group));
                at = mark + frame.length();
            }
            None => at = mark + 1,
        }
    }
    known
}
