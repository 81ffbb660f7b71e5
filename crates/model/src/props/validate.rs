//! What a client may set where: at creation of a type, on an existing type, on a bucket.
//!
//! Rules and reasons are Riak's (property reference, validation and type kinds). A request is looked at property by
//! property, every refusal is collected, the last property first as Riak lists them; only a request without any is then
//! checked as a whole, merged with what was there.
//!
//! ```text
//! name, active, claimant        read-only: giving the present value back is fine, nothing is stored
//! consistent, write_once,       chosen at creation: repeating the present value is fine, nothing is stored
//! datatype
//! everything else               of its kind, stored as an override
//! ```

use serde_json::{Map, Value as Json};

use super::decode::{flag, shown};
use super::effective::Effective;
use super::reason::{Invalid, Reason};
use super::set::Overrides;
use super::table::{Defaults, Prop};
use super::types::{State, TypeKind, TypeRecord};
use super::value::{Datatype, Value};

/// What a new type's overrides are, and its kind.
///
/// # Errors
/// Every refused property.
pub fn create(claimant: &str, props: &Map<String, Json>) -> Result<(TypeKind, Overrides), Vec<Invalid>> {
    let kind = kind_asked_for(props);
    let scope = Scope {
        stage: Stage::Create,
        kind,
        current: Effective::of(Defaults::CustomType, &Overrides::EMPTY, &Overrides::EMPTY),
        active: false,
        claimant: Some(claimant),
        asked: props,
    };
    let set = scope.check()?;
    agree(Effective::of(Defaults::CustomType, &Overrides::EMPTY, &set), &set)?;
    Ok((kind, set))
}

/// The overrides of `record` after an update with `props`. The caller checked that the type is active.
///
/// # Errors
/// Every refused property.
pub fn update(record: &TypeRecord, props: &Map<String, Json>) -> Result<Overrides, Vec<Invalid>> {
    let set = Scope::of_type(record, &Overrides::EMPTY, props).check()?;
    let merged = record.overrides.with(set.clone());
    agree(Effective::of(Defaults::CustomType, &merged, &Overrides::EMPTY), &set)?;
    Ok(merged)
}

/// The overrides of a bucket after `props` are set on it, where `of_type` is its type (`None` is type `default`) and
/// `current` what it has now.
///
/// In type `default`, `datatype` is accepted and dropped: Riak stores it without effect.
///
/// # Errors
/// Every refused property.
pub fn bucket(
    of_type: Option<&TypeRecord>,
    current: &Overrides,
    props: &Map<String, Json>,
) -> Result<Overrides, Vec<Invalid>> {
    let scope = match of_type {
        Some(record) => Scope::of_type(record, current, props),
        None => Scope::untyped(current, props),
    };
    let set = scope.check()?;
    let merged = current.with(set.clone());
    agree(TypeRecord::effective(of_type, &merged), &set)?;
    Ok(merged)
}

/// Refuses a change that leaves `last_write_wins` and `dvv_enabled` both true.
fn agree(after: Effective, set: &Overrides) -> Result<(), Vec<Invalid>> {
    let touched = set.get("last_write_wins").is_some() || set.get("dvv_enabled").is_some();
    if touched && after.last_write_wins && after.dvv_enabled {
        return Err(vec![Invalid { prop: "dvv_enabled".into(), reason: Reason::DvvWithLastWriteWins }]);
    }
    Ok(())
}

fn kind_asked_for(props: &Map<String, Json>) -> TypeKind {
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

/// Which rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A type that is not in use yet.
    Create,
    /// An active type, or a bucket of it: the rules are the same.
    Existing,
    /// A bucket of type `default`.
    Untyped,
}

/// A request and everything its rules look at.
struct Scope<'a> {
    stage: Stage,
    kind: TypeKind,
    current: Effective,
    active: bool,
    claimant: Option<&'a str>,
    asked: &'a Map<String, Json>,
}

/// A value to store, nothing to store, or a refusal.
type Verdict = Result<Option<Value>, Reason>;

impl<'a> Scope<'a> {
    fn of_type(record: &'a TypeRecord, bucket: &Overrides, asked: &'a Map<String, Json>) -> Self {
        Self {
            stage: Stage::Existing,
            kind: record.kind,
            current: TypeRecord::effective(Some(record), bucket),
            active: record.state == State::Active,
            claimant: Some(&record.claimant),
            asked,
        }
    }

    fn untyped(bucket: &Overrides, asked: &'a Map<String, Json>) -> Self {
        Self {
            stage: Stage::Untyped,
            kind: TypeKind::Default,
            current: TypeRecord::effective(None, bucket),
            active: true,
            claimant: None,
            asked,
        }
    }

    /// What to store of the request.
    fn check(&self) -> Result<Overrides, Vec<Invalid>> {
        let mut set = Overrides::EMPTY;
        let mut invalid = Vec::new();
        for (name, json) in self.asked {
            match self.one(name, json) {
                Ok(Some((prop, value))) => set.set(prop, value),
                Ok(None) => {}
                Err(reason) => invalid.push(Invalid { prop: name.clone(), reason }),
            }
        }
        invalid.reverse();
        if invalid.is_empty() { Ok(set) } else { Err(invalid) }
    }

    fn one(&self, name: &str, json: &Json) -> Result<Option<(&'static Prop, Value)>, Reason> {
        let prop = Prop::named(name).ok_or(Reason::UnknownProperty)?;
        let verdict = match prop.name {
            "name" => Ok(None),
            "active" => self.active(json),
            "claimant" => self.claimant(json),
            "consistent" => self.consistent(json),
            "write_once" => self.write_once(json),
            "datatype" => self.datatype(json),
            "hll_precision" => self.hll_precision(prop, json),
            "allow_mult" => self.allow_mult(prop, json),
            "n_val" => self.n_val(prop, json),
            _ => prop.kind.decode(json).map(Some),
        };
        verdict.map(|stored| stored.map(|value| (prop, value)))
    }

    fn active(&self, json: &Json) -> Verdict {
        if flag(json) == Some(self.active) { Ok(None) } else { Err(Reason::CannotModifyActive) }
    }

    fn claimant(&self, json: &Json) -> Verdict {
        match self.claimant {
            Some(node) if json.as_str() != Some(node) => Err(Reason::CannotUpdateClaimant),
            _ => Ok(None),
        }
    }

    fn consistent(&self, json: &Json) -> Verdict {
        match (self.stage, self.kind, flag(json)) {
            (Stage::Create, _, Some(true)) if is_true(self.asked, "write_once") => {
                Err(Reason::CreateWriteOnceConsistent)
            }
            (Stage::Create, _, Some(asked)) => Ok(Some(Value::Bool(asked))),
            (Stage::Create, _, None) => Err(Reason::ConsistentValue(shown(json))),
            (_, _, Some(asked)) if asked == self.current.consistent => Ok(None),
            (Stage::Existing, TypeKind::WriteOnce | TypeKind::Default, Some(_)) => {
                Err(Reason::UpdateWriteOnceConsistent)
            }
            _ => Err(Reason::CannotUpdateConsistent),
        }
    }

    fn write_once(&self, json: &Json) -> Verdict {
        match (self.stage, self.kind, flag(json)) {
            (Stage::Create, _, Some(asked)) => Ok(Some(Value::Bool(asked))),
            (_, _, Some(asked)) if asked == self.current.write_once => Ok(None),
            (Stage::Existing, TypeKind::WriteOnce, _) => Err(Reason::WriteOnceForever),
            (Stage::Existing, TypeKind::Default, Some(_)) => Err(Reason::WriteOnceExisting),
            _ => Err(Reason::CannotUpdateWriteOnce),
        }
    }

    fn datatype(&self, json: &Json) -> Verdict {
        let asked = json.as_str().and_then(Datatype::named);
        match (self.stage, self.kind) {
            (Stage::Untyped, _) => Ok(None),
            (Stage::Existing, _) if asked.is_some() && asked == self.current.datatype => Ok(None),
            (_, TypeKind::WriteOnce) => Err(Reason::WriteOnceDatatype),
            (Stage::Create, _) => {
                asked.map(|datatype| Some(Value::Datatype(datatype))).ok_or_else(|| Reason::Datatype(shown(json)))
            }
            (Stage::Existing, _) if self.current.datatype.is_some() => Err(Reason::Datatype(shown(json))),
            (Stage::Existing, _) => Err(Reason::DatatypeNotDefined),
        }
    }

    /// Dropped unless the type is a hll; once there, it may only shrink.
    fn hll_precision(&self, prop: &Prop, json: &Json) -> Verdict {
        if self.datatype_after() != Some(Datatype::Hll) {
            return Ok(None);
        }
        match prop.kind.decode(json)? {
            Value::Int(precision) if self.stage == Stage::Create || precision <= self.current.hll_precision.into() => {
                Ok(Some(Value::Int(precision)))
            }
            _ => Err(Reason::HllPrecision(shown(json))),
        }
    }

    fn datatype_after(&self) -> Option<Datatype> {
        match self.stage {
            Stage::Create => self.asked.get("datatype").and_then(Json::as_str).and_then(Datatype::named),
            Stage::Existing => self.current.datatype,
            Stage::Untyped => None,
        }
    }

    fn allow_mult(&self, prop: &Prop, json: &Json) -> Verdict {
        match prop.kind.decode(json)? {
            Value::Bool(false) if self.kind == TypeKind::Datatype => Err(Reason::DatatypeAllowMult),
            value => Ok(Some(value)),
        }
    }

    fn n_val(&self, prop: &Prop, json: &Json) -> Verdict {
        match prop.kind.decode(json)? {
            value if self.stage != Stage::Existing || self.kind != TypeKind::Consistent => Ok(Some(value)),
            value if value == Value::Int(self.current.n_val.into()) => Ok(None),
            _ => Err(Reason::ConsistentNVal),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
