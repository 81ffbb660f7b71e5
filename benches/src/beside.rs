//! Compares two builds of the server cell by cell in turns, so that a change which costs speed is seen.
//!
//! Both servers run and hold the same keys; one works while the other idles. A machine's slow minutes hit both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cells::{CONNECTIONS, KvOperation, KvSubject, VALUE_BYTES};
use crate::common_args::CommonArgs;
use crate::keys::ValuePool;
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::report::{BenchReport, size, thousands};
use crate::server::{ServerConfig, ServerProcess, log_end};
use crate::turns::{Comparison, ComparisonSide, Rounds, in_turns, kv_turns, median};

/// How often each server runs a cell.
const TURNS: u64 = 5;

/// The most keys that are loaded, and the value bytes of all.
const LOADED: (u64, u64) = (10_000, 10 * 1_024 * 1_024);

/// A cell, and its name in the report.
#[derive(Debug, Clone)]
pub(crate) struct BesideCell {
    name: String,
    protocol: KvProtocol,
    operation: KvOperation,
    value_bytes: usize,
    connections: usize,
}

/// Two builds under comparison.
pub(crate) struct BesideRun<'a> {
    /// The results.
    pub(crate) report: &'a mut BenchReport,
    /// The bytes of the writes.
    pub(crate) values: Arc<ValuePool>,
    /// The length of a turn.
    pub(crate) length: Duration,
    /// The folder of the data.
    pub(crate) scratch: PathBuf,
}

impl BesideRun<'_> {
    /// Every cell against both servers.
    ///
    /// # Errors
    ///
    /// When a server cannot be started, loaded or reached, or answers wrongly.
    pub(crate) async fn run(&mut self, options: &CommonArgs, before: &Path, cells: &[BesideCell]) -> Result<()> {
        for value_bytes in VALUE_BYTES {
            let cells: Vec<&BesideCell> = cells.iter().filter(|cell| cell.value_bytes == value_bytes).collect();
            if cells.is_empty() {
                continue;
            }
            let config = |name: &str| ServerConfig::of(options, &self.scratch, &format!("{name}-{value_bytes}"));
            let configs = [ServerConfig { binary: before.canonicalize()?, ..config("before")? }, config("after")?];
            let logs = configs.each_ref().map(|config| config.log.clone());
            let pair = self.pair(configs, value_bytes, &cells).await;
            pair.with_context(|| logs.each_ref().map(|log| log_end(log)).join("\n"))?;
        }
        Ok(())
    }

    /// One size.
    async fn pair(&mut self, configs: [ServerConfig; 2], value_bytes: usize, cells: &[&BesideCell]) -> Result<()> {
        let data = configs.each_ref().map(|config| config.data.clone());
        let [before, after] = configs;
        let servers = [ServerProcess::start(before)?, ServerProcess::start(after)?];
        let subjects = servers.each_ref().map(|server| self.subject(server, value_bytes));
        for subject in &subjects {
            load::fill(subject, subject.read_keys.1).await?;
        }
        for cell in cells {
            let [before, after] = self.turns(&servers, &subjects, cell).await?;
            let detail = detail(&before, &after);
            eprintln!("{}: {detail}", cell.name);
            self.report.fact(cell.name.clone(), detail);
        }
        for server in servers {
            server.stop()?;
        }
        Ok(data.iter().try_for_each(std::fs::remove_dir_all)?)
    }

    async fn turns(
        &self,
        servers: &[ServerProcess; 2],
        subjects: &[KvSubject; 2],
        cell: &BesideCell,
    ) -> Result<[ComparisonSide; 2]> {
        let reached = [0, 1].map(|at| match cell.protocol {
            KvProtocol::Http => subjects[at].clone(),
            KvProtocol::Framed(_) => subjects[at].at(&servers[at].pb, cell.protocol, subjects[at].pid),
        });
        let runners = reached.each_ref().map(|subject| kv_turns(subject, cell.operation, cell.connections));
        let sides = in_turns(runners, Rounds { count: TURNS, length: self.length }).await?;
        for side in &sides {
            anyhow::ensure!(side.faults.is_empty(), "{}: {}", cell.name, side.faults.join(", "));
        }
        Ok(sides)
    }

    fn subject(&self, server: &ServerProcess, value_bytes: usize) -> KvSubject {
        KvSubject {
            place: KvLocation { endpoint: server.endpoint.clone(), protocol: KvProtocol::Http, value_bytes },
            values: self.values.clone(),
            pid: Some(server.pid()),
            read_keys: (load::READ, (LOADED.1 / value_bytes as u64).clamp(100, LOADED.0)),
            new_keys: Arc::default(),
        }
    }
}

/// The cells of these operations over a protocol whose name contains a text.
pub(crate) fn cells(
    protocol: KvProtocol,
    operations: &[KvOperation],
    value_bytes: &[usize],
    text: Option<&str>,
) -> Vec<BesideCell> {
    let over = if protocol == KvProtocol::Http { "" } else { "PB " };
    let has_size = |operation: KvOperation, bytes| operation != KvOperation::MissingGet || bytes == value_bytes[0];
    let mut cells = Vec::new();
    for bytes in value_bytes.iter().copied() {
        for operation in operations.iter().copied().filter(|operation| has_size(*operation, bytes)) {
            cells.extend(CONNECTIONS.map(|connections| BesideCell {
                name: format!("{over}{}, {}, {connections} connections", operation.name(), size(bytes)),
                protocol,
                operation,
                value_bytes: bytes,
                connections,
            }));
        }
    }
    cells.retain(|cell| text.is_none_or(|text| cell.name.contains(text)));
    cells
}

/// After to before: the ratio of the medians, both, the least and the greatest ratio of one turn, and the CPU time.
fn detail(before: &ComparisonSide, after: &ComparisonSide) -> String {
    let turns = before.rates.iter().zip(&after.rates).map(|(before, after)| after / before);
    let (least, most) = turns.fold((f64::MAX, f64::MIN), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
    let ratio = Comparison::of(after, before).ratio().unwrap_or(0.0);
    let rate = |side: &ComparisonSide| thousands(median(&side.rates).unwrap_or(0.0));
    let mut text = format!("{ratio:.2} ({}/s, before {}/s; turns {least:.2} to {most:.2})", rate(after), rate(before));
    if let (Some(after), Some(before)) = (after.cpu_seconds(), before.cpu_seconds()) {
        // CPU seconds of a thousand are milliseconds of one.
        text += &format!(", CPU {:.2} ({:.1} µs, before {:.1} µs)", after / before, after * 1e3, before * 1e3);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::Cpu;
    use crate::turns::TurnResult;

    #[test]
    fn a_text_selects_cells_and_sizes() {
        let http = |text| cells(KvProtocol::Http, &KvOperation::HTTP, &VALUE_BYTES, text);
        assert_eq!(http(Some("put durable, 1 KB, 16")).len(), 1);
        assert_eq!(http(None).len(), 21 + 18 + 18, "a missing key has no size");
        let pb = cells(KvProtocol::PB, &KvOperation::PB, &[1_024], Some("PB get, pipelined"));
        assert_eq!(pb.len(), 3);
        assert_eq!(pb[2].name, "PB get, pipelined ×16, 1 KB, 64 connections");
    }

    #[test]
    fn one_slow_turn_does_not_change_the_ratio() {
        let side = |rates: [f64; 5], cpu| {
            let mut side = ComparisonSide::default();
            for rate in rates {
                let cpu = Some(Cpu { user: cpu, system: 0.0 });
                side.add(TurnResult { rate, cpu, generator: None, fault: None });
            }
            side
        };
        let before = side([100.0, 100.0, 100.0, 20.0, 100.0], 0.02);
        let after = side([50.0, 10.0, 50.0, 50.0, 50.0], 0.03);
        let expected = "0.50 (50/s, before 100/s; turns 0.10 to 2.50), CPU 1.50 (30.0 µs, before 20.0 µs)";
        assert_eq!(detail(&before, &after), expected);
    }
}
