//! The report about a move: its lines and its JSON. `kv-admin move status` and the console show the same ones.

use larder_rows::text::{escaped, rfc3339};
use larder_rows::{MoveWish, Timestamp};
use serde_json::{Map, Value};

use crate::mover::MoveStatus;
use crate::progress::{MoveCount, MovePhase, MoveProgress, MoveVerification};
use crate::queue_progress::QueueProgress;

/// A line of the report. Several lines may have one name; they are neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveReportLine {
    /// Its name.
    pub name: &'static str,
    /// What it says, without control characters.
    pub text: String,
}

impl MoveStatus {
    /// The source and the state, as the head of the report.
    #[must_use]
    pub fn title(&self) -> String {
        format!("Move from {} ({})", shown(self.order.source.as_bytes()), self.state())
    }

    /// The wish of the operator, and whether it is carried out.
    #[must_use]
    pub fn state(&self) -> &'static str {
        let is_handled = self.progress.handled >= self.order.number;
        match self.order.wish {
            MoveWish::Run | MoveWish::Back => "runs",
            MoveWish::Verify | MoveWish::Repair if is_handled => "runs",
            MoveWish::Verify | MoveWish::Repair => "is to be verified",
            MoveWish::Pause => "is paused",
            MoveWish::Finish if is_handled => "is finished",
            MoveWish::Finish => "is to be finished",
            MoveWish::Cancel if is_handled => "is cancelled",
            MoveWish::Cancel => "is to be cancelled",
        }
    }

    /// The report at a time, line by line.
    #[must_use]
    pub fn report(&self, now: Timestamp) -> Vec<MoveReportLine> {
        let Self { order, progress, asides, differences } = self;
        let mut lines = Vec::new();
        let mut line = |name: &'static str, text: String| lines.push(MoveReportLine { name, text });
        line("phase", progress.phase.name().to_owned());
        match &order.s3 {
            None => line("types", order.types.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")),
            Some(terms) if terms.buckets.is_empty() => line("buckets", "all".to_owned()),
            Some(terms) => line("buckets", shown(terms.buckets.join(", ").as_bytes())),
        }
        if progress.phase != MovePhase::Done {
            line("this pass", pass(progress));
        }
        let counts = MoveCount::ALL.map(|count| format!("{} {}", count.name(), progress.counts.get(count)));
        line("since start", counts.join(", "));
        line("rate", format!("{} keys a second, at most {} requests a second", progress.rate, order.rate));
        if let Some(seconds) = progress.estimate_seconds() {
            line("estimate", format!("{seconds} s for the rest of this bucket"));
        }
        line("lag", lag(progress, now));
        let queue = &progress.queue;
        if queue.began > Timestamp::ZERO {
            line("queue", format!("{} {}", shown(order.queue.as_bytes()), queues(queue)));
        }
        if queue.open_gaps() > 0 {
            line("gap", shown(queue.gap.as_bytes()));
        }
        if !queue.error.is_empty() {
            line("queue waits", shown(queue.error.as_bytes()));
        }
        line("last progress", format!("{} s ago", progress.idle_seconds(now)));
        let found = |found| verified(found, progress.phase);
        line("verified", progress.verified.as_ref().map_or_else(|| "never".to_owned(), found));
        if !progress.error.is_empty() {
            line("waits after", shown(progress.error.as_bytes()));
        }
        progress.notes.iter().for_each(|note| line("note", shown(note.as_bytes())));
        let lists = [("set aside", asides, progress.asides), ("differs", differences, differences.len() as u64)];
        for (name, list, count) in lists {
            list.iter().for_each(|key| line(name, shown(key.as_bytes())));
            if count > list.len() as u64 {
                line(name, format!("and {} more", count - list.len() as u64));
            }
        }
        lines
    }

    /// The report at a time for programs: the stored progress, and what follows from it. Times are microseconds since 1970.
    #[must_use]
    pub fn to_json(&self, now: Timestamp) -> Map<String, Value> {
        let Self { order, progress, asides, differences } = self;
        let mut json = progress.to_json();
        let types: Vec<_> = order.types.iter().map(|name| shown(name)).collect();
        json.insert("source".into(), order.source.clone().into());
        json.insert("types".into(), types.into());
        let buckets = order.s3.as_ref().map(|terms| terms.buckets.clone());
        json.insert("buckets".into(), buckets.into());
        json.insert("rate_max".into(), order.rate.into());
        json.insert("queue_name".into(), order.queue.clone().into());
        json.insert("gaps".into(), progress.queue.open_gaps().into());
        json.insert("wish".into(), order.wish.name().into());
        json.insert("lag_seconds".into(), progress.lag_seconds(now).into());
        json.insert("idle_seconds".into(), progress.idle_seconds(now).into());
        json.insert("estimate_seconds".into(), progress.estimate_seconds().into());
        json.insert("set_aside".into(), asides.clone().into());
        json.insert("differences".into(), differences.clone().into());
        json
    }
}

impl MoveProgress {
    /// Seconds for the keys of the bucket under way; `None`: nothing is known of them.
    #[must_use]
    pub fn estimate_seconds(&self) -> Option<u64> {
        let left = self.sweep.keys_known.saturating_sub(self.sweep.keys);
        (left > 0 && self.rate > 0 && self.phase != MovePhase::Done).then(|| left.div_ceil(self.rate))
    }

    /// The age of the oldest change at the source that may not be here, in seconds; `None` during the first pass.
    #[must_use]
    pub fn lag_seconds(&self, now: Timestamp) -> Option<u64> {
        let until = self.here_until();
        (until > Timestamp::ZERO).then(|| seconds(until, now))
    }

    /// Seconds since it last got on.
    #[must_use]
    pub fn idle_seconds(&self, now: Timestamp) -> u64 {
        seconds(self.progressed, now)
    }
}

fn pass(progress: &MoveProgress) -> String {
    let sweep = &progress.sweep;
    let bucket = match sweep.bucket.as_str() {
        "" => String::new(),
        name => format!("; in {} {} of {} keys", shown(name.as_bytes()), sweep.keys, sweep.keys_known),
    };
    format!("{} of {} buckets, {} changes{bucket}", sweep.buckets, sweep.buckets_known, sweep.changes)
}

fn lag(progress: &MoveProgress, now: Timestamp) -> String {
    match progress.lag_seconds(now) {
        Some(seconds) if progress.phase == MovePhase::Back => {
            format!("every change here older than {seconds} s was handed back, but for keys that are set aside")
        }
        Some(seconds) => format!("every change at the source older than {seconds} s is here"),
        None => "the first pass is under way".to_owned(),
    }
}

fn verified(verified: &MoveVerification, phase: MovePhase) -> String {
    let MoveVerification { ended, keys, equal, changed_here, changed_there, differs, .. } = verified;
    let others = match phase {
        // One of before the way back began may say what changed here.
        MovePhase::Back if *changed_here == 0 => format!("{changed_there} that clients of the Riak wrote since"),
        _ => format!("{changed_here} changed here since, {changed_there} changed at the source meanwhile"),
    };
    format!("{}: {keys} keys, {equal} equal, {others}, {differs} differ", rfc3339(*ended))
}

/// How the replication queues of the source are followed.
fn queues(queue: &QueueProgress) -> String {
    let followed = if queue.followed { "followed" } else { "not followed by all nodes" };
    let QueueProgress { elements, changes, gaps, .. } = queue;
    let gaps = match queue.open_gaps() {
        0 => format!("gaps {gaps}"),
        open => format!("gaps {gaps}, of which {open} open: a pass over all keys closes them"),
    };
    format!("{followed}: elements {elements}, changes {changes}, {gaps}")
}

fn seconds(from: Timestamp, now: Timestamp) -> u64 {
    now.since(from) / 1_000_000
}

fn shown(name: &[u8]) -> String {
    escaped(name, |c| !c.is_control())
}

#[cfg(test)]
mod tests {
    use larder_rows::{ActorId, MoveOrder};

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn status() -> MoveStatus {
        let order = MoveOrder {
            id: "i".into(),
            source: "riak://h:8098".into(),
            types: vec!["default".into(), "odd\n".into()],
            rate: 50,
            actor: ActorId(1),
            wish: MoveWish::Run,
            number: 1,
            queue: "larder".into(),
            s3: None,
        };
        let progress = MoveProgress::new("i".into(), Timestamp(10 * SECOND));
        MoveStatus { order, progress, asides: Vec::new(), differences: Vec::new() }
    }

    fn texts(status: &MoveStatus, name: &str) -> Vec<String> {
        let lines = status.report(Timestamp(30 * SECOND)).into_iter();
        lines.filter(|line| line.name == name).map(|line| line.text).collect()
    }

    #[test]
    fn a_line_has_no_control_characters_and_lists_say_what_they_leave_out() {
        let mut status = status();
        status.progress.asides = 3;
        status.asides = vec!["b/k\r: too large".into()];
        status.progress.error = "connect\u{1b}[2J".into();
        assert_eq!(texts(&status, "types"), ["default, odd\\x{A}"]);
        assert_eq!(texts(&status, "set aside"), ["b/k\\x{D}: too large", "and 2 more"]);
        assert_eq!(texts(&status, "waits after"), ["connect\\x{1B}[2J"]);
        assert_eq!(texts(&status, "last progress"), ["20 s ago"]);
    }

    #[test]
    fn lag_and_estimate_are_told_where_they_are_known() {
        let mut status = status();
        assert_eq!(texts(&status, "lag"), ["the first pass is under way"]);
        assert_eq!(texts(&status, "estimate"), [""; 0]);
        status.progress.complete_until = Timestamp(25 * SECOND);
        (status.progress.sweep.keys, status.progress.sweep.keys_known, status.progress.rate) = (10, 31, 10);
        assert_eq!(texts(&status, "lag"), ["every change at the source older than 5 s is here"]);
        assert_eq!(texts(&status, "estimate"), ["3 s for the rest of this bucket"]);
        let json = status.to_json(Timestamp(30 * SECOND));
        assert_eq!((&json["lag_seconds"], &json["estimate_seconds"]), (&5.into(), &3.into()));
    }

    #[test]
    fn a_verification_of_the_way_back_says_what_the_riak_has_beside_it() {
        let mut status = status();
        let found = MoveVerification { keys: 3, equal: 1, changed_there: 2, ..MoveVerification::default() };
        status.progress.verified = Some(found);
        let text = |status: &MoveStatus| texts(status, "verified")[0].split_once(": ").unwrap().1.to_owned();
        let way_here = "3 keys, 1 equal, 0 changed here since, 2 changed at the source meanwhile, 0 differ";
        assert_eq!(text(&status), way_here);
        status.progress.phase = MovePhase::Back;
        assert_eq!(text(&status), "3 keys, 1 equal, 2 that clients of the Riak wrote since, 0 differ");
    }

    #[test]
    fn an_order_that_is_not_carried_out_yet_is_told_as_one() {
        let mut status = status();
        status.order.wish = MoveWish::Verify;
        assert_eq!(status.title(), "Move from riak://h:8098 (is to be verified)");
        status.progress.handled = 1;
        assert_eq!(status.state(), "runs");
    }
}
