use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = Bytes> {
    let byte = prop_oneof![4 => Just(b'a'), 4 => Just(b'/'), 2 => Just(b'b'), 1 => Just(0xff), 1 => Just(0)];
    vec(byte, 0..7).prop_map(Bytes::from)
}

fn short() -> impl Strategy<Value = Bytes> {
    text().prop_map(|text| text.slice(..text.len().min(2)))
}

/// Keys with how many entries each has.
fn keys() -> impl Strategy<Value = Vec<(Bytes, usize)>> {
    (btree_set(text().prop_filter("a key", |key| !key.is_empty()), 0..40), vec(1..4_usize, 40))
        .prop_map(|(keys, counts)| keys.into_iter().zip(counts).collect())
}

/// What a listing without pages says.
fn model(entries: &[(Bytes, usize)], prefix: &Bytes, delimiter: &Bytes) -> Vec<Listed<usize>> {
    let mut prefixes = BTreeSet::new();
    let mut listed = Vec::new();
    for (key, entry) in entries.iter().filter(|(key, _)| key.starts_with(prefix)) {
        let ends = prefix.len() + delimiter.len()..=key.len();
        let common =
            ends.map(|end| key.slice(..end)).find(|common| !delimiter.is_empty() && common.ends_with(delimiter));
        match common {
            None => listed.push(Listed::Key(key.clone(), *entry)),
            Some(common) if prefixes.insert(common.clone()) => listed.push(Listed::Prefix(common)),
            Some(_) => {}
        }
    }
    listed
}

/// Lists one page. `obey`: reads the asked range only and skips as told, as a gateway does; otherwise feeds everything.
fn page(entries: &[(Bytes, usize)], query: &KeyQuery, again: usize, obey: bool) -> KeyPageResult<usize> {
    let mut page = KeyPage::new(query.clone());
    let (mut from, end) = match page.range() {
        Some(range) if obey => range,
        None if obey => return page.finish(),
        _ => (Bytes::new(), None),
    };
    for (key, entry) in entries {
        let unasked = *key < from || end.as_ref().is_some_and(|end| key >= end);
        let listed_before = query.after_again && *key == query.after && *entry <= again;
        if (obey && unasked) || listed_before {
            continue;
        }
        let step = if obey && !page.lists(key) { page.pass(key) } else { page.push(key.clone(), *entry) };
        match step {
            Step::Next => {}
            Step::SkipTo(key) => from = key,
            Step::Full => break,
        }
    }
    page.finish()
}

proptest! {
    #[test]
    fn all_pages_together_are_the_whole_listing(
        keys in keys(), prefix in short(), delimiter in short(), max in 1..6_usize, obey: bool,
    ) {
        let entries = keys;
        let whole = model(&entries, &prefix, &delimiter);
        let mut query = KeyQuery { prefix, delimiter, max, ..KeyQuery::default() };
        let mut listed = Vec::new();
        loop {
            let page = page(&entries, &query, 0, obey);
            prop_assert!(page.listed.len() == max || !page.truncated);
            listed.extend(page.listed.clone());
            prop_assert_eq!(page.truncated, listed.len() < whole.len());
            prop_assert_eq!(page.truncated, page.next.is_some());
            let Some(next) = page.next else { break };
            prop_assert_eq!(&next, listed.last().unwrap().name());
            query.after = next;
        }
        prop_assert_eq!(listed, whole);
    }

    #[test]
    fn several_entries_of_a_key_may_be_on_two_pages(
        keys in keys(), prefix in short(), delimiter in short(), max in 1..6_usize, obey: bool,
    ) {
        let entries: Vec<_> =
            keys.into_iter().flat_map(|(key, count)| (1..=count).map(move |entry| (key.clone(), entry))).collect();
        let whole = model(&entries, &prefix, &delimiter);
        let mut query = KeyQuery { prefix, delimiter, max, ..KeyQuery::default() };
        let (mut listed, mut again) = (Vec::new(), 0);
        loop {
            let page = page(&entries, &query, again, obey);
            listed.extend(page.listed.clone());
            let Some(next) = page.next else { break };
            query.after = next;
            query.after_again = true;
            again = if let Some(Listed::Key(_, entry)) = listed.last() { *entry } else { 0 };
            prop_assert!(listed.len() < whole.len());
        }
        prop_assert_eq!(listed, whole);
    }

    #[test]
    fn any_marker_hides_what_is_not_behind_it(
        keys in keys(), prefix in short(), delimiter in short(), after in text(), max in 0..9_usize, obey: bool,
    ) {
        let mut whole = model(&keys, &prefix, &delimiter);
        let inside = |listed: &Bytes| !delimiter.is_empty() && listed.ends_with(&delimiter) && after.starts_with(listed);
        whole.retain(|listed| after.is_empty() || match listed {
            Listed::Key(key, _) => *key > after,
            Listed::Prefix(prefix) => *prefix > after
                || (!inside(prefix) && keys.iter().any(|(key, _)| *key > after && key.starts_with(prefix))),
        });
        let query = KeyQuery { prefix, delimiter, after, after_again: false, max };
        let page = page(&keys, &query, 0, obey);
        prop_assert_eq!(page.truncated, max > 0 && whole.len() > max);
        whole.truncate(max);
        prop_assert_eq!(page.keys().count() + page.prefixes().count(), whole.len());
        prop_assert_eq!(page.listed, whole);
    }

    #[test]
    fn behind_a_prefix_is_the_first_key_without_it(prefix in text(), key in text()) {
        match behind_prefix(&prefix) {
            None => prop_assert!(key < prefix || key.starts_with(&prefix)),
            Some(behind) => {
                prop_assert!(behind > prefix && !behind.starts_with(&prefix));
                prop_assert_eq!(key >= prefix && key < behind, key.starts_with(&prefix));
            }
        }
    }
}

fn query(prefix: &'static str, after: &'static str, max: usize) -> KeyQuery {
    KeyQuery {
        prefix: Bytes::from_static(prefix.as_bytes()),
        delimiter: Bytes::from_static(b"/"),
        after: Bytes::from_static(after.as_bytes()),
        after_again: false,
        max,
    }
}

#[test]
fn a_common_prefix_is_left_at_once() {
    let mut page = KeyPage::new(query("", "", 2));
    let key = |key: &'static str| Bytes::from_static(key.as_bytes());
    assert_eq!(page.range(), Some((Bytes::new(), None)));
    assert_eq!(page.push(key("a"), ()), Step::Next);
    assert!(!page.lists(&key("b/1")) && page.lists(&key("c")));
    assert_eq!(page.push(key("b/1"), ()), Step::SkipTo(key("b0")));
    assert_eq!(
        page.push(key("b/2"), ()),
        Step::SkipTo(key("b0")),
        "a full page is not truncated by what it has listed"
    );
    assert_eq!(page.push(key("c"), ()), Step::Full);
    let page = page.finish();
    assert_eq!(page.listed, [Listed::Key(key("a"), ()), Listed::Prefix(key("b/"))]);
    assert_eq!((page.truncated, page.next.clone()), (true, Some(key("b/"))));
    assert_eq!(page.keys().collect::<Vec<_>>(), [(&key("a"), &())]);
    assert_eq!(page.prefixes().collect::<Vec<_>>(), [&key("b/")]);
}

#[test]
fn a_page_says_where_to_read() {
    let range = |prefix, after, max| KeyPage::<()>::new(query(prefix, after, max)).range();
    let some = |begin: &'static [u8], end: &'static [u8]| {
        Some((Bytes::from_static(begin), (!end.is_empty()).then(|| Bytes::from_static(end))))
    };
    assert_eq!(range("", "", 0), None, "a page of no entries");
    assert_eq!(range("p", "", 1), some(b"p", b"q"));
    assert_eq!(range("p", "a", 1), some(b"p", b"q"));
    assert_eq!(range("p", "pa", 1), some(b"pa\0", b"q"));
    assert_eq!(range("p", "pa/b", 1), some(b"pa0", b"q"), "behind the common prefix");
    assert_eq!(range("p", "q", 1), None, "behind all keys");
    assert_eq!(range("", "b", 1), some(b"b\0", b""));
    let again = KeyQuery { after_again: true, ..query("", "b", 1) };
    assert_eq!(KeyPage::<()>::new(again).range(), some(b"b", b""));
}
