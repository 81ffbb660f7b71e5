//! Proof that the tables of large values are as they were written, before a compaction believes them.
//!
//! Such a table ends with a list of the files that its values are in. It is the one part that the engine below (lsm-tree 3.1)
//! reads without a checksum: a wrong number in it ends the compactor under the engine's own lock, or makes it remove a file
//! that is still named. So each table is read to its end once, and compared with the checksum in the version file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};

use lsm_tree::{AbstractTree, AnyTree, Table};
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3Default;

/// What is wrong with a file whose checksum is another one.
pub(crate) const OTHER_BYTES: &str = "its bytes are not those that were written";
/// Bytes read at once for a checksum.
const READ_BYTES: usize = 256 * 1024;

/// The tables of one tree that were found whole since the start.
#[derive(Default)]
pub(crate) struct ProvenTables(Mutex<HashSet<u64>>);

impl ProvenTables {
    /// Reads the tables that were not read yet.
    ///
    /// # Errors
    /// `InvalidData` names the first that is damaged; else what the machine answers.
    pub(crate) fn prove(&self, tree: &AnyTree) -> io::Result<()> {
        let version = tree.current_version();
        let known = self.0.lock().clone();
        let mut whole = HashSet::new();
        for table in version.iter_tables() {
            if !known.contains(&table.id()) {
                prove_table(table)?;
            }
            whole.insert(table.id());
        }
        // Tables that are gone are forgotten.
        *self.0.lock() = whole;
        Ok(())
    }
}

fn prove_table(table: &Table) -> io::Result<()> {
    if checksum_of(&mut File::open(&*table.path)?, |_| ())? == table.checksum().into_u128() {
        return Ok(());
    }
    let what = format!("{}: {OTHER_BYTES}", table.path.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The xxh3 of a file's bytes from here on; `read` is told of each piece how many bytes it has.
///
/// # Errors
/// What the machine answers.
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
