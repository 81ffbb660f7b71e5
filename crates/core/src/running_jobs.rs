//! The jobs that run on this gateway, for operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_rows::Timestamp;
use larder_rows::limits::JOBS_MAX;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A job as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Its number on this gateway.
    pub id: u64,
    /// When it began.
    pub begun: Timestamp,
    /// Its inputs and phases in a few words.
    pub summary: String,
    /// Inputs that it has taken.
    pub inputs: u64,
}

#[derive(Debug)]
struct JobEntry {
    begun: Timestamp,
    summary: String,
    client: Arc<str>,
    inputs: Arc<AtomicU64>,
    cancel: watch::Sender<bool>,
}

/// All jobs that run.
#[derive(Debug, Default)]
pub struct RunningJobs {
    jobs: Mutex<BTreeMap<u64, JobEntry>>,
    last: AtomicU64,
}

/// The place of one job among those that run, until it is dropped.
#[derive(Debug)]
pub struct JobTicket {
    jobs: Arc<RunningJobs>,
    id: u64,
    inputs: Arc<AtomicU64>,
    cancelled: watch::Receiver<bool>,
}

impl RunningJobs {
    /// The jobs, oldest first.
    pub fn list(&self) -> Vec<RunningJob> {
        let shown = |(id, entry): (&u64, &JobEntry)| RunningJob {
            id: *id,
            begun: entry.begun,
            summary: entry.summary.clone(),
            inputs: entry.inputs.load(Ordering::Relaxed),
        };
        self.jobs.lock().iter().map(shown).collect()
    }

    /// Ends a job; its client gets an error. `false`: no such job runs.
    pub fn cancel(&self, id: u64) -> bool {
        self.jobs.lock().get(&id).is_some_and(|entry| entry.cancel.send(true).is_ok())
    }

    /// Takes a place for a job of this client; `None`: there is none, or the client has half of them.
    pub fn begin(self: &Arc<Self>, begun: Timestamp, summary: String, client: &Arc<str>) -> Option<JobTicket> {
        let mut jobs = self.jobs.lock();
        let of_client = jobs.values().filter(|job| job.client == *client).count();
        if jobs.len() >= JOBS_MAX || of_client >= JOBS_MAX / 2 {
            return None;
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (cancel, cancelled) = watch::channel(false);
        let inputs = Arc::new(AtomicU64::new(0));
        jobs.insert(id, JobEntry { begun, summary, client: Arc::clone(client), inputs: Arc::clone(&inputs), cancel });
        Some(JobTicket { jobs: Arc::clone(self), id, inputs, cancelled })
    }
}

impl JobTicket {
    /// Counts inputs that the job took.
    pub fn count_inputs(&self, inputs: usize) {
        self.inputs.fetch_add(inputs as u64, Ordering::Relaxed);
    }

    /// Returns when the job is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = ()> + use<> {
        let mut cancelled = self.cancelled.clone();
        async move {
            if cancelled.wait_for(|is| *is).await.is_err() {
                // The place is gone, and with it all who could cancel the job.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.jobs.jobs.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_is_listed_until_it_is_dropped_and_can_be_cancelled() {
        let jobs = Arc::new(RunningJobs::default());
        let first = jobs.begin(Timestamp(5), "b".into(), &"x".into()).unwrap();
        let second = jobs.begin(Timestamp(6), "c".into(), &"x".into()).unwrap();
        first.count_inputs(3);
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].inputs, listed[1].begun), (2, 1, 3, Timestamp(6)));
        drop(first);
        assert!(!jobs.cancel(1), "it has ended");
        assert!(jobs.cancel(2));
        second.cancelled().await;
        drop(second);
        assert_eq!(jobs.list(), []);
    }

    #[test]
    fn places_are_bounded_and_no_client_has_all() {
        let jobs = Arc::new(RunningJobs::default());
        let begin = |client: &str| jobs.begin(Timestamp(1), String::new(), &client.into());
        let taken: Vec<_> = std::iter::from_fn(|| begin("a")).collect();
        assert_eq!(taken.len(), JOBS_MAX / 2);
        let others: Vec<_> = std::iter::from_fn(|| begin("b")).collect();
        assert!(others.len() == JOBS_MAX / 2 && begin("c").is_none());
        drop(taken);
        assert!(begin("c").is_some() && begin("b").is_none());
    }
}
