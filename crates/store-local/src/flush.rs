//! Flushes one sealed memtable to a table, and cleans a tree's directory after a failed flush or compaction.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::iter::{self, Peekable};
use std::path::Path;

use lsm_tree::{AbstractTree, InternalValue};

use crate::io_errors::{sync_dir, write_synced};
use crate::output_sync::{OutputSync, numbered};
use crate::tree::{EngineTree, SealedMemtable};
use crate::version_file;

/// Writes a sealed memtable as the newest tables of its tree: as so many `slices` of keys, in order. It leaves out versions below
/// `watermark` that a newer version of their key hides.
///
/// # Errors
/// Any error of lsm-tree: the memtable stays, and so do the files written so far ([`restore_directory`] removes them).
pub(crate) fn flush(tree: &EngineTree, sealed: &SealedMemtable, slices: u64, watermark: u64) -> lsm_tree::Result<()> {
    tree.write_files(|| {
        let mut output = OutputSync::new(&tree.dir);
        let entries = drop_hidden(sealed.entries.iter(), watermark)
            .inspect(|entry| output.wrote(entry.value.len() + entry.key.user_key.len()));
        let mut entries = entries.peekable();
        let per_slice = (sealed.entries.items.len() as u64).div_ceil(slices);
        let (mut tables, mut blob_files) = (Vec::new(), Vec::new());
        while entries.peek().is_some() {
            let (more, more_files) = tree.write_tables(&mut next_slice(&mut entries, per_slice).map(Ok))?;
            tables.extend(more);
            blob_files.extend(more_files);
        }
        if tree.separates {
            // lsm-tree syncs these files, not their names: without this sync a power cut could leave a version that names no file.
            sync_dir(&tree.dir.join("blobs"))?;
        }
        // Crash: tables and their names are synced before a version names them; until then the journal has the rows.
        tree.lsm.register_tables(&tables, Some(&blob_files), None, &[sealed.entries.id()], watermark)
    })
}

/// Drops versions that no reader can see: those below the watermark that follow a newer version of their key.
fn drop_hidden(entries: impl Iterator<Item = InternalValue>, watermark: u64) -> impl Iterator<Item = InternalValue> {
    let mut last = None;
    entries.filter(move |entry| {
        // A reader that must not see the newer entry took its number before that was published, and reads an older version of
        // the tree or this memtable.
        let hidden = last.as_ref() == Some(&entry.key.user_key) && entry.key.seqno < watermark;
        if !hidden {
            last = Some(entry.key.user_key.clone());
        }
        !hidden
    })
}

/// The next entries, so many of them, and the older versions of the last one's key: tables of one run have no key in common.
fn next_slice(
    entries: &mut Peekable<impl Iterator<Item = InternalValue>>,
    least: u64,
) -> impl Iterator<Item = InternalValue> {
    let (mut taken, mut last) = (0, None);
    iter::from_fn(move || {
        let entry = entries.next_if(|entry| taken < least || last.as_ref() == Some(&entry.key.user_key))?;
        taken += 1;
        last = Some(entry.key.user_key.clone());
        Some(entry)
    })
}

/// Restores a tree's directory after a failed flush or compaction to the version that the tree has in memory: the failed one
/// may have named its own version in `current`, and may have left files that no version names.
///
/// # Errors
/// Any I/O error: nothing may be flushed or compacted until this works.
pub(crate) fn restore_directory(tree: &EngineTree) -> io::Result<()> {
    // A flush or compaction that runs has files that no version names yet.
    let _alone = tree.file_lock.write();
    let version = tree.lsm.current_version();
    // `current` is restored before files are removed: a crash in between must not leave it naming removed tables.
    let current = tree.dir.join("current");
    // A damaged `current` is replaced, too: memory has the version that readers use.
    let named = version_file::decode_current(&fs::read(&current)?).map(|(version, _)| version);
    if named != Some(version.id()) {
        let bytes = fs::read(tree.dir.join(format!("v{}", version.id())))?;
        replace(&current, &version_file::encode_current(version.id(), &bytes))?;
    }
    if let Some(first) = tree.leftovers() {
        // Race: older files are in use. A reader keeps its tables when no version names them any more [invariant 146].
        let tables = version.iter_tables().map(lsm_tree::Table::id).collect();
        // Crash: no version on disk names a file that is removed here, so no start misses it.
        let tables = remove_others(&tree.dir.join("tables"), first.tables, &tables)?;
        let mut blobs = Vec::new();
        if tree.separates {
            let named = version.blob_files.list_ids().copied().collect();
            blobs = remove_others(&tree.dir.join("blobs"), first.blobs, &named)?;
        }
        tree.close_removed(&tables, &blobs);
        tree.forget_leftovers();
    }
    Ok(())
}

/// Removes the files from this number on that are not in `named`; returns their numbers.
fn remove_others(dir: &Path, first: u64, named: &BTreeSet<u64>) -> io::Result<Vec<u64>> {
    let others = numbered(dir)?.into_iter().filter(|number| *number >= first && !named.contains(number));
    others.map(|number| fs::remove_file(dir.join(number.to_string())).map(|()| number)).collect()
}

/// Replaces a file by rename: a crash leaves the old bytes or the new ones.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    write_synced(&new, bytes)?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use lsm_tree::{Cache, DescriptorTable, SequenceNumberCounter};

    use super::*;
    use crate::tree_id::TreeId;
    use crate::tree_options::TreeOptions;

    #[test]
    fn a_cleanup_keeps_the_tables_that_readers_use_until_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        let seqnos = SequenceNumberCounter::default();
        let options = TreeOptions {
            cache: Arc::new(Cache::with_capacity_bytes(0)),
            descriptors: Arc::new(DescriptorTable::new(1)),
            seqnos: seqnos.clone(),
            table_bytes: 4096,
        };
        let tree = EngineTree::open(TreeId::Packed, dir.path(), &options).unwrap();
        let keys: Vec<Bytes> = (0..6_u8).map(|key| vec![key; 9].into()).collect();
        for round in 0..6 {
            let seqno = seqnos.next();
            keys.iter().for_each(|key| tree.insert(key, Some(&vec![round; 2000].into()), seqno));
            tree.rotate();
            flush(&tree, &tree.next_sealed().unwrap(), 1, 0).unwrap();
            tree.drop_flushed();
        }
        let seen = seqnos.get();
        let before = tree.version();
        tree.compact(u64::MAX, 0).unwrap();
        assert!(tree.version() > before, "it was compacted");
        restore_directory(&tree).unwrap();
        for key in &keys {
            let value = tree.lsm.get(key, seen).unwrap();
            assert_eq!(value.map(Bytes::from), Some(vec![5; 2000].into()));
        }
    }
}
