//! Ranges of an index by size, their terms, and a bucket that checks each result.

use std::sync::Arc;

use anyhow::Result;

use super::objects::{FIELD, amount, loaded_key};
use super::operation::QueryBenchOperation;
use super::run::QueryBenchRun;
use crate::numbered_work::{self, ExpectedBody, NumberedWork, ValueServer};
use crate::report::thousands;
use crate::targets::{self, BenchTarget};
use crate::turns::{ComparisonSide, median};

/// The type of the bucket whose results need no check: it keeps siblings.
pub(super) const TYPE: (&str, &str) = ("siblings", r#"{"allow_mult":true}"#);

/// A bucket of that type.
const SIBLINGS: &str = "/types/siblings/buckets/ranges";

/// A bucket that keeps the newest version alone, so that each result is checked.
const NEWEST: &str = "/buckets/ranges";

impl QueryBenchRun {
    /// Loads both buckets and measures the ranges in turns.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or a connection cannot be made.
    pub(super) async fn index(&mut self, server: &ValueServer) -> Result<()> {
        for (bucket, name) in [(SIBLINGS, "which keeps siblings"), (NEWEST, "which keeps the newest")] {
            self.load(server, bucket, name, true).await?;
        }
        let [small, middle, large] = self.plan.ranges;
        let works = [
            self.range(QueryBenchOperation::Range, small),
            self.range(QueryBenchOperation::Range, middle),
            self.range(QueryBenchOperation::Range, large),
            self.range(QueryBenchOperation::RangeTerms, large),
            self.range(QueryBenchOperation::RangeChecked, large),
        ];
        let sides = numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
        for (work, side) in works.iter().zip(&sides) {
            let name = format!("{}: {} results", work.operation.label.name, thousands(work.size as f64));
            let rate = results_per_second(work, side).map_or_else(|| "–".to_owned(), thousands);
            self.report.fact(name, format!("{rate} results/s; queries: {}", side.describe()));
        }
        let detail = format!("{} results each; queries: {}", thousands(large as f64), sides[2].describe());
        let rate = results_per_second(&works[2], &sides[2]);
        self.report.targets.push(BenchTarget::new(targets::INDEX_RANGE, rate, detail));
        Ok(())
    }

    /// Queries of a range of `size` results in the middle of the objects, from one connection.
    fn range(&self, operation: QueryBenchOperation, size: usize) -> NumberedWork {
        let first = (self.plan.objects - size as u64) / 2;
        let last = first + size as u64 - 1;
        let has_terms = operation == QueryBenchOperation::RangeTerms;
        let bucket = if operation == QueryBenchOperation::RangeChecked { NEWEST } else { SIBLINGS };
        let query = if has_terms { "?return_terms=true" } else { "" };
        let work = NumberedWork::new(operation, size, move |_, request| {
            request.get(format_args!("{bucket}/index/{FIELD}/{}/{}{query}", amount(first), amount(last)));
        });
        let body = ExpectedBody::Exactly(Arc::new(results(first..=last, has_terms)));
        // A turn of few and long queries would end in the middle of one.
        let bound = (size == self.plan.ranges[2]).then_some(self.plan.large_queries);
        NumberedWork { connections: 1, bound, body, ..work }
    }
}

/// The median rate of the results; `None` when a turn failed.
fn results_per_second(work: &NumberedWork, side: &ComparisonSide) -> Option<f64> {
    let rate = median(&side.rates).filter(|_| side.faults.is_empty())?;
    Some(rate * work.size as f64)
}

/// The answer to a range of the objects with these numbers.
fn results(numbers: std::ops::RangeInclusive<u64>, has_terms: bool) -> Vec<u8> {
    let shown = |number: u64| {
        let name = String::from_utf8_lossy(&loaded_key(number)).into_owned();
        if has_terms { format!("{{\"{}\":\"{name}\"}}", amount(number)) } else { format!("\"{name}\"") }
    };
    let list = numbers.map(shown).collect::<Vec<_>>().join(",");
    let member = if has_terms { "results" } else { "keys" };
    format!("{{\"{member}\":[{list}]}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_terms() {
        let [one, two] = [7, 8].map(|number| String::from_utf8(loaded_key(number).to_vec()).unwrap());
        let text = |has_terms| String::from_utf8(results(7..=8, has_terms)).unwrap();
        assert_eq!(text(false), format!(r#"{{"keys":["{one}","{two}"]}}"#));
        assert_eq!(text(true), format!(r#"{{"results":[{{"100000007":"{one}"}},{{"100000008":"{two}"}}]}}"#));
    }
}
