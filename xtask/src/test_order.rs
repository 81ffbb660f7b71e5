//! The order of tests: which begin first, and which run alone. A test is named by a part of its full name.

/// The longest tests, in the order of their begin: a long test that begins last keeps one core idle to the end.
static FIRST: &[&str] = &[];

/// Tests that measure the server beside a load, or fill what others need.
static ALONE: &[&str] = &["product attacks::", "product filled_disk::", "product descriptors::"];

/// The place of a test in the order: those of [`FIRST`] come first.
pub(crate) fn rank(name: &str) -> usize {
    FIRST.iter().position(|part| name.contains(part)).unwrap_or(FIRST.len())
}

/// Whether no other test may run beside it.
pub(crate) fn runs_alone(name: &str) -> bool {
    ALONE.iter().any(|part| name.contains(part))
}
