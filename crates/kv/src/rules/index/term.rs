//! The stored form of a term: bytes that sort as the values do.
//!
//! ```text
//! _bin   the bytes themselves
//! _int   02 · length · digits              zero and above; digits without leading zeros
//!        01 · length · digits              below zero; every byte of length and digits inverted
//! length n below f0: one byte; else f0 + the number of the bytes that follow, then n, most significant byte first
//! ```
//! An integer may have any number of digits: of two positive ones the longer is the greater.

use bytes::Bytes;
use larder_rows::codec::DecodeError;

const NEGATIVE: u8 = 1;
const POSITIVE: u8 = 2;
/// Lengths from here on have bytes of their own.
const LONG: u8 = 0xf0;

/// The kind of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TermKind {
    /// `_bin`: bytes, in their order.
    Binary,
    /// `_int`: integers of any size, in the order of numbers.
    Integer,
}

/// A term in its stored form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoredTerm(pub Bytes);

impl TermKind {
    /// The kind of a field with this name; `None` for a special field.
    #[must_use]
    pub fn from_field(field: &[u8]) -> Option<Self> {
        if field.ends_with(b"_int") { Some(Self::Integer) } else { field.ends_with(b"_bin").then_some(Self::Binary) }
    }

    /// The stored form of a value: of an integer its canonical decimal text.
    #[must_use]
    pub fn store(self, value: &Bytes) -> StoredTerm {
        match self {
            Self::Binary => StoredTerm(value.clone()),
            Self::Integer => StoredTerm(store_integer(value)),
        }
    }

    /// The value of a stored term, as a client sees it.
    ///
    /// # Errors
    /// [`DecodeError`] when the term is no integer of [`Self::store`].
    pub fn show(self, term: &StoredTerm) -> Result<Bytes, DecodeError> {
        match self {
            Self::Binary => Ok(term.0.clone()),
            Self::Integer => show_integer(&term.0),
        }
    }
}

fn store_integer(text: &[u8]) -> Bytes {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (NEGATIVE, digits),
        None => (POSITIVE, text),
    };
    let mut out = Vec::with_capacity(2 + digits.len());
    out.push(sign);
    let length = digits.len() as u64;
    if length < u64::from(LONG) {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        out.push(LONG + (bytes.len() - zeros) as u8);
        out.extend_from_slice(&bytes[zeros..]);
    }
    out.extend_from_slice(digits);
    if sign == NEGATIVE {
        out[1..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    out.into()
}

fn show_integer(stored: &[u8]) -> Result<Bytes, DecodeError> {
    let (sign, rest) = stored.split_first().ok_or(DecodeError::Truncated)?;
    let rest: Vec<u8> = match *sign {
        POSITIVE => rest.to_vec(),
        NEGATIVE => rest.iter().map(|byte| !byte).collect(),
        _ => return Err(DecodeError::Invalid("sign of an integer")),
    };
    let (first, rest) = rest.split_first().ok_or(DecodeError::Truncated)?;
    let (length, digits) = match first.checked_sub(LONG) {
        None => (u64::from(*first), rest),
        Some(count) => {
            let count = usize::from(count);
            let bytes = rest.get(..count).filter(|_| count <= 8).ok_or(DecodeError::Truncated)?;
            (bytes.iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)), &rest[count..])
        }
    };
    if digits.is_empty() || digits.len() as u64 != length || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecodeError::Invalid("digits of an integer"));
    }
    let minus: &[u8] = if *sign == NEGATIVE { b"-" } else { b"" };
    Ok([minus, digits].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(value: i128) -> StoredTerm {
        TermKind::Integer.store(&value.to_string().into())
    }

    proptest! {
        #[test]
        fn integers_sort_as_numbers_and_show_themselves(a: i128, b: i128, small in -1000_i128..1000) {
            for (a, b) in [(a, b), (a, small), (small, small + 1), (a, a)] {
                prop_assert_eq!(stored(a).cmp(&stored(b)), a.cmp(&b), "{} {}", a, b);
            }
            prop_assert_eq!(TermKind::Integer.show(&stored(a)).unwrap(), a.to_string());
        }

        #[test]
        fn random_bytes_show_an_integer_or_fail(bytes: Vec<u8>) {
            if let Ok(text) = TermKind::Integer.show(&StoredTerm(bytes.into())) {
                prop_assert!(!text.is_empty());
            }
        }
    }

    #[test]
    fn an_integer_of_thousands_of_digits_sorts_by_its_length() {
        let of = |digits: usize, sign: &str| TermKind::Integer.store(&format!("{sign}{}", "9".repeat(digits)).into());
        let lengths = [1, 2, 239, 240, 241, 255, 256, 257, 65_535, 65_536];
        for pair in lengths.windows(2) {
            assert!(of(pair[0], "") < of(pair[1], ""), "{pair:?}");
            assert!(of(pair[0], "-") > of(pair[1], "-"), "{pair:?}");
        }
        for digits in lengths {
            let text = format!("-{}", "9".repeat(digits));
            assert_eq!(TermKind::Integer.show(&of(digits, "-")).unwrap(), text);
        }
    }

    /// Names of stored rows: a change here needs a new epoch of every index.
    #[test]
    fn the_golden_integers_stay() {
        for (value, bytes) in [
            (0, &b"\x02\x010"[..]),
            (7, b"\x02\x017"),
            (10, b"\x02\x0210"),
            (-1, b"\x01\xfe\xce"),
            (-10, b"\x01\xfd\xce\xcf"),
        ] {
            assert_eq!(stored(value).0, bytes, "{value}");
        }
    }
}
