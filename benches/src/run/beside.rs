//! Compares two builds of the server cell by cell in turns, so that a change which costs speed is seen.
//!
//! Both servers run and hold the same keys; one works while the other idles. A machine's slow minutes hit both.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::KvRun;
use crate::cells::{self, CONNECTIONS, KvOperation, KvSubject, VALUE_BYTES};
use crate::common_args::CommonArgs;
use crate::report::{size, thousands};
use crate::server::{ServerConfig, ServerProcess, log_end};

/// How often each server runs a cell.
const TURNS: usize = 5;

/// A cell of one size: its name, operation and connections.
type NamedCell = (String, KvOperation, usize);

/// The rates of one cell: the server before, and the one after.
type Rates = [Vec<f64>; 2];

impl KvRun {
    /// Every cell against both servers.
    ///
    /// # Errors
    ///
    /// When a server cannot be started, loaded or reached.
    pub(super) async fn beside(&mut self, options: &CommonArgs, before: &Path) -> Result<()> {
        for value_bytes in VALUE_BYTES {
            let cells = cells_of(value_bytes, options.cell.as_deref());
            if cells.is_empty() {
                continue;
            }
            let after = self.config(options, value_bytes)?;
            let before = ServerConfig {
                binary: before.canonicalize()?,
                data: self.scratch.join(format!("before-{value_bytes}")),
                log: self.scratch.join(format!("before-log-{value_bytes}")),
                ..after.clone()
            };
            let logs = [before.log.clone(), after.log.clone()];
            let pair = self.pair([before, after], value_bytes, cells).await;
            pair.with_context(|| logs.each_ref().map(|log| log_end(log)).join("\n"))?;
        }
        Ok(())
    }

    /// One size.
    async fn pair(&mut self, configs: [ServerConfig; 2], value_bytes: usize, cells: Vec<NamedCell>) -> Result<()> {
        let data = configs.each_ref().map(|config| config.data.clone());
        let [before, after] = configs;
        let servers = [ServerProcess::start(before)?, ServerProcess::start(after)?];
        let subjects = servers.each_ref().map(|server| self.subject(&server.endpoint, Some(server.pid()), value_bytes));
        for subject in &subjects {
            self.load(subject).await?;
        }
        for (name, operation, connections) in cells {
            let detail = detail(&self.turns(&subjects, operation, connections).await?);
            eprintln!("{name}: {detail}");
            self.report.fact(name, detail);
        }
        for server in servers {
            server.stop()?;
        }
        Ok(data.iter().try_for_each(std::fs::remove_dir_all)?)
    }

    async fn turns(&mut self, subjects: &[KvSubject; 2], operation: KvOperation, connections: usize) -> Result<Rates> {
        let mut rates = Rates::default();
        for turn in 0..TURNS {
            // The one that runs second finds the disk busy with the writes of the first.
            for at in [turn % 2, (turn + 1) % 2] {
                let measured = cells::run(&subjects[at], operation, connections, self.plan.length).await?;
                anyhow::ensure!(measured.is_sound(), "{}: {}", operation.name(), measured.faults());
                rates[at].push(measured.rate());
            }
        }
        Ok(rates)
    }
}

/// The cells of one size whose name contains a text.
fn cells_of(value_bytes: usize, text: Option<&str>) -> Vec<NamedCell> {
    let has_size = |operation: &KvOperation| *operation != KvOperation::MissingGet || value_bytes == VALUE_BYTES[0];
    let operations = KvOperation::ALL.into_iter().filter(has_size);
    let cells = operations.flat_map(|operation| CONNECTIONS.map(|connections| (operation, connections)));
    let named = cells.map(|(operation, connections)| {
        (format!("{}, {}, {connections} connections", operation.name(), size(value_bytes)), operation, connections)
    });
    named.filter(|(name, ..)| text.is_none_or(|text| name.contains(text))).collect()
}

/// After to before: the ratio of the medians, both, and the least and the greatest ratio of one turn.
fn detail(rates: &Rates) -> String {
    let [before, after] = rates.each_ref().map(|rates| median(rates));
    let turns = rates[0].iter().zip(&rates[1]).map(|(before, after)| after / before);
    let (least, most) = turns.fold((f64::MAX, f64::MIN), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
    let ratio = after / before;
    let (before, after) = (thousands(before), thousands(after));
    format!("{ratio:.2} ({after}/s, before {before}/s; turns {least:.2} to {most:.2})")
}

fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_selects_cells_and_sizes() {
        assert_eq!(cells_of(1_024, Some("put durable, 1 KB, 16")).len(), 1);
        assert!(cells_of(100, Some("put durable, 1 KB")).is_empty());
        assert_eq!(cells_of(100, None).len(), 18);
        assert_eq!(cells_of(1_024, None).len(), 15, "a missing key has no size");
    }

    #[test]
    fn one_slow_turn_does_not_change_the_ratio() {
        let rates = [vec![100.0, 100.0, 100.0, 20.0, 100.0], vec![50.0, 10.0, 50.0, 50.0, 50.0]];
        assert_eq!(detail(&rates), "0.50 (50/s, before 100/s; turns 0.10 to 2.50)");
    }
}
