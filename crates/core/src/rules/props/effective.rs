//! The properties that apply to a request: the bucket's overrides over the type's over the defaults, in one typed struct.
//!
//! The properties set explicitly on a type or a bucket, and the JSON body that carries them.
//!
//! The store holds overrides only. [`EffectiveProps`](super::EffectiveProps) and the lists of [`display`](super::display) are
//! computed from them.

use std::collections::BTreeMap;

use larder_rows::keyspace::Partition;
use serde_json::{Map, Value as Json};

use super::quorum::Quorum;
use super::reason::{InvalidProp, InvalidReason};
use super::table::{Defaults, Prop};
use super::value::{Datatype, SyncOnWrite, Value};
use crate::rules::riak_json;

/// HyperLogLog precision of a type that does not set it.
pub const HLL_PRECISION_DEFAULT: u8 = 14;

/// The properties of a bucket as typed values, computed once per bucket and cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveProps {
    /// Concurrent writes are kept as siblings.
    pub allow_mult: bool,
    /// The newest write wins.
    pub last_write_wins: bool,
    /// Siblings are tracked by dotted version vectors.
    pub dvv_enabled: bool,
    /// The number of replicas in quorum arithmetic. A change of it moves no data.
    pub n_val: u32,
    /// The number of stored replicas: the n_val at the creation of the type.
    pub copies: u8,
    /// Replicas for a read.
    pub r: Quorum,
    /// Replicas for a write.
    pub w: Quorum,
    /// Replicas that must have stored a write on disk.
    pub dw: Quorum,
    /// Replicas for a delete.
    pub rw: Quorum,
    /// Primary replicas for a read.
    pub pr: Quorum,
    /// Primary replicas for a write.
    pub pw: Quorum,
    /// Different machines that must answer.
    pub node_confirms: Quorum,
    /// Reads stop early on missing keys.
    pub basic_quorum: bool,
    /// A missing key counts towards r.
    pub notfound_ok: bool,
    /// The bucket has precommit hooks.
    pub has_precommit: bool,
    /// The bucket has postcommit hooks.
    pub has_postcommit: bool,
    /// Whether a write waits for a disk: `one` and `all` raise dw to 1.
    pub sync_on_write: SyncOnWrite,
    /// The data type of the values; `None` for plain objects.
    pub datatype: Option<Datatype>,
    /// Precision of a HyperLogLog.
    pub hll_precision: u8,
    /// Writes need the current context.
    pub consistent: bool,
    /// Keys are written once.
    pub write_once: bool,
    /// The bucket's links are found by the standard function, the only one that there is.
    pub has_standard_linkfun: bool,
}

impl EffectiveProps {
    /// The properties of a bucket with the overrides `bucket`, in a type with the overrides `of_type`.
    #[must_use]
    pub fn resolve(defaults: Defaults, of_type: &Overrides, bucket: &Overrides) -> Self {
        let layers = PropLayers { defaults, of_type, bucket };
        Self {
            allow_mult: layers.flag("allow_mult"),
            last_write_wins: layers.flag("last_write_wins"),
            dvv_enabled: layers.flag("dvv_enabled"),
            n_val: layers.int("n_val").unwrap_or(3),
            copies: Partition::DEFAULT_COPIES,
            r: layers.quorum("r"),
            w: layers.quorum("w"),
            dw: layers.quorum("dw"),
            rw: layers.quorum("rw"),
            pr: layers.quorum("pr"),
            pw: layers.quorum("pw"),
            node_confirms: layers.quorum("node_confirms"),
            basic_quorum: layers.flag("basic_quorum"),
            notfound_ok: layers.flag("notfound_ok"),
            has_precommit: layers.has_hooks("precommit"),
            has_postcommit: layers.has_hooks("postcommit"),
            sync_on_write: layers.sync(),
            datatype: layers.datatype(),
            hll_precision: layers.int("hll_precision").unwrap_or(HLL_PRECISION_DEFAULT),
            consistent: layers.flag("consistent"),
            write_once: layers.flag("write_once"),
            has_standard_linkfun: layers.has_standard_linkfun(),
        }
    }
}

/// The three layers of properties. The bucket's come first, the defaults last.
struct PropLayers<'a> {
    defaults: Defaults,
    of_type: &'a Overrides,
    bucket: &'a Overrides,
}

impl PropLayers<'_> {
    fn get(&self, name: &str) -> Option<Value> {
        self.bucket
            .get(name)
            .or_else(|| self.of_type.get(name))
            .cloned()
            .or_else(|| Some(Prop::named(name)?.preset(self.defaults)?()))
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Bool(true))
    }

    fn int<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        match self.get(name) {
            Some(Value::Int(number)) => T::try_from(number).ok(),
            _ => None,
        }
    }

    fn quorum(&self, name: &str) -> Quorum {
        match self.get(name) {
            Some(Value::Quorum(quorum)) => quorum,
            _ => Quorum::Quorum,
        }
    }

    fn has_hooks(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Value::Hooks(hooks)) if !hooks.is_empty())
    }

    fn has_standard_linkfun(&self) -> bool {
        self.get("linkfun") == Prop::named("linkfun").and_then(|prop| Some(prop.preset(self.defaults)?()))
    }

    fn sync(&self) -> SyncOnWrite {
        match self.get("sync_on_write") {
            Some(Value::Sync(sync)) => sync,
            _ => SyncOnWrite::Backend,
        }
    }

    fn datatype(&self) -> Option<Datatype> {
        match self.get("datatype") {
            Some(Value::Datatype(datatype)) => Some(datatype),
            _ => None,
        }
    }
}

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
pub fn body_props(body: &[u8]) -> Result<Map<String, Json>, PropsBodyError> {
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
    use crate::rules::props::effective::body_props;

    fn read(props: &str) -> Overrides {
        Overrides::from_json(&body_props(format!("{{\"props\":{props}}}").as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_defaults_of_types_differ_in_two_properties() {
        let plain = EffectiveProps::resolve(Defaults::DefaultType, &Overrides::EMPTY, &Overrides::EMPTY);
        let typed = EffectiveProps::resolve(Defaults::CustomType, &Overrides::EMPTY, &Overrides::EMPTY);
        assert_eq!(EffectiveProps { allow_mult: true, dvv_enabled: true, ..plain }, typed);
        assert_eq!((plain.allow_mult, plain.dvv_enabled, plain.n_val), (false, false, 3));
        assert_eq!((plain.r, plain.dw, plain.pr), (Quorum::Quorum, Quorum::Quorum, Quorum::Count(0)));
        assert!(plain.has_standard_linkfun && typed.has_standard_linkfun);
        assert!(plain.notfound_ok && !plain.has_precommit && !plain.write_once && plain.datatype.is_none());
    }

    #[test]
    fn the_bucket_wins_over_the_type() {
        let of_type = read(r#"{"n_val":2,"r":"all","datatype":"hll","hll_precision":12}"#);
        let bucket = read(r#"{"r":1,"precommit":"x","sync_on_write":"all"}"#);
        let effective = EffectiveProps::resolve(Defaults::CustomType, &of_type, &bucket);
        assert_eq!((effective.n_val, effective.r), (2, Quorum::Count(1)));
        assert_eq!((effective.datatype, effective.hll_precision), (Some(Datatype::Hll), 12));
        assert!(effective.has_precommit && !effective.has_postcommit && effective.has_standard_linkfun);
        let other =
            EffectiveProps::resolve(Defaults::CustomType, &of_type, &read(r#"{"linkfun":{"mod":"m","fun":"f"}}"#));
        assert!(!other.has_standard_linkfun);
        assert_eq!(effective.sync_on_write, SyncOnWrite::All);
    }
}

#[cfg(test)]
mod set_tests {
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
            assert_eq!(body_props(body.as_bytes()), Err(bad), "{body}");
        }
        assert!(body_props(br#"{"props":{}}"#).unwrap().is_empty());
    }

    #[test]
    fn every_refused_property_is_reported() {
        let props = body_props(br#"{"props":{"n_val":0,"nope":1,"":2,"allow_mult":"true","r":"x"}}"#).unwrap();
        let names: Vec<_> =
            Overrides::from_json(&props).unwrap_err().into_iter().map(|invalid_prop| invalid_prop.prop).collect();
        assert_eq!(names, ["n_val", "nope", "", "r"]);
    }

    #[test]
    fn newer_overrides_replace_older_ones() {
        let read = |body: &[u8]| Overrides::from_json(&body_props(body).unwrap()).unwrap();
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
            let _ = body_props(&body);
        }
    }
}
