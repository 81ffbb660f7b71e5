//! Erlang terms in the layout of `~p`, which some of Riak's error texts have: lines of 80 columns, lists filled.

use larder_core::rules::erlang::{atom, binary, string};

/// The columns of a line.
const LINE: usize = 80;

/// A term of an error text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErlangTerm {
    /// An atom.
    Atom(String),
    /// An integer.
    Integer(i64),
    /// A list of characters.
    String(String),
    /// A binary.
    Binary(Vec<u8>),
    /// A list.
    List(Vec<ErlangTerm>),
    /// A tuple.
    Tuple(Vec<ErlangTerm>),
    /// A term that is printed already.
    Verbatim(String),
}

impl ErlangTerm {
    /// A list of characters.
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    /// The term as `~p` prints it.
    #[must_use]
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.lay_out(1, 0, &mut out);
        out
    }

    /// The term on one line.
    fn flat(&self) -> String {
        let joined = |list: &[Self]| list.iter().map(Self::flat).collect::<Vec<_>>().join(",");
        match self {
            Self::Atom(name) => atom(name),
            Self::Integer(number) => number.to_string(),
            Self::String(text) => string(text),
            Self::Binary(bytes) => binary(bytes),
            Self::List(list) => format!("[{}]", joined(list)),
            Self::Tuple(list) => format!("{{{}}}", joined(list)),
            Self::Verbatim(text) => text.clone(),
        }
    }

    /// Appends the term, which begins in `column`; `closing` brackets follow it.
    fn lay_out(&self, column: usize, closing: usize, out: &mut String) {
        let flat = self.flat();
        match self {
            Self::List(list) if !fits(&flat, column, closing) => {
                out.push('[');
                lay_out_list(list, column + 1, closing, out);
                out.push(']');
            }
            Self::Tuple(list) if !fits(&flat, column, closing) => {
                out.push('{');
                lay_out_list(list, column + 1, closing, out);
                out.push('}');
            }
            _ => out.push_str(&flat),
        }
    }

    fn is_leaf(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Tuple(_))
    }
}

fn fits(flat: &str, column: usize, closing: usize) -> bool {
    flat.chars().count() + column + closing < LINE
}

/// Appends the elements: leaves fill the line, a list or a tuple has lines of its own.
fn lay_out_list(list: &[ErlangTerm], start: usize, closing: usize, out: &mut String) {
    let mut column = start;
    for (at, element) in list.iter().enumerate() {
        let closing = if at + 1 == list.len() { closing + 1 } else { 0 };
        let length = element.flat().chars().count();
        if at > 0 {
            out.push(',');
            let needed = if closing == 0 { length + 2 } else { length + 1 + closing };
            if !element.is_leaf() || column + needed >= LINE {
                out.push('\n');
                out.push_str(&" ".repeat(start - 1));
                column = start;
            } else {
                column += 1;
            }
        }
        if element.is_leaf() {
            out.push_str(&element.flat());
            column += length;
        } else {
            element.lay_out(start, closing, out);
            column = LINE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> ErlangTerm {
        let quote = || ErlangTerm::Integer(34);
        ErlangTerm::List(vec![quote(), ErlangTerm::Binary(text.into()), quote()])
    }

    #[test]
    fn a_short_term_is_one_line() {
        let list = vec![
            ErlangTerm::string("The value of the \"query\" field was not a list:\n   "),
            quoted("x"),
            ErlangTerm::string("\n"),
        ];
        assert_eq!(
            ErlangTerm::List(list).pretty(),
            r#"["The value of the \"query\" field was not a list:\n   ",[34,<<"x">>,34],"\n"]"#
        );
        assert_eq!(ErlangTerm::string("No inputs were given.\n").pretty(), r#""No inputs were given.\n""#);
    }

    #[test]
    fn a_list_within_a_long_one_has_its_own_line() {
        let integer = ErlangTerm::Integer;
        let object = vec![integer(123), quoted("language"), integer(58), quoted("cobol"), integer(125)];
        let list = vec![
            ErlangTerm::string("Unknown language "),
            quoted("cobol"),
            ErlangTerm::string(" in phase:\n"),
            ErlangTerm::string("   "),
            ErlangTerm::List(object),
            ErlangTerm::string("\n"),
        ];
        let expected = r#"["Unknown language ",
 [34,<<"cobol">>,34],
 " in phase:\n","   ",
 [123,[34,<<"language">>,34],58,[34,<<"cobol">>,34],125],
 "\n"]"#;
        assert_eq!(ErlangTerm::List(list).pretty(), expected);
    }

    #[test]
    fn leaves_fill_the_line() {
        let leaves: Vec<ErlangTerm> = (0..40).map(ErlangTerm::Integer).collect();
        let pretty = ErlangTerm::List(leaves).pretty();
        let lines: Vec<&str> = pretty.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].len() < LINE && lines[0].ends_with(',') && lines[1].starts_with(" 2"), "{pretty}");
    }
}
