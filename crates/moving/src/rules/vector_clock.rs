//! Riak's vector clocks, their order, and the text of `X-Riak-Vclock`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_core::rules::external_term::TermWriter;
use miniz_oxide::deflate::compress_to_vec;

use super::erlang_term::{ErlangTerm, RiakTerm as _};
use super::riak_bytes::{RiakFormError, inflate_raw};

/// Most entries of a clock. Riak prunes clocks to some fifty.
const ENTRIES_MAX: usize = 10_000;
/// The level of compression of Riak's own clocks.
const DEFLATE_LEVEL: u8 = 6;
/// Most bytes of the term of a clock.
const CLOCK_BYTES_MAX: usize = 1 << 20;

/// One actor's part of a clock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VectorClockEntry {
    /// The actor: 8 bytes of a vnode, which the epoch of a key may follow.
    pub actor: Bytes,
    /// Its writes so far.
    pub count: u64,
    /// The time of its last write, in seconds since the year 0.
    pub seconds: u64,
}

/// A vector clock of Riak: the writes that a version descends from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VectorClock {
    /// One entry for each actor, in the order of actors.
    entries: Vec<VectorClockEntry>,
}

/// The order of a clock in relation to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOrder {
    /// Both saw the same writes.
    Equal,
    /// It saw all that the other saw, and more.
    Newer,
    /// The other one is newer.
    Older,
    /// Each saw a write that the other did not.
    Concurrent,
}

impl VectorClock {
    /// A clock of these entries; of two of one actor the greater count stays.
    #[must_use]
    pub fn new(mut entries: Vec<VectorClockEntry>) -> Self {
        entries.sort_unstable_by(|a, b| (&a.actor, b.count, b.seconds).cmp(&(&b.actor, a.count, a.seconds)));
        entries.dedup_by(|later, first| later.actor == first.actor);
        Self { entries }
    }

    /// Its entries, in the order of actors.
    #[must_use]
    pub fn entries(&self) -> &[VectorClockEntry] {
        &self.entries
    }

    /// Decodes the external term of a clock.
    ///
    /// # Errors
    /// [`RiakFormError`].
    pub fn decode(bytes: Bytes) -> Result<Self, RiakFormError> {
        Self::from_term(ErlangTerm::from_stored(bytes)?)
    }

    /// Decodes the value of `X-Riak-Vclock`.
    ///
    /// # Errors
    /// [`RiakFormError`]: contexts of Larder are none either.
    pub fn from_header(text: &[u8]) -> Result<Self, RiakFormError> {
        Self::from_deflated(&STANDARD.decode(text).map_err(|_| RiakFormError::Invalid("base64"))?)
    }

    /// Decodes the bytes that `X-Riak-Vclock` has in base64.
    ///
    /// # Errors
    /// [`RiakFormError`].
    pub fn from_deflated(bytes: &[u8]) -> Result<Self, RiakFormError> {
        Self::decode(inflate_raw(bytes, CLOCK_BYTES_MAX)?)
    }

    /// Decodes a stored clock; the empty one has no bytes.
    ///
    /// # Errors
    /// [`RiakFormError`]: the context of a Larder is none.
    pub fn from_moved(bytes: &[u8]) -> Result<Self, RiakFormError> {
        if bytes.is_empty() { Ok(Self::default()) } else { Self::from_deflated(bytes) }
    }

    /// The bytes that `X-Riak-Vclock` has in base64. Those of Riak may be other ones for the same clock.
    #[must_use]
    pub fn to_deflated(&self) -> Bytes {
        compress_to_vec(&self.encode(), DEFLATE_LEVEL).into()
    }

    /// The external term.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut term = TermWriter::default();
        term.list(self.entries.len(), |term| {
            self.entries.iter().for_each(|entry| entry.write(term));
        });
        term.finish()
    }

    pub(super) fn from_term(term: ErlangTerm) -> Result<Self, RiakFormError> {
        let items = term.into_items("clock")?;
        if items.len() > ENTRIES_MAX {
            return Err(RiakFormError::TooLarge("clock"));
        }
        let entries = items.into_iter().map(VectorClockEntry::from_term).collect::<Result<_, _>>()?;
        Ok(Self::new(entries))
    }

    /// Whether it saw every write that `other` saw. The times do not count, as in Riak.
    #[must_use]
    pub fn descends(&self, other: &Self) -> bool {
        other.entries.iter().all(|entry| self.writes(&entry.actor) >= entry.count)
    }

    /// Its order in relation to `other`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> ClockOrder {
        match (self.descends(other), other.descends(self)) {
            (true, true) => ClockOrder::Equal,
            (true, false) => ClockOrder::Newer,
            (false, true) => ClockOrder::Older,
            (false, false) => ClockOrder::Concurrent,
        }
    }

    /// The clock that saw what either saw.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        Self::new([self.entries.as_slice(), &other.entries].concat())
    }

    /// What it saw of an actor alone.
    #[must_use]
    pub fn of_actor(&self, actor: &Bytes) -> Self {
        Self { entries: self.entries.iter().filter(|entry| entry.actor == *actor).cloned().collect() }
    }

    /// The writes of an actor that it saw.
    #[must_use]
    pub fn writes(&self, actor: &Bytes) -> u64 {
        let found = self.entries.binary_search_by(|entry| entry.actor.cmp(actor));
        found.ok().and_then(|at| self.entries.get(at)).map_or(0, |entry| entry.count)
    }
}

impl VectorClockEntry {
    /// Writes the form that [`Self::from_term`] reads.
    pub(super) fn write(&self, term: &mut TermWriter) {
        term.tuple(2);
        term.binary(&self.actor);
        term.tuple(2);
        term.integer(self.count.into());
        term.integer(self.seconds.into());
    }

    /// From `{Actor, {Count, Seconds}}`, which is also the form of a dot.
    pub(super) fn from_term(term: ErlangTerm) -> Result<Self, RiakFormError> {
        let [actor, rest] = term.into_tuple("entry of a clock")?;
        let [count, seconds] = rest.into_tuple("entry of a clock")?;
        Ok(Self {
            actor: actor.into_bytes("actor")?,
            count: count.to_number("count of a clock")?,
            seconds: seconds.to_number("time of a clock")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn entry(actor: &'static [u8], count: u64) -> VectorClockEntry {
        VectorClockEntry { actor: Bytes::from_static(actor), count, seconds: 63_962_566_686 }
    }

    fn clock(entries: &[(&'static [u8], u64)]) -> VectorClock {
        VectorClock::new(entries.iter().map(|(actor, count)| entry(actor, *count)).collect())
    }

    fn encode(clock: &VectorClock) -> Bytes {
        let term = Bytes::from(clock.encode());
        assert_eq!(inflate_raw(&clock.to_deflated(), CLOCK_BYTES_MAX), Ok(term.clone()));
        term
    }

    fn header_with(clock: &VectorClock) -> String {
        STANDARD.encode(clock.to_deflated())
    }

    /// The header and the term that a node of Riak 3.2.3 sent for one object.
    #[test]
    fn the_golden_header_and_the_golden_term_are_one_clock() {
        let header = "a85hYGBgymDKBVI8ypz/fj7d5RwIZDNmMCUy5rEyyAWUP+GDSHNApZciS2UBAA==";
        let both = clock(&[(b"#\t\xfe\xf9\xe5\xbaCQ\0\0\0\x01", 1), (b"#\t\xfe\xf9\xe5\xbaC\xa5", 1)]);
        assert_eq!(VectorClock::from_header(header.as_bytes()), Ok(both.clone()));
        let term = hex::decode(
            "836c0000000268026d0000000c2309fef9e5ba435100000001680261016e05001e5077e40e68026d000000082309fef9e5ba43a5680261\
             016e05001e5077e40e6a",
        );
        let term = Bytes::from(term.unwrap());
        assert_eq!(VectorClock::decode(term.clone()), Ok(both.clone()));
        assert_eq!(encode(&both), term);
        assert_eq!(VectorClock::from_header(header_with(&both).as_bytes()), Ok(both));
    }

    #[test]
    fn clocks_have_the_order_of_the_writes_that_they_saw() {
        let (a1, a2, b1) = (clock(&[(b"a", 1)]), clock(&[(b"a", 2)]), clock(&[(b"b", 1)]));
        for (one, other, order) in [
            (&a1, &a1, ClockOrder::Equal),
            (&a2, &a1, ClockOrder::Newer),
            (&a1, &a2, ClockOrder::Older),
            (&a2, &b1, ClockOrder::Concurrent),
            (&a1, &VectorClock::default(), ClockOrder::Newer),
        ] {
            assert_eq!(one.compare(other), order, "{one:?} {other:?}");
        }
        assert_eq!(a2.merge(&b1).merge(&a1), clock(&[(b"a", 2), (b"b", 1)]));
    }

    #[test]
    fn contexts_of_larder_and_bombs_are_no_clocks_of_riak() {
        assert!(VectorClock::from_header(b"AgAAAAAAAAADAQAAAAAAAAABAAEAWvl5/EeNGR0=").is_err());
        assert!(VectorClock::from_header(b"***").is_err());
        let bomb = STANDARD.encode(compress_to_vec(&vec![131; 2 << 20], 6));
        assert_eq!(VectorClock::from_header(bomb.as_bytes()), Err(RiakFormError::TooLarge("inflated form")));
    }

    fn any_clock() -> impl Strategy<Value = VectorClock> {
        let entry = (0..5_u8, any::<u64>(), any::<u64>()).prop_map(|(actor, count, seconds)| VectorClockEntry {
            actor: Bytes::copy_from_slice(&[actor; 8]),
            count,
            seconds,
        });
        vec(entry, 0..6).prop_map(VectorClock::new)
    }

    proptest! {
        #[test]
        fn clocks_decode_to_themselves_and_a_merge_descends_from_both(a in any_clock(), b in any_clock()) {
            prop_assert_eq!(VectorClock::decode(encode(&a)), Ok(a.clone()));
            prop_assert_eq!(VectorClock::from_header(header_with(&a).as_bytes()), Ok(a.clone()));
            let both = a.merge(&b);
            prop_assert!(both.descends(&a) && both.descends(&b));
            let reverse = match a.compare(&b) {
                ClockOrder::Newer => ClockOrder::Older,
                ClockOrder::Older => ClockOrder::Newer,
                same => same,
            };
            prop_assert_eq!(b.compare(&a), reverse);
        }

        #[test]
        fn random_headers_never_panic(text: Vec<u8>) {
            let _ = VectorClock::from_header(&text);
            let _ = VectorClock::from_header(STANDARD.encode(&text).as_bytes());
        }
    }
}
