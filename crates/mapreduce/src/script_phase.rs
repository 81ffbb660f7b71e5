//! Phases whose functions are JavaScript: many calls of a phase are one call of the engine.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::{Error, ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts};
use larder_rows::limits::JOB_CHUNK_INPUTS;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::error::JobError;
use crate::rules::phase::PhaseScript;
use crate::rules::{JobValue, MapObject, PhaseFailure};

/// Values that a reduce function gets at a time, unless its argument says otherwise.
const REDUCE_VALUES: usize = 1000;

/// A script whose source is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadedScript {
    /// Whom the job serves.
    client: Arc<str>,
    /// The function as an expression: its source, or its name.
    expression: String,
    pub(super) arg: Value,
}

impl LoadedScript {
    /// The script of a phase. `source` is the value of the object that a stored one names.
    ///
    /// # Errors
    /// The name is none.
    pub(super) fn load(
        client: &Arc<str>,
        script: &PhaseScript,
        source: Option<String>,
        arg: Option<Value>,
    ) -> Result<Self, String> {
        let expression = match (script, source) {
            (_, Some(source)) => format!("({source}\n)"),
            (PhaseScript::Source(source), None) => format!("({source}\n)"),
            (PhaseScript::Named(name), None) if is_name(name) => named(name),
            (PhaseScript::Named(name), None) => return Err(format!("{name} is not the name of a function")),
            (PhaseScript::Stored(..), None) => return Err("the source of the function is missing".into()),
        };
        // Riak passes its word for a missing argument.
        Ok(Self { client: Arc::clone(client), expression, arg: arg.unwrap_or_else(|| "none".into()) })
    }

    /// Calls the map function for each object. The results come in the order of the objects, those of missing ones first.
    ///
    /// # Errors
    /// The script failed, or returned no list.
    pub(super) async fn map(
        &self,
        scripts: &dyn Scripts,
        calls: MapCalls,
        deadline: Instant,
    ) -> Result<Vec<JobValue>, ScriptPhaseError> {
        let (mut values, arguments, keys) = calls.into_parts();
        if keys.is_empty() {
            return Ok(values);
        }
        let source = format!(
            "function(calls) {{ var f = {}; var results = []; for (var i = 0; i < calls.length; i++) {{ try {{ \
             results.push(f(calls[i][0], calls[i][1], calls[i][2])); }} catch (error) {{ return {{ failed: i, \
             error: String(error) }}; }} }} return results; }}",
            self.expression
        );
        let result = self.call(scripts, source, arguments, deadline).await?;
        let Value::Array(lists) = result else { return Err(failed_call(&result, &keys)) };
        for (list, key) in lists.into_iter().zip(&keys) {
            match list {
                Value::Array(list) => values.extend(list.into_iter().map(JobValue::Json)),
                _ => {
                    let error = "non_list_result: a map function returns a list";
                    return Err(PhaseFailure::new(error, &shown(key)).into());
                }
            }
        }
        Ok(values)
    }

    /// Calls the reduce function.
    ///
    /// # Errors
    /// The script failed, or returned no list.
    pub(super) async fn reduce(
        &self,
        scripts: &dyn Scripts,
        values: Vec<JobValue>,
        deadline: Instant,
    ) -> Result<Vec<JobValue>, ScriptPhaseError> {
        let source = format!("function(values, arg) {{ return {}(values, arg); }}", self.expression);
        let arguments = ScriptArguments::from_json(script_text(&(&values, &self.arg)));
        drop(values);
        match self.call(scripts, source, arguments, deadline).await? {
            Value::Array(list) => Ok(list.into_iter().map(JobValue::Json).collect()),
            other => Err(PhaseFailure::new("non_list_result: a reduce function returns a list", &other).into()),
        }
    }

    async fn call(
        &self,
        scripts: &dyn Scripts,
        source: String,
        arguments: ScriptArguments,
        deadline: Instant,
    ) -> Result<Value, ScriptError> {
        let (client, function) = (Arc::clone(&self.client), ScriptFunction::Source(source));
        scripts.call(ScriptCall { client, function, arguments, deadline }).await
    }

    /// Values that the reduce function gets at a time; `None`: all at once.
    pub(super) fn reduce_values(&self) -> Option<usize> {
        if self.arg.get("reduce_phase_only_1") == Some(&Value::Bool(true)) {
            return None;
        }
        let size = self.arg.get("reduce_phase_batch_size").and_then(Value::as_u64);
        Some(size.map_or(REDUCE_VALUES, |size| usize::try_from(size).unwrap_or(usize::MAX).max(1)))
    }
}

/// Objects for one call of the engine, which calls the map function for each.
#[derive(Debug, Default)]
pub(super) struct MapCalls {
    /// A function sees existing objects alone; the others go on as they are.
    missing: Vec<JobValue>,
    /// The arguments for each object, `[OBJECT,DATUM,ARG]`, separated by commas.
    text: Vec<u8>,
    /// The key of each object, for errors.
    keys: Vec<Bytes>,
}

impl MapCalls {
    /// Adds an object; the function gets `arg` with it.
    pub(super) fn add(&mut self, object: MapObject, arg: &Value) {
        if object.values.is_empty() {
            self.missing.push(JobValue::NotFound(object.input));
            return;
        }
        self.text.extend_from_slice(if self.keys.is_empty() { b"[[" } else { b"," });
        write_text(&(object.document(), object.input.shown_data(), arg), &mut self.text);
        self.keys.push(object.input.address.key);
    }

    /// How many objects it has.
    pub(super) fn objects(&self) -> usize {
        self.missing.len() + self.keys.len()
    }

    /// Bytes of its arguments.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The objects that do not exist, the arguments of the call, and the key of each object in it.
    fn into_parts(self) -> (Vec<JobValue>, ScriptArguments, Vec<Bytes>) {
        let Self { missing, mut text, keys } = self;
        text.extend_from_slice(b"]]");
        (missing, ScriptArguments::from_json(text), keys)
    }
}

fn script_text(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    write_text(value, &mut text);
    text
}

fn write_text(value: &impl Serialize, out: &mut Vec<u8>) {
    // Values of a job are written to memory, which does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn shown(key: &Bytes) -> Value {
    String::from_utf8_lossy(key).into()
}

/// A call of a phase that has no result.
#[derive(Debug)]
pub(super) enum ScriptPhaseError {
    /// The engine ended the call.
    Script(ScriptError),
    /// The function threw, or returned another value.
    Failure(PhaseFailure),
}

impl From<ScriptError> for ScriptPhaseError {
    fn from(error: ScriptError) -> Self {
        Self::Script(error)
    }
}

impl From<PhaseFailure> for ScriptPhaseError {
    fn from(failure: PhaseFailure) -> Self {
        Self::Failure(failure)
    }
}

impl ScriptPhaseError {
    /// The end of the job.
    pub(super) fn phase_error(self, phase: usize) -> JobError {
        let failure = match self {
            Self::Failure(failure) => failure,
            // The function has not failed: the job may be sent again.
            Self::Script(ScriptError::Unavailable) => return Error::Overloaded { retry_after: 1 }.into(),
            Self::Script(error) => PhaseFailure { error: error.to_string(), input: None },
        };
        JobError::Failed { phase, failure }
    }
}

/// A named function as an expression; a function of an object is called as one, so that `this` is the object.
fn named(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((object, _)) => format!("(function() {{ return {name}.apply({object}, arguments); }})"),
        None => name.to_owned(),
    }
}

/// The failure of the call that the wrapped function names.
fn failed_call(result: &Value, keys: &[Bytes]) -> ScriptPhaseError {
    let at = result.get("failed").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
    let error = result.get("error").and_then(Value::as_str).unwrap_or("the script returned no list");
    let key = at.and_then(|at| keys.get(at)).map_or(Value::Null, shown);
    PhaseFailure::new(error, &key).into()
}

/// Whether a text is names joined by points, which no script can hide in.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let mut chars = part.chars();
        let is_first = |char: char| char.is_ascii_alphabetic() || matches!(char, '_' | '$');
        chars.next().is_some_and(is_first) && chars.all(|char| is_first(char) || char.is_ascii_digit())
    };
    text.split('.').all(is_part)
}

const _: () = assert!(JOB_CHUNK_INPUTS > 1, "several calls of a map phase are one call of the engine");

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn loaded(script: PhaseScript, arg: Value) -> LoadedScript {
        LoadedScript::load(&"c".into(), &script, None, Some(arg)).unwrap()
    }

    #[test]
    fn names_are_names_alone() {
        for (name, is) in
            [("Riak.f", true), ("_a.$b1", true), ("a..b", false), ("", false), ("f()", false), ("1a", false)]
        {
            assert_eq!(is_name(name), is, "{name}");
            assert_eq!(LoadedScript::load(&"c".into(), &PhaseScript::Named(name.into()), None, None).is_ok(), is);
        }
    }

    #[test]
    fn the_argument_sets_the_values_of_a_call() {
        let values = |arg| loaded(PhaseScript::Source("f".into()), arg).reduce_values();
        assert_eq!(values(json!("none")), Some(REDUCE_VALUES));
        assert_eq!(values(json!({"reduce_phase_batch_size": 5})), Some(5));
        assert_eq!(values(json!({"reduce_phase_batch_size": 0})), Some(1));
        assert_eq!(values(json!({"reduce_phase_only_1": true})), None);
    }

    #[test]
    fn the_failed_call_is_named_by_its_key() {
        let keys = ["a".into(), "b".into()];
        let ScriptPhaseError::Failure(failure) = failed_call(&json!({"failed": 1, "error": "Error: x"}), &keys) else {
            panic!("no failure");
        };
        assert_eq!((failure.error.as_str(), failure.input.as_deref()), ("Error: x", Some("\"b\"")));
    }
}
