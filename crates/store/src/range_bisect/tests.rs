use std::collections::BTreeSet;

use larder_testkit::SplitMix64;

use super::*;
use crate::{Kind, Row, Timestamp};

fn name(random: &mut SplitMix64) -> Bytes {
    let length = random.below(4);
    (0..length).map(|_| [0, 1, b'a', b'b', 0xff][random.below(5)]).collect()
}

#[test]
fn two_halves_cover_the_range_and_are_smaller() {
    let mut random = SplitMix64::new(1);
    for _ in 0..20_000 {
        let (from, to) = (name(&mut random), random.chance(800).then(|| name(&mut random)));
        let range = Range { from: Some(from.clone()).filter(|_| random.chance(800)), to: to.clone() };
        let from = range.from.clone().unwrap_or_default();
        match halves(&range) {
            Some((low, high)) => {
                assert_eq!((&low.from, &high.to), (&range.from, &range.to), "{range:?}");
                assert_eq!(low.to, high.from, "{range:?}");
                assert!(low.to.as_ref().is_some_and(|middle| *middle > from), "{range:?}");
                assert!(to.is_none() || low.to < to, "{range:?}");
            }
            // No name lies between a name and the same name with a zero byte appended.
            None => assert!(to.is_some_and(|to| to <= from || to == [&from[..], &[0]].concat()), "{range:?}"),
        }
    }
}

#[test]
fn any_two_names_are_separated_in_few_steps() {
    let mut random = SplitMix64::new(2);
    for _ in 0..1000 {
        let (first, other) = (name(&mut random), name(&mut random));
        if first == other {
            continue;
        }
        let (mut range, mut steps) = (Range::default(), 0);
        loop {
            let (low, high) = halves(&range).expect("the range holds two names");
            let below = |name: &Bytes| Some(name) < low.to.as_ref();
            if below(&first) != below(&other) {
                break;
            }
            range = if below(&first) { low } else { high };
            steps += 1;
            assert!(steps < 100, "{first:?} {other:?}");
        }
    }
}

#[test]
fn a_range_is_divided_near_its_middle() {
    let middle = |low: &[u8], high: Option<&[u8]>| middle(low, high);
    assert_eq!(middle(b"", None).unwrap(), &b"\x80"[..]);
    assert_eq!(middle(b"", Some(b"\x80")).unwrap(), &b"\x40"[..]);
    assert_eq!(middle(b"ab", Some(b"ad")).unwrap(), &b"ac"[..]);
    assert_eq!(middle(b"user1", Some(b"user3")).unwrap(), &b"user2"[..]);
    for (low, high) in [(&b"a"[..], &b"a\0"[..]), (b"a", b"a"), (b"b", b"a"), (b"", b"")] {
        assert_eq!(middle(low, Some(high)), None, "{low:?} {high:?}");
    }
}

#[test]
fn bisection_ends_at_single_names() {
    let mut random = SplitMix64::new(4);
    for _ in 0..100 {
        let mut long = || (0..random.below(20)).map(|_| random.below(256) as u8).collect::<Bytes>();
        let names: BTreeSet<Bytes> = (0..40).map(|_| long()).collect();
        let (mut ranges, mut singles, mut steps) = (vec![Range::default()], 0, 0);
        while let Some(range) = ranges.pop() {
            let from = range.from.clone().unwrap_or_default();
            let inside = |name: &&Bytes| **name >= from && range.to.as_ref().is_none_or(|to| *name < to);
            match names.iter().filter(inside).count() {
                inside @ 0..=1 => singles += inside,
                _ => ranges.extend(halves(&range).map(<[Range; 2]>::from).expect("the range holds two names")),
            }
            steps += 1;
            assert!(steps < 20_000, "{names:?}");
        }
        assert_eq!(singles, names.len());
    }
}

/// An engine with these names that fails a read over more than `most` dead ones.
fn engine(live: &BTreeSet<Bytes>, dead: &BTreeSet<Bytes>, most: usize, query: &ReadQuery) -> Result<RowPage> {
    let inside = |name: &&Bytes| {
        query.range.from.as_ref().is_none_or(|from| *name >= from)
            && query.range.to.as_ref().is_none_or(|to| *name < to)
    };
    let mut all: Vec<&Bytes> = live.union(dead).filter(inside).collect();
    if query.order == ReadOrder::Reverse {
        all.reverse();
    }
    let (mut rows, mut dead_met) = (Vec::new(), 0);
    for name in all {
        if rows.len() == query.limit {
            return Ok(RowPage { rows, stopped: Stopped::Limit });
        }
        if live.contains(name) {
            rows.push(Row { name: name.clone(), value: Bytes::new(), stamp: Timestamp(1), expires: None });
        } else {
            dead_met += 1;
        }
        if dead_met > most {
            return Err(Error::new(Kind::Io, "too many tombstones"));
        }
    }
    Ok(RowPage { rows, stopped: Stopped::End })
}

fn read_in_pieces(query: &ReadQuery, read: impl Fn(&ReadQuery) -> Result<RowPage>) -> Result<RowPage> {
    let mut bisect = RangeBisect::new(query);
    while let Some(piece) = bisect.next_piece() {
        match read(&piece) {
            Ok(page) => bisect.add_page(page),
            Err(error) => bisect.split(&piece, error)?,
        }
    }
    Ok(bisect.into_page())
}

#[test]
fn a_page_read_in_pieces_equals_the_whole_page() {
    let mut random = SplitMix64::new(3);
    for _ in 0..300 {
        let live: BTreeSet<Bytes> = (0..random.below(20)).map(|_| name(&mut random)).collect();
        let dead: BTreeSet<Bytes> =
            (0..random.below(100)).map(|_| name(&mut random)).filter(|dead_name| !live.contains(dead_name)).collect();
        let order = if random.chance(500) { ReadOrder::Forward } else { ReadOrder::Reverse };
        let range = Range {
            from: random.chance(300).then(|| name(&mut random)),
            to: random.chance(300).then(|| name(&mut random)),
        };
        let query = ReadQuery { range, limit: 1 + random.below(10), order };
        let whole = engine(&live, &dead, usize::MAX, &query).expect("it never gives up");
        let pieces = read_in_pieces(&query, |piece| engine(&live, &dead, 2, piece)).expect("small enough pieces");
        assert_eq!(pieces.rows, whole.rows, "{query:?}");
        // A page that is exactly full may not know that nothing follows it.
        assert!(pieces.stopped == whole.stopped || pieces.rows.len() == query.limit, "{query:?}");
    }
}

#[test]
fn a_range_of_one_name_fails_when_its_read_fails() {
    let dead = BTreeSet::from([Bytes::from("a")]);
    let query = ReadQuery::one("a".into());
    let error = read_in_pieces(&query, |piece| engine(&BTreeSet::new(), &dead, 0, piece)).unwrap_err();
    assert_eq!(error.kind, Kind::Io);
}

/// Reads a range of two dead names that differ after `common` bytes, from an engine that fails over more than one.
fn bisect_between(common: usize) -> Result<RowPage> {
    let name = |last: u8| [vec![b'a'; common], vec![last]].concat().into();
    let dead = BTreeSet::from([name(b'x'), name(b'y')]);
    read_in_pieces(&ReadQuery::all(9), |piece| engine(&BTreeSet::new(), &dead, 1, piece))
}

#[test]
fn a_page_is_given_up_after_a_bounded_number_of_reads() {
    assert_eq!(bisect_between(larder_rows::limits::S3_KEY_BYTES_MAX - 1).unwrap().rows, []);
    let error = bisect_between(4 * larder_rows::limits::S3_KEY_BYTES_MAX).unwrap_err();
    assert_eq!(error.kind, Kind::Io);
    assert_eq!(error.context, "a page is given up after 20000 reads of smaller ranges: too many tombstones");
}
