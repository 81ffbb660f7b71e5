//! The query string as decoded pairs. Signatures are computed over the raw text instead.

use std::borrow::Cow;

use crate::path::decode;

/// Most parameters of a request. The largest known requests, presigned by boto, have some dozens.
pub const PARAMETERS_MAX: usize = 512;

/// The parameters of a request, in order. The first of a repeated name counts.
#[derive(Debug, Clone, Default)]
pub struct S3Query {
    pairs: Vec<(String, String)>,
}

impl S3Query {
    /// Splits a query at `&`. A name without `=` has an empty value; `+` is a space. Invalid UTF-8 is replaced, and
    /// parameters after the first [`PARAMETERS_MAX`] are ignored.
    #[must_use]
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = pairs(query.unwrap_or_default()).take(PARAMETERS_MAX);
        let text = |raw: &str| String::from_utf8_lossy(&decode_plus(raw)).into_owned();
        Self { pairs: pairs.map(|(name, value)| (text(name), text(value.unwrap_or_default()))).collect() }
    }

    /// The value of the first parameter of this name; empty if it has none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| &**value)
    }

    /// The value of the first parameter of this name, if it is not empty.
    #[must_use]
    pub fn non_empty(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Whether the parameter is present.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// The raw pairs of a query. The value is `None` without `=`.
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
    fn the_first_parameter_of_a_name_counts() {
        let query = S3Query::parse(Some("a=1&a=2&x=a+b%26%2B&flag&=v&&e="));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("x"), Some("a b&+"));
        assert_eq!((query.get("flag"), query.non_empty("flag"), query.get("e")), (Some(""), None, Some("")));
        assert!(query.has("") && !query.has("y"));
        assert_eq!(query.iter().count(), 6);
        assert!(S3Query::parse(None).iter().next().is_none());
    }
}
