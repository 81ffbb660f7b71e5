//! Reads the journal before a start opens anything. Every file that the manifest names must exist, whole and in one chain;
//! otherwise the start is refused and names the missing groups. The scan changes nothing.

use std::path::Path;
use std::{fs, io};

use bytes::Bytes;

use crate::journal::files::{JournalEnd, ManifestJournal, numbers, path};
use crate::journal::frame::{HEADER_BYTES, JournalFrame, JournalHeader, next_magic};

/// The result of a scan of all files.
#[derive(Debug)]
pub(crate) struct JournalScan {
    /// The active file and the end of its whole frames.
    pub(crate) active: (JournalHeader, JournalEnd),
    /// Files with groups after the last one that the manifest names: it is older than they are.
    pub(crate) unnamed: Vec<ManifestJournal>,
    /// One line for each damaged file; empty when nothing is missing.
    pub(crate) damage: Vec<String>,
}

/// Reads all files that the manifest names. `synced` is the last group known to be on disk.
///
/// # Errors
/// Any I/O error, except that a file is missing: that is damage.
pub(crate) fn scan(dir: &Path, journals: &[ManifestJournal], synced: u64) -> io::Result<JournalScan> {
    let unnamed = unnamed_after(dir, journals)?;
    // First: with an older manifest the files that it names may rightly be gone.
    let mut damage: Vec<String> = unnamed.iter().map(|journal| describe_unnamed(dir, journal)).collect();
    let mut seqno = 0;
    let mut active = None;
    for journal in journals {
        let path = path(dir, journal.header.number);
        let bytes = match fs::read(&path) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                damage.push(describe_missing(&path, journal, synced));
                continue;
            }
            Err(error) => return Err(error),
        };
        let end = match check_journal(&bytes, journal, synced, seqno) {
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
    Ok(JournalScan { active, unnamed, damage })
}

/// Hands every whole frame of a file to `on_frame`, in order. With `salvage` it continues after damaged bytes.
///
/// # Errors
/// Any I/O error, and the errors of `on_frame`.
pub(crate) fn replay<E: From<io::Error>>(
    dir: &Path,
    journal: &ManifestJournal,
    salvage: bool,
    mut on_frame: impl FnMut(&JournalFrame) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = match fs::read(path(dir, journal.header.number)) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound && salvage => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Bytes after the seal are no part of the journal: a sealed file may end in preallocated zeros.
    let end = journal.sealed.map_or(bytes.len(), |end| usize::try_from(end.length).unwrap_or(usize::MAX));
    let mut at = HEADER_BYTES;
    while at < end.min(bytes.len()) {
        match JournalFrame::decode(&bytes.slice(at..)) {
            Some(frame) => {
                on_frame(&frame)?;
                at += frame.length();
            }
            // A value may hold the magic: only a frame whose checksum passes counts.
            None if salvage => match next_magic(&bytes, at + 1) {
                Some(next) => at = next,
                None => break,
            },
            None => break,
        }
    }
    Ok(())
}

/// The files after the last named one that hold a group. An interrupted rotation leaves a file without groups.
fn unnamed_after(dir: &Path, journals: &[ManifestJournal]) -> io::Result<Vec<ManifestJournal>> {
    let last = journals.last().map_or(0, |journal| journal.header.number);
    let mut unnamed = Vec::new();
    for number in numbers(dir)?.into_iter().filter(|number| *number > last) {
        let bytes = Bytes::from(fs::read(path(dir, number))?);
        let has_group = bytes.len() > HEADER_BYTES && JournalFrame::decode(&bytes.slice(HEADER_BYTES..)).is_some();
        let header = JournalHeader::decode(&bytes).filter(|header| header.number == number && has_group);
        unnamed.extend(header.map(|header| ManifestJournal { header, sealed: None }));
    }
    Ok(unnamed)
}

fn describe_unnamed(dir: &Path, journal: &ManifestJournal) -> String {
    let (path, first) = (path(dir, journal.header.number), journal.header.first);
    let path = path.display();
    format!(
        "{path} has groups from {first} on, and the manifest is older and does not name it: put back the manifest of the same moment"
    )
}

fn describe_missing(path: &Path, journal: &ManifestJournal, synced: u64) -> String {
    let first = journal.header.first;
    match journal.sealed {
        Some(end) => format!("{} is missing: groups {first} to {} were in it", path.display(), end.group),
        None if synced >= first => {
            format!("{} is missing: groups {first} to {synced} at least were in it", path.display())
        }
        None => format!("{} is missing: groups from {first} on were in it", path.display()),
    }
}

/// The end of the frames of a file, or the line that describes its damage.
fn check_journal(bytes: &Bytes, journal: &ManifestJournal, synced: u64, seqno: u64) -> Result<JournalEnd, String> {
    let first = journal.header.first;
    // The manifest fixes number, first group and chain: a file of another directory has another header.
    if JournalHeader::decode(bytes) != Some(journal.header) {
        let last = journal.sealed.map_or(synced, |end| end.group);
        return Err(match last >= first {
            true => format!("its header is damaged: groups {first} to {last} cannot be read"),
            false => "its header is damaged".to_owned(),
        });
    }
    let end = follow_chain(bytes, &journal.header, seqno);
    match journal.sealed {
        // Bytes after the seal were never part of the journal.
        Some(sealed) if end.group >= sealed.group => Ok(sealed),
        Some(sealed) => Err(format!("groups {} to {} are damaged", end.group + 1, sealed.group)),
        // Groups up to `synced` may have durable replies: fewer frames are a loss, not a torn end [invariant 39].
        None if end.group < synced => Err(format!("groups {} to {synced} are missing", end.group + 1)),
        // An end that no later frame calls synced is a torn write of a group without a durable reply.
        None => match last_synced_after(bytes, &end) {
            Some(known) => Err(format!("groups {} to {known} are damaged", end.group + 1)),
            None => Ok(end),
        },
    }
}

/// The end of the whole frames in one chain.
fn follow_chain(bytes: &Bytes, header: &JournalHeader, seqno: u64) -> JournalEnd {
    let mut end = JournalEnd::empty(header, seqno);
    let mut at = HEADER_BYTES;
    while let Some(frame) = bytes.get(at..).and_then(|_| JournalFrame::decode(&bytes.slice(at..))) {
        // A frame after a lost one does not continue the chain.
        if frame.chain != end.checksum || frame.group != end.group + 1 {
            break;
        }
        at += frame.length();
        end = JournalEnd { group: frame.group, seqno: frame.seqno, checksum: frame.checksum, length: at as u64 };
    }
    end
}

/// The last group after `end` that a later frame calls synced: then the end is no torn write.
fn last_synced_after(bytes: &Bytes, end: &JournalEnd) -> Option<u64> {
    let mut known = None;
    let mut at = usize::try_from(end.length).ok()?;
    while let Some(mark) = next_magic(bytes, at) {
        match JournalFrame::decode(&bytes.slice(mark..)) {
            // Any frame that decodes counts, in the chain or not: it proves only that earlier groups were synced.
            Some(frame) => {
                known = known.max(Some(frame.synced).filter(|synced| *synced > end.group));
                at = mark + frame.length();
            }
            None => at = mark + 1,
        }
    }
    known
}
