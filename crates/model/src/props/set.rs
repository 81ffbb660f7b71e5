//! The properties someone set explicitly, and the JSON body they came in.
//!
//! Only overrides are stored anywhere. What they amount to is computed: [`Effective`](super::Effective) for requests,
//! [`display`](super::display) for eyes.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::reason::{Invalid, Reason};
use super::table::Prop;
use super::value::Value;

/// Properties set explicitly on a type or a bucket, by name.
///
/// Every name is in the table and every value is one its kind decodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    values: BTreeMap<&'static str, Value>,
}

impl Overrides {
    /// Nothing set.
    pub const EMPTY: Self = Self { values: BTreeMap::new() };

    /// Reads a JSON object of properties by the table alone: names must exist and values be of their kind.
    ///
    /// This is how the stored form is read. What a client sends goes through [`validate`](super::validate), which also
    /// knows what may be set where.
    ///
    /// # Errors
    /// Every property that is unknown or of the wrong kind.
    pub fn from_json(props: &Map<String, Json>) -> Result<Self, Vec<Invalid>> {
        let mut read = Self::EMPTY;
        let mut invalid = Vec::new();
        for (name, json) in props {
            match Prop::named(name) {
                None => invalid.push(Invalid { prop: name.clone(), reason: Reason::UnknownProperty }),
                Some(prop) => match prop.kind.decode(json) {
                    Ok(value) => read.set(prop, value),
                    Err(reason) => invalid.push(Invalid { prop: name.clone(), reason }),
                },
            }
        }
        if invalid.is_empty() { Ok(read) } else { Err(invalid) }
    }

    /// The object [`Overrides::from_json`] reads back.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Json> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_json())).collect()
    }

    /// The value set for `name`, if one was.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many are set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// These with `newer` laid over them.
    #[must_use]
    pub fn with(&self, newer: Self) -> Self {
        let mut merged = self.clone();
        merged.values.extend(newer.values);
        merged
    }

    /// Sets one. The caller decoded `value` with the kind of `prop`.
    pub(super) fn set(&mut self, prop: &'static Prop, value: Value) {
        self.values.insert(prop.name, value);
    }
}

/// Why a body holds no properties to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadBody {
    /// Not JSON, or not an object.
    InvalidJson,
    /// No member `props` that is an object.
    NoProps,
}

impl BadBody {
    /// Riak's words on the console.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid json",
            Self::NoProps => "no props field found in json",
        }
    }
}

/// The object under `props` of a request's body.
///
/// # Errors
/// [`BadBody`] when there is none; over HTTP both kinds get the same text.
pub fn props_of(body: &[u8]) -> Result<Map<String, Json>, BadBody> {
    let Ok(Json::Object(mut object)) = serde_json::from_slice(body) else {
        return Err(BadBody::InvalidJson);
    };
    match object.remove("props") {
        Some(Json::Object(props)) => Ok(props),
        _ => Err(BadBody::NoProps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bodies_without_properties() {
        for (body, bad) in [
            (r#"{"props":"#, BadBody::InvalidJson),
            ("", BadBody::InvalidJson),
            ("[]", BadBody::InvalidJson),
            (r#"{"n_val":3}"#, BadBody::NoProps),
            (r#"{"props":[1]}"#, BadBody::NoProps),
            (r#"{"props":null}"#, BadBody::NoProps),
        ] {
            assert_eq!(props_of(body.as_bytes()), Err(bad), "{body}");
        }
        assert!(props_of(br#"{"props":{}}"#).unwrap().is_empty());
    }

    #[test]
    fn every_error_is_collected() {
        let props = props_of(br#"{"props":{"n_val":0,"nope":1,"":2,"allow_mult":"true","r":"x"}}"#).unwrap();
        let names: Vec<_> = Overrides::from_json(&props).unwrap_err().into_iter().map(|one| one.prop).collect();
        assert_eq!(names, ["n_val", "nope", "", "r"]);
    }

    #[test]
    fn newer_wins() {
        let read = |body: &[u8]| Overrides::from_json(&props_of(body).unwrap()).unwrap();
        let merged = read(br#"{"props":{"n_val":2,"r":1}}"#).with(read(br#"{"props":{"n_val":4}}"#));
        assert_eq!(merged, read(br#"{"props":{"n_val":4,"r":1}}"#));
        assert_eq!(merged.len(), 2);
    }

    proptest! {
        #[test]
        fn what_is_read_comes_back(props in crate::props::validate::tests::props()) {
            if let Ok(read) = Overrides::from_json(&props) {
                prop_assert_eq!(Overrides::from_json(&read.to_json()), Ok(read));
            }
        }

        #[test]
        fn any_body_is_answered(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = props_of(&body);
        }
    }
}
