//! Secondary-index terms as clients send them: the form of fields and values, the same for every protocol.

use std::cmp::Ordering;

use bytes::Bytes;
use larder_core::rules::erlang;
use larder_rows::content::Term;

/// A term that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermError {
    /// The field has neither a type's suffix with a name before it, nor a special name.
    UnknownFieldType(Bytes),
    /// The value is not one of the field's type.
    Unparsable {
        /// The field.
        field: Bytes,
        /// The value.
        value: Bytes,
    },
}

impl TermError {
    /// The Erlang term that names it, as Riak's protocol buffers show it.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::UnknownFieldType(field) => format!("{{unknown_field_type,{}}}", erlang::binary(field)),
            Self::Unparsable { field, value } => {
                format!("{{field_parsing_failed,{{{},{}}}}}", erlang::binary(field), erlang::binary(value))
            }
        }
    }
}

/// The term of a field and a value. Fields are stored in lower case, integers as canonical decimal text.
///
/// # Errors
/// [`TermError`], with the field and the value as given.
pub fn parse(field: &Bytes, value: &Bytes) -> Result<Term, TermError> {
    let name = Bytes::from(field.to_ascii_lowercase());
    // `_int` and `_bin` need a name before them.
    let is_typed = |suffix: &[u8]| name.strip_suffix(suffix).is_some_and(|name| !name.is_empty());
    let is_integer = is_typed(b"_int");
    if !(is_integer || is_typed(b"_bin") || matches!(&name[..], b"$key" | b"$bucket")) {
        return Err(TermError::UnknownFieldType(field.clone()));
    }
    let parsed = if is_integer { integer(value) } else { Some(value.clone()) };
    let unparsable = || TermError::Unparsable { field: field.clone(), value: value.clone() };
    parsed.map(|value| Term { field: name, value }).ok_or_else(unparsable)
}

/// The canonical decimal text of an integer of any length.
fn integer(text: &Bytes) -> Option<Bytes> {
    let negative = text.starts_with(b"-");
    let from = usize::from(negative || text.starts_with(b"+"));
    let digits = text.slice(from..);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // One text for each number: `007` and `7` are one term.
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count().min(digits.len() - 1);
    let digits = digits.slice(zeros..);
    if !negative || digits.as_ref() == b"0" { Some(digits) } else { Some([b"-", digits.as_ref()].concat().into()) }
}

/// The order of Riak's terms: by field, integers by their number, other values by their bytes.
#[must_use]
pub fn order(term: &Term, other: &Term) -> Ordering {
    let by_value = || match (term.field.ends_with(b"_int"), term.value.starts_with(b"-"), other.value.starts_with(b"-"))
    {
        (true, true, false) => Ordering::Less,
        (true, false, true) => Ordering::Greater,
        (true, true, true) => number_order(&other.value, &term.value),
        (true, false, false) => number_order(&term.value, &other.value),
        (false, ..) => term.value.cmp(&other.value),
    };
    term.field.cmp(&other.field).then_with(by_value)
}

/// Of canonical texts of one sign: the longer number is the greater one.
fn number_order(number: &Bytes, other: &Bytes) -> Ordering {
    number.len().cmp(&other.len()).then_with(|| number.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_in_the_order_of_their_numbers() {
        let sorted = ["-10", "-9", "-1", "0", "9", "10", "100000000000000000000000"];
        let mut terms = sorted.map(|value| parse(&"a_int".into(), &value.into()).unwrap());
        let expected = terms.clone();
        terms.reverse();
        terms.sort_by(order);
        assert_eq!(terms, expected);
        let text = |field: &'static str, value: &'static str| parse(&field.into(), &value.into()).unwrap();
        assert_eq!(order(&text("a_bin", "10"), &text("a_bin", "9")), Ordering::Less);
        assert_eq!(order(&text("b_int", "1"), &text("a_int", "9")), Ordering::Greater);
    }

    fn parsed(field: &'static str, value: &'static str) -> Result<(String, String), String> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        parse(&field.into(), &value.into())
            .map(|term| (text(&term.field), text(&term.value)))
            .map_err(|error| error.erlang())
    }

    #[test]
    fn terms_are_stored_in_one_form() {
        for (field, value, stored) in
            [("a_int", "+007", "7"), ("A_Int", "-0", "0"), ("a_int", "-12", "-12"), ("a_bin", "X", "X")]
        {
            assert_eq!(parsed(field, value), Ok((field.to_ascii_lowercase(), stored.into())));
        }
        assert_eq!(parsed("$key", "k"), Ok(("$key".into(), "k".into())));
    }

    #[test]
    fn the_texts_of_refused_terms_are_riaks() {
        for (field, value, text) in [
            ("a_int", "abc", "{field_parsing_failed,{<<\"a_int\">>,<<\"abc\">>}}"),
            ("a_int", "", "{field_parsing_failed,{<<\"a_int\">>,<<>>}}"),
            ("nosuffix", "abc", "{unknown_field_type,<<\"nosuffix\">>}"),
            ("_int", "1", "{unknown_field_type,<<\"_int\">>}"),
        ] {
            assert_eq!(parsed(field, value), Err(text.into()));
        }
    }
}
