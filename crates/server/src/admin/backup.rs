//! `backup`: the data of the embedded engine while it serves, into a directory of this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_kv_admin::frame::AdminAnswer;
use larder_kv_admin::progress_bar::Progress;
use larder_rows::text::rfc3339;
use larder_store_local::backup::{BackupProgress, back_up};
use larder_store_local::blobs::LocalBlobs;
use tokio::time::sleep;

use super::command::{CommandCall, CommandResult};

/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The embedded engine of this server.
#[derive(Clone)]
pub(crate) struct BackupSource {
    /// Its data directory.
    pub(crate) data_dir: PathBuf,
    /// Its blobs, which wait with removals.
    pub(crate) blobs: Arc<LocalBlobs>,
}

/// Ends the backup when the command is dropped: its client is gone.
struct BackupTurn(Arc<BackupProgress>);

impl Drop for BackupTurn {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

pub(super) async fn backup(call: CommandCall<'_>) -> CommandResult {
    let folder = call.shared_folder(call.args[0])?;
    let Some(source) = call.context.backup.clone() else {
        return Err(AdminAnswer::failed(
            "a backup is of the embedded engine: a cluster has its own snapshots, and kv-admin export copies everything",
        ));
    };
    let failed = |error: &io::Error| AdminAnswer::failed(refusal(folder, error));
    let into = folder.join(name(&rfc3339(call.gateway().context().now())));
    let progress = Arc::new(BackupProgress::default());
    let turn = BackupTurn(Arc::clone(&progress));
    let (shared, target) = (Arc::clone(&progress), into.clone());
    let mut work = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(target.parent().unwrap_or(Path::new("/")))?;
        back_up(&source.data_dir, &source.blobs, &target, &shared)
    });
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            () = sleep(LOOK_EVERY) => call.reporter.report(|seconds| {
                Progress { seconds, percent: None, text: format!("backup: {}", text(&progress)) }
            }),
        }
    };
    drop(turn);
    match done {
        Ok(Ok(())) => Ok(AdminAnswer::done(format!("backed up into {}: {}", into.display(), text(&progress)))),
        Ok(Err(error)) => Err(failed(&error)),
        Err(panic) => Err(AdminAnswer::failed(format!("the backup ended in a panic: {panic}"))),
    }
}

/// The name of a backup: the time when it began, without signs that other programs read as a host.
fn name(time: &str) -> String {
    let (seconds, _) = time.split_once('.').unwrap_or((time, ""));
    seconds.replace(':', "-") + "Z"
}

fn text(progress: &BackupProgress) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let [files, bytes, copied] =
        [&progress.files, &progress.bytes, &progress.copied].map(|count| count.load(Ordering::Relaxed));
    format!("{files} files, {:.1} MB, {:.1} MB of them copied", megabytes(bytes), megabytes(copied))
}

fn refusal(folder: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ResourceBusy => "another backup is running".to_owned(),
        io::ErrorKind::Interrupted => "the backup was cancelled: nothing of it is left".to_owned(),
        _ => format!("no backup into {}: {error}; nothing of it is left", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_has_the_name_of_its_time() {
        assert_eq!(name("2026-11-28T18:40:02.123456Z"), "2026-11-28T18-40-02Z");
    }
}
