//! Durable puts with terms beside puts without, of new keys and of keys that exist.

use std::sync::Arc;

use anyhow::{Result, ensure};

use super::objects::{add_object, amount};
use super::operation::QueryBenchOperation;
use super::run::QueryBenchRun;
use crate::keys::{KEY_BYTES, key};
use crate::numbered_work::{self, NumberedWork, ValueServer};
use crate::report::BenchReport;
use crate::targets::{self, BenchTarget, TargetPromise};
use crate::turns::{BARE_CONNECTIONS, Comparison, ComparisonSide};
use crate::value_requests::{ValueDriver, ValueRequest};

/// The numbers of terms of a put.
const TERMS: [usize; 3] = [0, 1, 5];

/// A range with every term.
const EVERY_TERM: &str = "0/999999999";

impl QueryBenchRun {
    /// Loads the keys that are overwritten, measures all puts in turns, and looks their terms up.
    ///
    /// # Errors
    ///
    /// When a connection cannot be made, or an index does not have the terms of the puts.
    pub(super) async fn puts(&mut self, server: &ValueServer) -> Result<()> {
        let keys = self.plan.overwritten;
        eprintln!("loading 3 × {keys} keys to overwrite");
        for terms in TERMS {
            let build = move |number: u64, request: &mut ValueRequest| {
                put_overwritten(terms, keys, "?dw=0", number, request);
            };
            numbered_work::load(&server.endpoint, keys, Arc::new(build)).await?;
        }
        let [[new_none, over_none], [new_one, over_one], [new_five, over_five]] =
            TERMS.map(|terms| put_works(terms, keys));
        let works = [new_none, new_one, new_five, over_none, over_one, over_five];
        let sides = numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
        let [new_none, new_one, new_five, over_none, over_one, over_five] = &sides;
        time_target(&mut self.report, targets::TERM_PUT_NEW, new_one, new_none);
        time_target(&mut self.report, targets::TERM_PUT_OVERWRITTEN, over_one, over_none);
        for (name, five, none) in [("new", new_five, new_none), ("existing", over_five, over_none)] {
            let name = format!("durable put with 5 terms to one without, {name} keys");
            self.report.comparison(name, &Comparison::of(five, none), "without terms");
        }
        // A failed cell has left its puts undone: the report names that.
        if self.report.is_sound() { self.check_terms(server).await } else { Ok(()) }
    }

    /// The first put of a new key has each of its terms, and each overwritten key is found once by each field.
    async fn check_terms(&self, server: &ValueServer) -> Result<()> {
        let mut driver = ValueDriver::connect(&server.endpoint).await?;
        for terms in TERMS {
            for field in 0..terms {
                driver.request.get(format_args!("/buckets/new-{terms}/index/n{field}_int/{}", amount(0)));
                driver.send_checked(200).await?;
                let found = driver.text();
                let expected = format!("{{\"keys\":[\"{}\"]}}", String::from_utf8_lossy(&new_key(0)));
                ensure!(found == expected, "term {field} of {terms} of a put finds {found}");
                driver.request.get(format_args!("/buckets/over-{terms}/index/n{field}_int/{EVERY_TERM}"));
                driver.send_checked(200).await?;
                let found = driver.text().matches("\"over").count() as u64;
                let keys = self.plan.overwritten;
                ensure!(found == keys, "term {field} of {terms}: {keys} overwritten keys, {found} found");
            }
        }
        Ok(())
    }
}

/// Puts with this many terms: of new keys, and of keys that exist.
fn put_works(terms: usize, keys: u64) -> [NumberedWork; 2] {
    let new = NumberedWork::new(QueryBenchOperation::PutNew, terms, move |number, request| {
        request.put(format_args!("/buckets/new-{terms}/keys/"));
        request.add_to_target(&new_key(number));
        add_terms(terms, number, request);
        add_object(number, request);
    });
    let overwritten = NumberedWork::new(QueryBenchOperation::PutOverwritten, terms, move |number, request| {
        put_overwritten(terms, keys, "", number, request);
    });
    [new, overwritten].map(|work| NumberedWork { connections: BARE_CONNECTIONS, ..work })
}

fn put_overwritten(terms: usize, keys: u64, query: &str, number: u64, request: &mut ValueRequest) {
    request.put(format_args!("/buckets/over-{terms}/keys/"));
    request.add_to_target(&key("over", number % keys));
    request.add_to_target(query.as_bytes());
    add_terms(terms, number, request);
    add_object(number, request);
}

fn new_key(number: u64) -> [u8; KEY_BYTES] {
    key("made", number)
}

fn add_terms(terms: usize, number: u64, request: &mut ValueRequest) {
    for field in 0..terms {
        request.add_header(format_args!("X-Riak-Index-n{field}_int: {}", amount(number)));
    }
}

/// Adds the target of the time of a put with a term to that of one without.
fn time_target(report: &mut BenchReport, promise: TargetPromise, with: &ComparisonSide, without: &ComparisonSide) {
    let comparison = Comparison::of(with, without);
    let times = comparison.ratio().filter(|ratio| *ratio > 0.0).map(|ratio| 1.0 / ratio);
    let cpu = comparison.cpu_ratio().filter(|ratio| *ratio > 0.0).map(|ratio| 1.0 / ratio);
    let cpu = cpu.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.2}"));
    let detail = format!("{cpu} by server CPU: with a term {}; without {}", with.describe(), without.describe());
    report.targets.push(BenchTarget::new(promise, times, detail));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_new_or_among_those_that_are_overwritten() {
        let shown = |work: &NumberedWork, number| {
            let mut request = ValueRequest::default();
            (work.build)(number, &mut request);
            request.shown()
        };
        let [new, overwritten] = put_works(1, 10);
        assert_ne!(shown(&new, 3), shown(&new, 13));
        let path = |text: String| text.split(' ').nth(1).map(str::to_owned);
        assert_eq!(path(shown(&overwritten, 3)), path(shown(&overwritten, 13)));
        assert_ne!(shown(&overwritten, 3), shown(&overwritten, 13), "the object and its term change");
    }
}
