//! One job that runs, step by step.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_core::{AdmissionGuard, JobTicket};
use larder_kv::Gateway;
use larder_rows::limits::{JOB_HELD_BYTES_MAX, LISTING_PAGE_ROWS};
use tokio::time::{Instant, timeout_at};

use super::error::JobError;
use super::input_source::InputSource;
use super::map_phase::map_inputs;
use super::running_phase::{PhaseWork, RunningPhase};
use crate::rules::inputs::JobInputs;
use crate::rules::phase::{JobPhase, PhaseFunction};
use crate::rules::{Job, JobValue};

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
    /// Bytes of memory for the next object.
    wanted: u64,
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
    /// Starts a job for this client, such as a user or an address.
    ///
    /// # Errors
    /// A function or an index is not here, or too many jobs run.
    pub async fn start(gateway: &Arc<Gateway>, job: Job, client: Arc<str>) -> Result<Self, JobError> {
        let admitted = gateway.context().admit()?;
        let summary = summary(&job);
        let begun = gateway.context().now();
        let ticket = gateway.jobs().begin(begun, summary, &client).ok_or(JobError::TooMany)?;
        let deadline = Instant::now() + job.timeout;
        let mut phases = Vec::with_capacity(job.phases.len());
        for (at, phase) in job.phases.into_iter().enumerate() {
            // Bound: the source of a function may be a large object, or one that comes slowly.
            let begun = timeout_at(deadline, RunningPhase::start(gateway, &client, at, phase, deadline)).await;
            phases.push(begun.map_err(|_| JobError::TimedOut)??);
        }
        Ok(Self {
            gateway: Arc::clone(gateway),
            source: InputSource::open(&gateway.kv, job.inputs, job.timeout)?,
            phases,
            waiting: Vec::new(),
            finished: 0,
            kept: Vec::new(),
            wanted: 0,
            deadline,
            ticket,
            _admitted: admitted,
        })
    }

    /// Bytes of memory that the job needs for its next step, besides a page of inputs and a chunk of results: the inputs of its
    /// document, the values between phases, and an object of more bytes than a chunk. The caller holds them before each step.
    #[must_use]
    pub fn memory(&self) -> u64 {
        (self.source.bytes() + self.held_bytes()) as u64 + self.wanted
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
                Err(_) | Ok(Err(JobError::Gateway(larder_core::Error::TimedOut))) => Err(JobError::TimedOut),
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
                work.push_to_script(values.into(), self.deadline).await.map_err(|error| error.phase_error(phase))
            }
            PhaseWork::Map(..) | PhaseWork::Link(_) | PhaseWork::MapScript(..) => {
                let chunk = values.iter().take(LISTING_PAGE_ROWS).cloned();
                let inputs = chunk.map(JobValue::into_input).collect::<Result<Vec<_>, _>>().map_err(failed)?;
                let (work, held) = (&self.phases[phase].work, std::mem::take(&mut self.wanted));
                let mapped = map_inputs(&self.gateway.kv, work, inputs, held, phase, self.deadline).await?;
                self.wanted = mapped.wanted;
                values.drain(..mapped.count);
                self.wait_before(phase, values);
                self.hand_on(phase, mapped.results);
                Ok(())
            }
        }
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
                    work.finish_script(self.deadline).await.map_err(|error| error.phase_error(phase))?
                }
                _ => continue,
            };
            self.hand_on(phase, results);
            return Ok(true);
        }
        Ok(false)
    }
}

/// A job in a few words: its inputs and its phases.
fn summary(job: &Job) -> String {
    let inputs = match &job.inputs {
        JobInputs::Bucket(of) => of.to_string(),
        JobInputs::Filtered(of, _) => format!("{of} filtered"),
        JobInputs::Index(index) => {
            format!("{} by {}", index.bucket, String::from_utf8_lossy(&index.field))
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
