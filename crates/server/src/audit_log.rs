//! The audit log: lines of JSON in a file, or on standard error.
//!
//! ```text
//! {"time":"2026-01-01T00:00:00.000Z","face":"s3","who":"KEY","from":"203.0.113.9","action":"PutBucketPolicy",
//!  "target":"/bucket","outcome":"done","status":204,"request":"…"}      one line
//! {"time":"…","lost":3}                                               lines that could not be written since the last one
//! ```
//! A thread of its own writes them: a slow or full disk delays no request. Lines that find its queue full, or the disk, are counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use larder_core::{AuditEvent, AuditSink};
use larder_rows::text::beginning;
use larder_store::Clock;
use serde_json::json;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::failure::ServerFailure;
use crate::settings::AuditTarget;

/// Most lines that wait to be written.
const LINES_MAX: usize = 4096;
/// Longest field that a client fills, in bytes: with [`LINES_MAX`] it bounds the memory of the queue.
const FIELD_BYTES_MAX: usize = 256;

/// The audit log of this server.
pub(crate) struct AuditLog {
    clock: Arc<dyn Clock>,
    writer: NonBlocking,
    lost: Arc<LostLines>,
}

/// Lines that were not written.
#[derive(Debug, Default)]
struct LostLines {
    /// Of a full queue.
    queue: OnceLock<ErrorCounter>,
    /// Of a disk that took none.
    disk: AtomicU64,
}

impl LostLines {
    fn count(&self) -> u64 {
        let queue = self.queue.get().map_or(0, ErrorCounter::dropped_lines);
        self.disk.load(Ordering::Relaxed).saturating_add(queue as u64)
    }
}

impl AuditLog {
    /// Opens the log. The drop of the guard writes the waiting lines.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(target: &AuditTarget, clock: Arc<dyn Clock>) -> Result<(Self, WorkerGuard), ServerFailure> {
        let lost = Arc::new(LostLines::default());
        let place = match target {
            AuditTarget::StandardError => AuditPlace::StandardError(io::stderr()),
            AuditTarget::File(path) => {
                let file = open_file(path)
                    .map_err(|error| ServerFailure(format!("cannot open the audit log {}: {error}", path.display())))?;
                AuditPlace::File { path: path.clone(), file, is_cut: false }
            }
        };
        let sink = AuditWriter { place, clock: clock.clone(), lost: lost.clone(), reported: 0 };
        // A lossy queue: a disk that hangs must not stop requests.
        let builder =
            NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).thread_name("larder-audit");
        let (writer, guard) = builder.finish(sink);
        let _ = lost.queue.set(writer.error_counter());
        Ok((Self { clock, writer, lost }, guard))
    }
}

impl AuditSink for AuditLog {
    fn record(&self, event: &AuditEvent<'_>) {
        let line = json!({
            "time": entry_time(&*self.clock),
            "face": event.face,
            "who": event.who.map(cut),
            "from": event.from.map(|from| from.to_string()),
            "action": cut(event.action),
            "target": cut(event.target),
            "outcome": event.outcome.word(),
            "status": event.status,
            "request": event.request.map(cut),
        });
        // The queue counts what it cannot take.
        let _ = self.writer.clone().write_all(format!("{line}\n").as_bytes());
    }

    fn lost(&self) -> u64 {
        self.lost.count()
    }
}

fn entry_time(clock: &dyn Clock) -> String {
    larder_s3_rules::dates::iso(clock.now())
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    beginning(text, FIELD_BYTES_MAX)
}

/// The place of the lines.
enum AuditPlace {
    StandardError(io::Stderr),
    /// A file that may be moved away at any time; `is_cut`: its last line has no end.
    File {
        path: PathBuf,
        file: File,
        is_cut: bool,
    },
}

/// The writer of the thread: each write is one line.
struct AuditWriter {
    place: AuditPlace,
    clock: Arc<dyn Clock>,
    lost: Arc<LostLines>,
    /// Lost lines that the log tells of.
    reported: u64,
}

impl Write for AuditWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lost = self.lost.count();
        if lost > self.reported {
            let note = format!("{}\n", json!({ "time": entry_time(&*self.clock), "lost": lost - self.reported }));
            if self.place.write_line(note.as_bytes()).is_ok() {
                self.reported = lost;
            }
        }
        if let Err(error) = self.place.write_line(line)
            && self.lost.disk.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::error!(%error, "audit line not written: it is lost, and later ones may be; larder_audit_lost_total counts");
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AuditPlace {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::StandardError(out) => out.write_all(line),
            Self::File { path, file, is_cut } => {
                // A rotation moves the file away: lines go to the file of the name.
                if !is_at(path, file) {
                    (*file, *is_cut) = (open_file(path)?, false);
                }
                if *is_cut {
                    file.write_all(b"\n")?;
                }
                *is_cut = true;
                file.write_all(line)?;
                *is_cut = false;
                Ok(())
            }
        }
    }
}

/// Whether the path still leads to this file.
fn is_at(path: &Path, file: &File) -> bool {
    let named = std::fs::metadata(path).ok().zip(file.metadata().ok());
    named.is_some_and(|(named, open)| (named.dev(), named.ino()) == (open.dev(), open.ino()))
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::AuditOutcome;
    use larder_store::SystemClock;
    use std::os::unix::fs::PermissionsExt as _;

    fn event(target: &str) -> AuditEvent<'_> {
        AuditEvent {
            face: "s3",
            who: Some("KEY"),
            from: Some([203, 0, 113, 9].into()),
            action: "PutBucketPolicy",
            target,
            outcome: AuditOutcome::Done,
            status: Some(204),
            request: None,
        }
    }

    fn open(path: &Path) -> (AuditLog, WorkerGuard) {
        AuditLog::open(&AuditTarget::File(path.to_owned()), Arc::new(SystemClock::default())).unwrap()
    }

    #[test]
    fn lines_are_json_in_a_private_file_that_may_be_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let (log, guard) = open(&path);
        let long = format!("/a\n\"{}é", "x".repeat(FIELD_BYTES_MAX - 5));
        log.record(&event(&long));
        while std::fs::metadata(&path).unwrap().len() == 0 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &moved).unwrap();
        log.record(&event("/b"));
        drop((log, guard));
        let line = |path: &Path| -> serde_json::Value {
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(line(&moved)["target"].as_str().unwrap(), &long[..FIELD_BYTES_MAX - 1]);
        assert_eq!((line(&path)["target"].as_str(), line(&path)["outcome"].as_str()), (Some("/b"), Some("done")));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn lines_that_a_full_disk_takes_not_are_counted() {
        let (log, guard) = open(Path::new("/dev/full"));
        (0..3).for_each(|_| log.record(&event("/a")));
        let lost = log.lost.clone();
        drop((log, guard));
        assert_eq!(lost.count(), 3);
    }

    #[test]
    fn a_later_line_tells_of_lost_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let lost = Arc::new(LostLines::default());
        lost.disk.store(7, Ordering::Relaxed);
        let place = AuditPlace::File { path: path.clone(), file: open_file(&path).unwrap(), is_cut: true };
        let clock = Arc::new(SystemClock::default());
        AuditWriter { place, clock, lost, reported: 4 }.write_all(b"{}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines.len() == 3 && lines[0].is_empty() && lines[1].ends_with("\"lost\":3}") && lines[2] == "{}",
            "{text}"
        );
    }
}
