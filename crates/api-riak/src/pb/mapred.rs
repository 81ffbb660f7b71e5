//! MapReduce: a frame with the results of a phase for each step of the job, and a last frame that says so.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_admission::client_key;
use larder_core::Error;
use larder_core::rules::erlang::binary;
use larder_kv::Gateway;
use larder_mapreduce::rules::{Job, term_of_results};
use larder_mapreduce::{JobError, JobRun};

use super::fault::PbFault;
use super::frame::put_message;
use super::messages::{RpbMapRedReq, RpbMapRedResp};
use super::session::PbSession;
use crate::mapred::array;
use crate::security::check_job;

const RESP: u8 = 24;

/// The form of a job's document and of its results.
#[derive(Debug, Clone, Copy)]
enum JobForm {
    /// JSON.
    Json,
    /// Terms of Erlang, as its client sends them.
    Term,
}

impl JobForm {
    fn from_content_type(content_type: &[u8]) -> Option<Self> {
        match content_type {
            b"application/json" => Some(Self::Json),
            b"application/x-erlang-binary" => Some(Self::Term),
            _ => None,
        }
    }
}

/// A job under way.
pub(super) struct PbJob {
    run: JobRun,
    form: JobForm,
    ended: bool,
}

impl PbJob {
    /// Code 23; `user` is the client's, where security is on.
    ///
    /// # Errors
    /// The document is no job, or the job cannot run.
    pub(super) async fn start(
        gateway: &Arc<Gateway>,
        session: &PbSession,
        user: Option<&str>,
        request: RpbMapRedReq,
    ) -> Result<Self, PbFault> {
        let content_type = request.content_type.unwrap_or_default();
        let Some(form) = JobForm::from_content_type(&content_type) else {
            return Err(PbFault::Text(format!("{{unknown_content_type,{}}}", binary(&content_type))));
        };
        let document = request.request.unwrap_or_default();
        let job = match form {
            JobForm::Json => Job::parse(&document),
            JobForm::Term => Job::parse_term(&document),
        };
        let job = job.map_err(|refusal| PbFault::Text(refusal.pb_text()))?;
        drop(document);
        if let Some(user) = user {
            let rules = gateway.security().rules().await?;
            if let Err(denied) = check_job(&rules, user, &job) {
                session.report(gateway, "MapReduce", "", Some(user));
                return Err(PbFault::Text(denied.to_string()));
            }
        }
        let client = user.map_or_else(|| client_key(session.source.address).to_string().into(), Arc::from);
        let run = JobRun::start(gateway, job, client).await.map_err(failed)?;
        Ok(Self { run, form, ended: false })
    }

    /// Bytes of memory that the job holds, besides a step.
    pub(super) fn memory(&self) -> u64 {
        self.run.memory()
    }

    /// Appends the results of the next step, perhaps none; `false` after the last frame.
    ///
    /// # Errors
    /// The job's; the error ends it.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        if self.ended {
            return Ok(false);
        }
        let Some(results) = self.run.step().await.map_err(failed)? else {
            self.ended = true;
            put_message(output, RESP, &RpbMapRedResp { done: Some(true), ..RpbMapRedResp::default() });
            return Ok(true);
        };
        for kept in results {
            let phase = u32::try_from(kept.phase).ok();
            let results = match self.form {
                JobForm::Json => array(kept.values),
                JobForm::Term => term_of_results(&kept.values, self.run.is_bare()),
            };
            let response = Some(Bytes::from(results));
            put_message(output, RESP, &RpbMapRedResp { phase, response, done: None });
        }
        Ok(true)
    }
}

fn failed(error: JobError) -> PbFault {
    match error {
        JobError::Gateway(error) => PbFault::from_bucket(error),
        JobError::TooMany => Error::Overloaded { retry_after: 1 }.into(),
        JobError::TimedOut => Error::TimedOut.into(),
        JobError::Phase(refusal) => PbFault::Text(format!("Phase {}: {}", refusal.phase, refusal.error)),
        JobError::Failed { .. } | JobError::Cancelled | JobError::TooLarge => PbFault::Text(error.json().to_string()),
    }
}
