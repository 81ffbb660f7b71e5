//! The report of a run, in Markdown.

use crate::cells::{Cell, CellResult};
use crate::machine::MachineInfo;
use crate::targets::{BenchTarget, TargetBound};

/// The differences between the reports of two commands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportStyle {
    /// The command.
    pub(crate) command: &'static str,
    /// The format of a size.
    pub(crate) size: fn(usize) -> String,
    /// Whether there is a column of megabytes per second.
    pub(crate) shows_moved: bool,
    /// The notes about the figures.
    pub(crate) notes: &'static str,
}

/// The report of `kv`.
const KV: ReportStyle = ReportStyle { command: "kv", size, shows_moved: false, notes: KV_NOTES };

impl Default for ReportStyle {
    fn default() -> Self {
        KV
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    /// The style of the report.
    pub(crate) style: ReportStyle,
    /// The measured server: a binary or a URL.
    pub(crate) subject: String,
    /// The commit, if given.
    pub(crate) commit: Option<String>,
    /// The date, if given.
    pub(crate) date: Option<String>,
    /// The arguments after the program's name.
    pub(crate) arguments: String,
    /// The versions of other programs that were measured.
    pub(crate) versions: Vec<String>,
    /// The machine.
    pub(crate) machine: MachineInfo,
    /// The seconds of each cell.
    pub(crate) seconds: f64,
    /// Whether the run is too short for its figures to be quoted.
    pub(crate) quick: bool,
    /// The cells.
    pub(crate) cells: Vec<CellResult>,
    /// The targets.
    pub(crate) targets: Vec<BenchTarget>,
    /// Single figures: name and value.
    pub(crate) facts: Vec<(String, String)>,
}

impl BenchReport {
    /// Adds a single figure.
    pub(crate) fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push((name.into(), value.into()));
    }

    /// Whether every answer was the expected one and no connection broke.
    pub(crate) fn is_sound(&self) -> bool {
        self.cells.iter().all(CellResult::is_sound)
            && self.targets.iter().all(|target| !target.detail.contains("FAILED"))
    }

    /// The document.
    pub(crate) fn markdown(&mut self) -> String {
        self.cells.sort_by_key(|measured| measured.cell);
        let parts = [self.head(), self.target_table(), self.cell_table(), self.fact_table(), self.how_to()];
        parts.join("\n")
    }

    fn head(&self) -> String {
        let machine = &self.machine;
        let mut text = String::from("# Benchmarks\n\n");
        text += &format!("Written by `cargo xtask bench {}`; do not edit. ", self.style.command);
        text += "Generator and server share the machine below.\n\n";
        if self.quick {
            text += "**A quick run: the cells are short, the loads small. Not numbers to quote.**\n\n";
        }
        text += "| | |\n|---|---|\n";
        let mut versions = self.versions.clone();
        versions.dedup();
        let rows = [
            ("Measured", [vec![self.subject.clone()], versions].concat().join("; ")),
            ("Commit", self.commit.clone().unwrap_or_else(|| "not given".to_owned())),
            ("Date", self.date.clone().unwrap_or_else(|| "not given".to_owned())),
            ("Processor", format!("{}, {} cores", machine.processor, machine.cores)),
            ("Memory", format!("{:.1} GiB", machine.memory_bytes as f64 / f64::from(1 << 30))),
            ("Kernel", machine.kernel.clone()),
            ("Data on", machine.file_system.clone()),
        ];
        for (name, value) in rows {
            text += &format!("| {name} | {value} |\n");
        }
        text
    }

    fn target_table(&self) -> String {
        let mut text = String::from("## Targets\n\n| target | wanted | measured | |\n|---|---|---|---|\n");
        for target in &self.targets {
            let (sign, bound) = match target.wanted {
                TargetBound::AtLeast(bound) => ("≥", bound),
                TargetBound::AtMost(bound) => ("≤", bound),
            };
            let measured =
                target.measured.map_or_else(|| "not measured".to_owned(), |value| with_unit(value, target.unit));
            let verdict = match target.met() {
                Some(true) => "met",
                Some(false) => "**MISSED**",
                None if target.detail.contains("FAILED") => "**FAILED**",
                None => "–",
            };
            let wanted = with_unit(bound, target.unit);
            text += &format!("| {} | {sign} {wanted} | {measured} | {verdict} |\n", target.name);
        }
        let missed = self.targets.iter().filter(|target| target.met() == Some(false)).count();
        text += &format!("\nMissed: {missed} of {}. Where the numbers come from:\n\n", self.targets.len());
        for target in &self.targets {
            text += &format!("- {}: {}\n", target.name, target.detail);
        }
        text
    }

    fn cell_table(&self) -> String {
        let mut text = format!("## Cells\n\n{} s each after warming up, closed loop.\n\n", self.seconds);
        let (moved, rule) = if self.style.shows_moved { (" MB/s |", "--:|") } else { ("", "") };
        text += &format!("| operation | value | connections | per second |{moved} p50 | p99 | p99.9 ");
        text += &format!("| CPU s per 1000 | resident MB | |\n|---|--:|--:|--:|{rule}--:|--:|--:|--:|--:|---|\n");
        for measured in &self.cells {
            text += &cell_row(measured, self.style);
        }
        let failed = self.cells.iter().filter(|measured| !measured.is_sound()).count();
        if failed > 0 {
            text += &format!("\n**Cells that FAILED: {failed}. Their numbers mean nothing.**\n");
        }
        text
    }

    fn fact_table(&self) -> String {
        let mut text = String::from("## Single numbers\n\n| | |\n|---|---|\n");
        for (name, value) in &self.facts {
            text += &format!("| {name} | {value} |\n");
        }
        text
    }

    fn how_to(&self) -> String {
        format!(
            "{HOW_TO_HEAD}\n```console\n$ cargo xtask bench {}\n$ larder-bench {}\n```\n\n{}",
            self.style.command, self.arguments, self.style.notes
        )
    }
}

const HOW_TO_HEAD: &str = "## How to repeat it\n\nThe first line builds and measures; the second is what it ran.\n";

const KV_NOTES: &str = "\
- 1 KB is 1,024 bytes, 100 KB is 102,400. Values are random and do not compress. Keys have 16 bytes and come in no order.
- Durable is the bucket's own `dw` and is answered from the disk; buffered is `?dw=0`. Read-modify-write counts its GET
  and its durable PUT as one operation. The mix is four GETs to one durable PUT. PUT cells write new keys.
- Reads choose among 10,000 of the loaded keys, or all where there are fewer, so they are warm. A missing key has no
  size: one row.
- The rate counts operations that ended in the window with the expected status and length; any other answer fails the cell.
- Bare hyper answers the same number of bytes under the head that Larder gave. For PUTs it also has a bare group commit: one
  thread, `fjall` with one keyspace, new keys, 1,024 + 100 bytes each, one `fdatasync` per group. All sides have the same compiler,
  flags and allocator, and are measured in turns; the ratio is of medians. By CPU is the CPU time of the servers alone.
- With `--url http://HOST:PORT` the same cells run against any server of the protocol; what needs its process is left out.
";

fn cell_row(measured: &CellResult, style: ReportStyle) -> String {
    let Cell { operation, value_bytes, connections, moved_bytes } = measured.cell;
    let value = if operation.has_size { (style.size)(value_bytes) } else { "–".to_owned() };
    let rate = measured.rate();
    let moved = match (style.shows_moved, moved_bytes) {
        (false, _) => String::new(),
        (true, 0) => " – |".to_owned(),
        (true, bytes) => format!(" {} |", per_second(rate * bytes as f64 / 1e6)),
    };
    let at = |quantile: f64| latency(measured.tally.latencies_us.value_at_quantile(quantile));
    let dash = || "–".to_owned();
    let cpu = measured.server_cpu.map_or_else(dash, |cpu| format!("{:.4}", measured.per_thousand(cpu.seconds())));
    let resident = measured.resident_bytes.map_or_else(dash, |bytes| format!("{:.0}", megabytes(bytes)));
    let verdict = if measured.is_sound() { "ok".to_owned() } else { format!("**FAILED**: {}", measured.faults()) };
    format!(
        "| {} | {value} | {connections} | {} |{moved} {} | {} | {} | {cpu} | {resident} | {verdict} |\n",
        operation.name,
        per_second(rate),
        at(0.50),
        at(0.99),
        at(0.999),
    )
}

/// Millions of bytes.
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A rate or count with separated thousands.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate without decimals, or with one when it is small.
pub(crate) fn per_second(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { thousands(rate) }
}

/// A value size in bytes or KB.
pub(crate) fn size(bytes: usize) -> String {
    if bytes < 1_024 { format!("{bytes} B") } else { format!("{} KB", bytes / 1_024) }
}

/// A latency with three digits.
pub(crate) fn latency(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "MB" => format!("{value:.0} MB"),
        "µs" => format!("{value:.0} µs"),
        "results/s" => format!("{} results/s", thousands(value)),
        "" => format!("{value:.2}"),
        _ => format!("{value:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests;
