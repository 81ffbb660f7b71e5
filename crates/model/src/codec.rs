//! The encoding that rows and contexts share: varints and length-prefixed byte strings, decoded without copying.

use bytes::{BufMut, Bytes, BytesMut};

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does, or a length points past the end.
    Truncated,
    /// This build does not read the version in the version byte.
    UnknownVersion(u8),
    /// The value of this field is out of its range.
    Invalid(&'static str),
    /// Bytes follow the last field.
    Trailing,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end too early"),
            Self::UnknownVersion(version) => write!(f, "unknown format version {version}"),
            Self::Invalid(field) => write!(f, "invalid {field}"),
            Self::Trailing => f.write_str("bytes are left over"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Writes fields one after another.
#[derive(Debug, Default)]
pub struct FieldEncoder {
    bytes: BytesMut,
}

impl FieldEncoder {
    /// An encoder with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(capacity) }
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.put_u8(value);
    }

    /// Eight bytes, big endian.
    pub fn u64(&mut self, value: u64) {
        self.bytes.put_u64(value);
    }

    /// A number in 7-bit groups, least significant first: 1 to 10 bytes.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.put_u8((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    /// A byte string after its length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.raw(value);
    }

    /// Bytes without a length: the reader must know how many there are.
    pub fn raw(&mut self, value: &[u8]) {
        self.bytes.put_slice(value);
    }

    /// The bytes written so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// The finished bytes.
    #[must_use]
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
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// The number of bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// One byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.raw(1)?[0])
    }

    /// Eight bytes, big endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.raw(8)?;
        Ok(bytes.iter().fold(0, |value, &byte| (value << 8) | u64::from(byte)))
    }

    /// A number written by [`FieldEncoder::varint`].
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], or [`DecodeError::Invalid`] when it does not fit 64 bits.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let group = u64::from(byte & 0x7f);
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
    pub fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        usize::try_from(count).ok().filter(|&count| count <= max).ok_or(DecodeError::Invalid("count"))
    }

    /// A byte string after its length.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when the length points past the end.
    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.varint()?;
        self.raw(usize::try_from(length).map_err(|_| DecodeError::Truncated)?)
    }

    /// `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when there are fewer.
    pub fn raw(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.rest.split_to(length))
    }

    /// All remaining bytes.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.rest
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] otherwise.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }

    /// Reads and checks a version byte.
    ///
    /// # Errors
    /// [`DecodeError::UnknownVersion`] for any version but `known`.
    pub fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        match self.u8()? {
            version if version == known => Ok(()),
            version => Err(DecodeError::UnknownVersion(version)),
        }
    }
}

/// Appends `bytes` so that results sort as the bytes do and none is a prefix of another: `00` becomes `00 ff`, `00 01` ends it.
pub fn put_ordered(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
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
