use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

impl<T> KeyPageResult<T> {
    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = (&Bytes, &T)> {
        self.listed.iter().filter_map(|listed| match listed {
            KeyOrPrefix::Key(key, entry) => Some((key, entry)),
            KeyOrPrefix::Prefix(_) => None,
        })
    }

    /// The common prefixes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = &Bytes> {
        self.listed.iter().filter_map(|listed| match listed {
            KeyOrPrefix::Key(..) => None,
            KeyOrPrefix::Prefix(prefix) => Some(prefix),
        })
    }
}

fn text() -> impl Strategy<Value = Bytes> {
    let byte = prop_oneof![4 => Just(b'a'), 4 => Just(b'/'), 2 => Just(b'b'), 1 => Just(0xff), 1 => Just(0)];
    vec(byte, 0..7).prop_map(Bytes::from)
}

fn short() -> impl Strategy<Value = Bytes> {
    text().prop_map(|text| text.slice(..text.len().min(2)))
}

/// Keys with the number of their entries.
fn keys() -> impl Strategy<Value = Vec<(Bytes, usize)>> {
    (btree_set(text().prop_filter("a key", |key| !key.is_empty()), 0..40), vec(1..4_usize, 40))
        .prop_map(|(keys, counts)| keys.into_iter().zip(counts).collect())
}

/// The listing without pages.
fn model(entries: &[(Bytes, usize)], prefix: &Bytes, delimiter: &Bytes) -> Vec<KeyOrPrefix<usize>> {
    let mut prefixes = BTreeSet::new();
    let mut listed = Vec::new();
    for (key, entry) in entries.iter().filter(|(key, _)| key.starts_with(prefix)) {
        let ends = prefix.len() + delimiter.len()..=key.len();
        let common =
            ends.map(|end| key.slice(..end)).find(|common| !delimiter.is_empty() && common.ends_with(delimiter));
        match common {
            None => listed.push(KeyOrPrefix::Key(key.clone(), *entry)),
            Some(common) if prefixes.insert(common.clone()) => listed.push(KeyOrPrefix::Prefix(common)),
            Some(_) => {}
        }
    }
    listed
}

/// Lists one page. With `obey` it reads the range of the page and skips like a gateway; otherwise it pushes every entry.
fn page(entries: &[(Bytes, usize)], query: &KeyQuery, again: usize, obey: bool) -> KeyPageResult<usize> {
    let mut page = KeyPage::new(query.clone());
    let (mut from, end) = match page.read_range() {
        Some(range) if obey => range,
        None if obey => return page.finish(),
        _ => (Bytes::new(), None),
    };
    for (key, entry) in entries {
        let is_outside = *key < from || end.as_ref().is_some_and(|end| key >= end);
        let listed_before = query.after_has_more && *key == query.after && *entry <= again;
        if (obey && is_outside) || listed_before {
            continue;
        }
        let step = if obey && !page.is_listed_alone(key) { page.roll_up(key) } else { page.push(key.clone(), *entry) };
        match step {
            KeyPageStep::Next => {}
            KeyPageStep::SkipTo(key) => from = key,
            KeyPageStep::Full => break,
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
            query.after_has_more = true;
            again = if let Some(KeyOrPrefix::Key(_, entry)) = listed.last() { *entry } else { 0 };
            prop_assert!(listed.len() < whole.len());
        }
        prop_assert_eq!(listed, whole);
    }

    #[test]
    fn a_page_lists_only_entries_after_its_marker(
        keys in keys(), prefix in short(), delimiter in short(), after in text(), max in 0..9_usize, obey: bool,
    ) {
        let mut whole = model(&keys, &prefix, &delimiter);
        let inside = |listed: &Bytes| !delimiter.is_empty() && listed.ends_with(&delimiter) && after.starts_with(listed);
        whole.retain(|listed| after.is_empty() || match listed {
            KeyOrPrefix::Key(key, _) => *key > after,
            KeyOrPrefix::Prefix(prefix) => *prefix > after
                || (!inside(prefix) && keys.iter().any(|(key, _)| *key > after && key.starts_with(prefix))),
        });
        let query = KeyQuery { prefix, delimiter, after, after_has_more: false, max };
        let page = page(&keys, &query, 0, obey);
        prop_assert_eq!(page.truncated, max > 0 && whole.len() > max);
        whole.truncate(max);
        prop_assert_eq!(page.keys().count() + page.prefixes().count(), whole.len());
        prop_assert_eq!(page.listed, whole);
    }

    #[test]
    fn the_successor_of_a_prefix_is_the_first_later_key_without_it(prefix in text(), key in text()) {
        match prefix_successor(&prefix) {
            None => prop_assert!(key < prefix || key.starts_with(&prefix)),
            Some(successor) => {
                prop_assert!(successor > prefix && !successor.starts_with(&prefix));
                prop_assert_eq!(key >= prefix && key < successor, key.starts_with(&prefix));
            }
        }
    }
}

fn query(prefix: &'static str, after: &'static str, max: usize) -> KeyQuery {
    KeyQuery {
        prefix: Bytes::from_static(prefix.as_bytes()),
        delimiter: Bytes::from_static(b"/"),
        after: Bytes::from_static(after.as_bytes()),
        after_has_more: false,
        max,
    }
}

#[test]
fn a_common_prefix_is_skipped_after_its_first_key() {
    let mut page = KeyPage::new(query("", "", 2));
    let key = |key: &'static str| Bytes::from_static(key.as_bytes());
    assert_eq!(page.read_range(), Some((Bytes::new(), None)));
    assert_eq!(page.push(key("a"), ()), KeyPageStep::Next);
    assert!(!page.is_listed_alone(&key("b/1")) && page.is_listed_alone(&key("c")));
    assert_eq!(page.push(key("b/1"), ()), KeyPageStep::SkipTo(key("b0")));
    assert_eq!(
        page.push(key("b/2"), ()),
        KeyPageStep::SkipTo(key("b0")),
        "a full page is not truncated by a key in a prefix that it lists"
    );
    assert_eq!(page.push(key("c"), ()), KeyPageStep::Full);
    let page = page.finish();
    assert_eq!(page.listed, [KeyOrPrefix::Key(key("a"), ()), KeyOrPrefix::Prefix(key("b/"))]);
    assert_eq!((page.truncated, page.next.clone()), (true, Some(key("b/"))));
    assert_eq!(page.keys().collect::<Vec<_>>(), [(&key("a"), &())]);
    assert_eq!(page.prefixes().collect::<Vec<_>>(), [&key("b/")]);
}

#[test]
fn a_page_has_the_range_that_it_needs() {
    let range = |prefix, after, max| KeyPage::<()>::new(query(prefix, after, max)).read_range();
    let some = |begin: &'static [u8], end: &'static [u8]| {
        Some((Bytes::from_static(begin), (!end.is_empty()).then(|| Bytes::from_static(end))))
    };
    assert_eq!(range("", "", 0), None, "a page of no entries");
    assert_eq!(range("p", "", 1), some(b"p", b"q"));
    assert_eq!(range("p", "a", 1), some(b"p", b"q"));
    assert_eq!(range("p", "pa", 1), some(b"pa\0", b"q"));
    assert_eq!(range("p", "pa/b", 1), some(b"pa0", b"q"), "after the common prefix");
    assert_eq!(range("p", "q", 1), None, "after all keys");
    assert_eq!(range("", "b", 1), some(b"b\0", b""));
    let again = KeyQuery { after_has_more: true, ..query("", "b", 1) };
    assert_eq!(KeyPage::<()>::new(again).read_range(), some(b"b", b""));
}
