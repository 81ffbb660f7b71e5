//! Refuses JSON objects with duplicate names. The parser of values would keep the last silently, and a condition would be lost.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Any JSON whose objects have distinct names. It keeps none of the values.
#[derive(Debug)]
pub(super) struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctNamesVisitor)
    }
}

struct DistinctNamesVisitor;

impl<'de> Visitor<'de> for DistinctNamesVisitor {
    type Value = DistinctNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DistinctNames, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<DistinctNames>()?;
            if let Some(twice) = names.replace(name) {
                return Err(A::Error::custom(format_args!("{twice} is there twice")));
            }
        }
        Ok(DistinctNames)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DistinctNames, A::Error> {
        while list.next_element::<DistinctNames>()?.is_some() {}
        Ok(DistinctNames)
    }

    fn visit_bool<E>(self, _: bool) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_unit<E>(self) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_name_is_found_on_every_level() {
        for good in ["{}", r#"{"a":1,"b":{"a":[-1.5,true,null,"a",{"a":1e99}]}}"#, r#"{"a":1,"A":1}"#, "7"] {
            assert!(serde_json::from_str::<DistinctNames>(good).is_ok(), "{good}");
        }
        for bad in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#, "{", "[1,]"] {
            assert!(serde_json::from_str::<DistinctNames>(bad).is_err(), "{bad}");
        }
    }
}
