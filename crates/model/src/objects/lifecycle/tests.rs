use bytes::Bytes;
use proptest::prelude::*;

use super::super::ids::VersionId;
use super::super::version::{Etag, ObjectBody};
use super::*;

const HOUR: Micros = DAY / 24;

fn version(modified: Micros, length: usize, tags: &[(&str, &str)]) -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::from(vec![0; length])),
        etag: Etag { md5: [0; 16], parts: None },
        headers: vec![],
        meta: vec![],
        tags: tags.iter().map(|(key, value)| tag(key, value)).collect(),
        acl: None,
        checksum: None,
        upload: None,
    };
    Version { id: VersionId([0; 16]), null: true, modified, owner: "o".into(), object: Some(object) }
}

fn marker(modified: Micros) -> Version {
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

fn filtered(rule: LifecycleRule, filter: Filter) -> LifecycleRule {
    LifecycleRule { filter, ..rule }
}

fn prefix(prefix: &str) -> Filter {
    Filter { prefix: Some(prefix.into()), ..Filter::default() }
}

fn rules(rules: Vec<LifecycleRule>) -> Lifecycle {
    Lifecycle { rules }
}

#[test]
fn days_end_at_the_next_midnight() {
    // AWS's own example: written on the 15th at 10:30, three days, gone on the 19th at midnight.
    assert_eq!(midnight_after(15 * DAY + 10 * HOUR + HOUR / 2, 3), 19 * DAY);
    assert_eq!(midnight_after(15 * DAY, 1), 17 * DAY);
    assert_eq!(midnight_after(16 * DAY - 1, 1), 17 * DAY);
}

#[test]
fn the_earliest_rule_that_covers_the_object_counts() {
    let off = LifecycleRule { enabled: false, ..days("off", 1) };
    let date = LifecycleRule { expiration: Some(Expiration::Date(4 * DAY)), ..rule("date") };
    let lifecycle = rules(vec![off, filtered(days("logs", 2), prefix("logs/")), days("all", 9), date]);
    let expires = |key: &[u8], modified| lifecycle.expires(key, &version(modified, 1, &[]));
    assert_eq!(expires(b"logs/1", HOUR), Some((3 * DAY, "logs")));
    assert_eq!(expires(b"log", HOUR), Some((4 * DAY, "date")));
    assert_eq!(expires(b"logs/1", 100 * DAY), Some((4 * DAY, "date")));
    assert_eq!(lifecycle.expires(b"logs/1", &marker(HOUR)), None);
    assert_eq!(Lifecycle::default().expires(b"a", &version(0, 1, &[])), None);
}

#[test]
fn a_date_too_far_away_is_never() {
    let lifecycle = rules(vec![days("far", MAX_DAYS)]);
    assert_eq!(lifecycle.expires(b"a", &version(Micros::MAX, 1, &[])), None);
    assert_eq!(lifecycle.expires(b"a", &version(1, 1, &[])), None);
}

#[test]
fn filters_by_tag_and_size() {
    let filter = Filter {
        prefix: None,
        tags: vec![tag("a", "1"), tag("b", "2")],
        larger_than: Some(10),
        smaller_than: Some(12),
    };
    let lifecycle = rules(vec![filtered(days("r", 1), filter)]);
    let covers = |length, tags: &[(&str, &str)]| lifecycle.expires(b"k", &version(0, length, tags)).is_some();
    let both = [("b", "2"), ("x", "9"), ("a", "1")];
    assert!(covers(11, &both));
    assert!(!covers(10, &both) && !covers(12, &both));
    assert!(!covers(11, &[("a", "1")]) && !covers(11, &[("a", "1"), ("b", "3")]) && !covers(11, &[]));
}

#[test]
fn markers_left() {
    let left = LifecycleRule { expiration: Some(Expiration::MarkersLeft), ..rule("left") };
    let lifecycle = rules(vec![days("days", 2), filtered(left, prefix("x/"))]);
    assert_eq!(lifecycle.marker_left(b"x/1", HOUR), Some((HOUR, "left")));
    assert_eq!(lifecycle.marker_left(b"y/1", HOUR), Some((3 * DAY, "days")));
    let sized = Filter { larger_than: Some(0), ..Filter::default() };
    assert_eq!(rules(vec![filtered(days("days", 2), sized)]).marker_left(b"x", HOUR), None);
}

#[test]
fn versions_that_are_not_current() {
    let keeping = |keep| LifecycleRule { noncurrent: Some(Noncurrent { days: 2, keep }), ..rule("old") };
    let old = version(0, 1, &[]);
    let goes = |keep, newer| rules(vec![keeping(keep)]).noncurrent(b"k", &old, HOUR, newer).map(|(when, _)| when);
    assert_eq!(goes(None, 0), Some(3 * DAY));
    assert_eq!(goes(Some(2), 0), None);
    assert_eq!(goes(Some(2), 1), None);
    assert_eq!(goes(Some(2), 2), Some(3 * DAY));
    assert_eq!(rules(vec![keeping(None)]).noncurrent(b"k", &marker(0), HOUR, 0), Some((3 * DAY, "old")));
    assert_eq!(rules(vec![days("r", 1)]).noncurrent(b"k", &old, HOUR, 0), None);
}

#[test]
fn uploads() {
    let abort = LifecycleRule { abort_uploads_days: Some(7), ..rule("abort") };
    let lifecycle = rules(vec![filtered(abort, prefix("u/"))]);
    assert_eq!(lifecycle.abort_upload(b"u/1", HOUR), Some((8 * DAY, "abort")));
    assert_eq!(lifecycle.abort_upload(b"v/1", HOUR), None);
}

#[test]
fn good_rules_are_taken() {
    let all = LifecycleRule {
        filter: Filter {
            tags: vec![tag("a", "1"), tag("b", "1")],
            larger_than: Some(1),
            smaller_than: Some(3),
            ..prefix("p")
        },
        noncurrent: Some(Noncurrent { days: 1, keep: Some(100) }),
        expiration: Some(Expiration::Date(7 * DAY)),
        ..rule("all")
    };
    let legacy = LifecycleRule { legacy_prefix: true, ..filtered(days("legacy", MAX_DAYS), prefix("")) };
    let left = LifecycleRule { expiration: Some(Expiration::MarkersLeft), abort_uploads_days: Some(1), ..rule("left") };
    assert_eq!(rules(vec![all, legacy, left]).validate(), Ok(()));
    let many = |count: usize| rules((0..count).map(|n| days(&n.to_string(), 1)).collect()).validate();
    assert_eq!(many(1000), Ok(()));
    assert_eq!(many(1001).map_err(|bad| bad.fault), Err(Fault::Argument));
}

#[test]
fn bad_rules_are_refused() {
    let tagged = Filter { tags: vec![tag("a", "1")], ..Filter::default() };
    let twice = Filter { tags: vec![tag("a", "1"), tag("a", "2")], ..Filter::default() };
    let sizes = Filter { larger_than: Some(5), smaller_than: Some(5), ..Filter::default() };
    let noncurrent = |days, keep| LifecycleRule { noncurrent: Some(Noncurrent { days, keep }), ..rule("r") };
    let abort = |days| LifecycleRule { abort_uploads_days: Some(days), ..rule("r") };
    let expires = |expiration| LifecycleRule { expiration: Some(expiration), ..rule("r") };
    let cases = [
        (vec![], Fault::Malformed),
        (vec![rule("r")], Fault::Request),
        (vec![days("r", 0)], Fault::Argument),
        (vec![days("r", MAX_DAYS + 1)], Fault::Argument),
        (vec![days("r", 1), days("r", 2)], Fault::Argument),
        (vec![days(&"x".repeat(256), 1)], Fault::Argument),
        (vec![expires(Expiration::Date(DAY + 1))], Fault::Argument),
        (vec![noncurrent(0, None)], Fault::Argument),
        (vec![noncurrent(1, Some(0))], Fault::Argument),
        (vec![noncurrent(1, Some(101))], Fault::Argument),
        (vec![abort(0)], Fault::Argument),
        (vec![filtered(abort(1), tagged.clone())], Fault::Request),
        (vec![filtered(expires(Expiration::MarkersLeft), tagged.clone())], Fault::Request),
        (vec![filtered(days("r", 1), twice)], Fault::Request),
        (vec![filtered(days("r", 1), sizes)], Fault::Request),
        (vec![LifecycleRule { legacy_prefix: true, ..days("r", 1) }], Fault::Malformed),
        (vec![LifecycleRule { legacy_prefix: true, ..filtered(days("r", 1), tagged) }], Fault::Malformed),
    ];
    for (list, fault) in cases {
        let lifecycle = rules(list);
        assert_eq!(lifecycle.validate().map_err(|bad| bad.fault), Err(fault), "{lifecycle:?}");
    }
}

proptest! {
    #[test]
    fn a_day_is_never_cut_short(moment in 0..200 * 365 * DAY, days in 1..1000_u32) {
        let when = midnight_after(moment, days);
        let age = when - moment;
        let least = DAY * Micros::from(days);
        prop_assert!(when.is_multiple_of(DAY) && age > least && age <= least + DAY);
    }
}
