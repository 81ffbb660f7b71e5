//! One job that runs, step by step.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use larder_model::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_model::limits::{JOB_CHUNK_BYTES, JOB_CHUNK_INPUTS, JOB_HELD_BYTES_MAX};
use larder_model::links::LinkFilter;
use larder_model::mapreduce::inputs::JobInputs;
use larder_model::mapreduce::phase::{JobPhase, PhaseFunction, PhaseScript};
use larder_model::mapreduce::refusal::PhaseRefusal;
use larder_model::mapreduce::{Job, JobInput, JobValue, MapFunction, MapObject, PhaseFailure, Reducer};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::error::JobError;
use super::input_source::InputSource;
use super::object_reader::{READS_AT_ONCE, read};
use super::running_jobs::JobTicket;
use super::script_phase::LoadedScript;
use crate::{AdmissionGuard, Gateway, Scripts};

/// A job that runs. Dropping it ends it.
pub struct JobRun {
    gateway: Arc<Gateway>,
    source: InputSource,
    phases: Vec<RunningPhase>,
    /// Values before a phase, the deepest phase last.
    waiting: Vec<WaitingValues>,
    /// The reduce phases before this number have given their results.
    finished: usize,
    kept: Vec<KeptValues>,
    deadline: Instant,
    ticket: JobTicket,
    _admitted: AdmissionGuard,
}

/// Results of a phase that keeps them.
#[derive(Debug)]
pub struct KeptValues {
    /// The number of the phase, from 0.
    pub phase: usize,
    /// The results.
    pub values: Vec<JobValue>,
}

struct WaitingValues {
    phase: usize,
    values: VecDeque<JobValue>,
    bytes: usize,
}

struct RunningPhase {
    keep: bool,
    work: PhaseWork,
}

enum PhaseWork {
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

impl JobRun {
    /// Starts a job.
    ///
    /// # Errors
    /// A function or an index is not here, or too many jobs run.
    pub async fn start(gateway: &Arc<Gateway>, job: Job) -> Result<Self, JobError> {
        let admitted = gateway.core.admit()?;
        let summary = summary(&job);
        let begun = gateway.core.now();
        let ticket = gateway.jobs.begin(begun, summary).ok_or(JobError::TooMany)?;
        let deadline = Instant::now() + job.timeout;
        let mut phases = Vec::with_capacity(job.phases.len());
        for (at, phase) in job.phases.into_iter().enumerate() {
            phases.push(RunningPhase::of(gateway, at, phase, deadline).await?);
        }
        Ok(Self {
            gateway: Arc::clone(gateway),
            source: InputSource::of(&gateway.kv, job.inputs, job.timeout)?,
            phases,
            waiting: Vec::new(),
            finished: 0,
            kept: Vec::new(),
            deadline,
            ticket,
            _admitted: admitted,
        })
    }

    /// Bytes of memory that the values between phases take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.held_bytes() as u64
    }

    /// The most that [`Self::memory`] becomes, for a caller that holds it once.
    #[must_use]
    pub fn memory_max(&self) -> u64 {
        let accumulates = |phase: &RunningPhase| match &phase.work {
            PhaseWork::Reduce(reducer) => !reducer.folds(),
            PhaseWork::ReduceScript { .. } => true,
            PhaseWork::Map(..) | PhaseWork::Link(_) | PhaseWork::MapScript(..) => false,
        };
        let chunks = (1 + self.phases.len()) * 2 * JOB_CHUNK_BYTES;
        let max = if self.phases.iter().any(accumulates) { JOB_HELD_BYTES_MAX } else { chunks.min(JOB_HELD_BYTES_MAX) };
        max as u64
    }

    /// Whether it has no phases: its results are its inputs.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.phases.is_empty()
    }

    /// Runs a part of the job, and returns the results that it made, perhaps none; `None` at the end.
    ///
    /// # Errors
    /// [`JobError`]; the job has ended then.
    pub async fn step(&mut self) -> Result<Option<Vec<KeptValues>>, JobError> {
        let (cancelled, deadline) = (self.ticket.cancelled(), self.deadline);
        // A step over an engine in this process may never wait.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            () = cancelled => Err(JobError::Cancelled),
            stepped = timeout_at(deadline, self.advance()) => match stepped {
                Err(_) | Ok(Err(JobError::Gateway(crate::Error::TimedOut))) => Err(JobError::TimedOut),
                Ok(Ok(true)) => Ok(Some(std::mem::take(&mut self.kept))),
                Ok(Ok(false)) => Ok(None),
                Ok(Err(error)) => Err(error),
            },
        }
    }

    /// Runs a part of the job; `false` at the end.
    async fn advance(&mut self) -> Result<bool, JobError> {
        // A step that reads nothing takes no wait, so the deadline is looked at here.
        if Instant::now() >= self.deadline {
            return Err(JobError::TimedOut);
        }
        if let Some(waiting) = self.waiting.pop() {
            self.run_phase(waiting).await?;
        } else if let Some(page) = self.source.next_page(&self.gateway.kv, self.deadline).await? {
            self.ticket.count_inputs(page.len());
            if self.is_bare() {
                self.kept.push(KeptValues { phase: 0, values: page });
            } else {
                self.wait_before(0, page.into());
            }
        } else if !self.finish_next().await? {
            return Ok(false);
        }
        if self.held_bytes() > JOB_HELD_BYTES_MAX { Err(JobError::TooLarge) } else { Ok(true) }
    }

    fn held_bytes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        waiting + self.phases.iter().map(|phase| phase.work.bytes()).sum::<usize>()
    }

    fn wait_before(&mut self, phase: usize, values: VecDeque<JobValue>) {
        if !values.is_empty() {
            let bytes = values.iter().map(JobValue::bytes).sum();
            self.waiting.push(WaitingValues { phase, values, bytes });
        }
    }

    /// Hands the results of a phase on, to the answer and to the next phase.
    fn hand_on(&mut self, phase: usize, values: Vec<JobValue>) {
        if values.is_empty() {
            return;
        }
        let has_next = phase + 1 < self.phases.len();
        match (self.phases[phase].keep, has_next) {
            (true, true) => {
                self.kept.push(KeptValues { phase, values: values.clone() });
                self.wait_before(phase + 1, values.into());
            }
            (true, false) => self.kept.push(KeptValues { phase, values }),
            (false, true) => self.wait_before(phase + 1, values.into()),
            (false, false) => {}
        }
    }

    async fn run_phase(&mut self, waiting: WaitingValues) -> Result<(), JobError> {
        let WaitingValues { phase, mut values, .. } = waiting;
        let failed = |failure| JobError::Failed { phase, failure };
        match &mut self.phases[phase].work {
            PhaseWork::Reduce(reducer) => reducer.push(values.into()).map_err(failed),
            work @ PhaseWork::ReduceScript { .. } => {
                work.push_to_script(values.into(), self.deadline).await.map_err(|error| error.of_phase(phase))
            }
            PhaseWork::Map(..) | PhaseWork::Link(_) | PhaseWork::MapScript(..) => {
                let chunk = values.iter().take(JOB_CHUNK_INPUTS).cloned();
                let inputs = chunk.map(JobValue::into_input).collect::<Result<Vec<_>, _>>().map_err(failed)?;
                let (taken, results) = self.map_objects(phase, inputs).await?;
                values.drain(..taken);
                self.wait_before(phase, values);
                self.hand_on(phase, results);
                Ok(())
            }
        }
    }

    /// Runs a map or link phase over objects until its results are a chunk. Returns how many it took, and the results.
    async fn map_objects(&self, phase: usize, inputs: Vec<JobInput>) -> Result<(usize, Vec<JobValue>), JobError> {
        let work = &self.phases[phase].work;
        let (kv, deadline, bodies) = (&self.gateway.kv, self.deadline, !matches!(work, PhaseWork::Link(_)));
        let reads: Vec<_> = inputs.into_iter().map(|input| read(kv, input, bodies, deadline).boxed()).collect();
        let mut found = stream::iter(reads).buffered(READS_AT_ONCE);
        let (mut taken, mut bytes) = (0, 0);
        let (mut results, mut objects) = (Vec::new(), Vec::new());
        while bytes < JOB_CHUNK_BYTES
            && let Some(object) = found.next().await
        {
            let object = object?;
            taken += 1;
            match work {
                PhaseWork::Link(filter) => {
                    let bucket = &object.input.address.bucket;
                    let checked = kv.check_link_function(bucket);
                    checked.map_err(|refused| failed_link(phase, &refused.to_string()))?;
                    results.extend(filter.links_of(&object.siblings).into_iter().map(linked));
                }
                PhaseWork::Map(function, arg) => {
                    let values = function.map(object.load().await?, arg.as_ref());
                    let values = values.map_err(|failure| JobError::Failed { phase, failure })?;
                    bytes += values.iter().map(JobValue::bytes).sum::<usize>();
                    results.extend(values);
                }
                _ => {
                    let object = object.load().await?;
                    bytes += object.values.iter().map(|(_, value)| 1024 + value.len()).sum::<usize>();
                    objects.push(object);
                }
            }
        }
        if let PhaseWork::MapScript(script, scripts) = work {
            results = map_by_script(script, scripts.as_ref(), objects, (phase, deadline)).await?;
        }
        Ok((taken, results))
    }

    /// Hands on the results of the next reduce phase; `false`: there is none left.
    async fn finish_next(&mut self) -> Result<bool, JobError> {
        while self.finished < self.phases.len() {
            let phase = self.finished;
            self.finished += 1;
            let results = match &mut self.phases[phase].work {
                PhaseWork::Reduce(reducer) => {
                    reducer.finish().map_err(|failure| JobError::Failed { phase, failure })?
                }
                work @ PhaseWork::ReduceScript { .. } => {
                    work.finish_script(self.deadline).await.map_err(|error| error.of_phase(phase))?
                }
                _ => continue,
            };
            self.hand_on(phase, results);
            return Ok(true);
        }
        Ok(false)
    }
}

async fn map_by_script(
    script: &LoadedScript,
    scripts: &dyn Scripts,
    objects: Vec<MapObject>,
    (phase, deadline): (usize, Instant),
) -> Result<Vec<JobValue>, JobError> {
    script.map(scripts, objects, deadline).await.map_err(|error| error.of_phase(phase))
}

fn failed_link(phase: usize, error: &str) -> JobError {
    JobError::Failed { phase, failure: PhaseFailure { error: error.to_owned(), input: None } }
}

/// The result of a link phase: the target's key, with the tag as its datum.
fn linked(link: &larder_model::content::Link) -> JobValue {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match crate::links::target_of(link) {
        Some(address) => JobValue::Key(JobInput { address, key_data: Some(text(&link.tag).into()) }),
        None => JobValue::Json(json!([text(&link.bucket), text(&link.key), text(&link.tag)])),
    }
}

impl RunningPhase {
    async fn of(gateway: &Gateway, at: usize, phase: JobPhase, deadline: Instant) -> Result<Self, JobError> {
        let JobPhase { keep, arg, function } = phase;
        let work = match function {
            PhaseFunction::Map(function) => PhaseWork::Map(function, arg),
            PhaseFunction::Link(filter) => PhaseWork::Link(filter),
            PhaseFunction::Reduce(function) => PhaseWork::Reduce(Reducer::new(function, arg)),
            PhaseFunction::MapScript(script) => {
                let (script, scripts) = load_script(gateway, at, script, arg, deadline).await?;
                PhaseWork::MapScript(script, scripts)
            }
            PhaseFunction::ReduceScript(script) => {
                let (script, scripts) = load_script(gateway, at, script, arg, deadline).await?;
                PhaseWork::ReduceScript { script, scripts, values: Vec::new(), reduced: 0, bytes: 0 }
            }
        };
        Ok(Self { keep, work })
    }
}

/// The script of a phase, and the engine that runs it.
async fn load_script(
    gateway: &Gateway,
    phase: usize,
    script: PhaseScript,
    arg: Option<Value>,
    deadline: Instant,
) -> Result<(LoadedScript, Arc<dyn Scripts>), JobError> {
    let refused = |error: String| JobError::Phase(PhaseRefusal { phase, error });
    let Some(scripts) = gateway.core.ports.scripts.clone() else {
        return Err(refused("JavaScript is not available here: only the built-in functions of Riak are".into()));
    };
    if let PhaseScript::Named(name) = &script
        && scripts.has_function(name) == Some(false)
    {
        return Err(refused(format!("no script function is named {name}")));
    }
    let source = match &script {
        PhaseScript::Stored(bucket, key) => Some(
            read_source(gateway, (bucket, key), deadline)
                .await?
                .ok_or_else(|| refused(format!("there is no object {bucket}/{key} with the source of the function")))?,
        ),
        PhaseScript::Named(_) | PhaseScript::Source(_) => None,
    };
    Ok((LoadedScript::of(&script, source, arg).map_err(refused)?, scripts))
}

/// The value of an object, as source; `None`: there is no such object.
async fn read_source(
    gateway: &Gateway,
    (bucket, key): (&str, &str),
    deadline: Instant,
) -> Result<Option<String>, JobError> {
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), bucket.to_owned().into());
    let address = bucket.and_then(|bucket| Address::new(bucket, key.to_owned().into())).map_err(crate::Error::from)?;
    let object = read(&gateway.kv, JobInput::of(address), true, deadline).await?.load().await?;
    Ok(object.values.first().map(|(_, value)| String::from_utf8_lossy(value).into_owned()))
}

impl PhaseWork {
    /// Bytes of memory that its values take.
    fn bytes(&self) -> usize {
        match self {
            Self::Reduce(reducer) => reducer.bytes(),
            Self::ReduceScript { bytes, .. } => *bytes,
            Self::Map(..) | Self::Link(_) | Self::MapScript(..) => 0,
        }
    }

    /// Takes more values, and calls the function when they are enough.
    async fn push_to_script(
        &mut self,
        more: Vec<JobValue>,
        deadline: Instant,
    ) -> Result<(), super::script_phase::ScriptPhaseError> {
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
    async fn finish_script(
        &mut self,
        deadline: Instant,
    ) -> Result<Vec<JobValue>, super::script_phase::ScriptPhaseError> {
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

/// A job in a few words: its inputs and its phases.
fn summary(job: &Job) -> String {
    let bucket = |bucket: &BucketAddress| {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        format!("{}/{}", text(&bucket.bucket_type), text(&bucket.bucket))
    };
    let inputs = match &job.inputs {
        JobInputs::Bucket(of) => bucket(of),
        JobInputs::Filtered(of, _) => format!("{} filtered", bucket(of)),
        JobInputs::Index(index) => {
            format!("{} by {}", bucket(&index.bucket), String::from_utf8_lossy(&index.field))
        }
        JobInputs::Keys(keys) => format!("{} keys", keys.len()),
    };
    let word = |phase: &JobPhase| match phase.function {
        PhaseFunction::Map(_) | PhaseFunction::MapScript(_) => " map",
        PhaseFunction::Reduce(_) | PhaseFunction::ReduceScript(_) => " reduce",
        PhaseFunction::Link(_) => " link",
    };
    inputs + &job.phases.iter().map(word).collect::<String>()
}
