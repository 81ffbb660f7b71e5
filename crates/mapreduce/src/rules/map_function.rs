//! The built-in functions of map phases, and the object that they see.

use bytes::Bytes;
use larder_kv::rules::causality::Sibling;
use larder_kv::rules::object_json::{ObjectDocument, ObjectJson, ValueDocument};
use larder_rows::limits::JOB_HELD_BYTES_MAX;
use serde_json::Value;

use super::js_values::is_loosely_equal;
use super::value::{JobInput, JobValue, PhaseFailure, parsed_bytes};

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
    /// Bytes of memory that an object with values of `length` bytes takes until its results are counted as values.
    #[must_use]
    pub fn object_memory(self, length: u64) -> u64 {
        match self {
            // The value, and its text as a result and in the answer.
            Self::Identity | Self::ObjectValue | Self::JsValues => length.saturating_mul(3),
            // The value, and its tree within its bound.
            Self::ObjectValueList | Self::JsValuesJson | Self::JsByFields => {
                length.saturating_add(length.saturating_mul(50).min(JOB_HELD_BYTES_MAX as u64))
            }
        }
    }

    /// The values that the function makes of an object.
    ///
    /// # Errors
    /// The value of the object is not one of the function.
    pub fn map(self, object: MapObject, arg: Option<&Value>) -> Result<Vec<JobValue>, PhaseFailure> {
        let Some((_, value)) = object.values.first() else { return self.map_missing(object.input, arg) };
        let single = |value: Value| vec![JobValue::Json(value)];
        Ok(match self {
            Self::Identity => single(object.json()),
            Self::ObjectValue | Self::JsValues => vec![JobValue::from_bytes(value)],
            Self::ObjectValueList => match parsed(value, &object.input)? {
                Value::Array(list) => list.into_iter().map(JobValue::Json).collect(),
                _ => return Err(failure("non_list_result: the value is no list", object.input)),
            },
            Self::JsValuesJson => single(parsed(value, &object.input)?),
            Self::JsByFields => match parsed(value, &object.input)? {
                Value::Null => return Err(failure("TypeError: the value is null", object.input)),
                value if has_fields(&value, arg) => single(value),
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

/// The JSON of a value. Its tree may take fifty times its text, so its size is looked at first.
fn parsed(value: &[u8], input: &JobInput) -> Result<Value, PhaseFailure> {
    if parsed_bytes(value) > JOB_HELD_BYTES_MAX {
        let error = format!("the JSON of the value takes more than {JOB_HELD_BYTES_MAX} bytes of memory");
        return Err(failure(&error, input.clone()));
    }
    let parsed = serde_json::from_slice(value);
    parsed.map_err(|error| failure(&format!("SyntaxError: the value is not JSON: {error}"), input.clone()))
}

fn failure(error: &str, input: JobInput) -> PhaseFailure {
    PhaseFailure::new(error, &JobValue::Key(input).into_json())
}

/// Whether a value has all members of `fields`, by the loose equality of JavaScript.
fn has_fields(value: &Value, fields: Option<&Value>) -> bool {
    let Some(Value::Object(fields)) = fields else { return true };
    fields.iter().all(|(name, expected)| {
        // A member that is missing is undefined, which equals null.
        value.get(name).map_or(expected.is_null(), |member| is_loosely_equal(member, expected))
    })
}

impl MapObject {
    /// The object in the form in which Riak passes it to JavaScript.
    #[must_use]
    pub fn document(&self) -> ObjectDocument<'_> {
        let values = self.values.iter().map(|(sibling, data)| ValueDocument {
            vtag: Some(sibling.vtag()),
            content: &sibling.content,
            modified: sibling.modified(),
            is_delete: false,
            data,
        });
        // Nothing of the object comes back from a job.
        let (form, values) = (ObjectJson::Shown, values.collect());
        ObjectDocument { form, address: &self.input.address, context: &self.context, values }
    }

    fn json(&self) -> Value {
        // The form has no errors.
        serde_json::to_value(self.document()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
