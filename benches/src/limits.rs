//! Every bound of the generator in one place: counts, bytes and seconds.

use std::time::Duration;

/// The longest response head; a longer one breaks the connection.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// The longest response body that is kept, such as a set of a million elements; others are only counted.
pub(crate) const KEPT_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// The longest request body that is sent with its head in one write.
pub(crate) const JOINED_BYTES_MAX: usize = 16 * 1_024;

/// The most pages of a listing.
pub(crate) const PAGES_MAX: u64 = 100_000;

/// Requests of one cell, all connections together; a cell that reaches it ends early.
pub(crate) const CELL_OPERATIONS_MAX: u64 = 20_000_000;

/// Value bytes that one cell may write, all connections together; a cell that reaches it ends early.
pub(crate) const CELL_WRITTEN_BYTES_MAX: u64 = 4 * 1_024 * 1_024 * 1_024;

/// The most seconds of a cell.
pub(crate) const CELL_SECONDS_MAX: u64 = 600;

/// The longest wait for answers in flight after the end of a cell.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest time of a bounded number of writes, such as a load.
pub(crate) const LOAD_WAIT_MAX: Duration = Duration::from_secs(1_800);

/// The longest time from the start of a server to its first answer.
pub(crate) const START_WAIT_MAX: Duration = Duration::from_secs(120);

/// The longest time from SIGTERM to the end of a server, which is then killed.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_secs(60);

/// The most writes of one group of the bare committer.
pub(crate) const GROUP_WRITES_MAX: usize = 1_024;

/// The most files whose disk blocks are counted.
pub(crate) const FILES_MAX: usize = 1_000_000;
