//! What the console shows of the logs: the last warnings and errors, and the last lines of the audit log, whether or not that is kept.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use larder_console::{RecentLine, RecentLines};
use larder_core::{AuditEvent, AuditOutcome, AuditSink};
use larder_store::{Clock, SystemClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The action of the console that stores a part of an upload.
const PART: &str = "StorePart";

/// The lines of both logs.
#[derive(Debug, Clone, Default)]
pub struct RecentLogs {
    /// Warnings and errors.
    pub log: Arc<RecentLines>,
    /// Changes.
    pub changes: Arc<RecentLines>,
    /// Refused requests.
    pub refusals: Arc<RecentLines>,
}

/// Keeps warnings and errors as they are logged.
pub(crate) struct WarningKeeper(pub(crate) Arc<RecentLines>);

impl<S: Subscriber> Layer<S> for WarningKeeper {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let kind = match *event.metadata().level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARN",
            _ => return,
        };
        let mut fields = EventText::default();
        event.record(&mut fields);
        let text = format!("{}{}", fields.message, fields.others);
        self.0.push(RecentLine { at: SystemClock::default().now(), kind, text });
    }
}

/// The text of an event: its message, then its fields.
#[derive(Default)]
struct EventText {
    message: String,
    others: String,
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A String takes all that is written.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, "  {name}={value:?}"),
        };
    }
}

/// Keeps the last audited events for the console, and hands all on to the audit log.
pub(crate) struct AuditKeeper {
    /// The audit log, if there is one.
    pub(crate) log: Option<Arc<dyn AuditSink>>,
    /// The last events.
    pub(crate) recent: RecentLogs,
    /// The clock of their times.
    pub(crate) clock: Arc<dyn Clock>,
}

impl AuditKeeper {
    fn hand_on(&self, event: &AuditEvent<'_>) {
        if let Some(log) = &self.log {
            log.record(event);
        }
    }
}

impl AuditSink for AuditKeeper {
    fn record(&self, event: &AuditEvent<'_>) {
        let AuditEvent { face, who, from, action, target, outcome, status, .. } = *event;
        let mut text = format!("{face} {action} {target}");
        let _ = write!(text, "  by {}", who.unwrap_or("an anonymous client"));
        if let Some(from) = from {
            let _ = write!(text, " from {from}");
        }
        if let Some(status) = status {
            let _ = write!(text, ": {status}");
        }
        let lines = match (outcome, action) {
            (AuditOutcome::Refused, _) => &self.recent.refusals,
            // A large upload would push out all others.
            (AuditOutcome::Done, PART) => return self.hand_on(event),
            _ => &self.recent.changes,
        };
        lines.push(RecentLine { at: self.clock.now(), kind: outcome.word(), text });
        self.hand_on(event);
    }

    fn lost(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.lost())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn warnings_and_errors_are_kept_with_their_fields() {
        let lines = Arc::new(RecentLines::default());
        let subscriber = tracing_subscriber::registry().with(WarningKeeper(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("not kept");
            tracing::warn!(bucket = "b", millis = 7, "request slow");
            tracing::error!(error = %"no space", "write failed");
        });
        let kept: Vec<_> = lines.newest_first().into_iter().map(|line| (line.kind, line.text)).collect();
        let expected = [
            ("ERROR", "write failed  error=no space".to_owned()),
            ("WARN", "request slow  bucket=b  millis=7".to_owned()),
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn audited_events_are_kept_without_an_audit_log() {
        let recent = RecentLogs::default();
        let keeper = AuditKeeper { log: None, recent: recent.clone(), clock: Arc::new(SystemClock::default()) };
        let refused = AuditEvent {
            face: "s3",
            who: None,
            from: Some("203.0.113.9".parse().unwrap()),
            action: "PutBucketPolicy",
            target: "/bucket",
            outcome: AuditOutcome::Refused,
            status: Some(403),
            request: None,
        };
        keeper.record(&refused);
        keeper.record(&AuditEvent { outcome: AuditOutcome::Done, action: "AddRole", ..refused });
        keeper.record(&AuditEvent { outcome: AuditOutcome::Done, action: "StorePart", ..refused });
        assert_eq!(recent.changes.newest_first().len(), 1);
        let line = &recent.refusals.newest_first()[0];
        let text = "s3 PutBucketPolicy /bucket  by an anonymous client from 203.0.113.9: 403";
        assert_eq!((line.kind, line.text.as_str(), keeper.lost()), ("refused", text, 0));
    }
}
