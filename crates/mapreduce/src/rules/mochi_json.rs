//! JSON as Riak's encoder makes it, before it is flattened: its error texts show these pieces.

use serde_json::Value;

use crate::rules::erlang_term::ErlangTerm;

/// Longest document that an error text repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 8 * 1024;

/// The pieces of a document, as an Erlang term. Of a long document only its length is shown.
#[must_use]
pub(super) fn pieces(value: &Value) -> ErlangTerm {
    match value.to_string().len() {
        length if length > SHOWN_BYTES_MAX => ErlangTerm::string(format!("({length} bytes)")),
        _ => all_pieces(value),
    }
}

fn all_pieces(value: &Value) -> ErlangTerm {
    match value {
        Value::Null => binary("null"),
        Value::Bool(true) => binary("true"),
        Value::Bool(false) => binary("false"),
        Value::Number(number) => ErlangTerm::string(number.to_string()),
        Value::String(text) => quoted(text),
        Value::Array(list) if list.is_empty() => binary("[]"),
        Value::Array(list) => enclosed(('[', ']'), list.iter().map(|one| vec![all_pieces(one)])),
        Value::Object(members) if members.is_empty() => binary("{}"),
        Value::Object(members) => {
            enclosed(('{', '}'), members.iter().map(|(name, value)| vec![quoted(name), char(':'), all_pieces(value)]))
        }
    }
}

fn binary(text: &str) -> ErlangTerm {
    ErlangTerm::Binary(text.into())
}

fn char(char: char) -> ErlangTerm {
    ErlangTerm::Integer(i64::from(u32::from(char)))
}

/// Safe text stays one binary between its quotes; other text becomes a list of characters.
fn quoted(text: &str) -> ErlangTerm {
    let is_safe = |byte: u8| byte.is_ascii() && !byte.is_ascii_control() && !matches!(byte, b'"' | b'\\');
    match text.bytes().all(is_safe) {
        true => ErlangTerm::List(vec![char('"'), binary(text), char('"')]),
        false => ErlangTerm::string(Value::from(text).to_string()),
    }
}

fn enclosed((open, close): (char, char), items: impl Iterator<Item = Vec<ErlangTerm>>) -> ErlangTerm {
    let mut list = vec![char(open)];
    for (at, item) in items.enumerate() {
        if at > 0 {
            list.push(char(','));
        }
        list.extend(item);
    }
    list.push(char(close));
    ErlangTerm::List(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_document_the_length_is_shown() {
        assert_eq!(pieces(&Value::from("x".repeat(10_000))).pretty(), "\"(10002 bytes)\"");
    }

    #[test]
    fn documents_are_the_pieces_of_riaks_encoder() {
        for (json, printed) in [
            (r#"["a"]"#, r#"[91,[34,<<"a">>,34],93]"#),
            (r#"{"x":1}"#, r#"[123,[34,<<"x">>,34],58,"1",125]"#),
            (
                r#"{"a":null,"b":[true,[]]}"#,
                r#"[123,[34,<<"a">>,34],58,<<"null">>,44,[34,<<"b">>,34],58,[91,<<"true">>,44,<<"[]">>,93],125]"#,
            ),
            ("{}", r#"<<"{}">>"#),
            (r#""a\"b""#, r#""\"a\\\"b\"""#),
        ] {
            let flat = pieces(&serde_json::from_str(json).unwrap()).pretty().replace("\n ", "");
            assert_eq!(flat, printed, "{json}");
        }
    }
}
