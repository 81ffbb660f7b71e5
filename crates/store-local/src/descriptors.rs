//! The number of files that the engine has open; the server reserves as many descriptors.

/// Most tables that stay open between reads; one more closes the least recently read one.
pub(crate) const TABLES_OPEN_MAX: usize = 192;
/// Most other files open at once: journals, a flush for each tree, inputs and outputs of concurrent compactions, version files,
/// the lock, directories being synced. A merge has a third of the files of large values open that have dead bytes; a tree has some 500
/// files, unless it grew much since the start.
const OTHERS_MAX: usize = 224;

/// Most descriptors that the engine needs, without the blob files that requests read and write.
pub const DESCRIPTORS_MAX: usize = TABLES_OPEN_MAX + OTHERS_MAX;
