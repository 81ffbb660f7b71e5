//! The progress of a move, as its job writes it and `status` shows it.

use larder_rows::Timestamp;
use larder_rows::codec::coded;
use serde_json::{Map, Value, json};

use crate::queue_progress::QueueProgress;

/// The version of the stored form.
const VERSION: u64 = 1;

coded! {
    /// The step of a move.
    pub enum MovePhase {
        /// Reaches the source, and looks at what it has.
        Check = 1, "check";
        /// Makes the bucket types.
        Types = 2, "types";
        /// Copies every key.
        Seed = 3, "seed";
        /// Looks for changes again and again, and copies them.
        Follow = 4, "follow";
        /// Compares every key.
        Verify = 5, "verify";
        /// It is finished or cancelled.
        Done = 6, "done";
        /// Hands changes back to the Riak that it came from.
        Back = 7, "back";
    }
}

coded! {
    /// A number that a move counts.
    pub enum MoveCount {
        /// Keys that were looked at.
        Keys = 1, "keys";
        /// Keys whose values were copied.
        Copied = 2, "copied";
        /// Bytes of these values.
        Bytes = 3, "bytes";
        /// Keys that were deleted as at the source.
        Deleted = 4, "deleted";
        /// Keys of which a client's value stays in place of the source's.
        Kept = 5, "kept";
        /// Keys whose state at the source was concurrent with the one before.
        Concurrent = 6, "concurrent";
        /// Answers of the source that were older than what was copied.
        Older = 7, "older";
        /// Requests to the source.
        Requests = 8, "requests";
        /// Keys of an S3 store that came before their turn, as a request here asked for them.
        Brought = 9, "brought";
        /// Elements that the Riak of the way back fetched.
        Fetched = 10, "fetched";
        /// Keys that the Riak of the way back has as they are here.
        Returned = 11, "returned";
    }
}

/// Counts by [`MoveCount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveCounts([u64; MoveCount::ALL.len()]);

impl MoveCounts {
    /// One count.
    #[must_use]
    pub fn get(&self, count: MoveCount) -> u64 {
        self.0.get(usize::from(count.code()) - 1).copied().unwrap_or_default()
    }

    /// Adds to one count.
    pub fn add(&mut self, count: MoveCount, more: u64) {
        if let Some(number) = self.0.get_mut(usize::from(count.code()) - 1) {
            *number += more;
        }
    }
}

/// One pass over all keys of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepProgress {
    /// Its beginning.
    pub began: Timestamp,
    /// Buckets that are done.
    pub buckets: u64,
    /// Buckets that are known so far.
    pub buckets_known: u64,
    /// The bucket under way.
    pub bucket: String,
    /// Keys of that bucket that are done.
    pub keys: u64,
    /// Keys of that bucket that the source listed.
    pub keys_known: u64,
    /// Keys that it copied or deleted here.
    pub changes: u64,
}

/// The result of a comparison of all keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MoveVerification {
    /// Its beginning.
    pub began: Timestamp,
    /// Its end.
    pub ended: Timestamp,
    /// Keys that were compared.
    pub keys: u64,
    /// Keys that were equal.
    pub equal: u64,
    /// Keys that clients changed here.
    pub changed_here: u64,
    /// Keys that had changed at the source since they were copied; they were copied again.
    pub changed_there: u64,
    /// Keys that differ although neither side changed them.
    pub differs: u64,
}

impl MoveVerification {
    /// Why a move may not finish after this comparison; `None`: it may.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        if self.differs > 0 {
            return Some(format!("{} keys differ; `kv-admin move status` lists them", self.differs));
        }
        (self.changed_there > 0).then(|| {
            format!(
                "{} keys changed at the source during the last verification: stop its writers, and verify again",
                self.changed_there
            )
        })
    }
}

/// The progress of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveProgress {
    /// The id of the order that it belongs to.
    pub id: String,
    /// The step.
    pub phase: MovePhase,
    /// The number of the last wish that was carried out.
    pub handled: u64,
    /// Its beginning.
    pub began: Timestamp,
    /// The last time that it got on.
    pub progressed: Timestamp,
    /// All counts.
    pub counts: MoveCounts,
    /// Keys in a second, lately.
    pub rate: u64,
    /// The pass under way.
    pub sweep: SweepProgress,
    /// Complete passes.
    pub sweeps: u64,
    /// The beginning of the last complete pass: changes before it are here.
    pub complete_until: Timestamp,
    /// The last comparison.
    pub verified: Option<MoveVerification>,
    /// What the operator has to know.
    pub notes: Vec<String>,
    /// The failure that the job waits after; empty for none.
    pub error: String,
    /// Keys that could not be copied.
    pub asides: u64,
    /// The replication queues of the source.
    pub queue: QueueProgress,
}

impl MoveProgress {
    /// The progress of a move that begins.
    #[must_use]
    pub fn new(id: String, now: Timestamp) -> Self {
        Self {
            id,
            phase: MovePhase::Check,
            handled: 0,
            began: now,
            progressed: now,
            counts: MoveCounts::default(),
            rate: 0,
            sweep: SweepProgress::default(),
            sweeps: 0,
            complete_until: Timestamp::ZERO,
            verified: None,
            notes: Vec::new(),
            error: String::new(),
            asides: 0,
            queue: QueueProgress::default(),
        }
    }

    /// The time before which every change at the source is here; zero before the end of the first pass.
    #[must_use]
    pub fn here_until(&self) -> Timestamp {
        match self.complete_until > Timestamp::ZERO && self.queue.is_whole() {
            true => self.complete_until.max(self.queue.until),
            false => self.complete_until,
        }
    }

    /// The stored form, which is also that of `status --json`. Times are microseconds since 1970.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let counts: Map<String, Value> =
            MoveCount::ALL.iter().map(|count| (count.name().to_owned(), self.counts.get(*count).into())).collect();
        let SweepProgress { began, buckets, buckets_known, bucket, keys, keys_known, changes } = &self.sweep;
        let sweep = json!({
            "began": began.0, "buckets": buckets, "buckets_known": buckets_known, "bucket": bucket, "keys": keys,
            "keys_known": keys_known, "changes": changes,
        });
        let verified = self.verified.as_ref().map(|verified| {
            let MoveVerification { began, ended, keys, equal, changed_here, changed_there, differs } = verified;
            json!({
                "began": began.0, "ended": ended.0, "keys": keys, "equal": equal, "changed_here": changed_here,
                "changed_there": changed_there, "differs": differs,
            })
        });
        let whole = json!({
            "version": VERSION,
            "id": self.id,
            "phase": self.phase.name(),
            "handled": self.handled,
            "began": self.began.0,
            "progressed": self.progressed.0,
            "counts": counts,
            "rate": self.rate,
            "sweep": sweep,
            "sweeps": self.sweeps,
            "complete_until": self.complete_until.0,
            "verified": verified,
            "notes": self.notes,
            "error": self.error,
            "asides": self.asides,
            "queue": self.queue.to_json(),
        });
        match whole {
            Value::Object(whole) => whole,
            _ => Map::new(),
        }
    }

    /// Reads the stored form; `None`: it is none, or of another version.
    #[must_use]
    pub fn from_json(json: &Value) -> Option<Self> {
        let number = |value: &Value, member: &str| value.get(member).and_then(Value::as_u64);
        if number(json, "version")? != VERSION {
            return None;
        }
        let mut counts = MoveCounts::default();
        let stored = json.get("counts")?;
        for count in MoveCount::ALL {
            counts.add(count, number(stored, count.name()).unwrap_or(0));
        }
        let sweep = json.get("sweep")?;
        let verified = json.get("verified").filter(|verified| !verified.is_null());
        let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).map(str::to_owned);
        let verification = |verified: &Value| {
            Some(MoveVerification {
                began: Timestamp(number(verified, "began")?),
                ended: Timestamp(number(verified, "ended")?),
                keys: number(verified, "keys")?,
                equal: number(verified, "equal")?,
                changed_here: number(verified, "changed_here")?,
                changed_there: number(verified, "changed_there")?,
                differs: number(verified, "differs")?,
            })
        };
        Some(Self {
            id: text(json, "id")?,
            phase: MovePhase::from_name(&text(json, "phase")?)?,
            handled: number(json, "handled")?,
            began: Timestamp(number(json, "began")?),
            progressed: Timestamp(number(json, "progressed")?),
            counts,
            rate: number(json, "rate")?,
            sweep: SweepProgress {
                began: Timestamp(number(sweep, "began")?),
                buckets: number(sweep, "buckets")?,
                buckets_known: number(sweep, "buckets_known")?,
                bucket: text(sweep, "bucket")?,
                keys: number(sweep, "keys")?,
                keys_known: number(sweep, "keys_known")?,
                changes: number(sweep, "changes")?,
            },
            sweeps: number(json, "sweeps")?,
            complete_until: Timestamp(number(json, "complete_until")?),
            verified: match verified {
                Some(verified) => Some(verification(verified)?),
                None => None,
            },
            notes: json.get("notes")?.as_array()?.iter().filter_map(|note| note.as_str().map(str::to_owned)).collect(),
            error: text(json, "error")?,
            asides: number(json, "asides")?,
            // Programs before wrote none.
            queue: match json.get("queue") {
                Some(queue) => QueueProgress::from_json(queue)?,
                None => QueueProgress::default(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_decodes_to_itself_and_other_versions_are_refused() {
        let mut progress = MoveProgress::new("i".into(), Timestamp(7));
        progress.counts.add(MoveCount::Copied, 3);
        progress.sweep = SweepProgress { bucket: "b".into(), keys: 1, keys_known: 2, ..SweepProgress::default() };
        progress.verified = Some(MoveVerification { keys: 5, differs: 1, ..MoveVerification::default() });
        progress.notes = vec!["n".into()];
        progress.queue = QueueProgress {
            began: Timestamp(1),
            followed: true,
            elements: 2,
            changes: 3,
            gaps: 5,
            ..QueueProgress::default()
        };
        progress.queue =
            QueueProgress { gaps_closed: 4, gap: "g".into(), until: Timestamp(6), error: "e".into(), ..progress.queue };
        let mut json = Value::Object(progress.to_json());
        assert_eq!(MoveProgress::from_json(&json), Some(progress.clone()));
        json["version"] = 2.into();
        assert_eq!(MoveProgress::from_json(&json), None);
        progress.verified = None;
        progress.queue = QueueProgress::default();
        json["version"] = 1.into();
        json["verified"] = Value::Null;
        json.as_object_mut().unwrap().remove("queue");
        assert_eq!(MoveProgress::from_json(&json), Some(progress.clone()), "as an older program wrote it");
        assert_eq!(MoveProgress::from_json(&Value::Object(progress.to_json())), Some(progress));
    }

    #[test]
    fn an_open_gap_takes_the_lag_back_to_the_last_pass() {
        let mut progress = MoveProgress::new("i".into(), Timestamp(1));
        progress.queue = QueueProgress { followed: true, until: Timestamp(9), ..QueueProgress::default() };
        assert_eq!(progress.here_until(), Timestamp::ZERO, "the seed is under way");
        progress.complete_until = Timestamp(5);
        assert_eq!(progress.here_until(), Timestamp(9));
        progress.queue.gaps = 1;
        assert_eq!(progress.here_until(), Timestamp(5));
        progress.queue.gaps_closed = 1;
        progress.queue.followed = false;
        assert_eq!(progress.here_until(), Timestamp(5));
    }

    #[test]
    fn a_verification_objects_to_what_differs_and_to_what_still_changes() {
        let good = MoveVerification { keys: 5, equal: 4, changed_here: 1, ..MoveVerification::default() };
        assert_eq!(good.objection(), None);
        let differs = MoveVerification { differs: 2, ..good.clone() };
        assert!(differs.objection().unwrap().starts_with("2 keys differ"));
        let changes = MoveVerification { changed_there: 1, ..good };
        assert!(changes.objection().unwrap().contains("stop its writers"));
    }
}
