//! Writes one sealed memtable to a table, and takes back what a failed flush or compaction left.

use std::collections::BTreeSet;
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
    // Reads see the version of the last write: as long as the file of an earlier version is there, its tables are needed.
    let (mut tables, mut files) = version_file::named_up_to(&tree.dir, version.id())?;
    tables.extend(version.iter_tables().map(lsm_tree::Table::id));
    files.extend(version.blob_files.list_ids());
    remove_others(&tree.dir.join("tables"), &tables)?;
    if tree.space == Space::Bulk {
        remove_others(&tree.dir.join("blobs"), &files)?;
    }
    Ok(())
}

/// Removes files with other numbers.
fn remove_others(dir: &Path, named: &BTreeSet<u64>) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use lsm_tree::{Cache, DescriptorTable, SequenceNumberCounter};

    use super::*;
    use crate::tree::TreeOptions;

    #[test]
    fn tidying_up_once_took_the_tables_that_readers_see_until_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        let seqnos = SequenceNumberCounter::default();
        let options = TreeOptions {
            cache: Arc::new(Cache::with_capacity_bytes(0)),
            descriptors: Arc::new(DescriptorTable::new(1)),
            seqnos: seqnos.clone(),
            table_bytes: 4096,
        };
        let tree = SpaceTree::open(Space::Packed, dir.path(), &options).unwrap();
        let keys: Vec<Bytes> = (0..6_u8).map(|key| vec![key; 9].into()).collect();
        for round in 0..6 {
            let seqno = seqnos.next();
            keys.iter().for_each(|key| tree.insert(key, Some(&vec![round; 2000].into()), seqno));
            tree.rotate();
            flush(&tree, &tree.next_sealed().unwrap(), 0).unwrap();
            tree.flushed();
        }
        let seen = seqnos.get();
        let before = tree.version();
        tree.compact(0).unwrap();
        assert!(tree.version() > before, "it was compacted");
        take_back(&tree).unwrap();
        for key in &keys {
            let found = tree.below.get(key, seen).unwrap();
            assert_eq!(found.map(Bytes::from), Some(vec![5; 2000].into()));
        }
    }
}
