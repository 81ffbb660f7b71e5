//! The opaque bytes a client carries from a read to its next write (`X-Riak-Vclock`, PB `vclock`).
//!
//! ```text
//! version 1 | base clock u64 | dots | covers | crc32 of all before and of the address
//! dots, covers: count, then actor u64, (base - clock) << 3 | flags, clock - birth     at most 24 bytes each
//! ```
//! The checksum runs over the address too, so a context pasted from another key is refused, not obeyed.

use bytes::Bytes;

use super::dot::{Clock, Cover, Dot, DotFlags, Slot};
use crate::address::Address;
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::hash;
use crate::limits::{CONTEXT_AHEAD_MICROS_MAX, CONTEXT_BYTES_MAX, COVERS_MAX, SIBLINGS_MAX};

const VERSION: u8 = 1;

/// What a client has seen of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// The writes shown, tombstones included, in order.
    pub dots: Vec<Dot>,
    /// Slots known dead.
    pub covers: Vec<Cover>,
}

/// Why bytes are no context of this address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextError {
    /// Not bytes that Larder made, or damaged on the way.
    Foreign,
    /// Made for another address.
    OtherAddress,
    /// It names a write later than any there can be.
    Ahead,
}

impl std::fmt::Display for ContextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "The vclock was not issued by this server or is damaged",
            Self::OtherAddress => "The vclock belongs to another bucket type, bucket or key",
            Self::Ahead => "The vclock is ahead of this server's clock",
        })
    }
}

impl std::error::Error for ContextError {}

impl Context {
    /// Whether it names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dots.is_empty() && self.covers.is_empty()
    }

    /// The greatest clock it names, 0 for none.
    #[must_use]
    pub fn latest(&self) -> Clock {
        let dots = self.dots.iter().map(|dot| dot.clock);
        dots.chain(self.covers.iter().map(|cover| cover.clock)).max().unwrap_or(0)
    }

    /// Hash of the dots alone: equal for equal reads. 0 when there are none.
    #[must_use]
    pub fn dots_hash(&self) -> u64 {
        if self.dots.is_empty() {
            return 0;
        }
        let mut text = Encoder::with_capacity(self.dots.len() * 24);
        for dot in &self.dots {
            text.u64(dot.slot.actor);
            text.u64(dot.slot.birth);
            text.u64(dot.clock);
        }
        hash::id64(&[text.written()]).max(1)
    }

    /// Whether both name the same live writes; covers and tombstones do not count.
    #[must_use]
    pub fn same_live(&self, other: &Self) -> bool {
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
        debug_assert!(self.dots.len() <= SIBLINGS_MAX && self.covers.len() <= COVERS_MAX);
        let base = self.latest();
        let mut out = Encoder::with_capacity(32 + 24 * (self.dots.len() + self.covers.len()));
        out.u8(VERSION);
        out.u64(base);
        out.varint(self.dots.len() as u64);
        for dot in &self.dots {
            entry(&mut out, base, dot.slot, dot.clock, dot.flags);
        }
        out.varint(self.covers.len() as u64);
        for cover in &self.covers {
            entry(&mut out, base, cover.slot, cover.clock, DotFlags::default());
        }
        let address = address_hash(address);
        let check = crc(out.written(), address);
        out.raw(&(address as u32).to_be_bytes());
        out.raw(&check.to_be_bytes());
        out.finish()
    }

    /// Reads a client's bytes. `now` is the reader's clock.
    ///
    /// # Errors
    /// [`ContextError`]; a context that cannot be trusted is never obeyed in part.
    pub fn decode(bytes: &Bytes, address: &Address, now: Clock) -> Result<Self, ContextError> {
        let context = Self::open(bytes, address)?;
        if context.latest() > now.saturating_add(CONTEXT_AHEAD_MICROS_MAX) {
            return Err(ContextError::Ahead);
        }
        Ok(context)
    }

    fn open(bytes: &Bytes, address: &Address) -> Result<Self, ContextError> {
        if bytes.len() < 8 || bytes.len() > CONTEXT_BYTES_MAX {
            return Err(ContextError::Foreign);
        }
        let body = bytes.slice(..bytes.len() - 8);
        let mut tail = Decoder::new(bytes.slice(bytes.len() - 8..));
        let tail = tail.u64().map_err(|_| ContextError::Foreign)?;
        let (found, check) = ((tail >> 32) as u32, tail as u32);
        let hash = address_hash(address);
        let context = parse(body.clone()).map_err(|_| ContextError::Foreign)?;
        if found != hash as u32 {
            return Err(ContextError::OtherAddress);
        }
        if check != crc(&body, hash) {
            return Err(ContextError::Foreign);
        }
        Ok(context)
    }
}

fn key(dot: &Dot) -> (Slot, Clock) {
    (dot.slot, dot.clock)
}

fn address_hash(address: &Address) -> u64 {
    hash::id64(&[&address.bucket.bucket_type, &address.bucket.bucket, &address.key])
}

fn crc(body: &[u8], address: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(&address.to_be_bytes());
    hasher.finalize()
}

fn entry(out: &mut Encoder, base: Clock, slot: Slot, clock: Clock, flags: DotFlags) {
    let bits = u64::from(flags.tombstone) | u64::from(flags.terms) << 1 | u64::from(flags.blob) << 2;
    out.u64(slot.actor);
    out.varint((base - clock) << 3 | bits);
    out.varint(clock - slot.birth.min(clock));
}

fn parse(body: Bytes) -> Result<Context, DecodeError> {
    let mut rest = Decoder::new(body);
    rest.version(VERSION)?;
    let base = rest.u64()?;
    let mut entries = |max| -> Result<Vec<Dot>, DecodeError> {
        (0..rest.count(max)?).map(|_| parse_entry(&mut rest, base)).collect()
    };
    let dots = entries(SIBLINGS_MAX)?;
    let covers = entries(COVERS_MAX)?;
    rest.finish()?;
    let covers = covers.into_iter().map(|dot| Cover { slot: dot.slot, clock: dot.clock }).collect();
    Ok(Context { dots, covers })
}

fn parse_entry(rest: &mut Decoder, base: Clock) -> Result<Dot, DecodeError> {
    let actor = rest.u64()?;
    let packed = rest.varint()?;
    let age = rest.varint()?;
    let clock = base.checked_sub(packed >> 3).ok_or(DecodeError::Invalid("clock"))?;
    let birth = clock.checked_sub(age).ok_or(DecodeError::Invalid("birth"))?;
    let flags = DotFlags { tombstone: packed & 1 != 0, terms: packed & 2 != 0, blob: packed & 4 != 0 };
    Ok(Dot { slot: Slot { actor, birth }, clock, flags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BucketAddress;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn address(key: &'static str) -> Address {
        let bucket = BucketAddress::new(Bytes::from_static(b"t"), Bytes::from_static(b"b")).unwrap();
        Address::new(bucket, Bytes::from_static(key.as_bytes())).unwrap()
    }

    const NOW: Clock = 1_800_000_000_000_000;

    fn dot() -> impl Strategy<Value = Dot> {
        (any::<u64>(), 0..NOW, 0..NOW, any::<(bool, bool, bool)>()).prop_map(|(actor, a, b, flags)| Dot {
            slot: Slot { actor, birth: a.min(b) },
            clock: a.max(b),
            flags: DotFlags { tombstone: flags.0, terms: flags.1, blob: flags.2 },
        })
    }

    proptest! {
        #[test]
        fn contexts_come_back_and_stay_small(dots in vec(dot(), 0..=SIBLINGS_MAX), covers in vec(dot(), 0..=COVERS_MAX)) {
            let covers = covers.into_iter().map(|dot| Cover { slot: dot.slot, clock: dot.clock }).collect();
            let context = Context { dots, covers };
            let bytes = context.encode(&address("k"));
            prop_assert!(bytes.len() <= CONTEXT_BYTES_MAX);
            prop_assert!(bytes.len().div_ceil(3) * 4 < 8192 - 64, "old clients stop at 8 KB of header");
            prop_assert_eq!(Context::decode(&bytes, &address("k"), NOW), Ok(context));
            prop_assert_eq!(Context::decode(&bytes, &address("l"), NOW), Err(ContextError::OtherAddress));
        }

        #[test]
        fn a_damaged_context_is_refused(dots in vec(dot(), 0..5), at: usize, bit in 0..8_u8) {
            let mut bytes = Context { dots, covers: Vec::new() }.encode(&address("k")).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(Context::decode(&bytes.into(), &address("k"), NOW).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes: Vec<u8>) {
            prop_assert!(Context::decode(&bytes.into(), &address("k"), NOW).is_err());
        }
    }

    #[test]
    fn a_context_ahead_of_the_clock_is_refused() {
        let flags = DotFlags::default();
        let dot = Dot { slot: Slot { actor: 1, birth: NOW }, clock: NOW + 2_000_000, flags };
        let bytes = Context { dots: vec![dot], covers: Vec::new() }.encode(&address("k"));
        assert_eq!(Context::decode(&bytes, &address("k"), NOW), Err(ContextError::Ahead));
        assert!(Context::decode(&bytes, &address("k"), NOW + 1_000_000).is_ok());
    }

    #[test]
    fn the_golden_context_still_opens() {
        let dot = Dot { slot: Slot { actor: 1, birth: 2 }, clock: 3, flags: DotFlags::default() };
        let context = Context { dots: vec![dot], covers: Vec::new() };
        let bytes = context.encode(&address("k"));
        assert_eq!(&bytes[..bytes.len() - 8], b"\x01\0\0\0\0\0\0\0\x03\x01\0\0\0\0\0\0\0\x01\x00\x01\x00");
        assert_eq!(Context::decode(&bytes, &address("k"), 3), Ok(context));
    }
}
