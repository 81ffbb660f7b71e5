//! A model of S3, written from its public documentation and not from the product's rules: random requests go to two gateways of
//! one store, and each answer is compared with the model's.
//!
//! ```text
//! ModelServer    the gateways under test, and their time
//! ModelAction    the kinds of requests; S3ModelStep: one of them with a seed for its choices
//! ModelState     what the store has to hold: buckets, versions, locks, uploads
//! S3Model        runs a step: makes the request, knows the answer, compares, follows
//! check_s3_model runs many; of a failure it seeks the shortest list of steps
//! ```
//! A step's choices depend on its own seed alone, so a list of steps stays meaningful when others are left out of it. A request
//! with several faults may be answered for any of them: their order is no promise.

#![allow(clippy::expect_used, reason = "a harness fails a test by panicking")]

mod action;
mod answers;
mod asks;
mod bucket_steps;
mod copy_steps;
mod dates;
mod delete_steps;
mod digests;
mod expiry_steps;
mod listing_steps;
mod lock_steps;
mod metadata_steps;
mod object_steps;
mod shrink;
mod state;
mod upload_steps;

use std::collections::BTreeMap;
use std::time::Duration;

pub use action::{ModelAction, ModelPlan, S3ModelStep};
pub use asks::ModelRequest;
pub use shrink::check_s3_model;

use crate::SplitMix64;
use crate::http::HttpResponse;
use state::ModelState;

/// The gateways under test.
pub trait ModelServer {
    /// The answer to a request at one of the gateways. It is signed here, unless its caller is anonymous.
    fn answer(&mut self, gateway: usize, request: &ModelRequest) -> HttpResponse;

    /// The time of the gateways, in microseconds since 1970.
    fn now(&self) -> u64;

    /// Lets the gateways run for a while.
    fn wait(&mut self, time: Duration);

    /// Ends the gateways at once, and starts them again after a time in which none ran.
    fn restart(&mut self, standstill: Duration);

    /// Carries out the lifecycle of all buckets, until nothing more is due.
    fn expire(&mut self);
}

/// The bounds of the gateways under test that the model has to know.
#[derive(Debug, Clone, Copy)]
pub struct ModelBounds {
    /// Least bytes of a part that is not the last.
    pub part_bytes_min: usize,
    /// How many gateways there are.
    pub gateways: usize,
    /// Put in front of the names of buckets.
    pub bucket_prefix: &'static str,
}

/// A failed comparison, with the requests that led to it.
#[derive(Debug, Clone)]
pub struct ModelMismatch {
    /// The number of the failed step.
    pub step: usize,
    /// What differs.
    pub what: String,
    /// The requests and answers before, one a line.
    pub trace: Vec<String>,
}

/// How often the requests of each action were served and refused, as the model expected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCounts(BTreeMap<ModelAction, Outcomes>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Outcomes {
    served: u64,
    refused: u64,
}

impl ModelCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (action, more) in &other.0 {
            let sum = self.0.entry(*action).or_default();
            sum.served += more.served;
            sum.refused += more.refused;
        }
    }

    /// All requests, served and refused.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.values().map(|one| one.served + one.refused).sum()
    }

    /// The actions of these that were never served: a run without any of them shows little. Of a few that were all refused, such as
    /// removals of buckets that hold something, chance may be the reason.
    #[must_use]
    pub fn unserved(&self, plan: ModelPlan) -> Vec<ModelAction> {
        let is_shown = |one: &Outcomes| one.served > 0 || (1..TRIES_MIN).contains(&one.refused);
        plan.actions().filter(|action| !self.0.get(action).is_some_and(is_shown)).collect()
    }
}

/// Refusals of an action after which one should have been served.
const TRIES_MIN: u64 = 150;

/// Outcome of a step.
type Checked = Result<(), String>;

/// The gateways, and what they have to hold.
pub(crate) struct S3Model<'a> {
    server: &'a mut dyn ModelServer,
    bounds: ModelBounds,
    state: ModelState,
    /// The choices of the current step.
    dice: SplitMix64,
    action: ModelAction,
    counts: ModelCounts,
    trace: Vec<String>,
}

impl<'a> S3Model<'a> {
    /// A model of an empty store.
    pub(crate) fn new(server: &'a mut dyn ModelServer, bounds: ModelBounds) -> Self {
        Self {
            server,
            bounds,
            state: ModelState::default(),
            dice: SplitMix64::new(0),
            action: ModelAction::Wait,
            counts: ModelCounts::default(),
            trace: Vec::new(),
        }
    }

    /// Runs steps until the end or a mismatch.
    pub(crate) fn run(&mut self, steps: &[S3ModelStep]) -> Result<ModelCounts, ModelMismatch> {
        for (number, step) in steps.iter().enumerate() {
            self.dice = SplitMix64::new(step.seed);
            self.action = step.action;
            self.leave_midnight();
            if let Err(what) = self.step(step.action) {
                let trace = std::mem::take(&mut self.trace);
                return Err(ModelMismatch { step: number, what: format!("{:?}: {what}", step.action), trace });
            }
        }
        Ok(std::mem::take(&mut self.counts))
    }

    fn step(&mut self, action: ModelAction) -> Checked {
        match action {
            ModelAction::CreateBucket => self.create_bucket(),
            ModelAction::DeleteBucket => self.delete_bucket(),
            ModelAction::PutVersioning => self.put_versioning(),
            ModelAction::PutBucketLock => self.put_bucket_lock(),
            ModelAction::PutBucketEncryption => self.put_bucket_encryption(),
            ModelAction::PutBucketTags => self.put_bucket_tags(),
            ModelAction::PutLifecycle => self.put_lifecycle(),
            ModelAction::GetBucketSettings => self.get_bucket_settings(),
            ModelAction::PutObject => self.put_object(),
            ModelAction::GetObject => self.get_object(),
            ModelAction::GetAnonymous => self.get_anonymous(),
            ModelAction::DeleteObject => self.delete_object(),
            ModelAction::DeleteObjects => self.delete_objects(),
            ModelAction::CopyObject => self.copy_object(),
            ModelAction::PutTags => self.put_tags(),
            ModelAction::GetTags => self.get_tags(),
            ModelAction::PutAcl => self.put_acl(),
            ModelAction::GetAttributes => self.get_attributes(),
            ModelAction::PutRetention => self.put_retention(),
            ModelAction::PutLegalHold => self.put_legal_hold(),
            ModelAction::GetLocks => self.get_locks(),
            ModelAction::CreateUpload => self.create_upload(),
            ModelAction::UploadPart => self.upload_part(),
            ModelAction::CopyPart => self.copy_part(),
            ModelAction::ListParts => self.list_parts(),
            ModelAction::CompleteUpload => self.complete_upload(),
            ModelAction::AbortUpload => self.abort_upload(),
            ModelAction::ListUploads => self.list_uploads(),
            ModelAction::ListObjects => self.list_objects(),
            ModelAction::ListVersions => self.list_versions(),
            ModelAction::Wait => self.wait(),
            ModelAction::Standstill => self.standstill(),
            ModelAction::Kill => self.kill(),
            ModelAction::Expire => self.expire(),
        }
    }

    /// Sends a request to one of the gateways.
    fn send(&mut self, request: &ModelRequest) -> HttpResponse {
        let gateway = self.dice.below(self.bounds.gateways);
        let answer = self.server.answer(gateway, request);
        self.trace.push(format!("{gateway} {request} -> {}", answers::shown(&answer)));
        answer
    }

    fn now(&self) -> u64 {
        self.server.now()
    }
}
