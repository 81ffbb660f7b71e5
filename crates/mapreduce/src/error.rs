//! The end of a job without a result.

use larder_core::Error;
use larder_rows::limits::{JOB_HELD_BYTES_MAX, JOBS_MAX};
use serde_json::{Value, json};

use crate::rules::PhaseFailure;
use crate::rules::refusal::PhaseRefusal;

/// Why a job has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    /// A listing or an object could not be read.
    #[error("{0}")]
    Gateway(#[from] Error),
    /// A phase cannot run: its function is not here.
    #[error("phase {}: {}", .0.phase, .0.error)]
    Phase(PhaseRefusal),
    /// The function of a phase failed.
    #[error("phase {phase}: {}", .failure.error)]
    Failed {
        /// The number of the phase, from 0.
        phase: usize,
        /// The failure.
        failure: PhaseFailure,
    },
    /// The time of the job is over.
    #[error("timeout")]
    TimedOut,
    /// An operator ended the job.
    #[error("cancelled by an operator")]
    Cancelled,
    /// The phases would hold too many values.
    #[error("the phases hold more than {JOB_HELD_BYTES_MAX} bytes of values")]
    TooLarge,
    /// Too many jobs run.
    #[error("overload: {JOBS_MAX} jobs run already")]
    TooMany,
}

impl JobError {
    /// The error as JSON, as both protocols show it.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Phase(refusal) => refusal.json(),
            Self::Failed { phase, failure } => json!({
                "phase": phase,
                "error": failure.error,
                "input": failure.input,
                "type": "error",
                "stack": "[]",
            }),
            Self::Gateway(_) | Self::TimedOut | Self::Cancelled | Self::TooLarge | Self::TooMany => {
                json!({ "error": self.to_string() })
            }
        }
    }
}
