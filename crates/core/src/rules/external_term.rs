//! Erlang terms in the external format, as Erlang programs send and store them: `term_to_binary`.
//!
//! ```text
//! 131, tag, content        a list: 108, count, elements, tail · a tuple: 104, count, elements · a binary: 109, length, bytes · …
//! ```
//! A term has parts of its document, not copies of them. Atoms are texts: no table keeps them. Depth and memory are bounded.

use bytes::Bytes;

use super::erlang::{atom, binary, string};

/// The first byte of a document.
const VERSION: u8 = 131;
/// Most terms of a document: about 100 MB of memory.
const TERMS_MAX: usize = 2_000_000;
/// Terms of a list that have their place before they are there.
const RESERVED_MAX: usize = 16;

/// A decoded term, without processes, references and ports. `B` has the bytes of its parts.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalTerm<B> {
    /// An atom.
    Atom(B),
    /// An integer.
    Integer(i64),
    /// A longer integer: whether it is negative, and its bytes, the lowest first.
    Big(bool, B),
    /// A float.
    Float(f64),
    /// A binary.
    Binary(B),
    /// A list of bytes, such as a text.
    Bytes(B),
    /// A list.
    List(Vec<ExternalTerm<B>>),
    /// A list that does not end with the empty list: its elements, and then its end.
    Improper(Vec<ExternalTerm<B>>),
    /// A tuple.
    Tuple(Vec<ExternalTerm<B>>),
    /// A map: keys and values in turns.
    Map(Vec<ExternalTerm<B>>),
    /// A fun. Its code is not here.
    Fun,
}

/// Which terms a caller takes.
#[derive(Debug, Clone, Copy)]
pub struct TermBounds {
    /// Nested terms at most.
    pub depth: usize,
    /// Whether lists may end with another term than the empty list.
    pub has_improper: bool,
}

/// Why bytes are no term, or one that is not decoded; each names the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalTermError {
    /// They end too early: a length or a count exceeds them.
    Truncated(&'static str),
    /// A part has a form that is unknown, or not taken.
    Invalid(&'static str),
    /// A bound was reached.
    TooLarge(&'static str),
    /// There is more after the end.
    Trailing,
}

/// The bytes of a document.
pub trait TermBytes: AsRef<[u8]> + Sized {
    /// Takes so many bytes from the front, if they are there.
    fn take_front(&mut self, length: usize) -> Option<Self>;
}

impl TermBytes for &[u8] {
    fn take_front(&mut self, length: usize) -> Option<Self> {
        let (taken, rest) = self.split_at_checked(length)?;
        *self = rest;
        Some(taken)
    }
}

impl TermBytes for Bytes {
    fn take_front(&mut self, length: usize) -> Option<Self> {
        (length <= self.len()).then(|| self.split_to(length))
    }
}

impl<B: TermBytes> ExternalTerm<B> {
    /// Decodes a document. A term of slices takes at most 32 bytes of memory for each byte of it.
    ///
    /// # Errors
    /// [`ExternalTermError`]: also for terms beyond the bounds.
    pub fn decode(mut document: B, bounds: TermBounds) -> Result<Self, ExternalTermError> {
        match document.take_front(1).ok_or(ExternalTermError::Truncated("version of a term"))?.as_ref() {
            [VERSION] => Self::decode_content(document, bounds),
            _ => Err(ExternalTermError::Invalid("version of a term")),
        }
    }

    /// Decodes a document without its version, as a compressed one is.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_content(content: B, bounds: TermBounds) -> Result<Self, ExternalTermError> {
        let mut reader = TermReader { rest: content, terms: 0, has_improper: bounds.has_improper };
        let term = reader.term(bounds.depth)?;
        if reader.rest.as_ref().is_empty() { Ok(term) } else { Err(ExternalTermError::Trailing) }
    }

    /// The atom as text.
    #[must_use]
    pub fn as_atom(&self) -> Option<&str> {
        match self {
            Self::Atom(name) => std::str::from_utf8(name.as_ref()).ok(),
            _ => None,
        }
    }

    /// The elements of a list; a list of bytes has integers.
    #[must_use]
    pub fn into_list(self) -> Option<Vec<Self>> {
        match self {
            Self::List(list) => Some(list),
            Self::Bytes(bytes) => Some(bytes.as_ref().iter().map(|byte| Self::Integer((*byte).into())).collect()),
            _ => None,
        }
    }

    /// The term on one line, as Erlang's shell prints it.
    #[must_use]
    pub fn shown(&self) -> String {
        let all = |list: &[Self]| list.iter().map(Self::shown).collect::<Vec<_>>().join(",");
        match self {
            Self::Atom(name) => atom(&String::from_utf8_lossy(name.as_ref())),
            Self::Integer(number) => number.to_string(),
            Self::Big(is_negative, digits) => match big(*is_negative, digits.as_ref()) {
                Some(number) => number.to_string(),
                None => format!("<integer of {} bytes>", digits.as_ref().len()),
            },
            Self::Float(number) => format!("{number:?}"),
            Self::Binary(bytes) => binary(bytes),
            Self::Bytes(bytes) => string(&bytes.as_ref().iter().map(|byte| char::from(*byte)).collect::<String>()),
            Self::List(list) => format!("[{}]", all(list)),
            Self::Improper(list) => match list.split_last() {
                Some((end, list)) => format!("[{}|{}]", all(list), end.shown()),
                None => "[]".to_owned(),
            },
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

struct TermReader<B> {
    /// The bytes that are left.
    rest: B,
    /// Elements of lists, tuples and maps that were announced.
    terms: usize,
    has_improper: bool,
}

impl<B: TermBytes> TermReader<B> {
    fn take(&mut self, length: usize, part: &'static str) -> Result<B, ExternalTermError> {
        self.rest.take_front(length).ok_or(ExternalTermError::Truncated(part))
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], ExternalTermError> {
        self.take(N, part)?.as_ref().try_into().map_err(|_| ExternalTermError::Truncated(part))
    }

    fn byte(&mut self, part: &'static str) -> Result<u8, ExternalTermError> {
        self.array::<1>(part).map(|[byte]| byte)
    }

    fn short(&mut self, part: &'static str) -> Result<usize, ExternalTermError> {
        self.array(part).map(|bytes| u16::from_be_bytes(bytes).into())
    }

    fn long(&mut self, part: &'static str) -> Result<usize, ExternalTermError> {
        self.array(part).map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    fn term(&mut self, depth: usize) -> Result<ExternalTerm<B>, ExternalTermError> {
        let depth = depth.checked_sub(1).ok_or(ExternalTermError::TooLarge("depth of terms"))?;
        Ok(match self.byte("tag of a term")? {
            b'a' => ExternalTerm::Integer(self.byte("integer")?.into()),
            b'b' => ExternalTerm::Integer(self.array("integer").map(i32::from_be_bytes)?.into()),
            b'n' => {
                let length = self.byte("integer")?.into();
                self.integer(length)?
            }
            b'o' => {
                let length = self.long("integer")?;
                self.integer(length)?
            }
            b'F' => ExternalTerm::Float(self.array("float").map(f64::from_be_bytes)?),
            b'c' => ExternalTerm::Float(self.float_text()?),
            tag @ (b'd' | b'v') => {
                let length = self.short("atom")?;
                self.atom(tag, length)?
            }
            tag @ (b's' | b'w') => {
                let length = self.byte("atom")?.into();
                self.atom(tag, length)?
            }
            b'm' => {
                let length = self.long("binary")?;
                ExternalTerm::Binary(self.take(length, "binary")?)
            }
            b'k' => {
                let length = self.short("text")?;
                ExternalTerm::Bytes(self.take(length, "text")?)
            }
            b'j' => ExternalTerm::List(Vec::new()),
            b'l' => self.list(depth)?,
            b'h' => {
                let count = self.byte("tuple")?.into();
                ExternalTerm::Tuple(self.terms(count, depth, "tuple")?)
            }
            b'i' => {
                let count = self.long("tuple")?;
                ExternalTerm::Tuple(self.terms(count, depth, "tuple")?)
            }
            b't' => {
                let count = self.long("map")?.saturating_mul(2);
                ExternalTerm::Map(self.terms(count, depth, "map")?)
            }
            b'p' => {
                // The size counts itself.
                let length = self.long("fun")?.checked_sub(4).ok_or(ExternalTermError::Invalid("fun"))?;
                self.take(length, "fun")?;
                ExternalTerm::Fun
            }
            b'q' => {
                self.terms(3, depth, "fun")?;
                ExternalTerm::Fun
            }
            _ => return Err(ExternalTermError::Invalid("tag of a term")),
        })
    }

    fn list(&mut self, depth: usize) -> Result<ExternalTerm<B>, ExternalTermError> {
        let count = self.long("list")?;
        let mut list = self.terms(count, depth, "list")?;
        match self.term(depth)? {
            ExternalTerm::List(end) if end.is_empty() => Ok(ExternalTerm::List(list)),
            end if self.has_improper => {
                list.push(end);
                Ok(ExternalTerm::Improper(list))
            }
            _ => Err(ExternalTermError::Invalid("end of a list")),
        }
    }

    /// Terms one after the other. Memory grows with the bytes that are there, never by a claimed count.
    fn terms(
        &mut self,
        count: usize,
        depth: usize,
        part: &'static str,
    ) -> Result<Vec<ExternalTerm<B>>, ExternalTermError> {
        // Bound: an element takes a byte at least, so a count above the bytes is a lie.
        if count > self.rest.as_ref().len() {
            return Err(ExternalTermError::Truncated(part));
        }
        self.terms += count;
        if self.terms > TERMS_MAX {
            return Err(ExternalTermError::TooLarge("number of terms"));
        }
        let mut terms = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            terms.push(self.term(depth)?);
        }
        Ok(terms)
    }

    /// An atom. Those of Latin 1 beyond ASCII name nothing that is known here.
    fn atom(&mut self, tag: u8, length: usize) -> Result<ExternalTerm<B>, ExternalTermError> {
        let atom = self.take(length, "atom")?;
        let name = atom.as_ref();
        let is_utf8 = std::str::from_utf8(name).is_ok();
        if is_utf8 && (name.is_ascii() || matches!(tag, b'v' | b'w')) {
            Ok(ExternalTerm::Atom(atom))
        } else {
            Err(ExternalTermError::Invalid("atom"))
        }
    }

    fn integer(&mut self, length: usize) -> Result<ExternalTerm<B>, ExternalTermError> {
        let is_negative = self.byte("integer")? != 0;
        let digits = self.take(length, "integer")?;
        let short = big(is_negative, digits.as_ref()).and_then(|number| i64::try_from(number).ok());
        Ok(short.map_or(ExternalTerm::Big(is_negative, digits), ExternalTerm::Integer))
    }

    /// A float as older Erlang wrote it, in 31 characters.
    fn float_text(&mut self) -> Result<f64, ExternalTermError> {
        let invalid = ExternalTermError::Invalid("float");
        let digits: [u8; 31] = self.array("float")?;
        let text = std::str::from_utf8(&digits).map_err(|_| invalid)?;
        text.trim_end_matches('\0').parse().map_err(|_| invalid)
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

    /// A text: a list of its bytes.
    pub fn string(&mut self, bytes: &[u8]) {
        match u16::try_from(bytes.len()) {
            Ok(0) => self.0.push(106),
            Ok(length) => {
                self.0.push(107);
                self.0.extend(length.to_be_bytes());
                self.0.extend(bytes);
            }
            Err(_) => self.list(bytes.len(), |term| bytes.iter().for_each(|byte| term.integer((*byte).into()))),
        }
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
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: TermBounds = TermBounds { depth: 64, has_improper: false };

    #[test]
    fn terms_of_erlang_are_decoded() {
        use ExternalTerm as T;
        // term_to_binary of each, by Erlang/OTP 25.
        let cases: [(&[u8], T<&[u8]>); 11] = [
            (&[131, 97, 5], T::Integer(5)),
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
        ];
        for (document, term) in cases {
            assert_eq!(T::decode(document, BOUNDS), Ok(term));
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
            assert!(ExternalTerm::decode(document, BOUNDS).is_err(), "{document:?}");
        }
        let nested = |depth: usize| [&[131][..], &[104, 1].repeat(depth), &[106]].concat();
        assert!(ExternalTerm::decode(&nested(BOUNDS.depth - 1)[..], BOUNDS).is_ok());
        assert_eq!(
            ExternalTerm::decode(&nested(1_000_000)[..], BOUNDS),
            Err(ExternalTermError::TooLarge("depth of terms"))
        );
        assert!(size_of::<ExternalTerm<&[u8]>>() <= 32);
    }

    #[test]
    fn a_text_of_any_length_is_decoded_as_it_was_written() {
        for length in [0, 1, 65_535, 65_536] {
            let mut writer = TermWriter::default();
            writer.string(&vec![b'x'; length]);
            let document = writer.finish();
            let list = ExternalTerm::decode(&document[..], BOUNDS).unwrap().into_list().unwrap();
            assert!(list.len() == length && list.iter().all(|term| *term == ExternalTerm::Integer(b'x'.into())));
        }
    }

    proptest! {
        #[test]
        fn integers_are_decoded_as_they_were_written(number: i128) {
            let mut writer = TermWriter::default();
            writer.integer(number);
            let document = writer.finish();
            let decoded = match ExternalTerm::decode(&document[..], BOUNDS) {
                Ok(ExternalTerm::Integer(integer)) => Some(integer.into()),
                Ok(ExternalTerm::Big(is_negative, digits)) => big(is_negative, digits),
                _ => None,
            };
            prop_assert_eq!(decoded, Some(number).filter(|number| *number != i128::MIN));
        }

        #[test]
        fn no_bytes_end_the_decoder(bytes in proptest::collection::vec(prop_oneof![Just(104u8), Just(108), Just(0), any::<u8>()], 0..200)) {
            let _ = ExternalTerm::decode(&[&[VERSION][..], &bytes].concat()[..], BOUNDS);
        }
    }
}
