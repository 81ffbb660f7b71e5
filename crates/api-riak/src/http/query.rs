//! The query string: pairs, decoded as form values.

use std::borrow::Cow;

use super::path::unquote;

/// A decoded name or value, copied only if it has escapes.
type Text<'a> = Cow<'a, [u8]>;

/// The parameters of a request, in order. The first of a repeated parameter counts.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryParams<'a> {
    pairs: Vec<(Text<'a>, Text<'a>)>,
}

impl<'a> QueryParams<'a> {
    /// Splits a query at `&` and `;`; a name without `=` has an empty value.
    #[must_use]
    pub(super) fn of(query: Option<&'a str>) -> Self {
        let pairs = query.unwrap_or_default().split(['&', ';']).filter(|pair| !pair.is_empty());
        let decode = |pair: &'a str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unquote(name.as_bytes()), unquote(value.as_bytes()))
        };
        Self { pairs: pairs.map(decode).collect() }
    }

    /// Whether the query has no parameters.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The first value of a parameter.
    #[must_use]
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(one, _)| one.as_ref() == name.as_bytes()).map(|(_, value)| value.as_ref())
    }

    /// Whether the parameter has exactly this value.
    #[must_use]
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_of_a_repeated_parameter_counts() {
        let query = QueryParams::of(Some("r=1&r=foo;x=a+b%26&flag&=v&"));
        assert_eq!(query.get("r"), Some(&b"1"[..]));
        assert_eq!(query.get("x"), Some(&b"a b&"[..]));
        assert!(query.is("flag", "") && query.is("", "v"));
        assert_eq!(query.get("y"), None);
        assert!(QueryParams::of(None).is_empty() && QueryParams::of(Some("&;")).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_queries_parse_without_a_panic(text: String, name: String) {
            let _ = QueryParams::of(Some(&text)).get(&name);
        }
    }
}
