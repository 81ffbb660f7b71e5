//! Contexts: the rows of a key that a reader saw, as the clocks up to which it saw all rows of each actor.
//!
//! ```text
//! version u8 | base clock u64 | clocks | dots | address u32 | crc32 of all before, and of the address
//! clocks: count, then actor u64, base - clock as varint      dots: count, then row hash u64, base - clock as varint
//! ```
//! A read that takes several pages may show rows that are newer than the clocks it began with: these are named one by one.
//! Of more actors than a context has room for, the oldest share one clock, if it is two days old.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_rows::address::Address;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::{
    CONTEXT_AHEAD_MICROS_MAX, DATATYPE_ACTORS_MAX, DATATYPE_CONTEXT_BYTES_MAX, DATATYPE_DOTS_MAX,
    DATATYPE_SETTLED_MICROS,
};
use larder_rows::{ActorId, Timestamp, hash};

use crate::rules::causality::ContextError;

const VERSION: u8 = 0x41;

/// The last clock of each actor; that of [`ActorId::OTHERS`] holds for every run's actor.
pub type ActorClocks = BTreeMap<ActorId, Timestamp>;

/// Whether the clocks cover this stamp of the actor.
#[must_use]
pub(super) fn is_within(clocks: &ActorClocks, actor: ActorId, stamp: Timestamp) -> bool {
    let reaches = |actor| clocks.get(&actor).is_some_and(|clock| stamp <= *clock);
    // Stamps of a source's writers are counts, which no clock of a run bounds.
    reaches(actor) || !actor.is_of_source() && reaches(ActorId::OTHERS)
}

/// The rows of a key that a reader saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatatypeContext {
    /// For each actor the clock up to which all of its rows were seen.
    pub clocks: ActorClocks,
    /// Rows beyond the clocks: hash of the name, and stamp.
    dots: BTreeSet<(u64, Timestamp)>,
}

impl DatatypeContext {
    /// The context of a read that saw everything up to these clocks.
    #[must_use]
    pub fn new(clocks: ActorClocks) -> Self {
        Self { clocks, dots: BTreeSet::new() }
    }

    /// Names a row that was shown. A row that the clocks cover needs no name, and beyond the limit rows stay unnamed: a removal
    /// leaves those alone.
    pub fn note_shown(&mut self, name: &[u8], actor: ActorId, stamp: Timestamp) {
        if !self.is_within_clocks(actor, stamp) && self.dots.len() < DATATYPE_DOTS_MAX {
            self.dots.insert((hash::id64(&[name]), stamp));
        }
    }

    /// Whether the reader saw this version of the row.
    #[must_use]
    pub fn covers(&self, name: &[u8], actor: ActorId, stamp: Timestamp) -> bool {
        self.is_within_clocks(actor, stamp) || self.names(name, stamp)
    }

    /// Whether it names this version of the row, which its clocks do not cover.
    #[must_use]
    pub fn names(&self, name: &[u8], stamp: Timestamp) -> bool {
        !self.dots.is_empty() && self.dots.contains(&(hash::id64(&[name]), stamp))
    }

    /// Whether its clocks cover this stamp of the actor.
    pub(super) fn is_within_clocks(&self, actor: ActorId, stamp: Timestamp) -> bool {
        is_within(&self.clocks, actor, stamp)
    }

    /// The greatest clock in it, 0 for none.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        self.clocks.values().copied().chain(self.dots.iter().map(|dot| dot.1)).max().unwrap_or_default()
    }

    /// The bytes for a client, bound to `address`; never longer than [`DATATYPE_CONTEXT_BYTES_MAX`]. `now` is the time of the read.
    #[must_use]
    pub fn encode(&self, address: &Address, now: Timestamp) -> Bytes {
        let base = self.latest();
        let newest = self.newest_clocks(now);
        let mut out = FieldEncoder::versioned(VERSION, 32 + 18 * (newest.len() + self.dots.len()));
        out.u64(base.0);
        out.varint(newest.len() as u64);
        for (actor, clock) in newest {
            out.u64(actor.0);
            out.varint(base.since(clock));
        }
        out.varint(self.dots.len() as u64);
        for (row, clock) in &self.dots {
            out.u64(*row);
            out.varint(base.since(*clock));
        }
        let address = address_hash(address);
        let check = crc(out.written(), address);
        out.raw(&(address as u32).to_be_bytes());
        out.raw(&check.to_be_bytes());
        out.finish()
    }

    /// The clocks that a context has room for. The oldest of more share one.
    fn newest_clocks(&self, now: Timestamp) -> Vec<(ActorId, Timestamp)> {
        let mut newest: Vec<_> = self.clocks.iter().map(|(actor, clock)| (*actor, *clock)).collect();
        newest.sort_unstable_by_key(|(actor, clock)| (std::cmp::Reverse(*clock), *actor));
        if newest.len() <= DATATYPE_ACTORS_MAX {
            return newest;
        }
        // Those of a source come first: no shared clock covers them.
        newest.sort_by_key(|(actor, _)| !actor.is_of_source());
        let oldest = newest.split_off(DATATYPE_ACTORS_MAX - 1);
        // Race: a younger row, which the read missed, may be acknowledged yet. Rows beyond the clock are not covered, so a removal
        // leaves them alone [invariant 174].
        let settled = |clock: &Timestamp| clock.saturating_add(DATATYPE_SETTLED_MICROS) <= now;
        let runs = oldest.into_iter().filter(|(actor, _)| !actor.is_of_source());
        newest.extend(runs.map(|(_, clock)| clock).filter(settled).max().map(|clock| (ActorId::OTHERS, clock)));
        newest
    }

    /// Whether these bytes begin as those of a data type's context, and not of an object's.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.first() == Some(&VERSION)
    }

    /// Reads the bytes that a client sent for `address`. `now` is the clock of this server.
    ///
    /// # Errors
    /// [`ContextError`]; a refused context has no effect at all.
    pub fn decode(bytes: &Bytes, address: &Address, now: Timestamp) -> Result<Self, ContextError> {
        if bytes.len() < 9 || bytes.len() > DATATYPE_CONTEXT_BYTES_MAX {
            return Err(ContextError::Foreign);
        }
        let (body, tail) = (bytes.slice(..bytes.len() - 8), bytes.slice(bytes.len() - 8..));
        let tail = FieldDecoder::new(tail).u64().map_err(|_| ContextError::Foreign)?;
        let context = parse(body.clone()).map_err(|_| ContextError::Foreign)?;
        let hash = address_hash(address);
        if (tail >> 32) as u32 != hash as u32 {
            return Err(ContextError::OtherAddress);
        }
        // A changed clock would remove what its client never saw [invariant 7].
        if tail as u32 != crc(&body, hash) {
            return Err(ContextError::Foreign);
        }
        if context.latest() > now.saturating_add(CONTEXT_AHEAD_MICROS_MAX) {
            return Err(ContextError::Ahead);
        }
        Ok(context)
    }
}

fn parse(body: Bytes) -> Result<DatatypeContext, DecodeError> {
    let mut rest = FieldDecoder::versioned(body, VERSION)?;
    let base = rest.u64()?;
    // A difference above the base would wrap to a clock of the far future.
    let clock = |age: u64| base.checked_sub(age).map(Timestamp).ok_or(DecodeError::Invalid("clock"));
    let mut context = DatatypeContext::default();
    for _ in 0..rest.count(DATATYPE_ACTORS_MAX)? {
        let actor = ActorId(rest.u64()?);
        context.clocks.insert(actor, clock(rest.varint()?)?);
    }
    for _ in 0..rest.count(DATATYPE_DOTS_MAX)? {
        let row = rest.u64()?;
        context.dots.insert((row, clock(rest.varint()?)?));
    }
    rest.finish()?;
    Ok(context)
}

fn address_hash(address: &Address) -> u64 {
    hash::fast64(&[&address.bucket.bucket_type, &address.bucket.bucket, &address.key])
}

fn crc(body: &[u8], address: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(&address.to_be_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::address::BucketAddress;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn address(key: &'static str) -> Address {
        Address::new(BucketAddress::new("t".into(), "b".into()).unwrap(), key.into()).unwrap()
    }

    fn context(clocks: Vec<(u64, u64)>, dots: Vec<u64>) -> DatatypeContext {
        let clocks = clocks.into_iter().map(|(actor, clock)| (ActorId(actor), Timestamp(clock))).collect();
        let mut context = DatatypeContext::new(clocks);
        dots.into_iter().for_each(|at| context.note_shown(&at.to_be_bytes(), ActorId(u64::MAX), Timestamp(at)));
        context
    }

    proptest! {
        #[test]
        fn contexts_of_data_types_decode_to_themselves_and_stay_small(
            clocks in vec((0..u64::MAX - 1, 0..NOW.0), 0..=DATATYPE_ACTORS_MAX),
            dots in vec(0..NOW.0, 0..=2 * DATATYPE_DOTS_MAX),
        ) {
            let context = context(clocks, dots);
            let bytes = context.encode(&address("k"), NOW);
            prop_assert!(bytes.len() <= DATATYPE_CONTEXT_BYTES_MAX, "{}", bytes.len());
            prop_assert_eq!(DatatypeContext::decode(&bytes, &address("k"), NOW), Ok(context));
            prop_assert_eq!(DatatypeContext::decode(&bytes, &address("l"), NOW), Err(ContextError::OtherAddress));
        }

        #[test]
        fn a_damaged_context_of_a_data_type_is_refused(dots in vec(0..NOW.0, 0..5), at: usize, bit in 0..8_u8) {
            let mut bytes = context(vec![(1, 5)], dots).encode(&address("k"), NOW).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(DatatypeContext::decode(&bytes.into(), &address("k"), NOW).is_err());
        }

        #[test]
        fn random_bytes_are_no_context(bytes: Vec<u8>) {
            prop_assert!(DatatypeContext::decode(&bytes.into(), &address("k"), NOW).is_err());
        }
    }

    #[test]
    fn a_context_covers_what_was_seen_and_nothing_else() {
        let seen = context(vec![(1, 5)], vec![9]);
        assert!(seen.covers(b"any", ActorId(1), Timestamp(5)));
        assert!(!seen.covers(b"any", ActorId(1), Timestamp(6)));
        assert!(!seen.covers(b"any", ActorId(2), Timestamp(1)));
        let row = 9_u64.to_be_bytes();
        assert!(seen.covers(&row, ActorId(2), Timestamp(9)));
        assert!(!seen.covers(b"other", ActorId(2), Timestamp(9)), "a row of the same batch that was not shown");
        assert!(!seen.covers(&row, ActorId(2), Timestamp(10)), "a later version of the row");
    }

    /// A context over these clocks, as a client sends it back.
    fn sent_back(clocks: Vec<(u64, u64)>) -> DatatypeContext {
        let bytes = context(clocks, Vec::new()).encode(&address("k"), NOW);
        assert!(bytes.len() <= DATATYPE_CONTEXT_BYTES_MAX);
        DatatypeContext::decode(&bytes, &address("k"), NOW).unwrap()
    }

    #[test]
    fn an_element_of_the_oldest_of_600_gateways_once_outlived_its_removal() {
        let read = sent_back((1..=600).map(|at| (at, at)).collect());
        assert_eq!(read.clocks.len(), DATATYPE_ACTORS_MAX);
        assert!(read.covers(b"element", ActorId(1), Timestamp(1)));
        assert!(read.covers(b"element", ActorId(101), Timestamp(101)), "the newest of the oldest");
        assert!(!read.covers(b"element", ActorId(700), Timestamp(102)), "a write that the read has not seen");
        let marker = crate::rules::datatypes::RemovalMarker {
            path: Default::default(),
            remover: ActorId(9),
            clocks: read.clocks,
            stamp: NOW,
        };
        assert!(marker.covers(&Default::default(), ActorId(1), Timestamp(1)), "a large part goes with a marker");
    }

    #[test]
    fn a_context_of_many_young_gateways_covers_nothing_that_it_does_not_name() {
        let young = |at| NOW.0 - DATATYPE_SETTLED_MICROS + at;
        let read = sent_back((1..=600).map(|at| (at, young(at))).collect());
        assert!(
            !read.covers(b"element", ActorId(101), Timestamp(young(101))),
            "a quorum may not have all so young rows"
        );
        assert!(
            !read.covers(b"element", ActorId(700), Timestamp(young(50))),
            "nor those of an actor that was not seen"
        );
        assert!(read.covers(b"element", ActorId(102), Timestamp(young(102))));
    }

    #[test]
    fn the_clock_of_the_oldest_gateways_covers_no_count_of_a_source() {
        let source = ActorId::SOURCES.0 + 7;
        let read = sent_back(
            (1..=600).map(|at| (at, NOW.0 - 2 * DATATYPE_SETTLED_MICROS + at)).chain([(source, 5)]).collect(),
        );
        assert!(read.covers(b"element", ActorId(source), Timestamp(5)), "its small count is no old clock");
        assert!(!read.covers(b"element", ActorId(source), Timestamp(6)), "what a move brings later was not seen");
    }

    #[test]
    fn a_context_ahead_of_the_server_is_refused() {
        let bytes = context(vec![(1, NOW.0 + 2_000_000)], Vec::new()).encode(&address("k"), NOW);
        assert_eq!(DatatypeContext::decode(&bytes, &address("k"), NOW), Err(ContextError::Ahead));
    }

    #[test]
    fn the_golden_context_of_a_data_type_still_decodes() {
        let golden = Bytes::from_static(
            b"A\0\0\0\0\0\0\0\t\x01\0\0\0\0\0\0\0\x01\x04\x01\xf6|\x17\x1d\xf6Jq\xf5\0Z\xf9y\xfc\x1e\xdf\x90\x86",
        );
        assert_eq!(context(vec![(1, 5)], vec![9]).encode(&address("k"), NOW), golden);
        assert_eq!(DatatypeContext::decode(&golden, &address("k"), NOW), Ok(context(vec![(1, 5)], vec![9])));
    }
}
