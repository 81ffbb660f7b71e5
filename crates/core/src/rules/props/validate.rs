//! Checks the properties that a client sets: at the creation of a type, on an existing type, and on a bucket.
//!
//! Rules and reasons are Riak's (property reference, validation and type kinds). Each property is checked by itself, and all
//! refusals are reported, those of the last properties first, as in Riak. A request without refusals is then checked as a
//! whole, merged with the stored properties.
//!
//! ```text
//! name, active, claimant        read-only: a request may repeat the current value, nothing is stored
//! consistent, write_once,       fixed at creation: a request may repeat the current value, nothing is stored
//! datatype
//! all others                    checked by kind, stored as overrides
//! ```

use serde_json::{Map, Value as Json};

use super::decode::{flag, quoted_in_error};
use super::effective::{EffectiveProps, Overrides};
use super::native_hook::{HookStage, check_hooks};
use super::reason::{InvalidProp, InvalidReason};
use super::table::{Defaults, Prop};
use super::types::{TypeKind, TypeRecord, TypeState};
use super::value::{Datatype, Value};

/// The kind and the overrides of a new type.
///
/// # Errors
/// Every refused property.
pub fn create_type(claimant: &str, props: &Map<String, Json>) -> Result<(TypeKind, Overrides), Vec<InvalidProp>> {
    let kind = requested_kind(props);
    let request = PropsRequest {
        target: PropsTarget::NewType,
        kind,
        current: EffectiveProps::resolve(Defaults::CustomType, &Overrides::EMPTY, &Overrides::EMPTY),
        active: false,
        claimant: Some(claimant),
        props,
    };
    let set = request.check()?;
    check_dvv_with_last_write_wins(EffectiveProps::resolve(Defaults::CustomType, &Overrides::EMPTY, &set), &set)?;
    Ok((kind, set))
}

/// The overrides of `record` after an update with `props`. The caller has checked that the type is active.
///
/// # Errors
/// Every refused property.
pub fn update_type(record: &TypeRecord, props: &Map<String, Json>) -> Result<Overrides, Vec<InvalidProp>> {
    let set = PropsRequest::from_type(record, &Overrides::EMPTY, props).check()?;
    let merged = record.overrides.with(set.clone());
    check_dvv_with_last_write_wins(EffectiveProps::resolve(Defaults::CustomType, &merged, &Overrides::EMPTY), &set)?;
    Ok(merged)
}

/// The overrides of a bucket after `props` are set on it. `of_type` is its type (`None` is type `default`), and `current` are
/// its stored overrides.
///
/// In type `default` a `datatype` is accepted and dropped: Riak stores it without effect.
///
/// # Errors
/// Every refused property.
pub fn update_bucket(
    of_type: Option<&TypeRecord>,
    current: &Overrides,
    props: &Map<String, Json>,
) -> Result<Overrides, Vec<InvalidProp>> {
    let request = match of_type {
        Some(record) => PropsRequest::from_type(record, current, props),
        None => PropsRequest::untyped(current, props),
    };
    let set = request.check()?;
    let merged = current.with(set.clone());
    check_dvv_with_last_write_wins(TypeRecord::effective(of_type, &merged), &set)?;
    Ok(merged)
}

/// Refuses a change that leaves `last_write_wins` and `dvv_enabled` both true.
fn check_dvv_with_last_write_wins(after: EffectiveProps, set: &Overrides) -> Result<(), Vec<InvalidProp>> {
    let sets_either = set.get("last_write_wins").is_some() || set.get("dvv_enabled").is_some();
    if sets_either && after.last_write_wins && after.dvv_enabled {
        return Err(vec![InvalidProp { prop: "dvv_enabled".into(), reason: InvalidReason::DvvWithLastWriteWins }]);
    }
    Ok(())
}

fn requested_kind(props: &Map<String, Json>) -> TypeKind {
    if is_true(props, "consistent") {
        TypeKind::Consistent
    } else if is_true(props, "write_once") {
        TypeKind::WriteOnce
    } else if props.contains_key("datatype") {
        TypeKind::Datatype
    } else {
        TypeKind::Default
    }
}

fn is_true(props: &Map<String, Json>, name: &str) -> bool {
    props.get(name).and_then(flag) == Some(true)
}

/// The target of a request, which decides the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PropsTarget {
    /// A type that is not active yet.
    NewType,
    /// An active type or a bucket of it. Both have the same rules.
    Existing,
    /// A bucket of type `default`.
    Untyped,
}

/// A request to set properties, with the state that its rules need.
struct PropsRequest<'a> {
    target: PropsTarget,
    kind: TypeKind,
    current: EffectiveProps,
    active: bool,
    claimant: Option<&'a str>,
    props: &'a Map<String, Json>,
}

/// A value to store, no value to store, or a refusal.
type PropDecision = Result<Option<Value>, InvalidReason>;

impl<'a> PropsRequest<'a> {
    fn from_type(record: &'a TypeRecord, bucket: &Overrides, props: &'a Map<String, Json>) -> Self {
        Self {
            target: PropsTarget::Existing,
            kind: record.kind,
            current: TypeRecord::effective(Some(record), bucket),
            active: record.state == TypeState::Active,
            claimant: Some(&record.claimant),
            props,
        }
    }

    fn untyped(bucket: &Overrides, props: &'a Map<String, Json>) -> Self {
        Self {
            target: PropsTarget::Untyped,
            kind: TypeKind::Default,
            current: TypeRecord::effective(None, bucket),
            active: true,
            claimant: None,
            props,
        }
    }

    /// The overrides to store.
    fn check(&self) -> Result<Overrides, Vec<InvalidProp>> {
        let mut set = Overrides::EMPTY;
        let mut invalid = Vec::new();
        for (name, json) in self.props {
            match self.check_prop(name, json) {
                Ok(Some((prop, value))) => set.set(prop, value),
                Ok(None) => {}
                Err(reason) => invalid.push(InvalidProp { prop: name.clone(), reason }),
            }
        }
        // As in Riak: the last property comes first.
        invalid.reverse();
        if invalid.is_empty() { Ok(set) } else { Err(invalid) }
    }

    fn check_prop(&self, name: &str, json: &Json) -> Result<Option<(&'static Prop, Value)>, InvalidReason> {
        let prop = Prop::named(name).ok_or(InvalidReason::UnknownProperty)?;
        let decision = match prop.name {
            "name" => Ok(None),
            "active" => self.active(json),
            "claimant" => self.claimant(json),
            "consistent" => self.consistent(json),
            "write_once" => self.write_once(json),
            "datatype" => self.datatype(json),
            "hll_precision" => self.hll_precision(prop, json),
            "allow_mult" => self.allow_mult(prop, json),
            "n_val" => self.n_val(prop, json),
            "precommit" => hooks(prop, json, HookStage::Precommit),
            "postcommit" => hooks(prop, json, HookStage::Postcommit),
            _ => prop.kind.decode(json).map(Some),
        };
        decision.map(|stored| stored.map(|value| (prop, value)))
    }

    fn active(&self, json: &Json) -> PropDecision {
        if flag(json) == Some(self.active) { Ok(None) } else { Err(InvalidReason::CannotModifyActive) }
    }

    fn claimant(&self, json: &Json) -> PropDecision {
        match self.claimant {
            Some(node) if json.as_str() != Some(node) => Err(InvalidReason::CannotUpdateClaimant),
            _ => Ok(None),
        }
    }

    fn consistent(&self, json: &Json) -> PropDecision {
        match (self.target, self.kind, flag(json)) {
            (PropsTarget::NewType, _, Some(true)) if is_true(self.props, "write_once") => {
                Err(InvalidReason::CreateWriteOnceConsistent)
            }
            (PropsTarget::NewType, _, Some(requested)) => Ok(Some(Value::Bool(requested))),
            (PropsTarget::NewType, _, None) => Err(InvalidReason::ConsistentValue(quoted_in_error(json))),
            (_, _, Some(requested)) if requested == self.current.consistent => Ok(None),
            (PropsTarget::Existing, TypeKind::WriteOnce | TypeKind::Default, Some(_)) => {
                Err(InvalidReason::UpdateWriteOnceConsistent)
            }
            _ => Err(InvalidReason::CannotUpdateConsistent),
        }
    }

    fn write_once(&self, json: &Json) -> PropDecision {
        match (self.target, self.kind, flag(json)) {
            (PropsTarget::NewType, _, Some(requested)) => Ok(Some(Value::Bool(requested))),
            (_, _, Some(requested)) if requested == self.current.write_once => Ok(None),
            (PropsTarget::Existing, TypeKind::WriteOnce, _) => Err(InvalidReason::WriteOnceForever),
            (PropsTarget::Existing, TypeKind::Default, Some(_)) => Err(InvalidReason::WriteOnceExisting),
            _ => Err(InvalidReason::CannotUpdateWriteOnce),
        }
    }

    fn datatype(&self, json: &Json) -> PropDecision {
        let requested = json.as_str().and_then(Datatype::named);
        match (self.target, self.kind) {
            (PropsTarget::Untyped, _) => Ok(None),
            (PropsTarget::Existing, _) if requested.is_some() && requested == self.current.datatype => Ok(None),
            (_, TypeKind::WriteOnce) => Err(InvalidReason::WriteOnceDatatype),
            (PropsTarget::NewType, _) => requested
                .map(|datatype| Some(Value::Datatype(datatype)))
                .ok_or_else(|| InvalidReason::Datatype(quoted_in_error(json))),
            (PropsTarget::Existing, _) if self.current.datatype.is_some() => {
                Err(InvalidReason::Datatype(quoted_in_error(json)))
            }
            (PropsTarget::Existing, _) => Err(InvalidReason::DatatypeNotDefined),
        }
    }

    /// Without effect unless the type is a HyperLogLog. Once set, it may only shrink.
    fn hll_precision(&self, prop: &Prop, json: &Json) -> PropDecision {
        if self.datatype_after() != Some(Datatype::Hll) {
            return Ok(None);
        }
        match prop.kind.decode(json)? {
            Value::Int(precision)
                if self.target == PropsTarget::NewType || precision <= self.current.hll_precision.into() =>
            {
                Ok(Some(Value::Int(precision)))
            }
            _ => Err(InvalidReason::HllPrecision(quoted_in_error(json))),
        }
    }

    fn datatype_after(&self) -> Option<Datatype> {
        match self.target {
            PropsTarget::NewType => self.props.get("datatype").and_then(Json::as_str).and_then(Datatype::named),
            PropsTarget::Existing => self.current.datatype,
            PropsTarget::Untyped => None,
        }
    }

    fn allow_mult(&self, prop: &Prop, json: &Json) -> PropDecision {
        match prop.kind.decode(json)? {
            Value::Bool(false) if self.kind == TypeKind::Datatype => Err(InvalidReason::DatatypeAllowMult),
            value => Ok(Some(value)),
        }
    }

    fn n_val(&self, prop: &Prop, json: &Json) -> PropDecision {
        match prop.kind.decode(json)? {
            value if self.target != PropsTarget::Existing || self.kind != TypeKind::Consistent => Ok(Some(value)),
            value if value == Value::Int(self.current.n_val.into()) => Ok(None),
            _ => Err(InvalidReason::ConsistentNVal),
        }
    }
}

/// Riak notices an unknown function at the first write, which then fails; here the property is refused.
fn hooks(prop: &'static Prop, json: &Json, stage: HookStage) -> PropDecision {
    let value = prop.kind.decode(json)?;
    if let Value::Hooks(hooks) = &value {
        check_hooks(hooks, stage)
            .map_err(|(function, fault)| InvalidReason::UnknownHookFunction { function, fault })?;
    }
    Ok(Some(value))
}

#[cfg(test)]
pub(super) mod tests;
