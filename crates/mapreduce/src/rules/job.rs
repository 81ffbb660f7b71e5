//! The document of a job: its inputs, its phases, its time.

use std::time::Duration;

use larder_core::rules::repeated_member::repeated_member;
use larder_core::rules::riak_json;
use serde_json::Value;

use super::inputs::{JobInputs, UncompiledInputs};
use super::phase::{JobPhase, ParsedPhase};
use super::refusal::{JobRefusal, shown};

/// Time of a job that names none, in milliseconds.
const TIMEOUT_MILLIS: u64 = 60_000;
/// Longest time of a job, in milliseconds: a longer one counts as this.
const TIMEOUT_MILLIS_MAX: u64 = 24 * 60 * 60 * 1000;

/// A job that can run.
#[derive(Debug, Clone)]
pub struct Job {
    /// The inputs of its first phase.
    pub inputs: JobInputs,
    /// Its phases, perhaps none: the inputs are the result then.
    pub phases: Vec<JobPhase>,
    /// The time after which it ends.
    pub timeout: Duration,
}

impl Job {
    /// Reads a document. Members besides inputs, query and time are ignored.
    ///
    /// # Errors
    /// [`JobRefusal`], the first reason in Riak's order.
    pub fn parse(document: &[u8]) -> Result<Self, JobRefusal> {
        let document = &*riak_json::standard(document);
        if let Some(name) = repeated_member(document) {
            return Err(JobRefusal::NotJson(format!("an object has the member \"{name}\" twice")));
        }
        let document: Value =
            serde_json::from_slice(document).map_err(|error| JobRefusal::NotJson(error.to_string()))?;
        let Value::Object(mut members) = document else { return Err(JobRefusal::NotObject) };
        let timeout = members.remove("timeout");
        let (Some(inputs), Some(query)) = (members.remove("inputs"), members.remove("query")) else {
            return Err(JobRefusal::MissingField);
        };
        let inputs = super::inputs::parse(inputs)?;
        let phases = super::phase::parse_query(&query)?;
        check_timeout(timeout.as_ref())?;
        finish(inputs, phases, timeout.as_ref())
    }

    /// The numbers of the phases that keep their results.
    #[must_use]
    pub fn kept(&self) -> Vec<usize> {
        self.phases.iter().enumerate().filter(|(_, phase)| phase.keep).map(|(at, _)| at).collect()
    }
}

/// The job of a document of either form.
///
/// # Errors
/// [`JobRefusal::Phase`], [`JobRefusal::BadFilter`].
pub(super) fn finish(
    inputs: UncompiledInputs,
    phases: Vec<ParsedPhase>,
    given_timeout: Option<&Value>,
) -> Result<Job, JobRefusal> {
    // Riak looks functions up when it builds the pipeline, and filters when it reads the keys.
    let phases = phases.into_iter().enumerate().map(|(at, phase)| phase.resolve(at)).collect::<Result<_, _>>()?;
    Ok(Job { inputs: inputs.compile()?, phases, timeout: timeout(given_timeout) })
}

/// Refuses a time that is no number.
fn check_timeout(given: Option<&Value>) -> Result<(), JobRefusal> {
    match given {
        None | Some(Value::Null | Value::Number(_)) => Ok(()),
        Some(other) => Err(JobRefusal::Timeout(format!("The time of a job is a number: {}\n", shown(other)))),
    }
}

/// The time of a job: a value that is no positive number counts as none.
fn timeout(given: Option<&Value>) -> Duration {
    let millis = given.and_then(Value::as_f64).filter(|millis| *millis > 0.0);
    // A float converts to the nearest number in range.
    let millis = millis.map_or(TIMEOUT_MILLIS, |millis| millis.ceil() as u64);
    Duration::from_millis(millis.min(TIMEOUT_MILLIS_MAX))
}

#[cfg(test)]
mod tests;
