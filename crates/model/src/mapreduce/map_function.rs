//! The built-in functions of map phases, and the object that they see.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::js_values::is_loosely_equal;
use super::value::{JobInput, JobValue, PhaseFailure, text};
use crate::causality::Sibling;
use crate::object_json::{ObjectJson, http_date};

/// A built-in function of a map phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapFunction {
    /// The object.
    Identity,
    /// Its value.
    ObjectValue,
    /// The elements of its value, a list.
    ObjectValueList,
    /// `Riak.mapValues`: its value.
    JsValues,
    /// `Riak.mapValuesJson`: its value, which is JSON.
    JsValuesJson,
    /// `Riak.mapByFields`: its value, which is JSON, if it has these members.
    JsByFields,
}

/// An object as map functions see it.
#[derive(Debug, Clone)]
pub struct MapObject {
    /// Its address, and the datum that came with it.
    pub input: JobInput,
    /// The context of its key.
    pub context: Bytes,
    /// Its siblings with their values, newest first; none for an object that does not exist.
    pub values: Vec<(Sibling, Bytes)>,
}

impl MapFunction {
    /// The values that the function makes of an object.
    ///
    /// # Errors
    /// The value of the object is not one of the function.
    pub fn map(self, object: MapObject, arg: Option<&Value>) -> Result<Vec<JobValue>, PhaseFailure> {
        let Some((_, value)) = object.values.first() else { return self.map_missing(object.input, arg) };
        let one = |value: Value| vec![JobValue::Json(value)];
        Ok(match self {
            Self::Identity => one(object.json()),
            Self::ObjectValue | Self::JsValues => one(text(value).into()),
            Self::ObjectValueList => match parsed(value, &object.input)? {
                Value::Array(list) => list.into_iter().map(JobValue::Json).collect(),
                _ => return Err(failure("non_list_result: the value is no list", object.input)),
            },
            Self::JsValuesJson => one(parsed(value, &object.input)?),
            Self::JsByFields => match parsed(value, &object.input)? {
                Value::Null => return Err(failure("TypeError: the value is null", object.input)),
                value if has_fields(&value, arg) => one(value),
                _ => Vec::new(),
            },
        })
    }

    /// The values for an object that does not exist. The argument of two functions chooses them.
    fn map_missing(self, input: JobInput, arg: Option<&Value>) -> Result<Vec<JobValue>, PhaseFailure> {
        let takes_action = matches!(self, Self::ObjectValue | Self::ObjectValueList);
        Ok(match arg.filter(|_| takes_action) {
            Some(Value::String(action)) if action == "filter_notfound" => Vec::new(),
            Some(Value::String(action)) if action == "include_keydata" => vec![JobValue::Json(input.shown_data())],
            Some(Value::Object(members)) if members.len() == 1 && members.contains_key("sub") => {
                match &members["sub"] {
                    Value::Array(list) => list.iter().cloned().map(JobValue::Json).collect(),
                    _ => return Err(failure("non_list_result: sub is no list", input)),
                }
            }
            _ if self == Self::JsByFields => Vec::new(),
            _ => vec![JobValue::NotFound(input)],
        })
    }
}

fn parsed(value: &[u8], input: &JobInput) -> Result<Value, PhaseFailure> {
    let parsed = serde_json::from_slice(value);
    parsed.map_err(|error| failure(&format!("SyntaxError: the value is not JSON: {error}"), input.clone()))
}

fn failure(error: &str, input: JobInput) -> PhaseFailure {
    PhaseFailure::new(error, &JobValue::Key(input).into_json())
}

/// Whether a value has all members of `fields`, by the loose equality of JavaScript.
fn has_fields(value: &Value, fields: Option<&Value>) -> bool {
    let Some(Value::Object(fields)) = fields else { return true };
    fields.iter().all(|(name, wanted)| {
        // A member that is missing is undefined, which equals null.
        value.get(name).map_or(wanted.is_null(), |member| is_loosely_equal(member, wanted))
    })
}

impl MapObject {
    /// The object in the form in which Riak passes it to JavaScript.
    #[must_use]
    pub fn json(&self) -> Value {
        let value = |(sibling, value): &(Sibling, Bytes)| {
            Ok(json!({ "metadata": metadata(sibling)?, "data": FORM.text("value", value)? }))
        };
        let values = self.values.iter().map(value).collect::<Result<_, String>>();
        // The form has no errors.
        values.and_then(|values| FORM.object(&self.input.address, &self.context, values)).unwrap_or_default()
    }
}

/// Nothing of the object comes back from a job.
const FORM: ObjectJson = ObjectJson::Shown;

fn metadata(sibling: &Sibling) -> Result<Value, String> {
    let content = &sibling.content;
    let mut members = Map::new();
    members.insert("X-Riak-VTag".into(), sibling.vtag().to_string().into());
    FORM.add_headers(content, &mut members)?;
    members.insert("Links".into(), FORM.links(&content.links)?);
    members.insert("index".into(), FORM.index(&content.terms)?);
    members.insert("X-Riak-Last-Modified".into(), http_date(sibling.modified()).into());
    members.insert("X-Riak-Meta".into(), FORM.user_metadata(content)?);
    Ok(members.into())
}

#[cfg(test)]
mod tests;
