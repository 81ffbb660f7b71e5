//! A phase of a job that runs: its function, and the values that it collects.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Scripts;
use larder_kv::Gateway;
use larder_kv::rules::links::LinkFilter;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_rows::limits::JOB_BYTES_MAX;
use serde_json::Value;
use tokio::time::Instant;

use super::error::JobError;
use super::object_reader::read;
use super::script_phase::{LoadedScript, ScriptPhaseError};
use crate::rules::phase::{JobPhase, PhaseFunction, PhaseScript};
use crate::rules::refusal::PhaseRefusal;
use crate::rules::{JobInput, JobValue, MapFunction, Reducer};

pub(super) struct RunningPhase {
    pub(super) keep: bool,
    pub(super) work: PhaseWork,
}

pub(super) enum PhaseWork {
    Map(MapFunction, Option<Value>),
    Link(LinkFilter),
    Reduce(Reducer),
    MapScript(LoadedScript, Arc<dyn Scripts>),
    ReduceScript {
        script: LoadedScript,
        scripts: Arc<dyn Scripts>,
        values: Vec<JobValue>,
        reduced: usize,
        bytes: usize,
    },
}

impl RunningPhase {
    /// Loads the phase with this number.
    ///
    /// # Errors
    /// Its function cannot be had.
    pub(super) async fn start(
        gateway: &Gateway,
        client: &Arc<str>,
        at: usize,
        phase: JobPhase,
        deadline: Instant,
    ) -> Result<Self, JobError> {
        let JobPhase { keep, arg, function } = phase;
        let work = match function {
            PhaseFunction::Map(function) => PhaseWork::Map(function, arg),
            PhaseFunction::Link(filter) => PhaseWork::Link(filter),
            PhaseFunction::Reduce(function) => PhaseWork::Reduce(Reducer::new(function, arg)),
            PhaseFunction::MapScript(script) => {
                let (script, scripts) = load_script(gateway, client, at, script, arg, deadline).await?;
                PhaseWork::MapScript(script, scripts)
            }
            PhaseFunction::ReduceScript(script) => {
                let (script, scripts) = load_script(gateway, client, at, script, arg, deadline).await?;
                PhaseWork::ReduceScript { script, scripts, values: Vec::new(), reduced: 0, bytes: 0 }
            }
        };
        Ok(Self { keep, work })
    }
}

/// The script of a phase, and the engine that runs it.
async fn load_script(
    gateway: &Gateway,
    client: &Arc<str>,
    phase: usize,
    script: PhaseScript,
    arg: Option<Value>,
    deadline: Instant,
) -> Result<(LoadedScript, Arc<dyn Scripts>), JobError> {
    let refused = |error: String| JobError::Phase(PhaseRefusal { phase, error });
    let Some(scripts) = gateway.context().ports.scripts.clone() else {
        return Err(refused("JavaScript is not available here: only the built-in functions of Riak are".into()));
    };
    if let PhaseScript::Named(name) = &script
        && scripts.has_function(name) == Some(false)
    {
        return Err(refused(format!("no script function is named {name}")));
    }
    let source = match &script {
        PhaseScript::Stored(bucket, key) => {
            let source = read_source(gateway, bucket, key, deadline).await?;
            Some(source.map_err(|reason| refused(format!("the object {bucket}/{key} {reason}")))?)
        }
        PhaseScript::Named(_) | PhaseScript::Source(_) => None,
    };
    Ok((LoadedScript::load(client, &script, source, arg).map_err(refused)?, scripts))
}

/// The value of an object, as source; or the reason why it is none.
async fn read_source(
    gateway: &Gateway,
    bucket: &str,
    key: &str,
    deadline: Instant,
) -> Result<Result<String, String>, JobError> {
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), bucket.to_owned().into());
    let address =
        bucket.and_then(|bucket| Address::new(bucket, key.to_owned().into())).map_err(larder_core::Error::from)?;
    let object = read(&gateway.kv, JobInput::from_address(address), true, deadline).await?;
    // Bound: looked at before a byte of it is read. A source in a document has no more.
    if object.length() > JOB_BYTES_MAX as u64 {
        return Ok(Err(format!("has more than {JOB_BYTES_MAX} bytes")));
    }
    let values = object.load().await?.values;
    let source = values.first().map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    Ok(source.ok_or_else(|| "with the source of the function does not exist".into()))
}

impl PhaseWork {
    /// Bytes of memory that its values take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Reduce(reducer) => reducer.bytes(),
            Self::ReduceScript { bytes, .. } => *bytes,
            Self::Map(..) | Self::Link(_) | Self::MapScript(..) => 0,
        }
    }

    /// Bytes of memory that an object with values of `length` bytes takes until its results are counted as values.
    pub(super) fn object_memory(&self, length: u64) -> u64 {
        match self {
            Self::Map(function, _) => function.object_memory(length),
            // The value, its JSON for the worker, and the frame of the call.
            Self::MapScript(..) => length.saturating_mul(4),
            Self::Link(_) | Self::Reduce(_) | Self::ReduceScript { .. } => 0,
        }
    }

    /// Takes more values, and calls the function when they are enough.
    pub(super) async fn push_to_script(
        &mut self,
        more: Vec<JobValue>,
        deadline: Instant,
    ) -> Result<(), ScriptPhaseError> {
        let Self::ReduceScript { script, scripts, values, reduced, bytes } = self else { return Ok(()) };
        for value in more {
            *bytes += value.bytes();
            values.push(value);
            if script.reduce_values().is_some_and(|size| values.len() >= size.saturating_add(*reduced)) {
                *values = script.reduce(scripts.as_ref(), std::mem::take(values), deadline).await?;
                *reduced = values.len();
                *bytes = values.iter().map(JobValue::bytes).sum();
            }
        }
        Ok(())
    }

    /// The result, at the end of all values.
    pub(super) async fn finish_script(&mut self, deadline: Instant) -> Result<Vec<JobValue>, ScriptPhaseError> {
        let Self::ReduceScript { script, scripts, values, reduced, bytes } = self else { return Ok(Vec::new()) };
        *bytes = 0;
        let values = std::mem::take(values);
        // The function ran after the last value already, or once for none.
        if *reduced > 0 && values.len() == *reduced {
            return Ok(values);
        }
        script.reduce(scripts.as_ref(), values, deadline).await
    }
}
