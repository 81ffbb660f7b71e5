//! The query string: pairs, decoded once. The signatures read the raw text.

use std::borrow::Cow;

use crate::path::decode;

/// Most parameters of a request: a form of boto can have some dozens, nothing needs hundreds.
pub const PARAMETERS_MAX: usize = 512;

/// The parameters of a request, in order. Of a repeated one the first counts.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Splits a query at `&`; a name without `=` has an empty value, `+` is a space. Bytes that are no UTF-8 are replaced:
    /// no parameter can mean them. What is beyond the [most](PARAMETERS_MAX) is not read.
    #[must_use]
    pub fn of(query: Option<&str>) -> Self {
        let pairs = pairs(query.unwrap_or_default()).take(PARAMETERS_MAX);
        let text = |raw: &str| String::from_utf8_lossy(&decode_plus(raw)).into_owned();
        Self { pairs: pairs.map(|(name, value)| (text(name), text(value.unwrap_or_default()))).collect() }
    }

    /// The value of the first parameter of this name; empty when it came without one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| &**value)
    }

    /// The same, an empty value counting as none.
    #[must_use]
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Whether the parameter is there, whatever its value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// The raw pairs of a query: the value is `None` when there was no `=`.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (pair, None),
    })
}

/// Decodes a name or value of a query: escapes, and `+` for a space.
pub(crate) fn decode_plus(raw: &str) -> Cow<'_, [u8]> {
    if raw.contains('+') { Cow::Owned(decode(&raw.replace('+', " ")).into_owned()) } else { decode(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_name_counts() {
        let query = Query::of(Some("a=1&a=2&x=a+b%26%2B&flag&=v&&e="));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("x"), Some("a b&+"));
        assert_eq!((query.get("flag"), query.filled("flag"), query.get("e")), (Some(""), None, Some("")));
        assert!(query.has("") && !query.has("y"));
        assert_eq!(query.iter().count(), 6);
        assert!(Query::of(None).iter().next().is_none());
    }
}
