//! `export` and `import`: everything there is, into a directory of this machine and out of it.

use std::path::Path;

use larder_gateway::Gateway;
use larder_transfer::{Ends, Error, ExportOptions, Progress, SEGMENT_BYTES, Totals, export as write, import as read};
use larder_transfer::{Phase, verify};
use tokio::sync::Semaphore;

use super::Answer;
use super::answer::reasons;
use super::progress::{Report, Reporter};
use super::table::Call;

/// The word that asks for a comparison alone.
const VERIFY: &str = "--verify";

/// One at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// Whether an export or an import is running: sweepers wait meanwhile, what they remove would be missed.
pub(crate) fn is_running() -> bool {
    TURN.available_permits() == 0
}

pub(super) async fn export(call: Call<'_>) -> Answer {
    begin(call, "export <directory>", false).await
}

pub(super) async fn import(call: Call<'_>) -> Answer {
    begin(call, "import <directory>", true).await
}

/// Looks at the words and takes the turn.
async fn begin(call: Call<'_>, usage: &str, into: bool) -> Answer {
    let only_verify = call.args.contains(&VERIFY);
    let dirs: Vec<&str> = call.args.iter().filter(|word| **word != VERIFY).copied().collect();
    let [dir] = dirs[..] else { return Answer::usage(&format!("{usage} [{VERIFY}]")) };
    let dir = Path::new(dir);
    if !dir.is_absolute() {
        return Answer::failed("give the whole path of the directory: it is one of the server's machine");
    }
    let Ok(_turn) = TURN.try_acquire() else { return Answer::failed("another export or import is running") };
    let (store, blobs) = call.gateway.stores();
    let ends = Ends { store, blobs };
    let done = match (only_verify, into) {
        (true, _) => compare(&ends, dir, call.reporter).await,
        (false, false) => take(&ends, dir, &call).await,
        (false, true) => bring(&ends, dir, &call).await,
    };
    done.unwrap_or_else(|error| Answer::failed(told(&error)))
}

async fn take(ends: &Ends, dir: &Path, call: &Call<'_>) -> Result<Answer, Error> {
    let options = ExportOptions {
        dir: dir.to_owned(),
        id: new_id(call.gateway),
        source: call.gateway.config().node.clone(),
        segment_bytes: SEGMENT_BYTES,
    };
    let out = write(ends, &options, |progress| report(call.reporter, &progress)).await?;
    let head = format!("exported into {} as {}: {}", dir.display(), out.id, parts(out.segments, out.resumed));
    Ok(Answer::done(format!("{head}\n{}", out.totals.text())))
}

async fn bring(ends: &Ends, dir: &Path, call: &Call<'_>) -> Result<Answer, Error> {
    let came = read(ends, dir, |progress| report(call.reporter, &progress)).await?;
    if let Err(error) = call.gateway.adopt(came.totals.greatest).await {
        return Ok(Answer::failed(format!("all is there, but this server has to be restarted: {}", reasons(&error))));
    }
    let found = verify(ends, dir, |progress| report(call.reporter, &progress)).await?;
    let head = format!("imported {} from {}: {}", came.id, dir.display(), parts(came.segments, came.resumed));
    Ok(Answer::done(format!("{head}\n{}", same(&found))))
}

async fn compare(ends: &Ends, dir: &Path, reporter: &Reporter) -> Result<Answer, Error> {
    let found = verify(ends, dir, |progress| report(reporter, &progress)).await?;
    Ok(Answer::done(same(&found)))
}

/// 32 letters and digits that no other export has.
fn new_id(gateway: &Gateway) -> [u8; 32] {
    let mut id = [b'0'; 32];
    let key = gateway.new_key();
    id.iter_mut().zip(key.bytes()).for_each(|(to, from)| *to = from);
    id
}

fn parts(segments: u32, resumed: u32) -> String {
    match resumed {
        0 => format!("{segments} segments"),
        _ => format!("{segments} segments, {resumed} of them were there before"),
    }
}

fn same(found: &Totals) -> String {
    format!("verified: counts and checksums are those of the export\n{}", found.text())
}

fn told(error: &Error) -> String {
    match error {
        Error::Store { .. } | Error::File { .. } => format!("{error}\ngive the same command again to go on"),
        Error::Damaged { .. } | Error::Refused(_) => error.to_string(),
        Error::Differs(_) => format!("what is there is not what was exported:\n{error}"),
    }
}

fn report(reporter: &Reporter, progress: &Progress) {
    reporter.tell(|seconds| {
        let Progress { phase, table, rows, blobs, bytes, fraction } = progress;
        let megabytes = *bytes as f64 / 1e6;
        let percent = fraction.map(|fraction| (fraction * 100.0).clamp(0.0, 100.0) as u8);
        let phase = Phase::name(*phase);
        let text = format!("{phase} {table}: {rows} rows, {blobs} large bodies, {megabytes:.1} MB");
        Report { seconds, percent, text }
    });
}
