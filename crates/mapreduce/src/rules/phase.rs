//! The phases of a job.

use larder_kv::rules::links::LinkFilter;
use larder_rows::limits::JOB_PHASES_MAX;
use serde_json::{Map, Value};

use super::builtins;
use super::map_function::MapFunction;
use super::reduce_function::ReduceFunction;
use super::refusal::{JobRefusal, PhaseRefusal, shown};

/// A phase of a job.
#[derive(Debug, Clone)]
pub struct JobPhase {
    /// Whether its results are in the answer.
    pub keep: bool,
    /// The argument of its function.
    pub arg: Option<Value>,
    /// Its function.
    pub function: PhaseFunction,
}

/// The function of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhaseFunction {
    /// Objects to values, natively.
    Map(MapFunction),
    /// Values to fewer values, natively.
    Reduce(ReduceFunction),
    /// Objects to the keys that their links lead to.
    Link(LinkFilter),
    /// Objects to values, by JavaScript.
    MapScript(PhaseScript),
    /// Values to fewer values, by JavaScript.
    ReduceScript(PhaseScript),
}

/// The JavaScript function of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhaseScript {
    /// A function of the loaded modules.
    Named(String),
    /// The source of a function.
    Source(String),
    /// The object whose value is the source: its bucket, of type `default`, and its key.
    Stored(String, String),
}

/// A phase whose function is not looked up.
#[derive(Debug)]
pub(super) struct ParsedPhase {
    pub(super) keep: bool,
    pub(super) arg: Option<Value>,
    pub(super) step: ParsedStep,
}

#[derive(Debug)]
pub(super) enum ParsedStep {
    Link(LinkFilter),
    Erlang { is_map: bool, function: ErlangFunction },
    Script { is_map: bool, script: PhaseScript },
}

#[derive(Debug)]
pub(super) enum ErlangFunction {
    Module(String, String),
    /// Source, which only an Erlang compiler understands.
    Source,
    /// A function of the client's own code.
    Fun,
}

/// Reads the member `query`.
///
/// # Errors
/// [`JobRefusal::Query`].
pub(super) fn parse_query(query: &Value) -> Result<Vec<ParsedPhase>, JobRefusal> {
    let Value::Array(steps) = query else {
        return Err(refusal("The value of the \"query\" field was not a list:\n   ", query, "\n"));
    };
    if steps.len() > JOB_PHASES_MAX {
        let text = format!("The query has more than {JOB_PHASES_MAX} phases.\n");
        return Err(JobRefusal::Query(text));
    }
    let last = steps.len().saturating_sub(1);
    let phases = steps.iter().enumerate().map(|(at, step)| parse_phase(step, at == last));
    phases.collect::<Result<Vec<_>, _>>().map(keep_last)
}

/// The phases, of which one keeps its results at least.
pub(super) fn keep_last(mut phases: Vec<ParsedPhase>) -> Vec<ParsedPhase> {
    // A job has a result: where no phase keeps its own, the last one does.
    if phases.iter().all(|phase| !phase.keep)
        && let Some(last) = phases.last_mut()
    {
        last.keep = true;
    }
    phases
}

fn parse_phase(step: &Value, is_last: bool) -> Result<ParsedPhase, JobRefusal> {
    let Some((kind, spec)) = only_member(step) else { return Err(unrecognised(step)) };
    let keep = match spec.get("keep") {
        None => is_last,
        Some(Value::Bool(keep)) => *keep,
        Some(_) => return Err(refusal("The \"keep\" field was not a boolean value in:\n   ", step, "\n")),
    };
    let step = match kind {
        "link" => ParsedStep::Link(link_filter(spec)?),
        "map" => parse_function(spec, true)?,
        "reduce" => parse_function(spec, false)?,
        _ => return Err(unrecognised(step)),
    };
    Ok(ParsedPhase { keep, arg: spec.get("arg").cloned(), step })
}

fn only_member(step: &Value) -> Option<(&str, &Map<String, Value>)> {
    let members = step.as_object().filter(|members| members.len() == 1)?;
    let (kind, spec) = members.iter().next()?;
    Some((kind, spec.as_object()?))
}

fn link_filter(spec: &Map<String, Value>) -> Result<LinkFilter, JobRefusal> {
    let part = |name: &str| match spec.get(name) {
        None => Ok(None),
        Some(Value::String(any)) if any == "_" => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone().into())),
        Some(_) => Err(refusal(
            "Invalid link step specification:\n   ",
            &Value::Object(spec.clone()),
            "\n\n \"bucket\" and \"tag\" fields must have string values.\n",
        )),
    };
    Ok(LinkFilter { bucket: part("bucket")?, tag: part("tag")? })
}

fn parse_function(spec: &Map<String, Value>, is_map: bool) -> Result<ParsedStep, JobRefusal> {
    let phase = || Value::Object(spec.clone());
    match spec.get("language") {
        Some(Value::String(language)) if language == "erlang" => {
            Ok(ParsedStep::Erlang { is_map, function: erlang_function(spec)? })
        }
        Some(Value::String(language)) if language == "javascript" => {
            Ok(ParsedStep::Script { is_map, script: script(spec)? })
        }
        None => Err(refusal("No \"language\" was specified for the phase:\n   ", &phase(), "\n")),
        Some(language) => {
            let before = format!("Unknown language {} in phase:\n   ", shown(language));
            Err(refusal(&before, &phase(), "\n"))
        }
    }
}

fn erlang_function(spec: &Map<String, Value>) -> Result<ErlangFunction, JobRefusal> {
    let [source, bucket, key, module, function] =
        ["source", "bucket", "key", "module", "function"].map(|name| spec.get(name));
    match (source, bucket, key, module, function) {
        (Some(Value::String(_)), None, None, None, None)
        | (None, Some(Value::String(_)), Some(Value::String(_)), None, None) => Ok(ErlangFunction::Source),
        (None, None, None, Some(Value::String(module)), Some(Value::String(function))) => {
            Ok(ErlangFunction::Module(module.clone(), function.clone()))
        }
        _ => Err(refusal(
            "No function specified in Erlang phase:\n   ",
            &Value::Object(spec.clone()),
            "\n\nFunctions may be specified by:\n   - a \"source\" field, with source for an Erlang function\n   \
             - \"module\" and \"function\" fields, specifying an Erlang module and function\n   - \"bucket\" and \"key\" \
             fields, specifying a Riak object containing Erlang function source\n",
        )),
    }
}

fn script(spec: &Map<String, Value>) -> Result<PhaseScript, JobRefusal> {
    let text = |name: &str| match spec.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(refusal(
            "A Javascript phase has a field that is not a string:\n   ",
            &Value::Object(spec.clone()),
            "\n",
        )),
    };
    match (text("source")?, text("name")?, text("bucket")?, text("key")?) {
        (Some(source), ..) => Ok(PhaseScript::Source(source)),
        (None, Some(name), ..) => Ok(PhaseScript::Named(name)),
        (None, None, Some(bucket), Some(key)) => Ok(PhaseScript::Stored(bucket, key)),
        (None, None, Some(_), None) => Err(refusal(
            "Javascript phase was missing a \"key\" field to match the \"bucket\" field, pointing to the function to \
             evaluate in:   ",
            &Value::Object(spec.clone()),
            "\n",
        )),
        (None, None, None, _) => Err(refusal(
            "No function specified in Javascript phase:\n   ",
            &Value::Object(spec.clone()),
            "\n\nFunctions may be specified by:\n   - a \"source\" field, with source for a Javascript function\n   \
             - a \"name\" field, naming a predefined Javascript function\n   - \"bucket\" and \"key\" fields, specifying a \
             Riak object containing Javascript function source\n",
        )),
    }
}

impl ParsedPhase {
    /// Looks up the function of the phase with this number.
    ///
    /// # Errors
    /// [`JobRefusal::Phase`].
    pub(super) fn resolve(self, phase: usize) -> Result<JobPhase, JobRefusal> {
        let function = match self.step {
            ParsedStep::Link(filter) => Ok(PhaseFunction::Link(filter)),
            ParsedStep::Script { is_map, script } => Ok(builtins::script_function(script, is_map, self.arg.as_ref())),
            ParsedStep::Erlang { function: ErlangFunction::Source, .. } => {
                // Riak's Python client knows the refusal by the name of what failed in Riak.
                Err("Erlang source is not allowed: worker_startup_failed, {strfun,not_allowed}".to_owned())
            }
            ParsedStep::Erlang { function: ErlangFunction::Fun, .. } => {
                Err("Erlang funs are not available: {qfun,not_allowed}".to_owned())
            }
            ParsedStep::Erlang { is_map, function: ErlangFunction::Module(module, function) } => {
                builtins::erlang_function(&module, &function, is_map)
            }
        };
        let function = function.map_err(|error| JobRefusal::Phase(PhaseRefusal { phase, error }))?;
        Ok(JobPhase { keep: self.keep, arg: self.arg, function })
    }
}

fn unrecognised(step: &Value) -> JobRefusal {
    refusal(
        "Unrecognized format of query phase:\n   ",
        step,
        "\n\nValid formats are:\n   {\"map\":{...spec...}}\n   {\"reduce\":{...spec...}}\n   {\"link\\:{...spec}}\n",
    )
}

/// The refusal of a part of the query, between two texts.
fn refusal(before: &str, part: &Value, after: &str) -> JobRefusal {
    JobRefusal::Query(format!("{before}{}{after}", shown(part)))
}
