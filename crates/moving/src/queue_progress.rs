//! How a move follows the replication queues of its source.

use larder_rows::Timestamp;
use serde_json::{Value, json};

/// The queues of a source, as the job of a move writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueProgress {
    /// The first time that they were drained; zero: never.
    pub began: Timestamp,
    /// Whether that of every node is drained now.
    pub followed: bool,
    /// Elements that were taken.
    pub elements: u64,
    /// Those that changed a key here.
    pub changes: u64,
    /// Times that elements were lost, or may have been.
    pub gaps: u64,
    /// The last gap that a pass over all keys closed, by its number.
    pub gaps_closed: u64,
    /// The last gap: the node and what happened.
    pub gap: String,
    /// Every change that a queue handed out before is here, but for those in open gaps.
    pub until: Timestamp,
    /// The failure that an element waits after; empty for none.
    pub error: String,
}

impl QueueProgress {
    /// Gaps that no pass closed yet.
    #[must_use]
    pub fn open_gaps(&self) -> u64 {
        self.gaps.saturating_sub(self.gaps_closed)
    }

    /// Whether the queues bring every change, so that passes only check.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.followed && self.open_gaps() == 0
    }

    /// The stored form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self { began, followed, elements, changes, gaps, gaps_closed, gap, until, error } = self;
        json!({
            "began": began.0, "followed": followed, "elements": elements, "changes": changes, "gaps": gaps,
            "gaps_closed": gaps_closed, "gap": gap, "until": until.0, "error": error,
        })
    }

    /// Reads the stored form; `None`: it is none.
    #[must_use]
    pub fn from_json(json: &Value) -> Option<Self> {
        let number = |member: &str| json.get(member)?.as_u64();
        let text = |member: &str| json.get(member)?.as_str().map(str::to_owned);
        Some(Self {
            began: Timestamp(number("began")?),
            followed: json.get("followed")?.as_bool()?,
            elements: number("elements")?,
            changes: number("changes")?,
            gaps: number("gaps")?,
            gaps_closed: number("gaps_closed")?,
            gap: text("gap")?,
            until: Timestamp(number("until")?),
            error: text("error")?,
        })
    }
}
