//! `export` and `import`: everything in the store, to and from a directory of this machine.

use std::path::Path;

use larder_kv::Gateway;
use larder_kv_admin::frame::AdminAnswer;
use larder_kv_admin::progress_bar::Progress;
use larder_transfer::{
    Error, ExportOptions, Phase, SEGMENT_BYTES, StorePair, Totals, TransferProgress, export as write, import as read,
    verify,
};
use tokio::sync::Semaphore;

use super::command::{CommandCall, CommandResult, ProgressReporter, reasons};

/// The argument that asks for a comparison only.
const VERIFY: &str = "--verify";

/// One transfer at a time.
static RUNNING: Semaphore = Semaphore::const_new(1);

/// Whether an export or an import runs. Sweepers pause during it: rows they remove would fail its comparison.
pub(crate) fn is_running() -> bool {
    RUNNING.available_permits() == 0
}

pub(super) async fn export(call: CommandCall<'_>) -> CommandResult {
    run(call, "export <directory>", false).await
}

pub(super) async fn import(call: CommandCall<'_>) -> CommandResult {
    run(call, "import <directory>", true).await
}

/// Checks the arguments and takes the permit of the one transfer.
async fn run(call: CommandCall<'_>, usage: &str, into: bool) -> CommandResult {
    let only_verify = call.args.contains(&VERIFY);
    let dirs: Vec<&str> = call.args.iter().filter(|word| **word != VERIFY).copied().collect();
    let [dir] = dirs[..] else { return Err(AdminAnswer::usage(&format!("{usage} [{VERIFY}]"))) };
    let dir = call.shared_folder(dir)?;
    let Ok(_turn) = RUNNING.try_acquire() else {
        return Err(AdminAnswer::failed("another export or import is running"));
    };
    let (store, blobs) = call.gateway().stores();
    let stores = StorePair { store, blobs };
    let done = match (only_verify, into) {
        (true, _) => compare(&stores, dir, call.reporter).await,
        (false, false) => run_export(&stores, dir, &call).await,
        (false, true) => run_import(&stores, dir, &call).await,
    };
    done.map_err(|error| AdminAnswer::failed(error_text(&error)))
}

async fn run_export(stores: &StorePair, dir: &Path, call: &CommandCall<'_>) -> Result<AdminAnswer, Error> {
    let options = ExportOptions {
        dir: dir.to_owned(),
        id: new_id(call.gateway()),
        source: call.gateway().context().config.node.clone(),
        segment_bytes: SEGMENT_BYTES,
    };
    let out = write(stores, &options, |progress| report_progress(call.reporter, &progress)).await?;
    let head = format!("exported into {} as {}: {}", dir.display(), out.id, segments_text(out.segments, out.resumed));
    Ok(AdminAnswer::done(format!("{head}\n{}", out.totals.text())))
}

async fn run_import(stores: &StorePair, dir: &Path, call: &CommandCall<'_>) -> Result<AdminAnswer, Error> {
    let came = read(stores, dir, |progress| report_progress(call.reporter, &progress)).await?;
    // Race: a write after the import needs a stamp above the imported rows, or it would lose to them.
    if let Err(error) = call.gateway().adopt_imported_rows(came.totals.greatest).await {
        return Ok(AdminAnswer::failed(format!(
            "all is there, but this server has to be restarted: {}",
            reasons(&error)
        )));
    }
    let totals = verify(stores, dir, |progress| report_progress(call.reporter, &progress)).await?;
    let head = format!("imported {} from {}: {}", came.id, dir.display(), segments_text(came.segments, came.resumed));
    Ok(AdminAnswer::done(format!("{head}\n{}", verified_text(&totals))))
}

async fn compare(stores: &StorePair, dir: &Path, reporter: &ProgressReporter) -> Result<AdminAnswer, Error> {
    let totals = verify(stores, dir, |progress| report_progress(reporter, &progress)).await?;
    Ok(AdminAnswer::done(verified_text(&totals)))
}

/// 32 letters and digits that no other export has.
fn new_id(gateway: &Gateway) -> [u8; 32] {
    let mut id = [b'0'; 32];
    let key = gateway.context().new_unique_name();
    id.iter_mut().zip(key.bytes()).for_each(|(to, from)| *to = from);
    id
}

fn segments_text(segments: u32, resumed: u32) -> String {
    match resumed {
        0 => format!("{segments} segments"),
        _ => format!("{segments} segments, {resumed} of them were there before"),
    }
}

fn verified_text(totals: &Totals) -> String {
    format!("verified: counts and checksums are those of the export\n{}", totals.text())
}

fn error_text(error: &Error) -> String {
    match error {
        Error::Store { .. } | Error::File { .. } => format!("{error}\ngive the same command again to go on"),
        Error::Damaged { .. } | Error::Refused(_) => error.to_string(),
        Error::Differs(_) => format!("what is there is not what was exported:\n{error}"),
    }
}

fn report_progress(reporter: &ProgressReporter, progress: &TransferProgress) {
    reporter.report(|seconds| {
        let TransferProgress { phase, table, rows, blobs, bytes, fraction } = progress;
        let megabytes = *bytes as f64 / 1e6;
        let percent = fraction.map(|fraction| (fraction * 100.0).clamp(0.0, 100.0) as u8);
        let phase = Phase::name(*phase);
        let text = format!("{phase} {table}: {rows} rows, {blobs} large bodies, {megabytes:.1} MB");
        Progress { seconds, percent, text }
    });
}
