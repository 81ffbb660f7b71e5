//! Tests of the report's text.

use std::time::Instant;

use super::*;
use crate::cells::KvOperation;
use crate::procfs::Cpu;
use crate::targets;
use crate::worker::CellTally;

/// A cell of two seconds with these latencies.
fn measured(operation: KvOperation, latencies_us: &[u64]) -> CellResult {
    let mut tally = CellTally::new(Instant::now()).unwrap();
    for latency in latencies_us {
        tally.latencies_us.record(*latency).unwrap();
    }
    CellResult {
        cell: Cell { operation: operation.label(), value_bytes: 1_024, connections: 16, moved_bytes: 1_024 },
        seconds: 2.0,
        tally,
        server_cpu: Some(Cpu { user: 0.25, system: 0.25 }),
        generator_cpu: Cpu::default(),
        resident_bytes: Some(42_000_000),
    }
}

#[test]
fn latencies_keep_three_digits() {
    for (micros, text) in [
        (7, "7 µs"),
        (999, "999 µs"),
        (1_234, "1.23 ms"),
        (12_345, "12.3 ms"),
        (123_456, "123 ms"),
        (1_234_567, "1.23 s"),
    ] {
        assert_eq!(latency(micros), text);
    }
}

#[test]
fn thousands_stand_apart() {
    for (number, text) in [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
        assert_eq!(thousands(number), text);
    }
}

#[test]
fn a_row_has_rate_percentiles_and_costs() {
    let row = cell_row(&measured(KvOperation::Get, &[100; 1_000]), KV);
    assert_eq!(row, "| get | 1 KB | 16 | 500 | 100 µs | 100 µs | 100 µs | 0.5000 | 42 | ok |\n");
}

#[test]
fn bytes_moved_have_a_column_in_the_s3_report() {
    let style = ReportStyle { shows_moved: true, ..KV };
    let row = cell_row(&measured(KvOperation::Get, &[100; 1_000]), style);
    assert_eq!(row, "| get | 1 KB | 16 | 500 | 0.5 | 100 µs | 100 µs | 100 µs | 0.5000 | 42 | ok |\n");
    let text = BenchReport { style, ..BenchReport::default() }.markdown();
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("| operation")).take(2).collect();
    assert_eq!(table[0].matches('|').count(), row.matches('|').count());
    assert_eq!(table[1].matches('|').count(), row.matches('|').count());
}

#[test]
fn percentiles_count_from_the_fast_end() {
    let mut latencies = vec![100; 9_980];
    latencies.extend([500; 15]);
    latencies.extend([9_000; 5]);
    let row = cell_row(&measured(KvOperation::Get, &latencies), KV);
    assert!(row.contains("| 100 µs | 100 µs | 500 µs |"), "{row}");
}

#[test]
fn a_cell_with_wrong_answers_fails_in_its_row_and_in_the_total() {
    let mut failed = measured(KvOperation::Mix, &[100]);
    failed.tally.unexpected.insert("status 503 with 9 B".to_owned(), 3);
    let mut report = BenchReport { cells: vec![failed], ..BenchReport::default() };
    assert!(!report.is_sound());
    let text = report.markdown();
    assert!(text.contains("**FAILED**: status 503 with 9 B (3 times)"), "{text}");
    assert!(text.contains("**Cells that FAILED: 1."), "{text}");
}

#[test]
fn a_cell_without_answers_is_not_sound() {
    assert!(!measured(KvOperation::Get, &[]).is_sound());
}

#[test]
fn missed_targets_are_named_and_counted() {
    let mut report = BenchReport::default();
    report.targets.push(BenchTarget::new(targets::GET, Some(0.5), "half"));
    report.targets.push(BenchTarget::new(targets::IDLE, Some(30.2), "fresh"));
    report.targets.push(BenchTarget::new(targets::PUT, None, "no process"));
    let text = report.markdown();
    assert!(text.contains("to bare hyper | ≥ 0.80 | 0.50 | **MISSED** |"), "{text}");
    assert!(text.contains("| idle memory | ≤ 60 MB | 30 MB | met |"), "{text}");
    assert!(text.contains("| not measured | – |"), "{text}");
    assert!(text.contains("Missed: 1 of 3."), "{text}");
    assert!(report.is_sound(), "a missed target is no failure");
}

#[test]
fn cells_are_sorted_by_operation() {
    let mut report = BenchReport {
        cells: vec![
            measured(KvOperation::Mix, &[1]),
            measured(KvOperation::MissingGet, &[1]),
            measured(KvOperation::Get, &[1]),
        ],
        ..BenchReport::default()
    };
    let text = report.markdown();
    let place = |name: &str| text.find(name).unwrap();
    assert!(place("| get |") < place("| missing get | – |"));
    assert!(place("| missing get |") < place("| 80/20 mix |"));
}
