//! One job that runs, step by step.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use larder_model::address::BucketAddress;
use larder_model::limits::{JOB_CHUNK_BYTES, JOB_CHUNK_INPUTS, JOB_HELD_BYTES_MAX};
use larder_model::mapreduce::inputs::JobInputs;
use larder_model::mapreduce::phase::{JobPhase, PhaseFunction};
use larder_model::mapreduce::{Job, JobInput, JobValue, MapObject, PhaseFailure};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::error::JobError;
use super::input_source::InputSource;
use super::object_reader::{READS_AT_ONCE, read};
use super::running_jobs::JobTicket;
use super::running_phase::{PhaseWork, RunningPhase};
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
