//! `larder check` and `larder repair`: a report on standard output, a progress bar on standard error.
//!
//! ```text
//! /var/lib/larder/rows/packed/tables/7: its bytes are not those that were written: entries cannot be read
//!     any keys of packed after objects /types/default/buckets/b/keys/k1 to objects /types/default/buckets/b/keys/k9
//! 12 files, 40.2 MB read: 1 damaged, 0 keys and 1 range of keys hit
//! ```

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use larder_encryption::at_rest::RowKeys;
use larder_kv_admin::progress_bar::{Progress, ProgressBar};
use larder_store::Row;
use larder_store_local::inspect::{
    Damage, InspectionSummary, InspectionWatcher, RepairOptions, RepairSummary, check, repair,
};

use crate::blob_references::blob_references;
use crate::key_ring_file;

/// Exit code: all is whole.
const EXIT_WHOLE: u8 = 0;
/// Exit code: the data is damaged.
const EXIT_DAMAGED: u8 = 1;
/// Exit code: the check or repair failed.
pub const EXIT_FAILED: u8 = 2;

/// An inspection of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectCommand {
    /// The directory.
    pub dir: PathBuf,
    /// The directory to copy readable data to; `None`: check only.
    pub into: Option<PathBuf>,
    /// Leave out a key whose newest version may be lost.
    pub leave_out_older: bool,
    /// The file of master keys, if not in the directory: sealed rows say with it which blobs they name.
    pub encryption_keys: Option<PathBuf>,
}

/// Checks or repairs a data directory, and returns the exit code.
///
/// # Errors
/// A line that says why it failed.
pub fn run(command: &InspectCommand, out: &mut dyn Write) -> Result<u8, String> {
    let task = if command.into.is_some() { "repair" } else { "check" };
    let ring = key_ring_file::read_for(command.encryption_keys.as_deref(), &command.dir);
    let ring = ring.map_err(|failure| failure.to_string())?;
    let mut report = ReportWriter::new(task, out);
    let unopened = Cell::new(0);
    let references = |rows: Vec<Row>| {
        let keys = RowKeys::from_rows(&rows, &ring);
        unopened.set(rows.len() - keys.count());
        blob_references(keys)
    };
    let (summary, lines) = match &command.into {
        None => check(&command.dir, &references, &mut report).map(|summary| (summary, checked(&summary, &command.dir))),
        Some(into) => {
            let options = RepairOptions { leave_out_older: command.leave_out_older };
            let done = repair(&command.dir, into, &references, options, &mut report);
            done.map(|done| (done.found, repaired(&done, into)))
        }
    }
    .map_err(|error| error.to_string())?;
    if unopened.get() > 0 {
        report.lines(&[format!(
            "data keys that do not open: {}; no one looked for the bodies that rows under them name: give the master keys with --encryption-keys",
            unopened.get()
        )])?;
    }
    report.lines(&lines)?;
    Ok(if summary.is_whole() { EXIT_WHOLE } else { EXIT_DAMAGED })
}

fn checked(summary: &InspectionSummary, dir: &Path) -> Vec<String> {
    let next = match summary.is_whole() {
        true => "all is whole".to_owned(),
        false => {
            format!("restore a backup, or copy what is whole: larder repair --data-dir {} --into NEW", dir.display())
        }
    };
    vec![format!("{}; {next}", summary_line(summary))]
}

fn repaired(done: &RepairSummary, into: &Path) -> Vec<String> {
    let RepairSummary { found: summary, entries, blob_files, doubtful_keys } = done;
    let mut lines = vec![summary_line(summary)];
    if *doubtful_keys > 0 {
        lines.push(format!(
            "{doubtful_keys} keys have an older version than may be lost, each listed above; --leave-out-older leaves them out"
        ));
    }
    let next = match summary.is_whole() {
        true => "all was copied".to_owned(),
        false => "what is listed above may be missing".to_owned(),
    };
    let into = into.display();
    lines.push(format!(
        "{entries} entries and {blob_files} blob files are in {into}; {next}: start a server with --data-dir {into}"
    ));
    lines
}

fn summary_line(summary: &InspectionSummary) -> String {
    let InspectionSummary { files, bytes, damaged_files, lost_keys, lost_ranges } = summary;
    format!(
        "{files} files, {bytes} bytes read: {damaged_files} damaged or missing, {lost_keys} keys and {lost_ranges} ranges of keys hit"
    )
}

/// Writes damage when it is found.
struct ReportWriter<'a> {
    task: &'static str,
    out: &'a mut dyn Write,
    bar: ProgressBar,
    began: Instant,
    percent: Option<u8>,
}

impl<'a> ReportWriter<'a> {
    #[expect(clippy::disallowed_methods, reason = "the bar shows the time of the machine")]
    fn new(task: &'static str, out: &'a mut dyn Write) -> Self {
        Self { task, out, bar: ProgressBar::new(), began: Instant::now(), percent: None }
    }

    fn lines(&mut self, lines: &[String]) -> Result<(), String> {
        self.bar.hide();
        let written = lines.iter().try_for_each(|line| writeln!(self.out, "{line}")).and_then(|()| self.out.flush());
        written.map_err(|error| format!("cannot write the report: {error}"))
    }
}

impl InspectionWatcher for ReportWriter<'_> {
    fn progress(&mut self, done: u64, total: u64) {
        let percent = u8::try_from(u128::from(done) * 100 / u128::from(total.max(1))).ok();
        if percent != self.percent {
            self.percent = percent;
            let seconds = self.began.elapsed().as_secs_f64();
            self.bar.show(&Progress { seconds, percent, text: format!("{}: {done} of {total} bytes", self.task) });
        }
    }

    fn damage(&mut self, damage: &Damage) {
        self.bar.hide();
        // A failed write shows again when the last lines are written.
        let _ = writeln!(self.out, "{}: {}", damage.file.display(), damage.what);
        for lost in &damage.lost {
            let _ = writeln!(self.out, "    {lost}");
        }
    }
}
