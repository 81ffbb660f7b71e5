//! A bucket type and its life: absent → created → active, never gone.
//!
//! The transitions are pure: they take what is stored and give what to store. Whether every node has the type, and so
//! whether it may be activated, is decided above.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use super::effective::Effective;
use super::reason::{Invalid, Refused, Whole};
use super::set::Overrides;
use super::table::Defaults;
use super::validate;
use super::value::named;

/// The name of the type that is always there and never changes.
pub use crate::address::DEFAULT_TYPE;

/// A name no type may have.
pub const RESERVED_TYPE: &[u8] = b"any";

named! {
    /// How far a type has come.
    State {
        /// Known, serving nothing.
        Created = "created",
        /// In use, for ever.
        Active = "active",
    }
}

named! {
    /// What a type is for, decided once at its creation. The first that applies wins.
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

/// A type that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRecord {
    /// Its name: any bytes but `default` and `any`.
    pub name: Bytes,
    /// How far it has come.
    pub state: State,
    /// What it is for.
    pub kind: TypeKind,
    /// What was set explicitly.
    pub overrides: Overrides,
    /// Whether it was ever updated. Riak prints such a type in another order.
    pub updated: bool,
    /// The node that created it.
    pub claimant: String,
    /// The n_val it was created with: so many copies there are, whatever n_val becomes.
    pub copies: u8,
}

impl TypeRecord {
    /// The record after `create`, where `current` is what is there now.
    ///
    /// Creating again before activation keeps only this call's properties.
    ///
    /// # Errors
    /// The name is taken or reserved, or properties are refused.
    pub fn create(
        name: &[u8],
        current: Option<&Self>,
        claimant: &str,
        props: &Map<String, Json>,
    ) -> Result<Self, Refused> {
        if name == RESERVED_TYPE {
            return Err(Whole::ReservedName.into());
        }
        if name == DEFAULT_TYPE {
            return Err(Whole::DefaultType.into());
        }
        if current.is_some_and(|record| record.state == State::Active) {
            return Err(Whole::AlreadyActive.into());
        }
        let (kind, overrides) = validate::create(claimant, props)?;
        let copies = copies_of(&overrides);
        Ok(Self {
            name: Bytes::copy_from_slice(name),
            state: State::Created,
            kind,
            overrides,
            updated: false,
            claimant: claimant.to_owned(),
            copies,
        })
    }

    /// The record after activation; an active type stays as it is.
    #[must_use]
    pub fn activate(&self) -> Self {
        Self { state: State::Active, ..self.clone() }
    }

    /// The record after `update` of the type `name`, where `current` is what is there now.
    ///
    /// # Errors
    /// The type is `default`, unknown or not active, or properties are refused.
    pub fn update(name: &[u8], current: Option<&Self>, props: &Map<String, Json>) -> Result<Self, Refused> {
        if name == DEFAULT_TYPE {
            return Err(Whole::NoDefaultUpdate.into());
        }
        match current {
            Some(record) if record.state == State::Active => {
                let overrides = validate::update(record, props)?;
                Ok(Self { overrides, updated: true, ..record.clone() })
            }
            _ => Err(Whole::NotActive.into()),
        }
    }

    /// What applies to a bucket with these overrides in `of_type`; `None` is type `default`.
    #[must_use]
    pub fn effective(of_type: Option<&Self>, bucket: &Overrides) -> Effective {
        match of_type {
            Some(record) => {
                let effective = Effective::of(Defaults::CustomType, &record.overrides, bucket);
                Effective { copies: record.copies, ..effective }
            }
            None => Effective::of(Defaults::DefaultType, &Overrides::EMPTY, bucket),
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

    /// Reads what [`TypeRecord::to_json`] wrote.
    ///
    /// # Errors
    /// [`StoredError`]: the row is not one this version wrote.
    pub fn from_json(stored: &Json) -> Result<Self, StoredError> {
        let name = STANDARD.decode(text(stored, "name")?).map_err(|_| StoredError::Field("name"))?;
        let props = stored.get("props").and_then(Json::as_object).ok_or(StoredError::Field("props"))?;
        let overrides = Overrides::from_json(props).map_err(StoredError::Props)?;
        let copies = match stored.get("copies") {
            // Written before there were engines that keep copies.
            None => copies_of(&overrides),
            Some(copies) => {
                copies.as_u64().and_then(|copies| copies.try_into().ok()).ok_or(StoredError::Field("copies"))?
            }
        };
        Ok(Self {
            name: name.into(),
            state: State::named(text(stored, "state")?).ok_or(StoredError::Field("state"))?,
            kind: TypeKind::named(text(stored, "kind")?).ok_or(StoredError::Field("kind"))?,
            updated: stored.get("updated").and_then(Json::as_bool).ok_or(StoredError::Field("updated"))?,
            claimant: text(stored, "claimant")?.to_owned(),
            copies,
            overrides,
        })
    }
}

/// The n_val of a type that is created with these.
fn copies_of(overrides: &Overrides) -> u8 {
    let n_val = Effective::of(Defaults::CustomType, overrides, &Overrides::EMPTY).n_val;
    u8::try_from(n_val).unwrap_or(u8::MAX)
}

fn text<'a>(stored: &'a Json, field: &'static str) -> Result<&'a str, StoredError> {
    stored.get(field).and_then(Json::as_str).ok_or(StoredError::Field(field))
}

/// Why a stored type could not be read. The row is damaged or from a newer version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredError {
    /// This field is missing or of the wrong form.
    Field(&'static str),
    /// These properties are unknown or of the wrong kind.
    Props(Vec<Invalid>),
}

impl std::fmt::Display for StoredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(field) => write!(f, "a stored bucket type has no readable {field}"),
            Self::Props(invalid) => {
                let lines: Vec<_> = invalid.iter().map(Invalid::console).collect();
                write!(f, "a stored bucket type has unreadable properties: {}", lines.join("; "))
            }
        }
    }
}

impl std::error::Error for StoredError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::props::validate::tests::props as any_props;
    use proptest::prelude::*;

    const NODE: &str = "larder@127.0.0.1";

    fn object(props: &str) -> Map<String, Json> {
        serde_json::from_str(props).unwrap()
    }

    fn create(name: &str, current: Option<&TypeRecord>, props: &str) -> Result<TypeRecord, Refused> {
        TypeRecord::create(name.as_bytes(), current, NODE, &object(props))
    }

    #[test]
    fn some_names_are_refused() {
        assert_eq!(create("any", None, "{}"), Err(Whole::ReservedName.into()));
        assert_eq!(create("default", None, "{}"), Err(Whole::DefaultType.into()));
        let update = TypeRecord::update(b"default", None, &Map::new());
        assert_eq!(update, Err(Whole::NoDefaultUpdate.into()));
    }

    #[test]
    fn creating_again_keeps_only_the_last_properties() {
        let first = create("t", None, r#"{"n_val":2,"datatype":"set"}"#).unwrap();
        let second = create("t", Some(&first), r#"{"r":1}"#).unwrap();
        assert_eq!(second, create("t", None, r#"{"r":1}"#).unwrap());
        assert_eq!(second.kind, TypeKind::Default);
        assert_eq!(create("t", Some(&second.activate()), "{}"), Err(Whole::AlreadyActive.into()));
    }

    #[test]
    fn only_an_active_type_is_updated() {
        let created = create("t", None, "{}").unwrap();
        let update = |current| TypeRecord::update(b"t", current, &object(r#"{"n_val":2}"#));
        assert_eq!(update(None), Err(Whole::NotActive.into()));
        assert_eq!(update(Some(&created)), Err(Whole::NotActive.into()));
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
    fn damaged_rows_are_named() {
        let good = create("t", None, r#"{"n_val":2}"#).unwrap().to_json();
        for field in ["name", "state", "kind", "updated", "claimant", "props"] {
            let mut bad = good.clone();
            bad[field] = json!(7);
            assert_eq!(TypeRecord::from_json(&bad), Err(StoredError::Field(field)));
        }
        let mut bad = good;
        bad["props"] = json!({ "n_val": 0 });
        let error = TypeRecord::from_json(&bad).unwrap_err();
        assert_eq!(error.to_string(), "a stored bucket type has unreadable properties: n_val must be an integer");
    }

    proptest! {
        #[test]
        fn records_come_back(name in proptest::collection::vec(any::<u8>(), 0..8), props in any_props(), active: bool) {
            if let Ok(record) = TypeRecord::create(&name, None, NODE, &props) {
                let record = if active { record.activate() } else { record };
                let text = record.to_json().to_string();
                let read: Json = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(TypeRecord::from_json(&read), Ok(record));
            }
        }
    }
}
