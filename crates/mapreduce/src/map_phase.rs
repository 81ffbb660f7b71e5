//! Map and link phases over objects. The objects of a script's next call are read while a worker maps those of this one.
//!
//! An object of more memory than a chunk is loaded as the first of a step, after the step before it asked for its memory.
//!
//! ```text
//! gateway   read 1 |  read 2  | wait | read 3 ..
//! worker           |    map 1        |   map 2 ..
//! ```

use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use larder_core::Scripts;
use larder_kv::Kv;
use larder_rows::content::Link;
use larder_rows::limits::{JOB_CHUNK_BYTES, JOB_CHUNK_INPUTS};
use serde_json::json;
use tokio::time::Instant;

use super::error::JobError;
use super::object_reader::{READS_AT_ONCE, StoredInput, read};
use super::running_phase::PhaseWork;
use super::script_phase::{LoadedScript, MapCalls};
use crate::rules::{JobInput, JobValue, PhaseFailure};

/// The objects of inputs, in the order of the inputs.
type FoundObjects<'a> = Pin<&'a mut (dyn Stream<Item = larder_core::Result<StoredInput>> + Send)>;

/// The inputs of a phase that have their results, and the results.
#[derive(Default)]
pub(super) struct MappedInputs {
    pub(super) count: usize,
    pub(super) results: Vec<JobValue>,
    bytes: usize,
    /// Bytes of memory that the next object needs before it is loaded; 0: it needs none of its own.
    pub(super) wanted: u64,
}

impl MappedInputs {
    fn add(&mut self, count: usize, results: Vec<JobValue>) {
        self.count += count;
        self.bytes += results.iter().map(JobValue::bytes).sum::<usize>();
        self.results.extend(results);
    }

    fn is_chunk(&self) -> bool {
        self.bytes >= JOB_CHUNK_BYTES
    }
}

/// Runs a map or link phase over inputs until its results are a chunk, or an object needs memory that the job does not hold.
/// `held` are the bytes that it holds for the first object.
///
/// # Errors
/// The function failed, or an object cannot be read.
pub(super) async fn map_inputs(
    kv: &Kv,
    work: &PhaseWork,
    inputs: Vec<JobInput>,
    held: u64,
    phase: usize,
    deadline: Instant,
) -> Result<MappedInputs, JobError> {
    let bodies = !matches!(work, PhaseWork::Link(_));
    let reads = inputs.into_iter().map(|input| read(kv, input, bodies, deadline).boxed());
    let objects = std::pin::pin!(stream::iter(reads).buffered(READS_AT_ONCE));
    let mut allowance = ObjectAllowance { work, bytes: held };
    match work {
        PhaseWork::MapScript(script, scripts) => {
            map_by_script(script, scripts.as_ref(), objects, &mut allowance, phase, deadline).await
        }
        _ => map_natively(kv, objects, &mut allowance, phase).await,
    }
}

/// Memory for the next object of a step.
struct ObjectAllowance<'a> {
    work: &'a PhaseWork,
    /// Bytes that the job holds for the first object of the step.
    bytes: u64,
}

impl ObjectAllowance<'_> {
    /// Takes the memory of an object; `Err`: the bytes that the job has to hold first.
    fn take(&mut self, object: &StoredInput) -> Result<(), u64> {
        let needed = self.work.object_memory(object.length());
        let allowed = std::mem::take(&mut self.bytes).max(JOB_CHUNK_BYTES as u64);
        if needed <= allowed { Ok(()) } else { Err(needed) }
    }
}

async fn map_natively(
    kv: &Kv,
    mut objects: FoundObjects<'_>,
    allowance: &mut ObjectAllowance<'_>,
    phase: usize,
) -> Result<MappedInputs, JobError> {
    let mut mapped = MappedInputs::default();
    while !mapped.is_chunk()
        && let Some(object) = objects.next().await
    {
        let object = object?;
        if let Err(needed) = allowance.take(&object) {
            mapped.wanted = needed;
            break;
        }
        let results = match allowance.work {
            PhaseWork::Link(filter) => {
                let checked = kv.check_link_function(&object.input.address.bucket);
                checked.map_err(|refused| failed_link(phase, &refused.to_string()))?;
                filter.matching_links(&object.siblings).into_iter().map(linked).collect()
            }
            PhaseWork::Map(function, arg) => {
                let values = function.map(object.load().await?, arg.as_ref());
                values.map_err(|failure| JobError::Failed { phase, failure })?
            }
            PhaseWork::MapScript(..) | PhaseWork::Reduce(_) | PhaseWork::ReduceScript { .. } => Vec::new(),
        };
        mapped.add(1, results);
    }
    Ok(mapped)
}

async fn map_by_script(
    script: &LoadedScript,
    scripts: &dyn Scripts,
    mut objects: FoundObjects<'_>,
    allowance: &mut ObjectAllowance<'_>,
    phase: usize,
    deadline: Instant,
) -> Result<MappedInputs, JobError> {
    let mut mapped = MappedInputs::default();
    let (mut calls, mut needed) = next_calls(script, objects.as_mut(), allowance).await?;
    // Objects that were read after the last call of a chunk are read again in the next step.
    while !mapped.is_chunk() && calls.objects() > 0 {
        let count = calls.objects();
        let next = async {
            // The object that the job has to hold memory for first is the next one.
            if needed > 0 {
                Ok((MapCalls::default(), needed))
            } else {
                next_calls(script, objects.as_mut(), allowance).await
            }
        };
        let (results, next) = tokio::join!(script.map(scripts, calls, deadline), next);
        mapped.add(count, results.map_err(|error| error.phase_error(phase))?);
        (calls, needed) = next?;
    }
    // Another chunk of results comes between, where this one ended with objects that are read again.
    mapped.wanted = if calls.objects() == 0 { needed } else { 0 };
    Ok(mapped)
}

/// Reads the objects of the next call of a worker; none at the end. With it, the memory that the object after them needs.
async fn next_calls(
    script: &LoadedScript,
    mut objects: FoundObjects<'_>,
    allowance: &mut ObjectAllowance<'_>,
) -> Result<(MapCalls, u64), JobError> {
    let mut calls = MapCalls::default();
    while calls.bytes() < JOB_CHUNK_BYTES
        && calls.objects() < JOB_CHUNK_INPUTS
        && let Some(object) = objects.next().await
    {
        let object = object?;
        if let Err(needed) = allowance.take(&object) {
            return Ok((calls, needed));
        }
        calls.add(object.load().await?, &script.arg);
    }
    Ok((calls, 0))
}

fn failed_link(phase: usize, error: &str) -> JobError {
    JobError::Failed { phase, failure: PhaseFailure { error: error.to_owned(), input: None } }
}

/// The result of a link phase: the target's key, with the tag as its datum.
fn linked(link: &Link) -> JobValue {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match larder_kv::links::link_target(link) {
        Some(address) => JobValue::Key(JobInput { address, key_data: Some(text(&link.tag).into()) }),
        None => JobValue::Json(json!([text(&link.bucket), text(&link.key), text(&link.tag)])),
    }
}
