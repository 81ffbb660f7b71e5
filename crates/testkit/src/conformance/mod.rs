//! Checks of every promise of [`Store`] and [`Blobs`], for any engine.
//!
//! Each promise is one function, named after the sentence it checks. Each runs on partitions of its own, so the suite
//! may run on a store in use. Engines may differ in these cases, so the suite does not check them: an older put after a
//! removal, a clear or an expiry; two writes with the same stamp and value and different expiries; a derived row that a
//! plain write changes too.
//!
//! ```text
//! let clock = Arc::new(ManualClock::default());
//! let store = Arc::new(MemoryStore::new(clock.clone()));
//! conformance(store.clone(), clock).await;
//! blob_conformance(store).await;
//! ```
//! Run it on a runtime with several threads: some promises concern concurrent readers and writers.

#![expect(clippy::expect_used, reason = "test support: a broken promise is a panic")]

mod blobs;
mod clock;
mod derived_rows;
mod expiry;
mod guards;
mod listing;
mod model;
mod names;
mod races;
mod reading;
mod refusals;
mod subject;
mod writing;

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use larder_store::{Blobs, Store};

pub use clock::ManualClock;
pub use model::random_changes_match_the_model;
use subject::{BlobSubject, CheckScope, StoreSubject};

/// One sentence that holds for every engine.
struct Promise<S> {
    sentence: &'static str,
    check: fn(S) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

macro_rules! promises {
    ($($noun:ident::$sentence:ident),* $(,)?) => {
        &[$(Promise {
            sentence: stringify!($sentence),
            check: |subject| Box::pin($noun::$sentence(subject)),
        }),*]
    };
}

const STORE: &[Promise<StoreSubject>] = promises![
    reading::an_absent_partition_is_an_empty_page,
    reading::rows_come_back_in_key_order,
    reading::rows_come_back_as_they_were_written,
    reading::a_page_stops_at_its_limit_and_goes_on,
    reading::a_reverse_read_is_the_mirror_of_a_forward_one,
    reading::a_reverse_read_stops_at_its_limit_and_goes_on,
    reading::a_range_includes_its_beginning_and_not_its_end,
    reading::a_range_of_nothing_is_an_empty_page,
    reading::a_prefix_reads_its_names_and_no_others,
    reading::one_row_is_read_by_its_name,
    names::names_are_any_bytes,
    names::partition_keys_are_any_bytes,
    names::partitions_and_rows_do_not_run_into_each_other,
    names::tables_do_not_share_partitions,
    names::an_empty_value_is_a_value,
    names::long_names_come_back,
    names::values_come_back_up_to_inline_max,
    names::a_batch_comes_back_up_to_batch_max,
    writing::the_newer_stamp_wins_in_any_order,
    writing::the_greater_value_wins_between_equal_stamps,
    writing::the_same_write_twice_is_one_write,
    writing::a_removal_wins_a_tie,
    writing::a_removal_takes_only_what_is_not_newer,
    writing::a_removal_takes_one_row_alone,
    writing::a_row_comes_back_after_its_removal,
    writing::removing_what_is_absent_is_no_error,
    writing::a_clear_takes_only_what_is_not_newer,
    writing::a_clear_leaves_other_partitions_alone,
    writing::a_clear_and_a_put_replace_everything,
    writing::a_batch_of_several_partitions_changes_them_all,
    writing::an_empty_batch_is_no_error,
    writing::every_durability_is_taken,
    writing::one_machine_meets_every_level,
    expiry::a_row_is_there_until_it_expires,
    expiry::expired_rows_are_never_returned,
    expiry::a_row_without_expiry_outlives_one_with,
    expiry::a_row_that_is_born_expired_hides_what_it_replaced,
    expiry::an_expired_head_is_absent,
    expiry::the_store_clock_decides_expiry,
    refusals::a_partition_may_be_filled_up_to_rows_max,
    refusals::beyond_rows_max_nothing_is_written,
    refusals::rows_that_expire_do_not_count,
    refusals::rows_are_counted_after_the_change,
    refusals::several_partitions_are_all_or_none,
    refusals::a_batch_that_saw_other_rows_writes_nothing,
    races::one_of_many_racing_creations_wins,
    refusals::misuse_is_refused,
    refusals::a_batch_above_batch_max_writes_nothing,
    refusals::a_cas_above_batch_max_writes_nothing,
    refusals::a_deadline_in_the_past_never_hangs,
    guards::a_cas_writes_head_and_changes,
    guards::a_failed_guard_changes_nothing,
    guards::an_absent_head_is_guarded_too,
    guards::a_head_is_one_row_among_others,
    guards::a_head_has_any_name,
    derived_rows::a_cas_writes_head_and_derived_row,
    derived_rows::a_head_never_lacks_the_rows_beside_it,
    derived_rows::a_conflict_writes_neither_head_nor_derived_row,
    derived_rows::a_derived_row_goes_and_comes_back,
    derived_rows::derived_rows_of_many_heads_are_one_listing,
    derived_rows::a_derived_row_is_never_older_than_its_head,
    derived_rows::a_derived_row_in_a_wrong_table_is_misuse,
    races::a_batch_is_seen_whole_or_not_at_all,
    races::a_cas_is_seen_whole_or_not_at_all,
    races::exactly_one_of_many_racing_cas_wins,
    races::no_increment_is_lost_between_racing_cas,
    races::concurrent_writes_all_arrive,
    refusals::misuse_is_refused_with_the_same_words,
    listing::every_partition_is_listed_once,
    listing::an_emptied_partition_is_not_listed,
    listing::a_listing_names_one_table,
];

const BLOBS: &[Promise<BlobSubject>] = promises![
    blobs::a_blob_comes_back_as_it_was_written,
    blobs::an_empty_blob_is_a_blob,
    blobs::any_part_of_a_blob_can_be_read,
    blobs::a_blob_is_not_there_before_it_is_finished,
    blobs::nothing_remains_of_an_abandoned_blob,
    blobs::a_blob_may_be_written_again,
    blobs::a_removed_blob_is_gone,
    blobs::removing_an_absent_blob_is_no_error,
    blobs::a_reader_keeps_a_removed_blob,
    blobs::blobs_are_listed_in_order_with_their_owners,
    blobs::a_blob_is_listed_as_leased_until_its_lease_is_dropped,
];

/// Checks every promise of `store`, whose clock is `clock`.
///
/// # Panics
/// At the first broken promise, with its name.
pub async fn conformance(store: Arc<dyn Store>, clock: Arc<ManualClock>) {
    store_conformance(&store, &clock, |_| true).await;
    for seed in 0..4 {
        random_changes_match_the_model(store.clone(), clock.clone(), seed, 300).await;
    }
}

/// Checks every promise of a store over another engine that decides by another order of values between equal stamps.
///
/// # Panics
/// As [`conformance`].
pub async fn conformance_but_for_ties(store: Arc<dyn Store>, clock: Arc<ManualClock>) {
    store_conformance(&store, &clock, |sentence| sentence != "the_greater_value_wins_between_equal_stamps").await;
}

async fn store_conformance(store: &Arc<dyn Store>, clock: &Arc<ManualClock>, holds: fn(&str) -> bool) {
    let scope = CheckScope::new();
    for promise in STORE.iter().filter(|promise| holds(promise.sentence)) {
        let subject = StoreSubject::new(store.clone(), clock.clone(), scope.for_check(promise.sentence));
        check_promise(promise, subject).await;
    }
}

/// Checks every promise of `blobs`.
///
/// # Panics
/// At the first broken promise, with its name.
pub async fn blob_conformance(blobs: Arc<dyn Blobs>) {
    let scope = CheckScope::new();
    for promise in BLOBS {
        check_promise(promise, BlobSubject::new(blobs.clone(), scope.for_check(promise.sentence))).await;
    }
}

/// Runs one promise as a task of its own, so that the panic text can name the promise.
async fn check_promise<S>(promise: &Promise<S>, subject: S) {
    if let Err(broken) = tokio::spawn((promise.check)(subject)).await {
        let why = broken.try_into_panic().map_or_else(|error| error.to_string(), panic_text);
        panic!("a promise is broken: {}: {why}", promise.sentence);
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| "panic without a text".to_owned(), |text| (*text).to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
