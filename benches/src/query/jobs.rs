//! MapReduce over all objects of a bucket: a count and a sum, by native functions and by JavaScript.

use std::sync::Arc;

use anyhow::Result;

use super::objects::{sum, sums};
use super::operation::QueryBenchOperation;
use super::run::QueryBenchRun;
use crate::numbered_work::{self, ExpectedBody, NumberedWork, ValueServer};
use crate::report::thousands;
use crate::targets::{self, BenchTarget};
use crate::turns::{ComparisonSide, Rounds, median};

/// The path of the bucket.
const BUCKET: &str = "/buckets/jobs";

/// The document of a job, around its phases.
const DOCUMENT: [&str; 2] = [r#"{"inputs":"jobs","timeout":110000,"query":["#, "]}"];

const COUNT_NATIVE: &str = r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}},
    {"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}"#;

const SUM_NATIVE: &str = r#"{"map":{"language":"javascript","name":"Riak.mapValuesJson"}},
    {"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_plist_sum"}}"#;

const COUNT_SCRIPT: &str = r#"{"map":{"language":"javascript","name":"Bench.one"}},
    {"reduce":{"language":"javascript","name":"Bench.sum"}}"#;

const SUM_SCRIPT: &str = r#"{"map":{"language":"javascript","name":"Bench.amount"}},
    {"reduce":{"language":"javascript","name":"Bench.sum"}}"#;

impl QueryBenchRun {
    /// Loads the objects and measures the jobs in turns.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or a connection cannot be made.
    pub(super) async fn jobs(&mut self, server: &ValueServer) -> Result<()> {
        self.load(server, BUCKET, "of jobs", false).await?;
        let count = self.plan.objects;
        let list = |inner: &[u8]| [&b"["[..], inner, b"]"].concat();
        let counted = list(count.to_string().as_bytes());
        let works = [
            job(QueryBenchOperation::CountNative, COUNT_NATIVE, count, counted.clone()),
            job(QueryBenchOperation::CountScript, COUNT_SCRIPT, count, counted),
            job(QueryBenchOperation::SumNative, SUM_NATIVE, count, list(&sums(count))),
            job(QueryBenchOperation::SumScript, SUM_SCRIPT, count, list(sum(count).to_string().as_bytes())),
        ];
        let rounds = Rounds { count: self.plan.jobs, ..self.plan.rounds };
        let sides = numbered_work::measure(&mut self.report, server, &works, rounds).await?;
        for (promise, side) in [(targets::COUNT_NATIVE, &sides[0]), (targets::COUNT_SCRIPT, &sides[1])] {
            let detail = format!("{} objects; {}", thousands(count as f64), job_detail(side));
            self.report.targets.push(BenchTarget::new(promise, seconds(side), detail));
        }
        for (work, side) in works.iter().zip(&sides) {
            let name = format!("{}: {} objects", work.operation.label.name, thousands(count as f64));
            let time = seconds(side).map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.2} s"));
            self.report.fact(name, format!("{time}; {}", job_detail(side)));
        }
        Ok(())
    }
}

/// A job, once a turn, and its answer.
fn job(operation: QueryBenchOperation, phases: &'static str, count: u64, answer: Vec<u8>) -> NumberedWork {
    let work = NumberedWork::new(operation, count as usize, move |_, request| {
        request.post(format_args!("/mapred"));
        request.add(&[DOCUMENT[0].as_bytes(), phases.as_bytes(), DOCUMENT[1].as_bytes()]);
    });
    NumberedWork { connections: 1, bound: Some(1), body: ExpectedBody::Exactly(Arc::new(answer)), ..work }
}

/// The seconds of each turn, ascending.
fn turn_seconds(side: &ComparisonSide) -> Vec<f64> {
    let mut seconds: Vec<f64> = side.rates.iter().filter(|rate| **rate > 0.0).map(|rate| 1.0 / rate).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

/// The median time of a job; `None` when a turn failed.
fn seconds(side: &ComparisonSide) -> Option<f64> {
    median(&turn_seconds(side)).filter(|_| side.faults.is_empty())
}

fn job_detail(side: &ComparisonSide) -> String {
    let turns = turn_seconds(side).iter().map(|seconds| format!("{seconds:.2} s")).collect::<Vec<_>>().join(", ");
    let cpu = side.cpu_seconds().map_or_else(|| "–".to_owned(), |cpu| format!("{:.2} s", cpu / 1e3));
    let faults: String = side.faults.iter().map(|fault| format!(", FAILED: {fault}")).collect();
    format!("turns {turns}; CPU of the server {cpu} each{faults}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_turn_leaves_no_median() {
        let mut side = ComparisonSide::default();
        side.rates.extend([2.0, 0.5, 1.0]);
        assert_eq!(seconds(&side), Some(1.0));
        side.faults.push("status 500 with 9 B (1 times)".to_owned());
        assert_eq!(seconds(&side), None);
        assert!(job_detail(&side).contains("turns 0.50 s, 1.00 s, 2.00 s") && job_detail(&side).contains("FAILED"));
    }
}
