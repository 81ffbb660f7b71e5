//! Writes one sealed memtable to a table, and takes back what a failed flush or compaction left.

use std::fs;
use std::io;
use std::path::Path;

use lsm_tree::{AbstractTree, InternalValue};

use crate::spaces::Space;
use crate::tree::{SealedMemtable, SpaceTree, sync_dir};
use crate::version_file;

/// Writes a sealed memtable out as the newest tables of its tree. Versions of a key below `watermark` that a newer one hides
/// are left out.
///
/// # Errors
/// What the engine below answers: the memtable stays, and so does what was written of the table ([`take_back`]).
pub(crate) fn flush(tree: &SpaceTree, sealed: &SealedMemtable, watermark: u64) -> lsm_tree::Result<()> {
    let entries = newest(sealed.entries.iter(), watermark).map(Ok);
    let Some((tables, blob_files)) = tree.below.flush_to_tables(entries)? else { return Ok(()) };
    if tree.space == Space::Bulk {
        // The engine below syncs these files, not their names: a version must not name what a power cut may take.
        sync_dir(&tree.dir.join("blobs"))?;
    }
    tree.below.register_tables(&tables, blob_files.as_deref(), None, &[sealed.entries.id()], watermark)
}

/// Drops versions that no reader can see: those below the watermark, behind a newer one of their key.
fn newest(entries: impl Iterator<Item = InternalValue>, watermark: u64) -> impl Iterator<Item = InternalValue> {
    let mut last = None;
    entries.filter(move |entry| {
        let hidden = last.as_ref() == Some(&entry.key.user_key) && entry.key.seqno < watermark;
        if !hidden {
            last = Some(entry.key.user_key.clone());
        }
        !hidden
    })
}

/// Makes the directory say again what the tree has in memory, after a flush or compaction that failed: the failed one may
/// have named its version before the failure, and may have left files that no version names.
///
/// # Errors
/// What the machine answers: nothing may be flushed or compacted until this works.
pub(crate) fn take_back(tree: &SpaceTree) -> io::Result<()> {
    let _alone = tree.at_work.write();
    let version = tree.below.current_version();
    let current = tree.dir.join("current");
    let named = version_file::decode_current(&fs::read(&current)?).map(|(version, _)| version);
    if named != Some(version.id()) {
        let bytes = fs::read(tree.dir.join(format!("v{}", version.id())))?;
        replace(&current, &version_file::encode_current(version.id(), &bytes))?;
    }
    let tables = version.iter_tables().map(lsm_tree::Table::id).collect::<Vec<_>>();
    remove_others(&tree.dir.join("tables"), &tables)?;
    if tree.space == Space::Bulk {
        let files = version.blob_files.list_ids().copied().collect::<Vec<_>>();
        remove_others(&tree.dir.join("blobs"), &files)?;
    }
    Ok(())
}

/// Removes files with other numbers. A reader may still hold a table of an earlier version, which its last reader removes
/// anyway: such a read fails at worst, and the next one looks into the present version.
fn remove_others(dir: &Path, named: &[u64]) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u64>().ok());
        if id.is_some_and(|id| !named.contains(&id)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}
