//! The metrics of a move, as the server that carries it out shows them.

use larder_core::EngineSample;
use larder_rows::Timestamp;

use crate::progress::{MoveCount, MovePhase, MoveProgress};

/// The metric of a phase.
const fn phase_name(phase: MovePhase) -> &'static str {
    match phase {
        MovePhase::Check => "larder_move_phase{phase=\"check\"}",
        MovePhase::Types => "larder_move_phase{phase=\"types\"}",
        MovePhase::Seed => "larder_move_phase{phase=\"seed\"}",
        MovePhase::Follow => "larder_move_phase{phase=\"follow\"}",
        MovePhase::Verify => "larder_move_phase{phase=\"verify\"}",
        MovePhase::Done => "larder_move_phase{phase=\"done\"}",
        MovePhase::Back => "larder_move_phase{phase=\"back\"}",
    }
}

/// The metric of a count.
const fn count_name(count: MoveCount) -> &'static str {
    match count {
        MoveCount::Keys => "larder_move_keys_total{fate=\"looked_at\"}",
        MoveCount::Copied => "larder_move_keys_total{fate=\"copied\"}",
        MoveCount::Deleted => "larder_move_keys_total{fate=\"deleted\"}",
        MoveCount::Kept => "larder_move_keys_total{fate=\"kept\"}",
        MoveCount::Concurrent => "larder_move_keys_total{fate=\"concurrent\"}",
        MoveCount::Older => "larder_move_keys_total{fate=\"older\"}",
        MoveCount::Brought => "larder_move_keys_total{fate=\"brought\"}",
        MoveCount::Fetched => "larder_move_keys_total{fate=\"fetched\"}",
        MoveCount::Returned => "larder_move_keys_total{fate=\"returned\"}",
        MoveCount::Bytes => "larder_move_copied_bytes_total",
        MoveCount::Requests => "larder_move_requests_total",
    }
}

/// The counts, those of one family together.
const COUNTS: [MoveCount; MoveCount::ALL.len()] = [
    MoveCount::Keys,
    MoveCount::Copied,
    MoveCount::Deleted,
    MoveCount::Kept,
    MoveCount::Concurrent,
    MoveCount::Older,
    MoveCount::Brought,
    MoveCount::Fetched,
    MoveCount::Returned,
    MoveCount::Bytes,
    MoveCount::Requests,
];

/// The metrics of a move at a time.
#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
pub(crate) fn samples(progress: &MoveProgress, now: Timestamp) -> Vec<EngineSample> {
    let truth = |holds: bool| f64::from(u8::from(holds));
    let phases = MovePhase::ALL.iter().map(|phase| (phase_name(*phase), truth(*phase == progress.phase)));
    let counts = COUNTS.iter().map(|count| (count_name(*count), progress.counts.get(*count) as f64));
    let lag = progress.lag_seconds(now).map(|seconds| ("larder_move_lag_seconds", seconds as f64));
    let differs = progress.verified.as_ref().map_or(0, |verified| verified.differs);
    let others = [
        ("larder_move_progressed_seconds", progress.progressed.as_secs() as f64),
        ("larder_move_waits", truth(!progress.error.is_empty())),
        ("larder_move_set_aside", progress.asides as f64),
        ("larder_move_differs", differs as f64),
        ("larder_move_gaps_open", progress.queue.open_gaps() as f64),
    ];
    phases.chain(counts).chain(lag).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use larder_core::metrics::{metric_families, sample_family};

    use super::*;

    fn progress() -> MoveProgress {
        let mut progress = MoveProgress::new("i".into(), Timestamp(7_000_000));
        MoveCount::ALL.iter().for_each(|count| progress.counts.add(*count, u64::from(count.code())));
        progress.complete_until = Timestamp(5_000_000);
        progress
    }

    #[test]
    fn every_row_of_a_move_in_the_table_of_metrics_has_a_sample_and_families_stay_together() {
        let samples = samples(&progress(), Timestamp(9_000_000));
        let mut shown: Vec<_> = samples.iter().map(|(name, _)| sample_family(name).unwrap().name).collect();
        shown.dedup();
        let families: Vec<_> =
            metric_families().map(|family| family.name).filter(|name| name.starts_with("larder_move_")).collect();
        assert_eq!(shown, families);
        let names: BTreeSet<_> = samples.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), samples.len());
    }

    #[test]
    fn the_phase_the_lag_and_a_failure_are_shown() {
        let mut progress = progress();
        progress.error = "no connection".to_owned();
        let value = |progress: &MoveProgress, wanted: &str| {
            let samples = samples(progress, Timestamp(9_000_000));
            samples.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
        };
        assert_eq!(value(&progress, "larder_move_phase{phase=\"check\"}"), Some(1.0));
        assert_eq!(value(&progress, "larder_move_phase{phase=\"seed\"}"), Some(0.0));
        assert_eq!(value(&progress, "larder_move_lag_seconds"), Some(4.0));
        assert_eq!(value(&progress, "larder_move_waits"), Some(1.0));
        assert_eq!(value(&progress, "larder_move_keys_total{fate=\"kept\"}"), Some(5.0));
        progress.complete_until = Timestamp::ZERO;
        assert_eq!(value(&progress, "larder_move_lag_seconds"), None, "the first pass is under way");
    }
}
