//! The encoding that rows and contexts share: varints and length-prefixed byte strings, decoded without copying.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

use crate::limits::METADATA_BYTES_MAX;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does, or a length points past the end.
    #[error("the bytes end too early")]
    Truncated,
    /// This build does not read the version in the version byte.
    #[error("unknown format version {0}")]
    UnknownVersion(u8),
    /// The value of this field is out of its range.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// Bytes follow the last field.
    #[error("bytes are left over")]
    Trailing,
}

/// Defines an enum whose variants have a stored byte and a name, with the list of all.
#[macro_export]
macro_rules! coded {
    (
        $(#[$doc:meta])*
        pub enum $enum:ident { $($(#[$member_doc:meta])* $member:ident = $code:literal, $name:literal;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $enum { $($(#[$member_doc])* $member = $code),+ }

        impl $enum {
            /// Every variant, in the order of the codes.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$member),+];

            /// Its name.
            #[must_use]
            #[inline]
            pub fn name(self) -> &'static str {
                match self { $(Self::$member => $name),+ }
            }

            /// The variant of this name, in any case.
            #[must_use]
            #[inline]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.name().eq_ignore_ascii_case(name))
            }

            /// Its byte in stored keys and rows.
            #[must_use]
            #[inline]
            pub fn code(self) -> u8 {
                self as u8
            }

            /// The variant with this byte.
            #[must_use]
            #[inline]
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.code() == code)
            }
        }
    };
}
pub use crate::coded;

/// Writes fields one after another.
#[derive(Debug, Default)]
pub struct FieldEncoder {
    bytes: BytesMut,
}

impl FieldEncoder {
    /// An encoder with room for `capacity` bytes.
    #[must_use]
    #[inline]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(capacity) }
    }

    /// An encoder of a row that begins with this version byte.
    #[must_use]
    #[inline]
    pub fn versioned(version: u8, capacity: usize) -> Self {
        let mut out = Self::with_capacity(capacity);
        out.u8(version);
        out
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes.put_u8(value);
    }

    /// Eight bytes, big endian.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.put_u64(value);
    }

    /// A number in 7-bit groups, least significant first: 1 to 10 bytes.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.put_u8((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    /// A byte string after its length.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.raw(value);
    }

    /// Bytes without a length: the reader must know how many there are.
    #[inline]
    pub fn raw(&mut self, value: &[u8]) {
        self.bytes.put_slice(value);
    }

    /// A text after its length.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// 0 for an absent value, 1 before a value.
    #[inline]
    pub fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    /// Items after their count.
    #[inline]
    pub fn list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T)) {
        self.varint(items.len() as u64);
        for item in items {
            put(self, item);
        }
    }

    /// The bytes written so far.
    #[must_use]
    #[inline]
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// The finished bytes.
    #[must_use]
    #[inline]
    pub fn finish(self) -> Bytes {
        self.bytes.freeze()
    }
}

/// Reads fields in the order in which they were written. Byte strings share the memory of the input.
#[derive(Debug)]
pub struct FieldDecoder {
    rest: Bytes,
}

impl FieldDecoder {
    /// A decoder over `bytes`.
    #[must_use]
    #[inline]
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// A decoder after the version byte of a row.
    ///
    /// # Errors
    /// [`DecodeError::UnknownVersion`] for any version but `known`.
    #[inline]
    pub fn versioned(bytes: Bytes, known: u8) -> Result<Self, DecodeError> {
        let mut decoder = Self::new(bytes);
        decoder.version(known)?;
        Ok(decoder)
    }

    /// Reads and checks a version byte.
    ///
    /// # Errors
    /// [`DecodeError::UnknownVersion`] for any version but `known`.
    #[inline]
    pub fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        match self.u8()? {
            version if version == known => Ok(()),
            // A newer program may have changed what follows: reading on would misread it [invariant 72].
            version => Err(DecodeError::UnknownVersion(version)),
        }
    }

    /// The number of bytes not read yet.
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// One byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.rest.first().ok_or(DecodeError::Truncated)?;
        self.rest.advance(1);
        Ok(byte)
    }

    /// Eight bytes, big endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number written by [`FieldEncoder::varint`].
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], or [`DecodeError::Invalid`] when it does not fit 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let group = u64::from(byte & 0x7f);
            // The tenth byte carries the last of 64 bits: a greater group would lose bits.
            if shift == 63 && group > 1 {
                break;
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid("varint"))
    }

    /// A count of at most `max`, so that a hostile count cannot make the caller reserve memory.
    ///
    /// # Errors
    /// As [`Self::varint`]; [`DecodeError::Invalid`] above `max`.
    #[inline]
    pub fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        // Bound: a damaged count must not allocate memory.
        usize::try_from(count).ok().filter(|&count| count <= max).ok_or(DecodeError::Invalid("count"))
    }

    /// A byte string after its length.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when the length points past the end.
    #[inline]
    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.varint()?;
        // A damaged length fails here: `raw` allocates nothing.
        self.raw(usize::try_from(length).map_err(|_| DecodeError::Truncated)?)
    }

    /// `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when there are fewer.
    #[inline]
    pub fn raw(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.rest.split_to(length))
    }

    /// As many bytes as the array has.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let array = *self.rest.first_chunk().ok_or(DecodeError::Truncated)?;
        // Without a part that shares the memory: counting its owners would cost more than the copy.
        self.rest.advance(N);
        Ok(array)
    }

    /// A text written by [`FieldEncoder::text`].
    ///
    /// # Errors
    /// As [`Self::bytes`]; [`DecodeError::Invalid`] for text that is not UTF-8.
    #[inline]
    pub fn text(&mut self) -> Result<String, DecodeError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| DecodeError::Invalid("text"))
    }

    /// A value written by [`FieldEncoder::optional`].
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] for a presence byte above 1, and the errors of `take`.
    #[inline]
    pub fn optional<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => take(self).map(Some),
            _ => Err(DecodeError::Invalid("presence")),
        }
    }

    /// A list written by [`FieldEncoder::list`]. It grows with its items: a hostile count reserves no memory.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] for a count above [`METADATA_BYTES_MAX`], and the errors of `take`.
    #[inline]
    pub fn list<T>(&mut self, take: impl Fn(&mut Self) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        let mut items = Vec::new();
        for _ in 0..self.count(METADATA_BYTES_MAX)? {
            items.push(take(self)?);
        }
        Ok(items)
    }

    /// All remaining bytes.
    #[must_use]
    #[inline]
    pub fn rest(self) -> Bytes {
        self.rest
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] otherwise.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        // Bytes that are left over are damage, or a field of a newer program.
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// Bytes of a number that [`FieldEncoder::varint`] writes.
#[must_use]
#[inline]
pub fn varint_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The first name after this one.
#[must_use]
#[inline]
pub fn name_after(name: &[u8]) -> Bytes {
    [name, &[0]].concat().into()
}

/// The first name after all that begin with `prefix`; `None` when there is none.
#[must_use]
#[inline]
pub fn prefix_successor(prefix: &[u8]) -> Option<Bytes> {
    // The last byte that can grow: all `ff` after it fall away.
    let last = prefix.iter().rposition(|&byte| byte < 0xff)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor.into())
}

/// Appends `bytes` so that results sort as the bytes do and none is a prefix of another: `00` becomes `00 ff`, `00 01` ends it.
#[inline]
pub fn put_ordered(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        // A zero is escaped, so that the end mark sorts below every continuation of the name.
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// Reads a value written by [`put_ordered`]. Returns the value and the bytes after it.
///
/// # Errors
/// [`DecodeError::Truncated`] without an end mark, [`DecodeError::Invalid`] for an unknown escape.
#[inline]
pub fn take_ordered(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), DecodeError> {
    let mut value = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [0, 1, tail @ ..] => return Ok((value, tail)),
            [0, 0xff, tail @ ..] => {
                value.push(0);
                rest = tail;
            }
            // Each name has one encoding only, or equal names would be two rows.
            [0, _, ..] => return Err(DecodeError::Invalid("escape")),
            [0] | [] => return Err(DecodeError::Truncated),
            [byte, tail @ ..] => {
                value.push(*byte);
                rest = tail;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_decode_to_themselves(value: u64) {
            let mut encoder = FieldEncoder::default();
            encoder.varint(value);
            prop_assert_eq!(encoder.written().len(), varint_len(value));
            let mut decoder = FieldDecoder::new(encoder.finish());
            prop_assert_eq!(decoder.varint(), Ok(value));
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let mut decoder = FieldDecoder::new(bytes.clone().into());
            while decoder.bytes().is_ok() && decoder.remaining() > 0 {}
            let _ = FieldDecoder::new(bytes.clone().into()).varint();
            let _ = take_ordered(&bytes);
        }

        #[test]
        fn ordered_strings_sort_as_their_bytes(a: Vec<u8>, b: Vec<u8>) {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            put_ordered(&mut x, &a);
            put_ordered(&mut y, &b);
            prop_assert_eq!(a.cmp(&b), x.cmp(&y));
            let (value, rest) = take_ordered(&x).unwrap();
            prop_assert_eq!(value, a);
            prop_assert!(rest.is_empty());
        }
    }
}
