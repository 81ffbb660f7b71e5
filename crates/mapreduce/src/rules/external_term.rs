//! Erlang terms in the external format, as Erlang programs send them: `term_to_binary`.
//!
//! ```text
//! 131, tag, content        a list: 108, count, elements, tail · a tuple: 104, count, elements · a binary: 109, length, bytes · …
//! ```
//! A term borrows the bytes of its document. Atoms are texts: no table keeps them. Depth and memory are bounded.

use larder_core::rules::erlang::{atom, binary, string};

/// Nested terms at most.
const DEPTH_MAX: usize = 64;
/// The first byte of a document.
const VERSION: u8 = 131;

/// A decoded term, without processes, references and ports.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalTerm<'a> {
    /// An atom.
    Atom(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A longer integer: whether it is negative, and its bytes, the lowest first.
    Big(bool, &'a [u8]),
    /// A float.
    Float(f64),
    /// A binary.
    Binary(&'a [u8]),
    /// A list of bytes, such as a text.
    Bytes(&'a [u8]),
    /// A list.
    List(Vec<ExternalTerm<'a>>),
    /// A tuple.
    Tuple(Vec<ExternalTerm<'a>>),
    /// A map: keys and values in turns.
    Map(Vec<ExternalTerm<'a>>),
    /// A fun. Its code is not here.
    Fun,
}

/// Terms of a list that have their place before they are there.
const RESERVED_MAX: usize = 16;

/// The document is no term, or one that is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotATerm;

impl<'a> ExternalTerm<'a> {
    /// Decodes a document. A term takes at most 32 bytes of memory for each byte of it.
    ///
    /// # Errors
    /// [`NotATerm`].
    pub fn decode(document: &'a [u8]) -> Result<Self, NotATerm> {
        let mut reader = TermReader(document);
        if reader.byte()? != VERSION {
            return Err(NotATerm);
        }
        let term = reader.term(DEPTH_MAX)?;
        if reader.0.is_empty() { Ok(term) } else { Err(NotATerm) }
    }

    /// The atom as text.
    #[must_use]
    pub fn as_atom(&self) -> Option<&'a str> {
        match self {
            Self::Atom(name) => std::str::from_utf8(name).ok(),
            _ => None,
        }
    }

    /// The elements of a list; a list of bytes has integers.
    #[must_use]
    pub fn into_list(self) -> Option<Vec<Self>> {
        match self {
            Self::List(list) => Some(list),
            Self::Bytes(bytes) => Some(bytes.iter().map(|byte| Self::Integer((*byte).into())).collect()),
            _ => None,
        }
    }

    /// The term on one line, as Erlang's shell prints it.
    #[must_use]
    pub fn shown(&self) -> String {
        let all = |list: &[Self]| list.iter().map(Self::shown).collect::<Vec<_>>().join(",");
        match self {
            Self::Atom(name) => atom(&String::from_utf8_lossy(name)),
            Self::Integer(number) => number.to_string(),
            Self::Big(is_negative, digits) => match big(*is_negative, digits) {
                Some(number) => number.to_string(),
                None => format!("<integer of {} bytes>", digits.len()),
            },
            Self::Float(number) => format!("{number:?}"),
            Self::Binary(bytes) => binary(bytes),
            Self::Bytes(bytes) => string(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
            Self::List(list) => format!("[{}]", all(list)),
            Self::Tuple(list) | Self::Map(list) => format!("{{{}}}", all(list)),
            Self::Fun => "#Fun".to_owned(),
        }
    }
}

/// An integer of up to sixteen bytes.
#[must_use]
pub fn big(is_negative: bool, digits: &[u8]) -> Option<i128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..digits.len())?.copy_from_slice(digits);
    let number = i128::try_from(u128::from_le_bytes(bytes)).ok()?;
    Some(if is_negative { -number } else { number })
}

/// The bytes that are left.
struct TermReader<'a>(&'a [u8]);

impl<'a> TermReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], NotATerm> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(NotATerm)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotATerm> {
        self.take(N)?.try_into().map_err(|_| NotATerm)
    }

    fn byte(&mut self) -> Result<u8, NotATerm> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<usize, NotATerm> {
        self.array().map(|bytes| u16::from_be_bytes(bytes).into())
    }

    fn long(&mut self) -> Result<usize, NotATerm> {
        self.array().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    fn term(&mut self, depth: usize) -> Result<ExternalTerm<'a>, NotATerm> {
        let depth = depth.checked_sub(1).ok_or(NotATerm)?;
        Ok(match self.byte()? {
            97 => ExternalTerm::Integer(self.byte()?.into()),
            98 => ExternalTerm::Integer(self.array().map(i32::from_be_bytes)?.into()),
            70 => ExternalTerm::Float(self.array().map(f64::from_be_bytes)?),
            99 => {
                let text = std::str::from_utf8(self.take(31)?).map_err(|_| NotATerm)?;
                ExternalTerm::Float(text.trim_end_matches('\0').parse().map_err(|_| NotATerm)?)
            }
            tag @ (100 | 118) => {
                let length = self.short()?;
                self.atom(tag, length)?
            }
            tag @ (115 | 119) => {
                let length = self.byte()?.into();
                self.atom(tag, length)?
            }
            104 => {
                let count = self.byte()?.into();
                ExternalTerm::Tuple(self.terms(count, depth)?)
            }
            105 => {
                let count = self.long()?;
                ExternalTerm::Tuple(self.terms(count, depth)?)
            }
            106 => ExternalTerm::List(Vec::new()),
            107 => {
                let length = self.short()?;
                ExternalTerm::Bytes(self.take(length)?)
            }
            108 => {
                let count = self.long()?;
                let list = self.terms(count, depth)?;
                // A tail other than the empty list is of no list that a job has.
                if self.byte()? == 106 { ExternalTerm::List(list) } else { return Err(NotATerm) }
            }
            109 => {
                let length = self.long()?;
                ExternalTerm::Binary(self.take(length)?)
            }
            110 => {
                let length = self.byte()?.into();
                self.big(length)?
            }
            111 => {
                let length = self.long()?;
                self.big(length)?
            }
            116 => {
                let count = self.long()?.checked_mul(2).ok_or(NotATerm)?;
                ExternalTerm::Map(self.terms(count, depth)?)
            }
            112 => {
                // The size counts itself.
                let length = self.long()?.checked_sub(4).ok_or(NotATerm)?;
                self.take(length)?;
                ExternalTerm::Fun
            }
            113 => {
                self.terms(3, depth)?;
                ExternalTerm::Fun
            }
            _ => return Err(NotATerm),
        })
    }

    /// Terms one after the other. Memory grows with the bytes that are there, never by a claimed count.
    fn terms(&mut self, count: usize, depth: usize) -> Result<Vec<ExternalTerm<'a>>, NotATerm> {
        if count > self.0.len() {
            return Err(NotATerm);
        }
        let mut terms = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            terms.push(self.term(depth)?);
        }
        Ok(terms)
    }

    /// An atom. Those of Latin 1 beyond ASCII name nothing of a job.
    fn atom(&mut self, tag: u8, length: usize) -> Result<ExternalTerm<'a>, NotATerm> {
        let name = self.take(length)?;
        let is_utf8 = std::str::from_utf8(name).is_ok();
        if is_utf8 && (name.is_ascii() || matches!(tag, 118 | 119)) {
            Ok(ExternalTerm::Atom(name))
        } else {
            Err(NotATerm)
        }
    }

    fn big(&mut self, length: usize) -> Result<ExternalTerm<'a>, NotATerm> {
        let is_negative = self.byte()? != 0;
        let digits = self.take(length)?;
        let short = big(is_negative, digits).and_then(|number| i64::try_from(number).ok());
        Ok(short.map_or(ExternalTerm::Big(is_negative, digits), ExternalTerm::Integer))
    }
}

/// Writes a term.
#[derive(Debug)]
pub struct TermWriter(Vec<u8>);

impl Default for TermWriter {
    fn default() -> Self {
        Self(vec![VERSION])
    }
}

impl TermWriter {
    /// The document.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// An atom of ASCII.
    pub fn atom(&mut self, name: &'static str) {
        self.0.push(100);
        self.0.extend((name.len() as u16).to_be_bytes());
        self.0.extend(name.bytes());
    }

    /// A binary.
    pub fn binary(&mut self, bytes: &[u8]) {
        self.0.push(109);
        self.length(bytes.len());
        self.0.extend(bytes);
    }

    /// An integer.
    pub fn integer(&mut self, number: i128) {
        if let Ok(byte) = u8::try_from(number) {
            self.0.extend([97, byte]);
        } else if let Ok(number) = i32::try_from(number) {
            self.0.push(98);
            self.0.extend(number.to_be_bytes());
        } else {
            let digits = number.unsigned_abs().to_le_bytes();
            let length = digits.len() - digits.iter().rev().take_while(|digit| **digit == 0).count();
            self.0.extend([110, length as u8, u8::from(number < 0)]);
            self.0.extend(&digits[..length]);
        }
    }

    /// A float.
    pub fn float(&mut self, number: f64) {
        self.0.push(70);
        self.0.extend(number.to_be_bytes());
    }

    /// The beginning of a tuple; its elements follow. It has at most 255.
    pub fn tuple(&mut self, count: u8) {
        self.0.extend([104, count]);
    }

    /// A list of so many elements, which `write` writes.
    pub fn list(&mut self, count: usize, write: impl FnOnce(&mut Self)) {
        if count > 0 {
            self.0.push(108);
            self.length(count);
            write(self);
        }
        self.0.push(106);
    }

    fn length(&mut self, length: usize) {
        // A document in memory within the bounds of a job has no more.
        self.0.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_of_erlang_are_decoded() {
        use ExternalTerm as T;
        // term_to_binary of each, by Erlang/OTP 25.
        for (document, term) in [
            (&[131, 97, 5][..], T::Integer(5)),
            (&[131, 98, 255, 255, 255, 254], T::Integer(-2)),
            (&[131, 110, 5, 1, 0, 0, 0, 0, 1], T::Integer(-(1 << 32))),
            (&[131, 70, 63, 248, 0, 0, 0, 0, 0, 0], T::Float(1.5)),
            (&[131, 100, 0, 2, b'o', b'k'], T::Atom(b"ok")),
            (&[131, 119, 2, b'o', b'k'], T::Atom(b"ok")),
            (&[131, 107, 0, 2, 1, 2], T::Bytes(&[1, 2])),
            (&[131, 109, 0, 0, 0, 1, 255], T::Binary(&[255])),
            (&[131, 104, 2, 97, 1, 106], T::Tuple(vec![T::Integer(1), T::List(vec![])])),
            (&[131, 108, 0, 0, 0, 1, 109, 0, 0, 0, 0, 106], T::List(vec![T::Binary(b"")])),
            (&[131, 116, 0, 0, 0, 1, 97, 1, 97, 2], T::Map(vec![T::Integer(1), T::Integer(2)])),
        ] {
            assert_eq!(T::decode(document), Ok(term));
        }
    }

    #[test]
    fn damaged_terms_and_those_that_would_take_memory_are_refused() {
        for document in [
            &[][..],
            &[131],
            &[130, 97, 5],
            &[131, 97, 5, 0],
            &[131, 108, 255, 255, 255, 255, 106],
            &[131, 105, 255, 255, 255, 255],
            &[131, 109, 255, 255, 255, 255, 1],
            &[131, 116, 255, 255, 255, 255],
            &[131, 108, 0, 0, 0, 1, 97, 1, 97, 2],
            &[131, 80, 0, 0, 0, 9, 120],
            &[131, 103, 0],
            &[131, 100, 0, 1, 255],
        ] {
            assert_eq!(ExternalTerm::decode(document), Err(NotATerm), "{document:?}");
        }
        let nested = |depth: usize| [&[131][..], &[104, 1].repeat(depth), &[106]].concat();
        assert!(ExternalTerm::decode(&nested(DEPTH_MAX - 1)).is_ok());
        assert_eq!(ExternalTerm::decode(&nested(1_000_000)), Err(NotATerm));
        assert!(size_of::<ExternalTerm<'_>>() <= 32);
    }

    proptest! {
        #[test]
        fn integers_are_decoded_as_they_were_written(number: i128) {
            let mut writer = TermWriter::default();
            writer.integer(number);
            let document = writer.finish();
            let decoded = match ExternalTerm::decode(&document) {
                Ok(ExternalTerm::Integer(integer)) => Some(integer.into()),
                Ok(ExternalTerm::Big(is_negative, digits)) => big(is_negative, digits),
                _ => None,
            };
            prop_assert_eq!(decoded, Some(number).filter(|number| *number != i128::MIN));
        }

        #[test]
        fn no_bytes_end_the_decoder(bytes in proptest::collection::vec(prop_oneof![Just(104u8), Just(108), Just(0), any::<u8>()], 0..200)) {
            let _ = ExternalTerm::decode(&[&[VERSION][..], &bytes].concat());
        }
    }
}
