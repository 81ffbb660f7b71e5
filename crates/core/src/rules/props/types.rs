//! A bucket type and its states: absent → created → active, without deletion.
//!
//! The transitions are pure: each takes the stored record and returns the new one. The gateway decides whether every node has
//! the type, so that it may be activated.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use super::effective::{EffectiveProps, Overrides};
use super::reason::{InvalidProp, PropsError, TypeRefusal};
use super::table::Defaults;
use super::validate;
use super::value::named;

/// The name of the built-in type, which never changes.
pub use larder_rows::address::DEFAULT_TYPE;

/// A name that no type may have.
pub const RESERVED_TYPE: &[u8] = b"any";

named! {
    /// The state of a type.
    TypeState {
        /// Created, and not serving requests.
        Created = "created",
        /// Serving requests. It stays active for ever.
        Active = "active",
    }
}

named! {
    /// The kind of a type, fixed at its creation. The first variant that applies counts.
    TypeKind {
        /// `consistent` is true.
        Consistent = "consistent",
        /// `write_once` is true.
        WriteOnce = "write_once",
        /// `datatype` is set.
        Datatype = "datatype",
        /// None of these.
        Default = "default",
    }
}

/// The record of a created type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRecord {
    /// Its name: any bytes but `default` and `any`.
    pub name: Bytes,
    /// Its state.
    pub state: TypeState,
    /// Its kind.
    pub kind: TypeKind,
    /// The properties set explicitly.
    pub overrides: Overrides,
    /// Whether it was ever updated. Riak prints an updated type in another order.
    pub updated: bool,
    /// The node that created it.
    pub claimant: String,
    /// The n_val at its creation: the number of stored replicas, which a later n_val does not change.
    pub copies: u8,
}

impl TypeRecord {
    /// The record after a create. `current` is the stored record, if any; a type that is not active yet is replaced whole.
    ///
    /// # Errors
    /// [`PropsError`] for a name that is taken or reserved, or for refused properties.
    pub fn create(
        name: &[u8],
        current: Option<&Self>,
        claimant: &str,
        props: &Map<String, Json>,
    ) -> Result<Self, PropsError> {
        if name == RESERVED_TYPE {
            return Err(TypeRefusal::ReservedName.into());
        }
        if name == DEFAULT_TYPE {
            return Err(TypeRefusal::DefaultType.into());
        }
        if current.is_some_and(|record| record.state == TypeState::Active) {
            return Err(TypeRefusal::AlreadyActive.into());
        }
        let (kind, overrides) = validate::create_type(claimant, props)?;
        let copies = wanted_copies(&overrides);
        Ok(Self {
            name: Bytes::copy_from_slice(name),
            state: TypeState::Created,
            kind,
            overrides,
            updated: false,
            claimant: claimant.to_owned(),
            copies,
        })
    }

    /// The record after activation. An active type does not change.
    #[must_use]
    pub fn activate(&self) -> Self {
        Self { state: TypeState::Active, ..self.clone() }
    }

    /// The record after an update of the type `name`. `current` is the stored record, if any.
    ///
    /// # Errors
    /// [`PropsError`] when the type is `default`, unknown or not active, or for refused properties.
    pub fn update(name: &[u8], current: Option<&Self>, props: &Map<String, Json>) -> Result<Self, PropsError> {
        if name == DEFAULT_TYPE {
            return Err(TypeRefusal::NoDefaultUpdate.into());
        }
        match current {
            Some(record) if record.state == TypeState::Active => {
                let overrides = validate::update_type(record, props)?;
                Ok(Self { overrides, updated: true, ..record.clone() })
            }
            _ => Err(TypeRefusal::NotActive.into()),
        }
    }

    /// The effective properties of a bucket with these overrides in `of_type`. `None` is type `default`.
    #[must_use]
    pub fn effective(of_type: Option<&Self>, bucket: &Overrides) -> EffectiveProps {
        match of_type {
            Some(record) => {
                let effective = EffectiveProps::resolve(Defaults::CustomType, &record.overrides, bucket);
                EffectiveProps { copies: record.copies, ..effective }
            }
            None => EffectiveProps::resolve(Defaults::DefaultType, &Overrides::EMPTY, bucket),
        }
    }

    /// The stored form.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "name": STANDARD.encode(&self.name),
            "state": self.state.name(),
            "kind": self.kind.name(),
            "updated": self.updated,
            "claimant": self.claimant,
            "copies": self.copies,
            "props": self.overrides.to_json(),
        })
    }

    /// Reads [`TypeRecord::to_json`] back.
    ///
    /// # Errors
    /// [`TypeRecordError`] for a damaged record or one of a newer version.
    pub fn from_json(stored: &Json) -> Result<Self, TypeRecordError> {
        let name = STANDARD.decode(text(stored, "name")?).map_err(|_| TypeRecordError::Field("name"))?;
        let props = stored.get("props").and_then(Json::as_object).ok_or(TypeRecordError::Field("props"))?;
        let overrides = Overrides::from_json(props).map_err(TypeRecordError::Props)?;
        let copies = match stored.get("copies") {
            // Builds without replicated engines did not write the field.
            None => wanted_copies(&overrides),
            Some(copies) => {
                copies.as_u64().and_then(|copies| copies.try_into().ok()).ok_or(TypeRecordError::Field("copies"))?
            }
        };
        Ok(Self {
            name: name.into(),
            state: TypeState::named(text(stored, "state")?).ok_or(TypeRecordError::Field("state"))?,
            kind: TypeKind::named(text(stored, "kind")?).ok_or(TypeRecordError::Field("kind"))?,
            updated: stored.get("updated").and_then(Json::as_bool).ok_or(TypeRecordError::Field("updated"))?,
            claimant: text(stored, "claimant")?.to_owned(),
            copies,
            overrides,
        })
    }
}

/// The number of replicas of a type created with these overrides.
fn wanted_copies(overrides: &Overrides) -> u8 {
    let n_val = EffectiveProps::resolve(Defaults::CustomType, overrides, &Overrides::EMPTY).n_val;
    u8::try_from(n_val).unwrap_or(u8::MAX)
}

fn text<'a>(stored: &'a Json, field: &'static str) -> Result<&'a str, TypeRecordError> {
    stored.get(field).and_then(Json::as_str).ok_or(TypeRecordError::Field(field))
}

/// Why a stored type cannot be read. The row is damaged or from a newer version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeRecordError {
    /// This field is missing or has the wrong form.
    Field(&'static str),
    /// These properties are unknown or have values of the wrong kind.
    Props(Vec<InvalidProp>),
}

impl std::fmt::Display for TypeRecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(field) => write!(f, "a stored bucket type has no readable {field}"),
            Self::Props(invalid) => {
                let lines: Vec<_> = invalid.iter().map(InvalidProp::console).collect();
                write!(f, "a stored bucket type has unreadable properties: {}", lines.join("; "))
            }
        }
    }
}

impl std::error::Error for TypeRecordError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::props::validate::tests::props as any_props;
    use proptest::prelude::*;

    const NODE: &str = "larder@127.0.0.1";

    fn object(props: &str) -> Map<String, Json> {
        serde_json::from_str(props).unwrap()
    }

    fn create(name: &str, current: Option<&TypeRecord>, props: &str) -> Result<TypeRecord, PropsError> {
        TypeRecord::create(name.as_bytes(), current, NODE, &object(props))
    }

    #[test]
    fn reserved_names_are_refused() {
        assert_eq!(create("any", None, "{}"), Err(TypeRefusal::ReservedName.into()));
        assert_eq!(create("default", None, "{}"), Err(TypeRefusal::DefaultType.into()));
        let update = TypeRecord::update(b"default", None, &Map::new());
        assert_eq!(update, Err(TypeRefusal::NoDefaultUpdate.into()));
    }

    #[test]
    fn a_second_create_replaces_the_properties() {
        let first = create("t", None, r#"{"n_val":2,"datatype":"set"}"#).unwrap();
        let second = create("t", Some(&first), r#"{"r":1}"#).unwrap();
        assert_eq!(second, create("t", None, r#"{"r":1}"#).unwrap());
        assert_eq!(second.kind, TypeKind::Default);
        assert_eq!(create("t", Some(&second.activate()), "{}"), Err(TypeRefusal::AlreadyActive.into()));
    }

    #[test]
    fn only_an_active_type_is_updated() {
        let created = create("t", None, "{}").unwrap();
        let update = |current| TypeRecord::update(b"t", current, &object(r#"{"n_val":2}"#));
        assert_eq!(update(None), Err(TypeRefusal::NotActive.into()));
        assert_eq!(update(Some(&created)), Err(TypeRefusal::NotActive.into()));
        let updated = update(Some(&created.activate())).unwrap();
        assert!(updated.updated && updated.activate() == updated);
        assert_eq!(TypeRecord::effective(Some(&updated), &Overrides::EMPTY).n_val, 2);
    }

    #[test]
    fn the_kind_is_the_first_that_applies() {
        for (props, kind) in [
            (r#"{"consistent":true,"datatype":"set"}"#, TypeKind::Consistent),
            (r#"{"write_once":"True"}"#, TypeKind::WriteOnce),
            (r#"{"datatype":"map"}"#, TypeKind::Datatype),
            (r#"{"consistent":false,"write_once":false}"#, TypeKind::Default),
        ] {
            assert_eq!(create("t", None, props).unwrap().kind, kind);
        }
    }

    #[test]
    fn an_error_names_the_damaged_field() {
        let good = create("t", None, r#"{"n_val":2}"#).unwrap().to_json();
        for field in ["name", "state", "kind", "updated", "claimant", "props"] {
            let mut bad = good.clone();
            bad[field] = json!(7);
            assert_eq!(TypeRecord::from_json(&bad), Err(TypeRecordError::Field(field)));
        }
        let mut bad = good;
        bad["props"] = json!({ "n_val": 0 });
        let error = TypeRecord::from_json(&bad).unwrap_err();
        assert_eq!(error.to_string(), "a stored bucket type has unreadable properties: n_val must be an integer");
    }

    proptest! {
        #[test]
        fn records_decode_to_themselves(name in proptest::collection::vec(any::<u8>(), 0..8), props in any_props(), active: bool) {
            if let Ok(record) = TypeRecord::create(&name, None, NODE, &props) {
                let record = if active { record.activate() } else { record };
                let text = record.to_json().to_string();
                let read: Json = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(TypeRecord::from_json(&read), Ok(record));
            }
        }
    }
}
