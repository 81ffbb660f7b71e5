//! The ordered lists of properties that operators and clients see.
//!
//! Riak's order depends on the history of a type, and scripts rely on it:
//!
//! ```text
//! type created, never updated     the order of the table
//! type updated, type default      by name
//! bucket without overrides        `name`, then the order of its type
//! bucket with overrides           by name, with `name` among the others
//! ```

use serde_json::{Map, Value as Json};

use super::effective::{HLL_PRECISION_DEFAULT, Overrides};
use super::table::{Defaults, PROPS, Prop};
use super::types::{TypeRecord, TypeState};
use super::value::{Datatype, Value};

/// Properties in the order of display.
pub type PropList = Vec<(&'static str, Value)>;

/// The properties of a type. `None` is type `default`.
#[must_use]
pub fn type_props(record: Option<&TypeRecord>) -> PropList {
    let mut list = layered(record, &Overrides::EMPTY);
    if record.is_none_or(|record| record.updated) {
        sort_by_name(&mut list);
    }
    list
}

/// The properties of a bucket. `name` is its name in JSON, `record` its type (`None` is type `default`), `overrides` its own.
#[must_use]
pub fn bucket_props(name: &str, record: Option<&TypeRecord>, overrides: &Overrides) -> PropList {
    let named = ("name", Value::Text(name.to_owned()));
    if overrides.is_empty() {
        std::iter::once(named).chain(type_props(record)).collect()
    } else {
        let mut list = layered(record, overrides);
        list.push(named);
        sort_by_name(&mut list);
        list
    }
}

/// The list as a JSON object in the same order: the value of `props`.
#[must_use]
pub fn to_json(list: &[(&'static str, Value)]) -> Map<String, Json> {
    list.iter().map(|(name, value)| ((*name).to_owned(), value.to_json())).collect()
}

/// The lines of `bucket-type status`, one per property.
#[must_use]
pub fn console_lines(list: &[(&'static str, Value)]) -> Vec<String> {
    list.iter().map(|(name, value)| format!("{name}: {}", value.console())).collect()
}

fn sort_by_name(list: &mut PropList) {
    list.sort_by_key(|(name, _)| *name);
}

/// The properties with a value, in table order.
fn layered(record: Option<&TypeRecord>, overrides: &Overrides) -> PropList {
    PROPS.iter().filter_map(|prop| Some((prop.name, displayed_value(prop, record, overrides)?))).collect()
}

fn displayed_value(prop: &Prop, record: Option<&TypeRecord>, overrides: &Overrides) -> Option<Value> {
    if let Some(value) = overrides.get(prop.name) {
        return Some(value.clone());
    }
    let Some(record) = record else {
        return prop.preset(Defaults::DefaultType).map(|preset| preset());
    };
    let set = record.overrides.get(prop.name).cloned();
    set.or_else(|| computed(prop.name, record)).or_else(|| prop.preset(Defaults::CustomType).map(|preset| preset()))
}

/// The value of a property that follows from other parts of a type's record.
fn computed(name: &str, record: &TypeRecord) -> Option<Value> {
    match name {
        "active" => Some(Value::Bool(record.state == TypeState::Active)),
        "claimant" => Some(Value::Node(record.claimant.clone())),
        "hll_precision" if record.overrides.get("datatype") == Some(&Value::Datatype(Datatype::Hll)) => {
            Some(Value::Int(HLL_PRECISION_DEFAULT.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
