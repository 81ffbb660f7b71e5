//! A member that an object of a JSON document has twice: the parser keeps the last value, and drops what its client asked for.

use std::collections::HashSet;
use std::fmt;

use larder_rows::text::beginning;
use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, SeqAccess, Visitor};

/// Longest name that is returned, in bytes: an error text repeats it.
const SHOWN_BYTES_MAX: usize = 256;

/// The name of a member that some object of a document has twice, or the beginning of a long one; `None` also for a document that
/// is no JSON.
#[must_use]
pub fn repeated_member(document: &[u8]) -> Option<String> {
    let mut repeated = None;
    // The parser of the document reports its other faults.
    let _ = serde_json::Deserializer::from_slice(document).deserialize_any(MemberCheck(&mut repeated));
    repeated.map(|name| beginning(&name, SHOWN_BYTES_MAX).to_owned())
}

/// Goes through a value, and keeps the name of its first repeated member.
struct MemberCheck<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for MemberCheck<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MemberCheck<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(MemberCheck(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                self.0.get_or_insert(name);
            } else {
                names.insert(name);
            }
            members.next_value_seed(MemberCheck(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_member_is_found_at_any_depth() {
        for document in [r#"{"a":1,"b":2,"a":3}"#, r#"[0,{"x":{"a":[],"a":null}}]"#, r#"{"\u0061":1.5,"a":"x"}"#] {
            assert_eq!(repeated_member(document.as_bytes()).as_deref(), Some("a"), "{document}");
        }
        let long = "x".repeat(1000);
        let shown = repeated_member(format!(r#"{{"{long}":1,"{long}":2}}"#).as_bytes());
        assert_eq!(shown.as_deref(), Some(&long[..256]));
        for document in [r#"{"a":{"a":1},"b":{"a":-1}}"#, r#"["a","a",true]"#, "", "{", "1"] {
            assert_eq!(repeated_member(document.as_bytes()), None, "{document}");
        }
    }
}
