//! How many files the engine has open: the server keeps as many descriptors from its connections.

/// Most tables that stay open between reads; one more closes the one that was not read for longest.
pub(crate) const TABLES_OPEN_MAX: usize = 192;
/// Most other files open at once: journals, a flush for each keyspace, inputs and outputs of the compactions that run at the
/// same time, version files, the lock, directories that are synced.
const OTHERS_MAX: usize = 96;

/// Most descriptors the engine needs, but for the blob files that requests read and write.
pub const DESCRIPTORS_MAX: usize = TABLES_OPEN_MAX + OTHERS_MAX;
