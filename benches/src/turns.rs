//! Compares servers side by side: they are measured in turns, so that noise of the machine affects all, and compared by
//! medians.

use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;

use crate::cells::{self, CellResult, KvOperation, KvSubject};
use crate::in_process::{self, InProcessArgs};
use crate::procfs::Cpu;

/// The connections of every comparison with a bare program.
pub(crate) const BARE_CONNECTIONS: usize = 64;

/// The value size of every comparison.
pub(crate) const BARE_VALUE_BYTES: usize = 1_024;

/// The rounds of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// The number of rounds; each measures every side once.
    pub(crate) count: u64,
    /// The length of one measurement.
    pub(crate) length: Duration,
}

/// The result of one turn of one side.
#[derive(Debug, Clone)]
pub(crate) struct TurnResult {
    /// Operations per second.
    pub(crate) rate: f64,
    /// CPU seconds of the server per thousand operations.
    pub(crate) cpu: Option<Cpu>,
    /// CPU seconds of the generator per thousand operations.
    pub(crate) generator: Option<f64>,
    /// The failures, if any.
    pub(crate) fault: Option<String>,
}

impl From<&CellResult> for TurnResult {
    fn from(measured: &CellResult) -> Self {
        let per_thousand =
            |cpu: Cpu| Cpu { user: measured.per_thousand(cpu.user), system: measured.per_thousand(cpu.system) };
        Self {
            rate: measured.rate(),
            cpu: measured.server_cpu.map(per_thousand),
            generator: Some(measured.per_thousand(measured.generator_cpu.seconds())),
            fault: (!measured.is_sound()).then(|| measured.faults()),
        }
    }
}

/// One side of a comparison: its turns.
#[derive(Debug, Default, Clone)]
pub(crate) struct ComparisonSide {
    /// Operations per second, turn by turn.
    pub(crate) rates: Vec<f64>,
    cpu: Vec<Cpu>,
    generator: Vec<f64>,
    /// The failures.
    pub(crate) faults: Vec<String>,
}

/// Both sides of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The measured server.
    pub(crate) ours: ComparisonSide,
    /// The baseline.
    pub(crate) base: ComparisonSide,
}

impl Comparison {
    /// The comparison of two sides.
    pub(crate) fn of(ours: &ComparisonSide, base: &ComparisonSide) -> Self {
        Self { ours: ours.clone(), base: base.clone() }
    }

    /// Our median rate divided by the baseline's; `None` when a side failed.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (ours, base) = (median(&self.ours.rates)?, median(&self.base.rates)?);
        (self.is_sound() && base > 0.0).then(|| ours / base)
    }

    /// The baseline's median CPU time of an operation divided by ours: above 1 when ours costs less; `None` when a side
    /// failed, or has no process of its own.
    pub(crate) fn cpu_ratio(&self) -> Option<f64> {
        let (ours, base) = (self.ours.cpu_seconds()?, self.base.cpu_seconds()?);
        (self.is_sound() && ours > 0.0).then(|| base / ours)
    }

    /// One line for the report.
    pub(crate) fn detail(&self, base: &str) -> String {
        format!("larder {}; {base} {}", self.ours.describe(), self.base.describe())
    }

    fn is_sound(&self) -> bool {
        self.ours.faults.is_empty() && self.base.faults.is_empty()
    }
}

impl ComparisonSide {
    /// Adds one turn.
    pub(crate) fn add(&mut self, turn: impl Into<TurnResult>) {
        let TurnResult { rate, cpu, generator, fault } = turn.into();
        self.rates.push(rate);
        self.cpu.extend(cpu);
        self.generator.extend(generator);
        self.faults.extend(fault);
    }

    /// The median CPU time of a thousand operations, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        median(&self.cpu.iter().map(|cpu| cpu.seconds()).collect::<Vec<_>>())
    }

    /// Its figures in a few words.
    pub(crate) fn describe(&self) -> String {
        let rate = median(&self.rates).unwrap_or(0.0);
        let lowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let mut text = format!("{}/s ({} to {})", short(rate), short(lowest), short(highest));
        let part = |of: fn(&Cpu) -> f64| median(&self.cpu.iter().map(of).collect::<Vec<_>>());
        if let Some((user, system)) = part(|cpu| cpu.user).zip(part(|cpu| cpu.system)) {
            text += &format!(", CPU {user:.4} s user + {system:.4} s kernel per 1000");
        }
        if let Some(generator) = median(&self.generator) {
            text += &format!(", generator {generator:.4} s");
        }
        for fault in &self.faults {
            text += &format!(", FAILED: {fault}");
        }
        text
    }
}

/// A turn under way.
pub(crate) type TurnFuture<'a> = Pin<Box<dyn Future<Output = Result<TurnResult>> + 'a>>;

/// A side of a comparison: it runs the turn with this number for this long.
pub(crate) type TurnRunner<'a> = Box<dyn Fn(u64, Duration) -> TurnFuture<'a> + 'a>;

/// Cells of a key-value server.
pub(crate) fn kv_turns(subject: &KvSubject, operation: KvOperation, connections: usize) -> TurnRunner<'_> {
    Box::new(move |_, length| {
        Box::pin(async move { Ok((&cells::run(subject, operation, connections, length).await?).into()) })
    })
}

/// Puts in processes of their own; each turn has its own new keys.
pub(crate) fn in_process_turns(options: &InProcessArgs) -> TurnRunner<'_> {
    Box::new(move |round, length| {
        let turn = InProcessArgs { seconds: length.as_secs_f64(), round, ..options.clone() };
        Box::pin(async move { in_process::run(&turn) })
    })
}

/// Runs every side once in each round.
///
/// # Errors
///
/// When a connection cannot be made, or a side's process fails. Wrong answers are part of the result.
pub(crate) async fn in_turns<const N: usize>(
    runners: [TurnRunner<'_>; N],
    rounds: Rounds,
) -> Result<[ComparisonSide; N]> {
    let mut sides: [ComparisonSide; N] = std::array::from_fn(|_| ComparisonSide::default());
    for round in 0..rounds.count {
        // Another side begins each round: the later ones find a warmer machine and a busier disk.
        for at in 0..N {
            let at = (at + round as usize) % N;
            sides[at].add(runners[at](round, rounds.length).await?);
        }
    }
    Ok(sides)
}

/// A rate without decimals, or with two when it is small.
fn short(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}

/// The median of `values`; the mean of the middle two when their number is even.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(rate: f64, cpu: f64) -> TurnResult {
        TurnResult { rate, cpu: Some(Cpu { user: cpu, system: 0.0 }), generator: None, fault: None }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 200.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 300.0]), Some(3.0));
    }

    #[test]
    fn a_failed_side_has_no_ratio() {
        let mut comparison = Comparison::default();
        for (ours, base) in [(70.0, 100.0), (80.0, 100.0), (10.0, 90.0)] {
            comparison.ours.add(turn(ours, 0.02));
            comparison.base.add(turn(base, 0.01));
        }
        assert_eq!((comparison.ratio(), comparison.cpu_ratio()), (Some(0.7), Some(0.5)));
        assert!(comparison.detail("bare hyper").starts_with("larder 70.00/s (10.00 to 80.00), CPU 0.0200 s"));
        comparison.base.faults.push("status 500 with 0 B: 3".to_owned());
        assert_eq!((comparison.ratio(), comparison.cpu_ratio()), (None, None));
        assert!(comparison.detail("x").contains("FAILED: status 500"));
    }

    #[tokio::test]
    async fn every_side_begins_some_rounds() {
        let order = std::cell::RefCell::new(Vec::new());
        let side = |name: u64| -> TurnRunner<'_> {
            let order = &order;
            Box::new(move |round, _| {
                order.borrow_mut().push(name);
                Box::pin(async move { Ok(turn((name * 10 + round) as f64, 1.0)) })
            })
        };
        let rounds = Rounds { count: 3, length: Duration::ZERO };
        let sides = in_turns([side(1), side(2), side(3)], rounds).await.unwrap();
        assert_eq!(sides[1].rates, [20.0, 21.0, 22.0]);
        assert_eq!(*order.borrow(), [1, 2, 3, 2, 3, 1, 3, 1, 2]);
    }
}
