//! Every bound of the generator in one place: counts, bytes and seconds.

use std::time::Duration;

/// The longest response head that is read before the answer is called broken.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// The longest response body that is kept to be looked into, and not only counted.
pub(crate) const KEPT_BYTES_MAX: usize = 8 * 1_024 * 1_024;

/// The longest request body that is sent in one piece with its head.
pub(crate) const JOINED_BYTES_MAX: usize = 16 * 1_024;

/// Pages that a listing may have.
pub(crate) const PAGES_MAX: u64 = 100_000;

/// Requests of one cell, all connections together; a cell that reaches it ends early.
pub(crate) const CELL_OPERATIONS_MAX: u64 = 20_000_000;

/// Value bytes one cell may write, all connections together; a cell that reaches it ends early.
pub(crate) const CELL_WRITTEN_BYTES_MAX: u64 = 2 * 1_024 * 1_024 * 1_024;

/// Seconds one cell may be asked to run.
pub(crate) const CELL_SECONDS_MAX: u64 = 600;

/// How long after its end a cell waits for the answers still under way.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a bounded number of writes (loading, overwriting) may take.
pub(crate) const LOAD_WAIT_MAX: Duration = Duration::from_secs(1_800);

/// How long a server may take from its start to the first answer.
pub(crate) const START_WAIT_MAX: Duration = Duration::from_secs(120);

/// How long a server may take to end after SIGTERM before it is killed.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_secs(60);

/// Writes that one commit of the bare committer takes at most.
pub(crate) const GROUP_WRITES_MAX: usize = 1_024;

/// Files the disk measure walks at most.
pub(crate) const FILES_MAX: usize = 1_000_000;
