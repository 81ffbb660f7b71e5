//! The ordered lists of properties that people and clients see.
//!
//! Riak's order tells a type's history, and scripts and transcripts know it:
//!
//! ```text
//! type created, never updated     the order of the table
//! type updated, type default      by name
//! bucket without overrides        name, then as its type
//! bucket with overrides           by name, `name` among the others, never twice
//! ```

use serde_json::{Map, Value as Json};

use super::effective::HLL_PRECISION_DEFAULT;
use super::set::Overrides;
use super::table::{Defaults, PROPS, Prop};
use super::types::{State, TypeRecord};
use super::value::{Datatype, Value};

/// Properties in the order they are shown.
pub type List = Vec<(&'static str, Value)>;

/// The properties of a type; `None` is type `default`.
#[must_use]
pub fn of_type(record: Option<&TypeRecord>) -> List {
    let mut list = layered(record, &Overrides::EMPTY);
    if record.is_none_or(|record| record.updated) {
        by_name(&mut list);
    }
    list
}

/// The properties of a bucket: `name` is how its name is written in JSON, `record` its type (`None` is type
/// `default`), `own` what was set on it.
#[must_use]
pub fn of_bucket(name: &str, record: Option<&TypeRecord>, own: &Overrides) -> List {
    let named = ("name", Value::Text(name.to_owned()));
    if own.is_empty() {
        std::iter::once(named).chain(of_type(record)).collect()
    } else {
        let mut list = layered(record, own);
        list.push(named);
        by_name(&mut list);
        list
    }
}

/// The list as a JSON object in the same order: what stands under `props`.
#[must_use]
pub fn to_json(list: &[(&'static str, Value)]) -> Map<String, Json> {
    list.iter().map(|(name, value)| ((*name).to_owned(), value.to_json())).collect()
}

/// The list as `bucket-type status` prints it, a line each.
#[must_use]
pub fn console(list: &[(&'static str, Value)]) -> Vec<String> {
    list.iter().map(|(name, value)| format!("{name}: {}", value.console())).collect()
}

fn by_name(list: &mut List) {
    list.sort_by_key(|(name, _)| *name);
}

/// What is shown, in table order.
fn layered(record: Option<&TypeRecord>, own: &Overrides) -> List {
    PROPS.iter().filter_map(|prop| Some((prop.name, shown(prop, record, own)?))).collect()
}

fn shown(prop: &Prop, record: Option<&TypeRecord>, own: &Overrides) -> Option<Value> {
    if let Some(value) = own.get(prop.name) {
        return Some(value.clone());
    }
    let Some(record) = record else {
        return prop.preset(Defaults::DefaultType).map(|preset| preset.value());
    };
    let set = record.overrides.get(prop.name).cloned();
    set.or_else(|| computed(prop.name, record))
        .or_else(|| prop.preset(Defaults::CustomType).map(|preset| preset.value()))
}

/// Properties of a created type that follow from the rest of its record.
fn computed(name: &str, record: &TypeRecord) -> Option<Value> {
    match name {
        "active" => Some(Value::Bool(record.state == State::Active)),
        "claimant" => Some(Value::Node(record.claimant.clone())),
        "hll_precision" if record.overrides.get("datatype") == Some(&Value::Datatype(Datatype::Hll)) => {
            Some(Value::Int(HLL_PRECISION_DEFAULT.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
