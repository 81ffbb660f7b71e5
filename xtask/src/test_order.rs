//! The order of tests: which begin first, and which run in turn. A test is named by a part of its full name.

/// The longest tests, in the order of their begin: a long test that begins last keeps one core idle to the end.
static FIRST: &[&str] = &[
    "product powercut::",
    "product filled_disk::",
    "product s3::streams::",
    "product damaged_files::",
    "product s3::minio::",
    "product transfer::",
    "product s3::clients::",
    "kv_tests simulation::index::random::",
    "kv_tests simulation::random::",
    "store_local_tests ",
    "script_tests ",
];

/// Tests that load the machine, or fill what others of them need: one at a time, beside the other tests. One that fills a disk of its
/// own and then waits is none of them.
static IN_TURN: &[&str] = &["product attacks::", "product reclaimed_space::", "product descriptors::"];

/// The place of a test in the order: those of [`FIRST`] come first.
pub(crate) fn rank(name: &str) -> usize {
    FIRST.iter().position(|part| name.contains(part)).unwrap_or(FIRST.len())
}

/// Whether a test is one of the longest, which a first look leaves out.
pub(crate) fn is_long(name: &str) -> bool {
    rank(name) < FIRST.len()
}

/// Whether no other test of [`IN_TURN`] may run beside it.
pub(crate) fn runs_in_turn(name: &str) -> bool {
    IN_TURN.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tests_come_first_and_the_others_keep_their_order() {
        assert_eq!(rank("product powercut::a"), 0);
        assert!(rank("store_local_tests model::a") < rank("core kv::a"));
        assert_eq!(rank("core kv::a"), rank("rows a"));
        assert!(runs_in_turn("product attacks::a") && !runs_in_turn("product objects::a"));
    }
}
