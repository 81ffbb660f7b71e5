//! Verifies the checksums of the tables of large values before a compaction reads them.
//!
//! Such a table ends with a list of the files that hold its values. lsm-tree 3.1 reads this list without a checksum: a wrong
//! number in it makes the compactor panic under lsm-tree's lock, or remove a file that is still in use. So each table is read
//! to its end once and compared with the checksum in the version file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};

use lsm_tree::{AbstractTree, AnyTree, Table};
use xxhash_rust::xxh3::Xxh3Default;

use crate::threads::Mutex;

/// The damage of a file whose checksum does not match.
pub(crate) const OTHER_BYTES: &str = "its bytes are not those that were written";
/// Bytes per read for a checksum.
const READ_BYTES: usize = 256 * 1024;

/// The tables of one tree that passed their checksums since the start.
#[derive(Default)]
pub(crate) struct VerifiedTables(Mutex<HashSet<u64>>);

impl VerifiedTables {
    /// Verifies the tables that were not verified yet.
    ///
    /// # Errors
    /// `InvalidData` names the first damaged table; else any I/O error.
    pub(crate) fn verify_new(&self, tree: &AnyTree) -> io::Result<()> {
        let version = tree.current_version();
        // Not under the lock: reads take seconds, and at worst two compactors verify a table twice.
        let known = self.0.lock().clone();
        let mut whole = HashSet::new();
        for table in version.iter_tables() {
            if !known.contains(&table.id()) {
                verify_table(table)?;
            }
            whole.insert(table.id());
        }
        // Forget removed tables.
        *self.0.lock() = whole;
        Ok(())
    }
}

fn verify_table(table: &Table) -> io::Result<()> {
    if checksum_of(&mut File::open(&*table.path)?, |_| ())? == table.checksum().into_u128() {
        return Ok(());
    }
    let what = format!("{}: {OTHER_BYTES}", table.path.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The xxh3 of the rest of a file; `read` gets the length of each piece.
///
/// # Errors
/// Any I/O error.
pub(crate) fn checksum_of(file: &mut File, mut read: impl FnMut(u64)) -> io::Result<u128> {
    let mut checksum = Xxh3Default::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(checksum.digest128()),
            Ok(count) => {
                checksum.update(&buffer[..count]);
                read(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
