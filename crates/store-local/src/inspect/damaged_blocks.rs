//! Names the damaged blocks of an open tree in the log: the file, the offset, the keys, and what to do.

use std::path::{Path, PathBuf};

use super::address::LostKeys;
use super::tables::{TablePart, TableReader};
use crate::precheck::open_table;
use crate::tree_id::TreeId;
use crate::version_file;

/// Most blocks that are named one by one.
const NAMED_MAX: usize = 20;

/// Names the damaged blocks between two keys, in the background: it reads every table with such keys.
pub(crate) fn name_in_background(tree_id: TreeId, folder: PathBuf, from: &[u8], to: Option<&[u8]>) {
    let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
    let name = move || {
        for line in lines(tree_id, &folder, &from, to.as_deref()) {
            tracing::error!("{line}");
        }
    };
    // Without a thread the damage stays unnamed: `larder check` names it as well.
    let _ = std::thread::Builder::new().name("larder-damage".into()).spawn(name);
}

/// One line for each damaged block, up to the bound.
pub(crate) fn lines(tree_id: TreeId, folder: &Path, from: &[u8], to: Option<&[u8]>) -> Vec<String> {
    // A compaction may replace files meanwhile; those that are gone are no longer read by anyone.
    let files = version_file::read(folder).map(|files| files.tables).unwrap_or_default();
    let mut lines = Vec::new();
    for file in files {
        let is_asked = open_table(&file).is_ok_and(|table| {
            let keys = &table.metadata.key_range;
            **keys.max() >= *from && to.is_none_or(|to| **keys.min() <= *to)
        });
        let Some((reader, _)) = is_asked.then(|| TableReader::open(&file).ok()).flatten() else { continue };
        for part in reader {
            let TablePart::Damaged { at, keys: (from, to) } = part else { continue };
            // Bound: a file of zeros has a damaged block every few bytes.
            if lines.len() == NAMED_MAX {
                return lines;
            }
            let keys = LostKeys::range(tree_id, &from, &to);
            let path = file.path.display();
            lines.push(format!(
                "{path}, byte {at}: a block is damaged, it had {keys}; stop the server and run `larder repair` to go on without it"
            ));
        }
    }
    lines
}
