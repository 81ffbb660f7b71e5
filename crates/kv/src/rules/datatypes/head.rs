//! The head of a key: the rows that are read before all others. Clocks say what a reader sees, markers what is dead.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::METADATA_BYTES_MAX;
use larder_rows::{ActorId, Row, Timestamp};

use super::context::{ActorClocks, DatatypeContext};
use super::row_name::{DatatypeLeaf, DatatypePath, DatatypeRowName};

const VERSION: u8 = 1;

/// Clocks and markers of a key. A key without clocks does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatatypeHead {
    /// The last clock of each actor.
    pub clocks: ActorClocks,
    /// Parts of the value that were removed at once.
    pub markers: Vec<RemovalMarker>,
}

/// The removal of a large part: rows in it that are not newer than the clocks are dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalMarker {
    /// The part.
    pub path: DatatypePath,
    /// The actor that removed it.
    pub remover: ActorId,
    /// The clocks that it saw.
    pub clocks: ActorClocks,
    /// The stamp of the marker's row.
    pub stamp: Timestamp,
}

impl DatatypeHead {
    /// Adds a row of the head.
    ///
    /// # Errors
    /// [`DecodeError`] for a row of the data, and for damage.
    pub fn add(&mut self, row: &Row) -> Result<(), DecodeError> {
        match DatatypeRowName::decode(&row.name)? {
            DatatypeRowName::Clock(actor) => {
                ClockValue::decode(row.value.clone())?;
                self.clocks.insert(actor, row.stamp);
            }
            DatatypeRowName::Marker(path, remover) => {
                let clocks = decode_clocks(row.value.clone())?;
                self.markers.push(RemovalMarker { path, remover, clocks, stamp: row.stamp });
            }
            DatatypeRowName::Data(..) => return Err(DecodeError::Invalid("row of a head")),
        }
        Ok(())
    }

    /// Whether the key exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// The clocks that a reader with this context saw; all of them without one.
    pub fn clocks_seen(&self, context: Option<&DatatypeContext>) -> impl Iterator<Item = (ActorId, Timestamp)> {
        let clocks = self.clocks.iter().map(|(actor, clock)| (*actor, *clock));
        clocks.filter(move |(actor, clock)| context.is_none_or(|context| context.is_within_clocks(*actor, *clock)))
    }

    /// The greatest stamp of its rows.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        let markers = self.markers.iter().map(|marker| marker.stamp);
        self.clocks.values().copied().chain(markers).max().unwrap_or_default()
    }

    /// Whether a marker removed this row.
    #[must_use]
    pub fn is_dead(&self, path: &DatatypePath, leaf: &DatatypeLeaf, stamp: Timestamp) -> bool {
        let Some(actor) = leaf.actor() else { return false };
        self.markers.iter().any(|marker| marker.covers(path, actor, stamp))
    }
}

impl RemovalMarker {
    /// Whether it removed this version of a row.
    #[must_use]
    pub fn covers(&self, path: &DatatypePath, actor: ActorId, stamp: Timestamp) -> bool {
        let is_seen = self.clocks.get(&actor).is_some_and(|clock| stamp <= *clock);
        is_seen && self.path.contains(path)
    }

    /// The value of its row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 8 + 16 * self.clocks.len());
        out.varint(self.clocks.len() as u64);
        for (actor, clock) in &self.clocks {
            out.u64(actor.0);
            out.u64(clock.0);
        }
        out.finish()
    }
}

fn decode_clocks(value: Bytes) -> Result<ActorClocks, DecodeError> {
    let mut rest = FieldDecoder::versioned(value, VERSION)?;
    let mut clocks = ActorClocks::new();
    for _ in 0..rest.count(METADATA_BYTES_MAX)? {
        let actor = ActorId(rest.u64()?);
        clocks.insert(actor, Timestamp(rest.u64()?));
    }
    rest.finish()?;
    Ok(clocks)
}

/// The value of a clock row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockValue {
    /// The clock up to which a quorum has the actor's rows. Where one machine is the engine, every clock that a read shows.
    pub confirmed: Timestamp,
}

impl ClockValue {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 9);
        out.u64(self.confirmed.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let confirmed = Timestamp(rest.u64()?);
        rest.finish()?;
        Ok(Self { confirmed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_rows_of_a_head_decode_or_fail_without_panic(name: Vec<u8>, value: Vec<u8>) {
            let row = Row { name: name.into(), value: value.into(), stamp: Timestamp(1), expires: None };
            let _ = DatatypeHead::default().add(&row);
        }
    }

    #[test]
    fn the_golden_rows_of_a_head_still_decode() {
        let marker = RemovalMarker {
            path: DatatypePath::root(),
            remover: ActorId(7),
            clocks: [(ActorId(1), Timestamp(5))].into(),
            stamp: Timestamp(9),
        };
        let golden = Bytes::from_static(b"\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05");
        assert_eq!(marker.encode(), golden);
        let clock = Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x05");
        assert_eq!(ClockValue { confirmed: Timestamp(5) }.encode(), clock);
        let row = |name: DatatypeRowName, value, stamp| Row { name: name.encode(), value, stamp, expires: None };
        let mut head = DatatypeHead::default();
        head.add(&row(DatatypeRowName::Marker(DatatypePath::root(), ActorId(7)), golden, Timestamp(9))).unwrap();
        assert!(!head.exists());
        head.add(&row(DatatypeRowName::Clock(ActorId(1)), clock, Timestamp(6))).unwrap();
        assert_eq!(head, DatatypeHead { clocks: [(ActorId(1), Timestamp(6))].into(), markers: vec![marker] });
        let is_dead =
            |stamp| head.is_dead(&DatatypePath::root(), &DatatypeLeaf::Presence(ActorId(1)), Timestamp(stamp));
        assert_eq!((is_dead(5), is_dead(6)), (true, false));
    }
}
