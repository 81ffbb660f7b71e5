//! The properties set explicitly on a type or a bucket, and the JSON body that carries them.
//!
//! The store holds overrides only. [`EffectiveProps`](super::EffectiveProps) and the lists of [`display`](super::display) are
//! computed from them.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::reason::{InvalidProp, InvalidReason};
use super::table::Prop;
use super::value::Value;
use crate::rules::riak_json;

/// Properties set explicitly on a type or a bucket, by name.
///
/// Every name is in the table, and the kind of its property decodes every value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    values: BTreeMap<&'static str, Value>,
}

impl Overrides {
    /// No overrides.
    pub const EMPTY: Self = Self { values: BTreeMap::new() };

    /// Reads the stored form: a JSON object whose names are in the table and whose values have the right kind.
    ///
    /// The requests of clients go through [`validate`](super::validate), which also checks where a property may be set.
    ///
    /// # Errors
    /// Every property that is unknown or has a value of the wrong kind.
    pub fn from_json(props: &Map<String, Json>) -> Result<Self, Vec<InvalidProp>> {
        let mut read = Self::EMPTY;
        let mut invalid = Vec::new();
        for (name, json) in props {
            match Prop::named(name) {
                None => invalid.push(InvalidProp { prop: name.clone(), reason: InvalidReason::UnknownProperty }),
                Some(prop) => match prop.kind.decode(json) {
                    Ok(value) => read.set(prop, value),
                    Err(reason) => invalid.push(InvalidProp { prop: name.clone(), reason }),
                },
            }
        }
        if invalid.is_empty() { Ok(read) } else { Err(invalid) }
    }

    /// The stored form, which [`Overrides::from_json`] reads.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Json> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_json())).collect()
    }

    /// The value set for `name`, if any.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    /// Whether there are no overrides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of overrides.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// These overrides, replaced and extended by `newer`.
    #[must_use]
    pub fn with(&self, newer: Self) -> Self {
        let mut merged = self.clone();
        merged.values.extend(newer.values);
        merged
    }

    /// Sets one property. The caller has decoded `value` with the kind of `prop`.
    pub(super) fn set(&mut self, prop: &'static Prop, value: Value) {
        self.values.insert(prop.name, value);
    }
}

/// Why a body has no object of properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropsBodyError {
    /// The body is not a JSON object.
    InvalidJson,
    /// The object has no member `props` that is an object.
    NoProps,
}

impl PropsBodyError {
    /// The text of Riak's console.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid json",
            Self::NoProps => "no props field found in json",
        }
    }
}

/// The object `props` in the body of a request.
///
/// # Errors
/// [`PropsBodyError`] when there is none. Over HTTP both variants have the same text.
pub fn props_of(body: &[u8]) -> Result<Map<String, Json>, PropsBodyError> {
    let Ok(Json::Object(mut object)) = riak_json::parse(body) else {
        return Err(PropsBodyError::InvalidJson);
    };
    match object.remove("props") {
        Some(Json::Object(props)) => Ok(props),
        _ => Err(PropsBodyError::NoProps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bodies_without_properties_are_refused() {
        for (body, bad) in [
            (r#"{"props":"#, PropsBodyError::InvalidJson),
            ("", PropsBodyError::InvalidJson),
            ("[]", PropsBodyError::InvalidJson),
            (r#"{"n_val":3}"#, PropsBodyError::NoProps),
            (r#"{"props":[1]}"#, PropsBodyError::NoProps),
            (r#"{"props":null}"#, PropsBodyError::NoProps),
        ] {
            assert_eq!(props_of(body.as_bytes()), Err(bad), "{body}");
        }
        assert!(props_of(br#"{"props":{}}"#).unwrap().is_empty());
    }

    #[test]
    fn every_refused_property_is_reported() {
        let props = props_of(br#"{"props":{"n_val":0,"nope":1,"":2,"allow_mult":"true","r":"x"}}"#).unwrap();
        let names: Vec<_> = Overrides::from_json(&props).unwrap_err().into_iter().map(|one| one.prop).collect();
        assert_eq!(names, ["n_val", "nope", "", "r"]);
    }

    #[test]
    fn newer_overrides_replace_older_ones() {
        let read = |body: &[u8]| Overrides::from_json(&props_of(body).unwrap()).unwrap();
        let merged = read(br#"{"props":{"n_val":2,"r":1}}"#).with(read(br#"{"props":{"n_val":4}}"#));
        assert_eq!(merged, read(br#"{"props":{"n_val":4,"r":1}}"#));
        assert_eq!(merged.len(), 2);
    }

    proptest! {
        #[test]
        fn overrides_decode_to_themselves(props in crate::rules::props::validate::tests::props()) {
            if let Ok(read) = Overrides::from_json(&props) {
                prop_assert_eq!(Overrides::from_json(&read.to_json()), Ok(read));
            }
        }

        #[test]
        fn random_bodies_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = props_of(&body);
        }
    }
}
