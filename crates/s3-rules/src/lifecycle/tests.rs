use bytes::Bytes;
use larder_rows::ids::VersionId;
use proptest::prelude::*;

use super::super::object_lock::ObjectLock;
use super::super::version::{Etag, ObjectBody};
use super::*;

const HOUR_MICROS: u64 = DAY_MICROS / 24;

fn version(modified: Timestamp, length: usize, tags: &[(&str, &str)]) -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::from(vec![0; length])),
        etag: Etag { md5: [0; 16], parts: None },
        headers: vec![],
        meta: vec![],
        tags: tags.iter().map(|(key, value)| tag(key, value)).collect(),
        acl: None,
        checksum: None,
        upload: None,
        encryption: None,
        lock: ObjectLock::default(),
    };
    Version { id: VersionId([0; 16]), null: true, modified, owner: "o".into(), object: Some(object) }
}

fn marker(modified: Timestamp) -> Version {
    Version { object: None, ..version(modified, 0, &[]) }
}

fn tag(key: &str, value: &str) -> Tag {
    Tag { key: key.into(), value: value.into() }
}

fn rule(id: &str) -> LifecycleRule {
    LifecycleRule { id: id.into(), enabled: true, ..LifecycleRule::default() }
}

fn days(id: &str, days: u32) -> LifecycleRule {
    LifecycleRule { expiration: Some(Expiration::Days(days)), ..rule(id) }
}

fn filtered(rule: LifecycleRule, filter: LifecycleFilter) -> LifecycleRule {
    LifecycleRule { filter, ..rule }
}

fn prefix(prefix: &str) -> LifecycleFilter {
    LifecycleFilter { prefix: Some(prefix.into()), ..LifecycleFilter::default() }
}

fn rules(rules: Vec<LifecycleRule>) -> Lifecycle {
    Lifecycle { rules }
}

#[test]
fn days_end_at_the_next_midnight() {
    // The example of AWS: written on the 15th at 10:30, three days, expired on the 19th at midnight.
    assert_eq!(
        midnight_after(Timestamp(15 * DAY_MICROS + 10 * HOUR_MICROS + HOUR_MICROS / 2), 3),
        Timestamp(19 * DAY_MICROS)
    );
    assert_eq!(midnight_after(Timestamp(15 * DAY_MICROS), 1), Timestamp(17 * DAY_MICROS));
    assert_eq!(midnight_after(Timestamp(16 * DAY_MICROS - 1), 1), Timestamp(17 * DAY_MICROS));
}

#[test]
fn the_earliest_rule_for_the_object_decides() {
    let off = LifecycleRule { enabled: false, ..days("off", 1) };
    let date = LifecycleRule { expiration: Some(Expiration::Date(Timestamp(4 * DAY_MICROS))), ..rule("date") };
    let lifecycle = rules(vec![off, filtered(days("logs", 2), prefix("logs/")), days("all", 9), date]);
    let expires = |key: &[u8], modified| lifecycle.version_expiry(key, &version(modified, 1, &[]));
    assert_eq!(expires(b"logs/1", Timestamp(HOUR_MICROS)), Some((Timestamp(3 * DAY_MICROS), "logs")));
    assert_eq!(expires(b"log", Timestamp(HOUR_MICROS)), Some((Timestamp(4 * DAY_MICROS), "date")));
    assert_eq!(expires(b"logs/1", Timestamp(100 * DAY_MICROS)), Some((Timestamp(4 * DAY_MICROS), "date")));
    assert_eq!(lifecycle.version_expiry(b"logs/1", &marker(Timestamp(HOUR_MICROS))), None);
    assert_eq!(Lifecycle::default().version_expiry(b"a", &version(Timestamp::ZERO, 1, &[])), None);
}

#[test]
fn an_expiry_after_the_year_9999_counts_as_none() {
    let lifecycle = rules(vec![days("far", DAYS_MAX)]);
    assert_eq!(lifecycle.version_expiry(b"a", &version(Timestamp::MAX, 1, &[])), None);
    assert_eq!(lifecycle.version_expiry(b"a", &version(Timestamp(1), 1, &[])), None);
}

#[test]
fn a_filter_selects_by_tag_and_size() {
    let filter = LifecycleFilter {
        prefix: None,
        tags: vec![tag("a", "1"), tag("b", "2")],
        larger_than: Some(10),
        smaller_than: Some(12),
    };
    let lifecycle = rules(vec![filtered(days("r", 1), filter)]);
    let matches = |length, tags: &[(&str, &str)]| {
        lifecycle.version_expiry(b"k", &version(Timestamp::ZERO, length, tags)).is_some()
    };
    let both = [("b", "2"), ("x", "9"), ("a", "1")];
    assert!(matches(11, &both));
    assert!(!matches(10, &both) && !matches(12, &both));
    assert!(!matches(11, &[("a", "1")]) && !matches(11, &[("a", "1"), ("b", "3")]) && !matches(11, &[]));
}

#[test]
fn the_last_delete_marker_expires() {
    let left = LifecycleRule { expiration: Some(Expiration::ExpiredDeleteMarkers), ..rule("left") };
    let lifecycle = rules(vec![days("days", 2), filtered(left, prefix("x/"))]);
    assert_eq!(lifecycle.delete_marker_expiry(b"x/1", Timestamp(HOUR_MICROS)), Some((Timestamp(HOUR_MICROS), "left")));
    assert_eq!(
        lifecycle.delete_marker_expiry(b"y/1", Timestamp(HOUR_MICROS)),
        Some((Timestamp(3 * DAY_MICROS), "days"))
    );
    let sized = LifecycleFilter { larger_than: Some(0), ..LifecycleFilter::default() };
    assert_eq!(rules(vec![filtered(days("days", 2), sized)]).delete_marker_expiry(b"x", Timestamp(HOUR_MICROS)), None);
}

#[test]
fn noncurrent_versions_expire_unless_they_are_kept() {
    let keeping = |keep| LifecycleRule { noncurrent: Some(NoncurrentExpiration { days: 2, keep }), ..rule("old") };
    let old = version(Timestamp::ZERO, 1, &[]);
    let expiry = |keep, newer| {
        rules(vec![keeping(keep)]).noncurrent_expiry(b"k", &old, Timestamp(HOUR_MICROS), newer).map(|(when, _)| when)
    };
    assert_eq!(expiry(None, 0), Some(Timestamp(3 * DAY_MICROS)));
    assert_eq!(expiry(Some(2), 0), None);
    assert_eq!(expiry(Some(2), 1), None);
    assert_eq!(expiry(Some(2), 2), Some(Timestamp(3 * DAY_MICROS)));
    assert_eq!(
        rules(vec![keeping(None)]).noncurrent_expiry(b"k", &marker(Timestamp::ZERO), Timestamp(HOUR_MICROS), 0),
        Some((Timestamp(3 * DAY_MICROS), "old"))
    );
    assert_eq!(rules(vec![days("r", 1)]).noncurrent_expiry(b"k", &old, Timestamp(HOUR_MICROS), 0), None);
}

#[test]
fn unfinished_uploads_are_aborted() {
    let abort = LifecycleRule { abort_uploads_days: Some(7), ..rule("abort") };
    let lifecycle = rules(vec![filtered(abort, prefix("u/"))]);
    assert_eq!(lifecycle.upload_expiry(b"u/1", Timestamp(HOUR_MICROS)), Some((Timestamp(8 * DAY_MICROS), "abort")));
    assert_eq!(lifecycle.upload_expiry(b"v/1", Timestamp(HOUR_MICROS)), None);
}

#[test]
fn good_rules_are_taken() {
    let all = LifecycleRule {
        filter: LifecycleFilter {
            tags: vec![tag("a", "1"), tag("b", "1")],
            larger_than: Some(1),
            smaller_than: Some(3),
            ..prefix("p")
        },
        noncurrent: Some(NoncurrentExpiration { days: 1, keep: Some(100) }),
        expiration: Some(Expiration::Date(Timestamp(7 * DAY_MICROS))),
        ..rule("all")
    };
    let legacy = LifecycleRule { legacy_prefix: true, ..filtered(days("legacy", DAYS_MAX), prefix("")) };
    let left = LifecycleRule {
        expiration: Some(Expiration::ExpiredDeleteMarkers),
        abort_uploads_days: Some(1),
        ..rule("left")
    };
    assert_eq!(rules(vec![all, legacy, left]).validate(), Ok(()));
    let many = |count: usize| rules((0..count).map(|n| days(&n.to_string(), 1)).collect()).validate();
    assert_eq!(many(1000), Ok(()));
    assert_eq!(many(1001).map_err(|bad| bad.fault), Err(LifecycleFault::Argument));
}

#[test]
fn bad_rules_are_refused() {
    let tagged = LifecycleFilter { tags: vec![tag("a", "1")], ..LifecycleFilter::default() };
    let twice = LifecycleFilter { tags: vec![tag("a", "1"), tag("a", "2")], ..LifecycleFilter::default() };
    let sizes = LifecycleFilter { larger_than: Some(5), smaller_than: Some(5), ..LifecycleFilter::default() };
    let noncurrent = |days, keep| LifecycleRule { noncurrent: Some(NoncurrentExpiration { days, keep }), ..rule("r") };
    let abort = |days| LifecycleRule { abort_uploads_days: Some(days), ..rule("r") };
    let expires = |expiration| LifecycleRule { expiration: Some(expiration), ..rule("r") };
    let cases = [
        (vec![], LifecycleFault::Malformed),
        (vec![rule("r")], LifecycleFault::Request),
        (vec![days("r", 0)], LifecycleFault::Argument),
        (vec![days("r", DAYS_MAX + 1)], LifecycleFault::Argument),
        (vec![days("r", 1), days("r", 2)], LifecycleFault::Argument),
        (vec![days(&"x".repeat(256), 1)], LifecycleFault::Argument),
        (vec![expires(Expiration::Date(Timestamp(DAY_MICROS + 1)))], LifecycleFault::Argument),
        (vec![noncurrent(0, None)], LifecycleFault::Argument),
        (vec![noncurrent(1, Some(0))], LifecycleFault::Argument),
        (vec![noncurrent(1, Some(101))], LifecycleFault::Argument),
        (vec![abort(0)], LifecycleFault::Argument),
        (vec![filtered(abort(1), tagged.clone())], LifecycleFault::Request),
        (vec![filtered(expires(Expiration::ExpiredDeleteMarkers), tagged.clone())], LifecycleFault::Request),
        (vec![filtered(days("r", 1), twice)], LifecycleFault::Request),
        (vec![filtered(days("r", 1), sizes)], LifecycleFault::Request),
        (vec![LifecycleRule { legacy_prefix: true, ..days("r", 1) }], LifecycleFault::Malformed),
        (vec![LifecycleRule { legacy_prefix: true, ..filtered(days("r", 1), tagged) }], LifecycleFault::Malformed),
    ];
    for (list, fault) in cases {
        let lifecycle = rules(list);
        assert_eq!(lifecycle.validate().map_err(|bad| bad.fault), Err(fault), "{lifecycle:?}");
    }
}

proptest! {
    #[test]
    fn a_day_is_never_cut_short(moment in 0..200 * 365 * DAY_MICROS, days in 1..1000_u32) {
        let when = midnight_after(Timestamp(moment), days);
        let age = when - moment;
        let least = DAY_MICROS * u64::from(days);
        prop_assert!(when.0.is_multiple_of(DAY_MICROS) && age > Timestamp(least) && age <= Timestamp(least + DAY_MICROS));
    }
}
