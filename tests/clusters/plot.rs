//! Latency over time, as an SVG.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::clusters::load::{LoadOperation, LoadSample};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 520.0;
/// Room for the axes: left and bottom.
const MARGIN: f64 = 60.0;
/// The lowest and the highest latency of the axis, as powers of ten of a microsecond: 100 µs to 100 s.
const DECADES: (f64, f64) = (2.0, 8.0);

/// The operations that are drawn, their labels and their colours.
const LINES: [(LoadOperation, &str, &str); 5] = [
    (LoadOperation::Read, "KV read", "#1f77b4"),
    (LoadOperation::Write, "KV write", "#2ca02c"),
    (LoadOperation::Heavy, "KV large write", "#8c564b"),
    (LoadOperation::S3Read, "S3 get", "#9467bd"),
    (LoadOperation::S3Write, "S3 put", "#ff7f0e"),
];

/// The time of a fault or a repair, and its name.
pub(crate) type PlotEvent = (Duration, String);

/// Draws the median (thick) and the 99th percentile (thin) of each second, failures as red dots, events as lines, and writes
/// the picture into the folder `LARDER_PLOTS`, if it is set.
pub(crate) fn write(name: &str, samples: &[LoadSample], events: &[PlotEvent]) {
    let Some(dir) = std::env::var_os("LARDER_PLOTS").map(PathBuf::from) else { return };
    let path = dir.join(format!("{name}.svg"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(&path, draw(samples, events)).unwrap();
    eprintln!("latency over time: {}", path.display());
}

/// The SVG.
pub(crate) fn draw(samples: &[LoadSample], events: &[PlotEvent]) -> String {
    let end = samples.iter().map(|sample| sample.at + sample.took).max().unwrap_or_default().as_secs_f64().max(1.0);
    let x = |at: f64| MARGIN + at / end * (WIDTH - MARGIN - 10.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    axes(&mut svg, end, x);
    for (index, (at, what)) in events.iter().enumerate() {
        let (at, low) = (x(at.as_secs_f64()), 20.0 + 14.0 * (index % 6) as f64);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} 10V{:.1}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/><text x=\"{:.1}\" y=\"{low}\">{what}</text>",
            HEIGHT - MARGIN,
            at + 3.0
        );
    }
    for (index, (operation, called, colour)) in LINES.into_iter().enumerate() {
        let seconds = by_second(samples, operation);
        for (quantile, width) in [(0.5, 2.0), (0.99, 0.7)] {
            let points = seconds.iter().map(|(second, took)| (x(*second as f64 + 0.5), y(quantile_of(took, quantile))));
            let path: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
                path.join(" ")
            );
        }
        let at = MARGIN + 130.0 * index as f64;
        let _ = writeln!(svg, "<text x=\"{at}\" y=\"{}\" fill=\"{colour}\">{called}</text>", HEIGHT - 8.0);
    }
    // A dot for each place: thousands of failures would make the picture a megabyte.
    let on_grid = |at: f64| (at / 3.0).round() as i64 * 3;
    let place = |failed: &LoadSample| (on_grid(x(failed.at.as_secs_f64())), on_grid(y(failed.took)));
    let failed = samples.iter().filter(|sample| sample.failed.is_some());
    for (x, y) in failed.map(place).collect::<BTreeSet<_>>() {
        let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2\" fill=\"red\"/>");
    }
    svg + "</svg>\n"
}

fn axes(svg: &mut String, end: f64, x: impl Fn(f64) -> f64) {
    for decade in DECADES.0 as u64..=DECADES.1 as u64 {
        let took = Duration::from_micros(10_u64.pow(decade as u32));
        let at = y(took);
        let _ = writeln!(
            svg,
            "<path d=\"M{MARGIN} {at:.1}H{WIDTH}\" stroke=\"#ddd\"/><text x=\"4\" y=\"{at:.1}\">{took:?}</text>"
        );
    }
    let step = [5.0, 10.0, 30.0, 60.0, 300.0, 1800.0].into_iter().find(|step| end / step < 20.0).unwrap_or(3600.0);
    let mut at = 0.0;
    while at <= end {
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{at} s</text>", x(at), HEIGHT - MARGIN + 20.0);
        at += step;
    }
}

fn y(took: Duration) -> f64 {
    let power = (took.as_micros().max(1) as f64).log10().clamp(DECADES.0, DECADES.1);
    HEIGHT - MARGIN - (power - DECADES.0) / (DECADES.1 - DECADES.0) * (HEIGHT - MARGIN - 10.0)
}

/// The latencies of successful requests, by the second in which they began.
fn by_second(samples: &[LoadSample], operation: LoadOperation) -> BTreeMap<u64, Vec<Duration>> {
    let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.operation == operation && sample.failed.is_none()) {
        seconds.entry(sample.at.as_secs()).or_default().push(sample.took);
    }
    seconds.values_mut().for_each(|took| took.sort_unstable());
    seconds
}

/// A quantile of sorted times, of which there is at least one.
pub(crate) fn quantile_of(sorted: &[Duration], quantile: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * quantile) as usize]
}
