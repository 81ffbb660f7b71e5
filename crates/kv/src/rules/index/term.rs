//! The stored form of a term: bytes that sort as the values do.
//!
//! ```text
//! _bin   the bytes themselves
//! _int   02 · length · digits              zero and above; digits without leading zeros
//!        01 · length · digits              below zero; every byte of length and digits inverted
//! length n below f0: one byte; else f0 + the number of the bytes that follow, then n, most significant byte first
//! ```
//! An integer may have any number of digits: of two positive ones the longer is the greater.

use std::fmt;

use bytes::Bytes;
use larder_core::rules::erlang;
use larder_rows::codec::DecodeError;
use larder_rows::limits::REGEX_TEXT_MAX;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::{self, ErrorKind};

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

/// Most bytes that a compiled expression takes, and the states that its matches remember.
const COMPILED_BYTES_MAX: usize = 256 * 1024;
/// Most brackets within brackets.
const NESTING_MAX: u32 = 50;
/// Columns of the lines of an Erlang printer.
const COLUMNS: usize = 80;

/// A regular expression over bytes, found anywhere in a term.
#[derive(Debug, Clone)]
pub struct TermRegex(Regex);

/// An expression that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexError {
    /// The reason, in the words of PCRE where it has them.
    pub reason: String,
    /// Where it was found, in bytes.
    pub position: usize,
}

impl TermRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`RegexError`]: it is malformed, too large, or uses what no linear matcher has.
    pub fn new(pattern: &[u8]) -> Result<Self, RegexError> {
        let refused = |reason: &str, position| RegexError { reason: reason.into(), position };
        // Bound: the syntax tree takes a hundred bytes for each of the expression.
        if pattern.len() > REGEX_TEXT_MAX {
            return Err(refused("regular expression is too large", 0));
        }
        let text =
            std::str::from_utf8(pattern).map_err(|error| refused("invalid UTF-8 string", error.valid_up_to()))?;
        // Parsed apart: the compiler's own error has no position.
        if let Err(error) = ast::parse::ParserBuilder::new().nest_limit(NESTING_MAX).build().parse(text) {
            return Err(RegexError::from_syntax(&error, text.len()));
        }
        let mut builder = RegexBuilder::new(text);
        // As Riak, which matches bytes.
        builder
            .unicode(false)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .nest_limit(NESTING_MAX);
        builder.build().map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => refused("regular expression is too large", 0),
            other => refused(other.to_string().lines().last().unwrap_or_default(), 0),
        })
    }

    /// Whether the expression is found in these bytes.
    #[must_use]
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }

    /// The expression.
    #[must_use]
    pub fn pattern(&self) -> &str {
        self.0.as_str()
    }
}

impl RegexError {
    fn from_syntax(error: &ast::Error, length: usize) -> Self {
        let at = error.span().start.offset;
        let (reason, position) = match error.kind() {
            ErrorKind::ClassUnclosed => ("missing terminating ] for character class".into(), length),
            ErrorKind::GroupUnclosed => ("missing )".into(), length),
            ErrorKind::GroupUnopened => ("unmatched parentheses".into(), at),
            ErrorKind::RepetitionMissing => ("nothing to repeat".into(), at),
            ErrorKind::EscapeUnexpectedEof => ("\\ at end of pattern".into(), length),
            ErrorKind::ClassRangeInvalid => ("range out of order in character class".into(), at),
            ErrorKind::UnsupportedLookAround => ("look-around is not supported".into(), at),
            ErrorKind::UnsupportedBackreference => ("back-references are not supported".into(), at),
            other => (other.to_string(), at),
        };
        Self { reason, position }
    }

    /// The Erlang term that names it after a text of `column` columns: a line that would be too long is broken as Erlang's
    /// printer breaks it.
    #[must_use]
    pub fn erlang(&self, column: usize) -> String {
        let reason = erlang::string(&self.reason);
        let line = format!("{{{reason},{}}}", self.position);
        if column + line.len() <= COLUMNS {
            return line;
        }
        format!("{{{reason},\n{}{}}}", " ".repeat(column + 1), self.position)
    }
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.reason, self.position)
    }
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

#[cfg(test)]
mod term_regex_tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_refused(pattern: &str, erlang: &str) {
        assert_eq!(TermRegex::new(pattern.as_bytes()).unwrap_err().erlang(0), erlang, "{pattern}");
    }

    #[test]
    fn refused_expressions_are_named_as_pcre_does() {
        check_refused("[", "{\"missing terminating ] for character class\",1}");
        check_refused("(a", "{\"missing )\",2}");
        check_refused("*a", "{\"nothing to repeat\",0}");
        check_refused("(?=a)", "{\"look-around is not supported\",0}");
        check_refused("a(?<!b)", "{\"look-around is not supported\",1}");
        check_refused(r"(a)\1", "{\"back-references are not supported\",3}");
        check_refused("(a{1000}){1000}", "{\"regular expression is too large\",0}");
    }

    #[test]
    fn a_long_reason_is_broken_as_erlang_breaks_it() {
        let error = TermRegex::new(b"[").unwrap_err();
        assert_eq!(
            error.erlang(38),
            format!("{{\"missing terminating ] for character class\",\n{}1}}", " ".repeat(39))
        );
    }

    #[test]
    fn expressions_match_bytes_anywhere() {
        let regex = TermRegex::new(b"n[12]").unwrap();
        assert!(regex.is_match(b"n1") && regex.is_match(b"xn2y") && !regex.is_match(b"n3"));
        assert!(TermRegex::new(b"^a.b$").unwrap().is_match(b"a\xffb"));
        assert!(TermRegex::new(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn random_expressions_compile_or_fail_without_panic(pattern: String, term: Vec<u8>) {
            if let Ok(regex) = TermRegex::new(pattern.as_bytes()) {
                let _ = regex.is_match(&term);
            }
        }
    }
}
