//! The filter of terms: a regular expression without look-around and back-references, so that its time is linear.

use std::fmt;

use larder_core::rules::erlang;
use larder_rows::limits::REGEX_TEXT_MAX;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::{self, ErrorKind};

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
            return Err(RegexError::of_syntax(&error, text.len()));
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
    fn of_syntax(error: &ast::Error, length: usize) -> Self {
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
