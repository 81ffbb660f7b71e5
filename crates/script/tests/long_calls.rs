//! Calls that run long: they take turns while the server serves requests, and run freely while it does not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_core::{ScriptError, ScriptFunction};
use serde_json::json;

use crate::support::{self, TestPool, children, eventually};

const LOOP: &str = "function() { for (;;) {} }";
/// Some tens of milliseconds, and the same result each time.
const SUM: &str = "function(n) { var s = 0; for (var i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s; }";

/// Whether a process is stopped.
fn is_stopped(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| stat.contains(") T "))
}

/// A thread that keeps this process, the server of the test, busy while the value lives.
struct BusyServer(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl BusyServer {
    fn start() -> Self {
        let busy = Arc::new(AtomicBool::new(true));
        let goes_on = Arc::clone(&busy);
        let work = move || {
            while goes_on.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Self(busy, Some(std::thread::spawn(work)))
    }
}

impl Drop for BusyServer {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        self.1.take().map(std::thread::JoinHandle::join);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_calls_are_stopped_most_of_the_time_while_the_server_is_busy() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(2, Duration::from_secs(3), &[]);
    let _busy = BusyServer::start();
    let calls = [0, 1].map(|_| {
        let pool = Arc::clone(&test.pool);
        tokio::spawn(async move { support::call(&pool, ScriptFunction::Source(LOOP.into()), vec![]).await })
    });
    let stopped = || children().iter().filter(|process| is_stopped(process)).count();
    eventually("both workers are stopped", || stopped() == 2).await;
    let mut seen = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(7)).await;
        seen += stopped();
    }
    // A slice takes an eightieth of a period; the rest of the bound is for a machine with other work.
    assert!(seen > 120, "stopped in {seen} of 200 looks");
    for call in calls {
        assert_eq!(call.await.unwrap(), Err(ScriptError::TimedOut), "a stopped worker is killed in time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_call_ends_with_its_result_and_its_worker_serves_the_next_call() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, Duration::from_secs(20), &[]);
    let sum = |n: u64| support::call(&test.pool, ScriptFunction::Source(SUM.into()), vec![json!(n)]);
    let calm = sum(2_000_000).await.unwrap();
    let workers = children();
    let busy = BusyServer::start();
    for _ in 0..3 {
        assert_eq!(sum(2_000_000).await, Ok(calm.clone()));
        // A worker that stayed stopped would be replaced after some seconds.
        assert!(sum(1).await.is_ok());
    }
    drop(busy);
    assert_eq!(children(), workers, "the same workers");
    assert!(workers.iter().all(|process| !is_stopped(process)));
}
