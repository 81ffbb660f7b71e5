//! Puts with a precommit hook beside puts without: the added time of one.

use anyhow::{Result, ensure};

use super::objects::{OBJECT_BYTES, add_object};
use super::operation::QueryBenchOperation;
use super::run::QueryBenchRun;
use crate::cells::CellResult;
use crate::endpoint::Endpoint;
use crate::keys::key;
use crate::numbered_work::{self, CONNECTIONS, NumberedWork, ValueServer};
use crate::targets::{self, BenchTarget};
use crate::turns::ComparisonSide;
use crate::value_requests::ValueDriver;

/// The buckets and their precommit hooks.
const BUCKETS: [(&str, &str); 4] = [
    ("none", "[]"),
    ("native", r#"[{"mod":"larder","fun":"max_size","arg":{"bytes":100}}]"#),
    ("script", r#"["Bench.pass"]"#),
    ("refuse", r#"["Bench.refuse"]"#),
];

impl QueryBenchRun {
    /// Sets the hooks, sees that they run, and measures puts in turns.
    ///
    /// # Errors
    ///
    /// When the server refuses a hook, or does not run it.
    pub(super) async fn hooks(&mut self, server: &ValueServer) -> Result<()> {
        set_hooks(&server.endpoint).await?;
        let works = [
            hooked_puts(QueryBenchOperation::HookNone, "none", 1),
            hooked_puts(QueryBenchOperation::HookNative, "native", 1),
            hooked_puts(QueryBenchOperation::HookScript, "script", 1),
            hooked_puts(QueryBenchOperation::HookNone, "none", CONNECTIONS),
            hooked_puts(QueryBenchOperation::HookNative, "native", CONNECTIONS),
            hooked_puts(QueryBenchOperation::HookScript, "script", CONNECTIONS),
        ];
        let [none, native, script, ..] =
            numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
        let detail = self.added_detail(QueryBenchOperation::HookNative, &native, &none);
        let added = self.added(QueryBenchOperation::HookNative, 0.5);
        let shown = added.map_or_else(|| "–".to_owned(), |added| format!("{added:.0} µs"));
        self.report
            .fact("time that the native hook max_size adds to a put, 1 connection", format!("{shown}; {detail}"));
        let detail = self.added_detail(QueryBenchOperation::HookScript, &script, &none);
        let added = self.added(QueryBenchOperation::HookScript, 0.5);
        self.report.targets.push(BenchTarget::new(targets::HOOK_SCRIPT, added, detail));
        Ok(())
    }

    fn added_detail(&self, with: QueryBenchOperation, side: &ComparisonSide, none: &ComparisonSide) -> String {
        let p90 = self.added(with, 0.9).map_or_else(|| "–".to_owned(), |added| format!("{added:.0} µs"));
        format!("difference of medians, of p90 {p90}; with the hook {}; without {}", side.describe(), none.describe())
    }

    /// The difference of a quantile of the latencies with a hook and without, at one connection; `None` when a cell failed.
    fn added(&self, with: QueryBenchOperation, quantile: f64) -> Option<f64> {
        let at = |operation: QueryBenchOperation| {
            let is_cell =
                |each: &&CellResult| each.cell.operation.name == operation.name() && each.cell.connections == 1;
            let measured = self.report.cells.iter().find(is_cell).filter(|measured| measured.is_sound())?;
            Some(measured.tally.latencies_us.value_at_quantile(quantile) as f64)
        };
        Some(at(with)? - at(QueryBenchOperation::HookNone)?)
    }
}

/// Sets the hooks of each bucket and checks that both kinds refuse a put.
async fn set_hooks(endpoint: &Endpoint) -> Result<()> {
    let mut driver = ValueDriver::connect(endpoint).await?;
    for (name, hooks) in BUCKETS {
        driver.request.put(format_args!("/buckets/hook-{name}/props"));
        driver.request.add(&[b"{\"props\":{\"precommit\":", hooks.as_bytes(), b"}}"]);
        driver.send_checked(204).await?;
    }
    for (name, bytes) in [("native", OBJECT_BYTES + 1), ("refuse", OBJECT_BYTES)] {
        driver.request.put(format_args!("/buckets/hook-{name}/keys/refused"));
        driver.request.add(&[&vec![b'7'; bytes]]);
        let status = driver.send().await?.status;
        ensure!(status == 403, "a put that the hook of `{name}` has to refuse was answered by status {status}");
    }
    Ok(())
}

/// Puts of new keys with `dw=0`.
fn hooked_puts(operation: QueryBenchOperation, bucket: &'static str, connections: usize) -> NumberedWork {
    // Each number of connections has keys of its own.
    let kind = if connections == 1 { "single" } else { "many" };
    let work = NumberedWork::new(operation, OBJECT_BYTES, move |number, request| {
        request.put(format_args!("/buckets/hook-{bucket}/keys/"));
        request.add_to_target(&key(kind, number));
        request.add_to_target(b"?dw=0");
        add_object(number, request);
    });
    NumberedWork { connections, ..work }
}
