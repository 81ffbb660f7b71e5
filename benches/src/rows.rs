//! Rows of the table of targets that several commands measure: HTTP beside a bare edge.

use std::path::Path;

use anyhow::{Result, bail};

use crate::bare_http::BareHttp;
use crate::cells::{KvOperation, KvSubject};
use crate::driver::KvDriver;
use crate::keys::key;
use crate::kv_location::KvProtocol;
use crate::load;
use crate::report::BenchReport;
use crate::targets::{self, BenchTarget, TargetPromise};
use crate::turns::{BARE_CONNECTIONS, Comparison, ComparisonSide, Rounds, in_turns, kv_turns};

impl BenchReport {
    /// Adds the target of a comparison by rate; its detail has the ratio by CPU time, too.
    pub(crate) fn rate_target(&mut self, promise: TargetPromise, comparison: &Comparison, base: &str) {
        let detail = format!("{} by server CPU: {}", shown(comparison.cpu_ratio()), comparison.detail(base));
        self.targets.push(BenchTarget::new(promise, comparison.ratio(), detail));
    }

    /// Adds the target of a comparison by CPU time.
    pub(crate) fn cpu_target(&mut self, promise: TargetPromise, comparison: &Comparison, base: &str) {
        // CPU seconds of a thousand are milliseconds of one.
        let each = |side: &ComparisonSide| match side.cpu_seconds() {
            Some(millis) if millis >= 1.0 => format!("{millis:.1} ms"),
            Some(millis) => format!("{:.2} µs", millis * 1e3),
            None => "–".to_owned(),
        };
        let detail = format!("larder {} each; {base} {}", each(&comparison.ours), each(&comparison.base));
        self.targets.push(BenchTarget::new(promise, comparison.cpu_ratio(), detail));
    }

    /// Adds a comparison without a target, by rate and by CPU time.
    pub(crate) fn comparison(&mut self, name: impl Into<String>, comparison: &Comparison, base: &str) {
        let (rate, cpu) = (shown(comparison.ratio()), shown(comparison.cpu_ratio()));
        self.fact(name, format!("{rate} by rate, {cpu} by CPU: {}", comparison.detail(base)));
    }
}

/// GETs over HTTP beside bare hyper with the same head and as many bytes.
///
/// # Errors
///
/// When a connection cannot be made, or the bare server does not start.
pub(crate) async fn http_gets(report: &mut BenchReport, subject: &KvSubject, rounds: Rounds) -> Result<()> {
    eprintln!("comparing GET over HTTP with bare hyper");
    let head = head(subject).await?;
    let bare_server = BareHttp::start(&head, None)?;
    let bare = subject.at(&bare_server.endpoint, KvProtocol::Http, Some(bare_server.pid()));
    let get = |subject| kv_turns(subject, KvOperation::Get, BARE_CONNECTIONS);
    let [ours, base] = in_turns([get(subject), get(&bare)], rounds).await?;
    let gets = Comparison::of(&ours, &base);
    report.rate_target(targets::GET, &gets, &format!("bare hyper (a head of about {} B as well)", head.len()));
    Ok(())
}

/// Durable PUTs over HTTP, of new keys and of existing ones, beside bare hyper with a bare group commit in one process.
///
/// # Errors
///
/// As [`http_gets`].
pub(crate) async fn http_puts(
    report: &mut BenchReport,
    subject: &KvSubject,
    scratch: &Path,
    rounds: Rounds,
) -> Result<()> {
    eprintln!("comparing durable PUT over HTTP with bare hyper and a bare group commit");
    let data = scratch.join("bare-http");
    let bare_server = BareHttp::start(&head(subject).await?, Some(&data))?;
    let bare = subject.at(&bare_server.endpoint, KvProtocol::Http, Some(bare_server.pid()));
    let put = |subject, operation| kv_turns(subject, operation, BARE_CONNECTIONS);
    let sides = [
        put(subject, KvOperation::PutDurable),
        put(&bare, KvOperation::PutDurable),
        put(subject, KvOperation::PutExisting),
    ];
    let [fresh, base, existing] = in_turns(sides, rounds).await?;
    report.rate_target(targets::PUT, &Comparison::of(&fresh, &base), "bare hyper + group commit");
    report.comparison(
        "durable PUT over HTTP, existing key to a new one",
        &Comparison::of(&existing, &fresh),
        "new key",
    );
    drop(bare_server);
    Ok(std::fs::remove_dir_all(data)?)
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// The head of the server's answer to a GET.
async fn head(subject: &KvSubject) -> Result<Vec<u8>> {
    match KvDriver::connect(&subject.place, subject.values.clone(), 0).await? {
        KvDriver::Http(mut driver) => Ok(driver.get_head(&key(load::READ, 0)).await?.1),
        KvDriver::Framed(_) => bail!("answers of frames have no head"),
    }
}
