//! Sets by size: add, membership and removal must cost the same at each.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::operation::ValueOperation;
use super::run::DatatypesRun;
use super::settled;
use crate::endpoint::Endpoint;
use crate::keys::{BenchRandom, key};
use crate::numbered_work::{self, ExpectedBody, NumberedWork, ValueServer};
use crate::report::thousands;
use crate::targets::{self, BenchTarget, TargetPromise};
use crate::turns::{ComparisonSide, median};
use crate::value_requests::{ValueDriver, ValueRequest};

/// The elements of one request of a load.
const LOADED_AT_ONCE: u64 = 2_000;

/// The length of the answer `{"type":"set","present":true}`.
const PRESENT_BYTES: u64 = 29;

/// The elements that are loaded.
const LOADED: &str = "elem";

/// The elements that are added.
const ADDED: &str = "made";

impl DatatypesRun {
    /// Loads sets of each size and measures the operations on them, the sizes in turns.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or a connection cannot be made.
    pub(super) async fn sets(&mut self, server: &ValueServer, data: &Path) -> Result<()> {
        let mut groups = Vec::new();
        for size in self.plan.set_sizes {
            groups.push(SetGroup::load(self, &server.endpoint, size, self.plan.sets(size)).await?);
        }
        let groups: [SetGroup; 4] = groups.try_into().map_err(|_| anyhow::anyhow!("four sizes of sets"))?;
        let edits = self.plan.edits;
        // A compaction of the load would count for the size whose turn it is.
        let rest = settled::wait(data, self.plan.settled).await?;
        let rest = rest.map_or("it still changed".to_owned(), |time| format!("{:.0} s", time.as_secs_f64()));
        self.report.fact("time from the loads until the data folder kept its size", rest);
        self.by_size(server, targets::SET_MEMBER, groups.each_ref().map(SetGroup::membership)).await?;
        self.by_size(server, targets::SET_ADD, groups.each_ref().map(|group| group.adds(edits))).await?;
        self.by_size(server, targets::SET_REMOVE, groups.each_ref().map(|group| group.removals(edits))).await?;
        // A failed cell has left its edits undone: the report names that.
        if self.report.is_sound() {
            for group in &groups {
                group.check_sizes(&server.endpoint).await?;
            }
        }
        Ok(())
    }

    async fn by_size(&mut self, server: &ValueServer, promise: TargetPromise, works: [NumberedWork; 4]) -> Result<()> {
        let sides = numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
        let shown = works
            .iter()
            .zip(&sides)
            .map(|(work, side)| format!("{}: {}", thousands(work.size as f64), side.describe()));
        let detail = shown.collect::<Vec<_>>().join("; ");
        self.report.targets.push(BenchTarget::new(promise, slowest_to_fastest(&sides), detail));
        Ok(())
    }
}

/// The lowest median rate divided by the highest; `None` when a side failed.
fn slowest_to_fastest(sides: &[ComparisonSide]) -> Option<f64> {
    if sides.iter().any(|side| !side.faults.is_empty()) {
        return None;
    }
    let rates: Vec<f64> = sides.iter().map(|side| median(&side.rates)).collect::<Option<_>>()?;
    let highest = rates.iter().copied().fold(0.0, f64::max);
    (highest > 0.0).then(|| rates.iter().copied().fold(f64::INFINITY, f64::min) / highest)
}

/// Sets of one size, and the contexts of reads of them.
struct SetGroup {
    size: usize,
    count: u64,
    contexts: Arc<Vec<Vec<u8>>>,
}

impl SetGroup {
    async fn load(run: &mut DatatypesRun, endpoint: &Endpoint, size: usize, count: u64) -> Result<Self> {
        let (sets, elements) = (thousands(count as f64), thousands(size as f64));
        eprintln!("loading {sets} × a set of {elements} elements");
        let elapsed = load_sets(endpoint, size, count).await?.as_secs_f64();
        let rate = thousands(size as f64 * count as f64 / elapsed);
        let name = format!("loading {sets} × a set of {elements} elements, `dw=0`");
        run.report.fact(name, format!("{elapsed:.1} s, {rate} elements/s"));
        let mut driver = ValueDriver::connect(endpoint).await?;
        let mut contexts = Vec::new();
        for set in 0..count {
            contexts.push(driver.context(format_args!("{}", path(size, set))).await?);
        }
        Ok(Self { size, count, contexts: Arc::new(contexts) })
    }

    /// As many elements were removed from each set as were added: each must have its first size again.
    async fn check_sizes(&self, endpoint: &Endpoint) -> Result<()> {
        let mut driver = ValueDriver::connect(endpoint).await?;
        let expected = format!("\"size\":{}}}", self.size);
        for set in 0..self.count {
            driver.request.get(format_args!("{}?size=true", path(self.size, set)));
            driver.send_checked(200).await?;
            ensure!(driver.text().contains(&expected), "a set of {} has now {}", self.size, driver.text());
        }
        Ok(())
    }

    fn membership(&self) -> NumberedWork {
        let (size, count) = (self.size, self.count);
        let build = move |number: u64, request: &mut ValueRequest| {
            let mut random = BenchRandom::new(number);
            let (set, element) = (random.below(count), random.below(size as u64));
            request.get(format_args!("{}?element=", path(size, set)));
            request.add_to_target(&key(LOADED, element));
        };
        let work = NumberedWork::new(ValueOperation::SetMember, size, build);
        NumberedWork { body: ExpectedBody::Length(PRESENT_BYTES), ..work }
    }

    fn adds(&self, edits: u64) -> NumberedWork {
        let (size, count) = (self.size, self.count);
        let build = move |number: u64, request: &mut ValueRequest| {
            request.post(format_args!("{}", path(size, number % count)));
            request.add(&[b"{\"add\":\"", &key(ADDED, number), b"\"}"]);
        };
        NumberedWork { bound: Some(edits), ..NumberedWork::new(ValueOperation::SetAdd, size, build) }
    }

    fn removals(&self, edits: u64) -> NumberedWork {
        let (size, count, contexts) = (self.size, self.count, self.contexts.clone());
        let build = move |number: u64, request: &mut ValueRequest| {
            let (set, element) = (number % count, number / count);
            request.post(format_args!("{}", path(size, set)));
            let context = contexts.get(set as usize).map_or(&[][..], Vec::as_slice);
            request.add(&[b"{\"remove\":\"", &key(LOADED, element), b"\",\"context\":\"", context, b"\"}"]);
        };
        NumberedWork { bound: Some(edits), ..NumberedWork::new(ValueOperation::SetRemove, size, build) }
    }
}

/// Adds `size` elements to each of `count` sets; returns the time.
///
/// # Errors
///
/// As [`numbered_work::load`].
pub(super) async fn load_sets(endpoint: &Endpoint, size: usize, count: u64) -> Result<std::time::Duration> {
    let each = (size as u64).div_ceil(LOADED_AT_ONCE);
    let build = move |number: u64, request: &mut ValueRequest| {
        let (set, first) = (number / each, number % each * LOADED_AT_ONCE);
        request.post(format_args!("{}?dw=0", path(size, set)));
        request.add(&[b"{\"add_all\":"]);
        request.add_names((first..(first + LOADED_AT_ONCE).min(size as u64)).map(|element| key(LOADED, element)));
        request.add(&[b"}"]);
    };
    numbered_work::load(endpoint, count * each, Arc::new(build)).await
}

/// The path of a set, without an allocation for each request.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetPath {
    size: usize,
    set: u64,
}

impl std::fmt::Display for SetPath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "/types/sets/buckets/of-{}/datatypes/{}", self.size, self.set)
    }
}

/// The path of a set among those of its size.
pub(super) fn path(size: usize, set: u64) -> SetPath {
    SetPath { size, set }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn group(size: usize, count: u64) -> SetGroup {
        let contexts = (0..count).map(|set| format!("c{set}").into_bytes()).collect();
        SetGroup { size, count, contexts: Arc::new(contexts) }
    }

    fn shown(work: &NumberedWork, number: u64) -> String {
        let mut request = ValueRequest::default();
        (work.build)(number, &mut request);
        request.shown()
    }

    #[test]
    fn no_element_is_removed_twice_and_each_has_its_sets_context() {
        let removals = group(10, 20).removals(20);
        let all: HashSet<String> = (0..40).map(|number| shown(&removals, number)).collect();
        assert_eq!(all.len(), 40);
        let expected = format!("{} {{\"remove\":\"{}\"", "POST /types/sets/buckets/of-10/datatypes/3", "elem");
        assert!(shown(&removals, 23).starts_with(&expected[..expected.len() - 1]), "{}", shown(&removals, 23));
        assert!(shown(&removals, 23).ends_with(",\"context\":\"c3\"}"), "{}", shown(&removals, 23));
    }

    #[test]
    fn membership_asks_for_elements_that_were_loaded() {
        let loaded: HashSet<String> =
            (0..10).map(|element| String::from_utf8(key(LOADED, element).to_vec()).unwrap()).collect();
        let membership = group(10, 20).membership();
        for number in 0..50 {
            let text = shown(&membership, number);
            assert!(loaded.contains(text.rsplit_once('=').unwrap().1), "{text}");
        }
        assert_eq!(PRESENT_BYTES, r#"{"type":"set","present":true}"#.len() as u64);
    }

    #[test]
    fn one_slow_size_is_the_ratio() {
        let side = |rate, fault: Option<&str>| {
            let mut side = ComparisonSide::default();
            side.rates.push(rate);
            side.faults.extend(fault.map(str::to_owned));
            side
        };
        let sides = [side(100.0, None), side(80.0, None), side(30.0, None), side(90.0, None)];
        assert_eq!(slowest_to_fastest(&sides), Some(0.3));
        assert_eq!(slowest_to_fastest(&[side(100.0, None), side(90.0, Some("status 503"))]), None);
    }
}
