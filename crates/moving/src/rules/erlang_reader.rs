//! Reads terms of Erlang, with a bound on their depth and their number.

use bytes::Bytes;

use super::erlang_term::ErlangTerm;
use super::riak_bytes::{INFLATED_BYTES_MAX, RiakBytes, RiakFormError, inflate_zlib};

/// Deepest term.
const DEPTH_MAX: usize = 128;
/// Most terms of one decoding: about 100 MB of memory.
const TERMS_MAX: usize = 2_000_000;
/// Most bytes of an integer.
const INTEGER_BYTES_MAX: usize = 15;
/// The first byte of an external term.
const VERSION: u8 = 131;
/// The tag of a compressed term.
const COMPRESSED: u8 = b'P';

impl ErlangTerm {
    /// Decodes what `term_to_binary` made, compressed or not.
    ///
    /// # Errors
    /// [`RiakFormError`]: also for terms that no stored object has, as references, and for those beyond the bounds.
    pub fn decode(bytes: Bytes) -> Result<Self, RiakFormError> {
        let mut rest = RiakBytes(bytes);
        let term = StoredTermReader::default().read_external(&mut rest)?;
        rest.finish()?;
        Ok(term)
    }
}

/// Counts what one decoding has read.
#[derive(Debug, Default)]
pub(super) struct StoredTermReader {
    /// Elements of lists, tuples and maps that were announced.
    terms: usize,
    depth: usize,
}

impl StoredTermReader {
    /// Reads a term after its version byte. A compressed one takes all the bytes.
    pub(super) fn read_external(&mut self, rest: &mut RiakBytes) -> Result<ErlangTerm, RiakFormError> {
        if rest.u8("version of a term")? != VERSION {
            return Err(RiakFormError::Invalid("version of a term"));
        }
        if rest.0.first() != Some(&COMPRESSED) {
            return self.read(rest);
        }
        rest.u8("tag of a term")?;
        let length = usize::try_from(rest.u32("length of a compressed term")?).unwrap_or(usize::MAX);
        if length > INFLATED_BYTES_MAX {
            return Err(RiakFormError::TooLarge("inflated form"));
        }
        let mut inflated = RiakBytes(inflate_zlib(&rest.rest(), INFLATED_BYTES_MAX)?);
        if inflated.remaining() != length {
            return Err(RiakFormError::Invalid("length of a compressed term"));
        }
        let term = self.read(&mut inflated)?;
        inflated.finish()?;
        Ok(term)
    }

    fn read(&mut self, rest: &mut RiakBytes) -> Result<ErlangTerm, RiakFormError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(RiakFormError::TooLarge("depth of terms"));
        }
        let term = self.read_tagged(rest)?;
        self.depth -= 1;
        Ok(term)
    }

    fn read_tagged(&mut self, rest: &mut RiakBytes) -> Result<ErlangTerm, RiakFormError> {
        Ok(match rest.u8("tag of a term")? {
            b'a' => ErlangTerm::Integer(rest.u8("integer")?.into()),
            b'b' => ErlangTerm::Integer(i128::from(rest.u32("integer")?.cast_signed())),
            b'n' => {
                let length = usize::from(rest.u8("integer")?);
                read_integer(rest, length)?
            }
            b'o' => {
                let length = usize::try_from(rest.u32("integer")?).unwrap_or(usize::MAX);
                read_integer(rest, length)?
            }
            b'F' => {
                let bytes = rest.take(8, "float")?;
                ErlangTerm::Float(bytes.as_ref().try_into().map(f64::from_be_bytes).unwrap_or_default())
            }
            b'd' | b'v' => {
                let length = rest.u16("atom")?.into();
                ErlangTerm::Atom(rest.take(length, "atom")?)
            }
            b's' | b'w' => {
                let length = rest.u8("atom")?.into();
                ErlangTerm::Atom(rest.take(length, "atom")?)
            }
            b'm' => ErlangTerm::Binary(rest.sized("binary")?),
            b'k' => {
                let length = rest.u16("text")?.into();
                ErlangTerm::Text(rest.take(length, "text")?)
            }
            b'j' => ErlangTerm::List { items: Vec::new(), tail: None },
            b'l' => self.read_list(rest)?,
            b'h' => {
                let size = rest.u8("tuple")?.into();
                ErlangTerm::Tuple(self.read_items(rest, size, "tuple")?)
            }
            b'i' => {
                let size = rest.u32("tuple")?;
                ErlangTerm::Tuple(self.read_items(rest, size, "tuple")?)
            }
            b't' => self.read_map(rest)?,
            _ => return Err(RiakFormError::Invalid("tag of a term")),
        })
    }

    fn read_list(&mut self, rest: &mut RiakBytes) -> Result<ErlangTerm, RiakFormError> {
        let count = rest.u32("list")?;
        let items = self.read_items(rest, count, "list")?;
        let tail = match self.read(rest)? {
            ErlangTerm::List { items, tail: None } if items.is_empty() => None,
            other => Some(Box::new(other)),
        };
        Ok(ErlangTerm::List { items, tail })
    }

    fn read_map(&mut self, rest: &mut RiakBytes) -> Result<ErlangTerm, RiakFormError> {
        let count = rest.u32("map")?;
        let mut items = self.read_items(rest, count.saturating_mul(2), "map")?.into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        Ok(ErlangTerm::Map(pairs))
    }

    fn read_items(
        &mut self,
        rest: &mut RiakBytes,
        count: u32,
        part: &'static str,
    ) -> Result<Vec<ErlangTerm>, RiakFormError> {
        // Bound: an element takes a byte at least, so a count above the bytes is a lie.
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > rest.remaining() {
            return Err(RiakFormError::Truncated(part));
        }
        // Bound: counted before the room for them is taken, or each of many nested lists could claim all of it.
        self.terms += count;
        if self.terms > TERMS_MAX {
            return Err(RiakFormError::TooLarge("number of terms"));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.read(rest)?);
        }
        Ok(items)
    }
}

/// An integer of so many bytes, the lowest first, after its sign.
fn read_integer(rest: &mut RiakBytes, length: usize) -> Result<ErlangTerm, RiakFormError> {
    let is_negative = rest.u8("integer")? != 0;
    let digits: Bytes = rest.take(length, "integer")?;
    if length > INTEGER_BYTES_MAX {
        return Err(RiakFormError::TooLarge("integer"));
    }
    let magnitude = digits.iter().rev().fold(0_i128, |number, byte| (number << 8) | i128::from(*byte));
    Ok(ErlangTerm::Integer(if is_negative { -magnitude } else { magnitude }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<ErlangTerm, RiakFormError> {
        ErlangTerm::decode(Bytes::copy_from_slice(bytes))
    }

    fn integer(number: i128) -> ErlangTerm {
        ErlangTerm::Integer(number)
    }

    #[test]
    fn the_forms_of_term_to_binary_decode() {
        let atom = |name: &'static str| ErlangTerm::Atom(Bytes::from_static(name.as_bytes()));
        let list = |items| ErlangTerm::List { items, tail: None };
        let binary = |bytes: &'static [u8]| ErlangTerm::Binary(Bytes::from_static(bytes));
        for (bytes, term) in [
            (&b"\x83a\xff"[..], integer(255)),
            (b"\x83b\xff\xff\xff\xfe", integer(-2)),
            (b"\x83n\x05\x00\x1ePw\xe4\x0e", integer(63_962_566_686)),
            (b"\x83n\x01\x01\x02", integer(-2)),
            (b"\x83o\0\0\0\x01\0\x07", integer(7)),
            (b"\x83F\x3f\xf8\0\0\0\0\0\0", ErlangTerm::Float(1.5)),
            (b"\x83d\0\x04dict", atom("dict")),
            (b"\x83s\x02ok", atom("ok")),
            (b"\x83v\0\x02ok", atom("ok")),
            (b"\x83w\x02ok", atom("ok")),
            (b"\x83m\0\0\0\x02ab", binary(b"ab")),
            (b"\x83k\0\x02ab", ErlangTerm::Text(Bytes::from_static(b"ab"))),
            (b"\x83j", list(Vec::new())),
            (b"\x83l\0\0\0\x01a\x01j", list(vec![integer(1)])),
            (
                b"\x83l\0\0\0\x01a\x01a\x02",
                ErlangTerm::List { items: vec![integer(1)], tail: Some(Box::new(integer(2))) },
            ),
            (b"\x83h\x02a\x01a\x02", ErlangTerm::Tuple(vec![integer(1), integer(2)])),
            (b"\x83i\0\0\0\x01a\x01", ErlangTerm::Tuple(vec![integer(1)])),
            (b"\x83t\0\0\0\x01a\x01a\x02", ErlangTerm::Map(vec![(integer(1), integer(2))])),
        ] {
            assert_eq!(decode(bytes), Ok(term), "{bytes:?}");
        }
    }

    #[test]
    fn a_lying_length_costs_nothing() {
        for bytes in [
            &b"\x83l\x40\0\0\0j"[..],
            b"\x83i\x40\0\0\0j",
            b"\x83t\x40\0\0\0j",
            b"\x83m\x40\0\0\0j",
            b"\x83o\x40\0\0\0\0j",
            b"\x83k\xff\xffj",
        ] {
            assert!(matches!(decode(bytes), Err(RiakFormError::Truncated(_))), "{bytes:?}");
        }
        let zeros = miniz_oxide::deflate::compress_to_vec_zlib(&vec![0; 65 << 20], 1);
        let bomb = [b"\x83P\0\0\0\x01", &zeros[..]].concat();
        assert_eq!(decode(&bomb), Err(RiakFormError::TooLarge("inflated form")));
        assert_eq!(decode(b"\x83P\x40\0\0\0junk"), Err(RiakFormError::TooLarge("inflated form")));
    }

    #[test]
    fn depth_and_number_of_terms_are_bounded() {
        let deep = [b"\x83".to_vec(), b"h\x01".repeat(100_000), b"j".to_vec()].concat();
        assert_eq!(decode(&deep), Err(RiakFormError::TooLarge("depth of terms")));
        let count = 3_000_000_u32;
        let wide = [b"\x83l".to_vec(), count.to_be_bytes().to_vec(), vec![b'j'; count as usize + 1]].concat();
        assert_eq!(decode(&wide), Err(RiakFormError::TooLarge("number of terms")));
    }

    #[test]
    fn foreign_terms_and_trailing_bytes_are_refused() {
        assert_eq!(decode(b"\x83a\x01x"), Err(RiakFormError::Trailing));
        assert_eq!(decode(b"\x82a\x01"), Err(RiakFormError::Invalid("version of a term")));
        assert_eq!(decode(b"\x83g"), Err(RiakFormError::Invalid("tag of a term")));
        assert_eq!(decode(&[b"\x83n\x20\x00".to_vec(), vec![1; 32]].concat()), Err(RiakFormError::TooLarge("integer")));
        assert_eq!(decode(b""), Err(RiakFormError::Truncated("version of a term")));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode(&[b"\x83", &bytes[..]].concat());
            let _ = decode(&bytes);
        }
    }
}
