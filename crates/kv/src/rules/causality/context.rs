//! The opaque bytes that a client carries from a read to its next write (`X-Riak-Vclock`, PB `vclock`).
//!
//! ```text
//! version u8 | base clock u64 | dots | vector | address u32 | crc32 of all before the address, and of the address
//! dots, vector: count, then actor u64, (base - clock) << 3 | flags, clock - birth     at most 24 bytes each
//! address: a hash of type, bucket and key, its lower half in the field and all of it in the checksum
//!          version 1: SHA-1, read for good    version 2: XXH3, which every read can afford
//! ```
//! The checksum covers the address: the server refuses a context that a client sends with another key.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use larder_core::rules::refusals::ContextError;
use larder_rows::address::Address;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::limits::{CONTEXT_AHEAD_MICROS_MAX, CONTEXT_BYTES_MAX, SIBLINGS_MAX, VECTOR_ENTRIES_MAX};
use larder_rows::{ActorId, Timestamp, hash};

use super::version_vector::{VectorEntry, VersionVector};

/// How a context is bound to its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContextVersion {
    /// By SHA-1. Clients may keep such contexts as long as they like.
    Sha1 = 1,
    /// By XXH3.
    Xxh3 = 2,
}

impl ContextVersion {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        [Self::Sha1, Self::Xxh3].into_iter().find(|version| bytes.first() == Some(&(*version as u8)))
    }

    fn address_hash(self, address: &Address) -> u64 {
        let parts: [&[u8]; 3] = [&address.bucket.bucket_type, &address.bucket.bucket, &address.key];
        match self {
            Self::Sha1 => hash::id64(&parts),
            Self::Xxh3 => hash::fast64(&parts),
        }
    }
}

/// The causal past of a client's next write to a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// The writes that the client read, tombstones included, in their order.
    pub dots: Vec<Dot>,
    /// The slots that were superseded before.
    pub vector: VersionVector,
}

impl Context {
    /// Whether it has neither dots nor vector entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dots.is_empty() && self.vector.is_empty()
    }

    /// The greatest clock in it, 0 for none.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        let dots = self.dots.iter().map(|dot| dot.clock);
        dots.chain(self.vector.iter().map(|entry| entry.clock)).max().unwrap_or_default()
    }

    /// Hash of the dots without their flags, 0 for none. Two reads of the same rows have the same hash.
    #[must_use]
    pub fn dots_hash(&self) -> u64 {
        if self.dots.is_empty() {
            return 0;
        }
        let mut text = FieldEncoder::with_capacity(self.dots.len() * 24);
        for dot in &self.dots {
            text.u64(dot.slot.actor.0);
            text.u64(dot.slot.birth.0);
            text.u64(dot.clock.0);
        }
        hash::id64(&[text.written()]).max(1)
    }

    /// Whether both name the same live writes. Tombstones and the vector do not count.
    #[must_use]
    pub fn has_same_live_dots(&self, other: &Self) -> bool {
        let live = |context: &Self| {
            let mut dots: Vec<_> = context.dots.iter().filter(|dot| !dot.flags.tombstone).map(key).collect();
            dots.sort_unstable();
            dots
        };
        live(self) == live(other)
    }

    /// The bytes for a client, bound to `address`.
    #[must_use]
    pub fn encode(&self, address: &Address) -> Bytes {
        self.encode_as(ContextVersion::Xxh3, address)
    }

    fn encode_as(&self, version: ContextVersion, address: &Address) -> Bytes {
        debug_assert!(self.dots.len() <= SIBLINGS_MAX && self.vector.len() <= VECTOR_ENTRIES_MAX);
        let base = self.latest();
        let mut out = FieldEncoder::versioned(version as u8, 32 + 24 * (self.dots.len() + self.vector.len()));
        out.u64(base.0);
        out.varint(self.dots.len() as u64);
        for dot in &self.dots {
            put_entry(&mut out, base, dot.slot, dot.clock, dot.flags);
        }
        out.varint(self.vector.len() as u64);
        for entry in self.vector.iter() {
            put_entry(&mut out, base, entry.slot, entry.clock, DotFlags::default());
        }
        let address = version.address_hash(address);
        let check = crc(out.written(), address);
        // The address comes first in the tail: a reader distinguishes another key's context from a damaged one.
        out.raw(&(address as u32).to_be_bytes());
        out.raw(&check.to_be_bytes());
        out.finish()
    }

    /// Reads the bytes that a client sent for `address`. `now` is the clock of this server.
    ///
    /// # Errors
    /// [`ContextError`]; a refused context has no effect at all.
    pub fn decode(bytes: &Bytes, address: &Address, now: Timestamp) -> Result<Self, ContextError> {
        let context = Self::verify(bytes, address)?;
        // A gateway moves its clock past every context it takes: one from far ahead would carry the clock away.
        if context.latest() > now.saturating_add(CONTEXT_AHEAD_MICROS_MAX) {
            return Err(ContextError::Ahead);
        }
        Ok(context)
    }

    fn verify(bytes: &Bytes, address: &Address) -> Result<Self, ContextError> {
        // Bound: no server issues a longer context [invariant 10].
        if bytes.len() < 8 || bytes.len() > CONTEXT_BYTES_MAX {
            return Err(ContextError::Foreign);
        }
        let version = ContextVersion::from_bytes(bytes).ok_or(ContextError::Foreign)?;
        let body = bytes.slice(..bytes.len() - 8);
        let mut tail = FieldDecoder::new(bytes.slice(bytes.len() - 8..));
        let tail = tail.u64().map_err(|_| ContextError::Foreign)?;
        let (address_hash, check) = ((tail >> 32) as u32, tail as u32);
        let hash = version.address_hash(address);
        let context = parse(body.clone(), version).map_err(|_| ContextError::Foreign)?;
        if address_hash != hash as u32 {
            return Err(ContextError::OtherAddress);
        }
        // Clients may not change a clock: it would hide later writes [invariant 7].
        if check != crc(&body, hash) {
            return Err(ContextError::Foreign);
        }
        Ok(context)
    }
}

fn key(dot: &Dot) -> (Slot, Timestamp) {
    (dot.slot, dot.clock)
}

fn crc(body: &[u8], address: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(&address.to_be_bytes());
    hasher.finalize()
}

fn put_entry(out: &mut FieldEncoder, base: Timestamp, slot: Slot, clock: Timestamp, flags: DotFlags) {
    let bits = u64::from(flags.tombstone) | u64::from(flags.terms) << 1 | u64::from(flags.blob) << 2;
    out.u64(slot.actor.0);
    // Differences to one clock: a hundred siblings must fit a header [invariant 10].
    out.varint(base.since(clock) << 3 | bits);
    out.varint(clock.since(slot.birth));
}

fn parse(body: Bytes, version: ContextVersion) -> Result<Context, DecodeError> {
    let mut rest = FieldDecoder::versioned(body, version as u8)?;
    let base = rest.u64()?;
    let mut entries = |max| -> Result<Vec<Dot>, DecodeError> {
        (0..rest.count(max)?).map(|_| take_entry(&mut rest, Timestamp(base))).collect()
    };
    let dots = entries(SIBLINGS_MAX)?;
    let vector = entries(VECTOR_ENTRIES_MAX)?;
    rest.finish()?;
    Ok(Context { dots, vector: dots_vector(vector) })
}

/// The vector in the form of dots, whose flags mean nothing.
fn dots_vector(dots: Vec<Dot>) -> VersionVector {
    dots.into_iter().map(|dot| VectorEntry { slot: dot.slot, clock: dot.clock }).collect()
}

fn take_entry(rest: &mut FieldDecoder, base: Timestamp) -> Result<Dot, DecodeError> {
    let actor = rest.u64()?;
    let packed = rest.varint()?;
    let age = rest.varint()?;
    // A difference above the base would wrap to a clock of the far future.
    let clock = base.0.checked_sub(packed >> 3).map(Timestamp).ok_or(DecodeError::Invalid("clock"))?;
    let birth = clock.0.checked_sub(age).ok_or(DecodeError::Invalid("birth"))?;
    let flags = DotFlags { tombstone: packed & 1 != 0, terms: packed & 2 != 0, blob: packed & 4 != 0 };
    Ok(Dot { slot: Slot { actor: ActorId(actor), birth: Timestamp(birth) }, clock, flags })
}

/// The row that one actor reuses for its versions of a key, like Riak's per-key actor epoch. It is the name of the row in the
/// partition of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The actor that writes to it.
    pub actor: ActorId,
    /// The clock of its first write.
    pub birth: Timestamp,
}

/// The slot that all actors share: of `last_write_wins` and `consistent` values, and of `write_once` tombstones.
pub const SHARED_SLOT: Slot = Slot { actor: ActorId(0), birth: Timestamp::ZERO };

/// Properties of a write that a context carries beside its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DotFlags {
    /// It is a tombstone.
    pub tombstone: bool,
    /// It has secondary-index terms.
    pub terms: bool,
    /// Its body is a blob.
    pub blob: bool,
}

/// The name of one write: `slot @ clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dot {
    /// The row it was written to.
    pub slot: Slot,
    /// The stamp of the row.
    pub clock: Timestamp,
    /// Properties of the write.
    pub flags: DotFlags,
}

impl Slot {
    /// The row name: 16 bytes.
    #[must_use]
    pub fn row_name(self) -> Bytes {
        let mut name = FieldEncoder::with_capacity(16);
        name.u64(self.actor.0);
        name.u64(self.birth.0);
        name.finish()
    }

    /// Reads a row name.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not 16 bytes.
    pub fn from_row_name(name: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::new(name.clone());
        let slot = Self { actor: ActorId(rest.u64()?), birth: Timestamp(rest.u64()?) };
        rest.finish()?;
        Ok(slot)
    }
}

/// An entity tag without quotes: 22 digits of base 62. The same value has the same tag on every gateway and after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vtag([u8; 22]);

impl Vtag {
    /// The tag of the row `name`@`stamp`. That of a `write_once` row depends on its name alone, a hash of the content.
    #[must_use]
    pub fn new(name: &[u8], stamp: Timestamp) -> Self {
        // Sixteen bytes are a slot; a `write_once` name is a SHA-1 of twenty.
        Self(hash::base62_digits(match <[u8; 16]>::try_from(name) {
            Ok(slot) => {
                let mut write = [0; 24];
                write[..16].copy_from_slice(&slot);
                write[16..].copy_from_slice(&stamp.0.to_be_bytes());
                hash::fast128(&write)
            }
            Err(_) => hash::fast128(name),
        }))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 22] {
        &self.0
    }
}

impl Deref for Vtag {
    type Target = str;

    fn deref(&self) -> &str {
        // Digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::address::BucketAddress;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn address(key: &'static str) -> Address {
        let bucket = BucketAddress::new(Bytes::from_static(b"t"), Bytes::from_static(b"b")).unwrap();
        Address::new(bucket, Bytes::from_static(key.as_bytes())).unwrap()
    }

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn dot() -> impl Strategy<Value = Dot> {
        (any::<u64>(), 0..NOW.0, 0..NOW.0, any::<(bool, bool, bool)>()).prop_map(|(actor, a, b, flags)| Dot {
            slot: Slot { actor: ActorId(actor), birth: Timestamp(a.min(b)) },
            clock: Timestamp(a.max(b)),
            flags: DotFlags { tombstone: flags.0, terms: flags.1, blob: flags.2 },
        })
    }

    proptest! {
        #[test]
        fn contexts_decode_to_themselves_and_stay_small(
            dots in vec(dot(), 0..=SIBLINGS_MAX), vector in vec(dot(), 0..=VECTOR_ENTRIES_MAX),
        ) {
            let context = Context { dots, vector: dots_vector(vector) };
            let bytes = context.encode(&address("k"));
            prop_assert!(bytes.len() <= CONTEXT_BYTES_MAX);
            prop_assert!(bytes.len().div_ceil(3) * 4 < 8192 - 64, "old clients take headers of up to 8 KB");
            prop_assert_eq!(Context::decode(&bytes, &address("k"), NOW), Ok(context));
            prop_assert_eq!(Context::decode(&bytes, &address("l"), NOW), Err(ContextError::OtherAddress));
        }

        #[test]
        fn a_damaged_context_is_refused(dots in vec(dot(), 0..5), at: usize, bit in 0..8_u8) {
            let mut bytes = Context { dots, ..Context::default() }.encode(&address("k")).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(Context::decode(&bytes.into(), &address("k"), NOW).is_err());
        }

        #[test]
        fn random_bytes_are_refused_without_panic(bytes: Vec<u8>) {
            prop_assert!(Context::decode(&bytes.into(), &address("k"), NOW).is_err());
        }
    }

    #[test]
    fn a_context_ahead_of_the_clock_is_refused() {
        let flags = DotFlags::default();
        let dot = Dot { slot: Slot { actor: ActorId(1), birth: NOW }, clock: NOW + 2_000_000, flags };
        let bytes = Context { dots: vec![dot], ..Context::default() }.encode(&address("k"));
        assert_eq!(Context::decode(&bytes, &address("k"), NOW), Err(ContextError::Ahead));
        assert!(Context::decode(&bytes, &address("k"), NOW + 1_000_000).is_ok());
    }

    /// Contexts that clients may hold, byte for byte. Those of version 1 are read for good.
    #[test]
    fn the_golden_contexts_still_decode() {
        let dot = Dot {
            slot: Slot { actor: ActorId(1), birth: Timestamp(2) },
            clock: Timestamp(3),
            flags: DotFlags::default(),
        };
        let context = Context { dots: vec![dot], ..Context::default() };
        let golden: [(ContextVersion, &[u8]); 2] = [
            (ContextVersion::Sha1, b"\x01\0\0\0\0\0\0\0\x03\x01\0\0\0\0\0\0\0\x01\0\x01\0c\xe1\xe1n\xee\x9b\\\xe7"),
            (ContextVersion::Xxh3, b"\x02\0\0\0\0\0\0\0\x03\x01\0\0\0\0\0\0\0\x01\0\x01\0Z\xf9y\xfcG\x8d\x19\x1d"),
        ];
        for (version, bytes) in golden {
            let bytes = Bytes::from_static(bytes);
            assert_eq!(context.encode_as(version, &address("k")), bytes);
            assert_eq!(Context::decode(&bytes, &address("k"), Timestamp(3)), Ok(context.clone()));
            assert_eq!(Context::decode(&bytes, &address("l"), Timestamp(3)), Err(ContextError::OtherAddress));
        }
        assert_eq!(context.encode(&address("k")), golden[1].1, "new contexts are of version 2");
    }

    #[test]
    fn a_context_of_one_version_is_none_of_the_other() {
        let context = Context::default();
        for (version, other) in [(ContextVersion::Sha1, 2), (ContextVersion::Xxh3, 1), (ContextVersion::Xxh3, 3)] {
            let mut bytes = context.encode_as(version, &address("k")).to_vec();
            bytes[0] = other;
            assert!(Context::decode(&bytes.into(), &address("k"), NOW).is_err(), "{version:?}");
        }
    }
}

#[cfg(test)]
mod dot_tests {
    use super::*;

    /// Clients keep entity tags: a change here makes every tag that they hold stale.
    #[test]
    fn the_golden_entity_tags_stay() {
        let slot = Slot { actor: ActorId(7), birth: Timestamp(100) }.row_name();
        assert_eq!(&*Vtag::new(&slot, Timestamp(140)), "8zSQNeOzyfQDRffKdscFPy");
        assert_eq!(&*Vtag::new(&[9; 20], Timestamp(140)), "INsiab4GpwFEcjJHuOk4P2");
        assert_eq!(Vtag::new(&[9; 20], Timestamp(140)), Vtag::new(&[9; 20], Timestamp(141)), "named by its content");
        assert_ne!(Vtag::new(&slot, Timestamp(140)), Vtag::new(&slot, Timestamp(141)));
    }
}
