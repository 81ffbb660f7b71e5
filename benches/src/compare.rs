//! Compares two servers: they are measured in turns, so that noise of the machine affects both, and compared by medians.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::bare_fjall;
use crate::cells::{self, CellResult, KvOperation, KvSubject};
use crate::procfs::Cpu;

/// The connections of every comparison with a bare program.
pub(crate) const BARE_CONNECTIONS: usize = 64;

/// The value size of every comparison.
pub(crate) const BARE_VALUE_BYTES: usize = 1_024;

/// The connections that read the overwritten key and the fresh one.
const ONE_KEY_CONNECTIONS: usize = 16;

/// The approximate bytes that a stored object has besides its value.
const OBJECT_HEAD_BYTES: usize = 100;

/// The rounds of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// The number of rounds; each measures both sides once.
    pub(crate) count: u64,
    /// The length of one measurement.
    pub(crate) length: Duration,
}

/// One side of a comparison.
#[derive(Debug, Default)]
pub(crate) struct ComparisonSide {
    /// Operations per second, round by round.
    pub(crate) rates: Vec<f64>,
    /// CPU per thousand operations, round by round.
    cpu: Vec<Cpu>,
    /// CPU seconds of the generator per thousand operations, round by round.
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
    /// Our median rate divided by the baseline's; `None` when a side failed.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let sound = self.ours.faults.is_empty() && self.base.faults.is_empty();
        let (ours, base) = (median(&self.ours.rates)?, median(&self.base.rates)?);
        (sound && base > 0.0).then(|| ours / base)
    }

    /// One line for the report.
    pub(crate) fn detail(&self, base: &str) -> String {
        format!("larder {}; {base} {}", self.ours.describe(), self.base.describe())
    }
}

impl ComparisonSide {
    /// Adds one round.
    pub(crate) fn add(&mut self, measured: &CellResult) {
        self.rates.push(measured.rate());
        self.generator.push(measured.per_thousand(measured.generator_cpu.seconds()));
        if let Some(cpu) = measured.server_cpu {
            self.cpu.push(Cpu { user: measured.per_thousand(cpu.user), system: measured.per_thousand(cpu.system) });
        }
        if !measured.is_sound() {
            self.faults.push(measured.faults());
        }
    }

    fn describe(&self) -> String {
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

/// GETs of the same bytes: Larder, bare hyper, in turns.
///
/// # Errors
///
/// When a connection cannot be made.
pub(crate) async fn gets(larder: &KvSubject, bare: &KvSubject, rounds: Rounds) -> Result<Comparison> {
    in_turns(larder, bare, BARE_CONNECTIONS, rounds).await
}

/// GETs of one key each: the overwritten one, the fresh one, in turns.
///
/// # Errors
///
/// When a connection cannot be made.
pub(crate) async fn one_key(overwritten: &KvSubject, fresh: &KvSubject, rounds: Rounds) -> Result<Comparison> {
    in_turns(overwritten, fresh, ONE_KEY_CONNECTIONS, rounds).await
}

async fn in_turns(ours: &KvSubject, base: &KvSubject, connections: usize, rounds: Rounds) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    for round in 0..rounds.count {
        // The order alternates: the second side finds a warmer machine.
        for is_ours in [round % 2 == 0, round % 2 == 1] {
            let subject = if is_ours { ours } else { base };
            let side = if is_ours { &mut comparison.ours } else { &mut comparison.base };
            side.add(&cells::run(subject, KvOperation::Get, connections, rounds.length).await?);
        }
    }
    Ok(comparison)
}

/// Durable PUTs of new keys: Larder, a bare committer over `scratch`, in turns.
///
/// # Errors
///
/// When a connection cannot be made, or the bare committer fails.
pub(crate) async fn durable_puts(larder: &KvSubject, scratch: &Path, rounds: Rounds) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    for round in 0..rounds.count {
        let measured = cells::run(larder, KvOperation::PutDurable, BARE_CONNECTIONS, rounds.length).await?;
        comparison.ours.add(&measured);
        let committed = bare_fjall::run(&bare_fjall::BareFjallArgs {
            data: scratch.join("bare-fjall"),
            seconds: rounds.length.as_secs_f64(),
            writers: BARE_CONNECTIONS,
            value_bytes: BARE_VALUE_BYTES + OBJECT_HEAD_BYTES,
            round,
        })?;
        comparison.base.rates.push(committed.rate);
        comparison.base.cpu.push(committed.cpu_per_thousand);
    }
    Ok(comparison)
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

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 200.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 300.0]), Some(3.0));
    }

    #[test]
    fn a_failed_side_has_no_ratio() {
        let side = |rates: &[f64]| ComparisonSide { rates: rates.to_vec(), ..ComparisonSide::default() };
        let mut comparison = Comparison { ours: side(&[70.0, 80.0, 10.0]), base: side(&[100.0, 100.0, 90.0]) };
        assert_eq!(comparison.ratio(), Some(0.7));
        assert!(comparison.detail("bare hyper").starts_with("larder 70.00/s (10.00 to 80.00); bare hyper 100/s"));
        comparison.base.faults.push("status 500 with 0 B: 3".to_owned());
        assert_eq!(comparison.ratio(), None);
        assert!(comparison.detail("x").contains("FAILED: status 500"));
    }
}
