//! Runs plans, and seeks the shortest list of steps that fails.

use super::{ModelBounds, ModelCounts, ModelMismatch, ModelPlan, ModelServer, S3Model, S3ModelStep};

/// Most runs of the search for a short list.
const RUNS_MAX: usize = 120;
/// Lines shown of a failed run.
const LINES_SHOWN: usize = 60;

/// Runs the steps of a seed on a new server, and counts its requests. A mismatch fails the test with its seed and the shortest list of requests found.
///
/// # Panics
/// At a mismatch.
pub fn check_s3_model<S: ModelServer>(
    start: impl Fn() -> S,
    bounds: ModelBounds,
    plan: ModelPlan,
    seed: u64,
) -> ModelCounts {
    let steps = plan.steps(seed);
    let first = match run(&start, bounds, &steps) {
        Ok(counts) => return counts,
        Err(first) => first,
    };
    let (steps, last) = shortest(&start, bounds, steps, first.clone());
    let lines = last.trace.len().saturating_sub(LINES_SHOWN);
    panic!(
        "S3 differs from its model: LARDER_TEST_SEED={seed} LARDER_TEST_CASES=1\n{}\nat step {} of {}; {} steps are \
         enough:\n{}",
        first.what,
        first.step,
        plan.steps,
        steps.len(),
        [last.trace[lines..].join("\n"), last.what].join("\n")
    );
}

fn run<S: ModelServer>(
    start: &impl Fn() -> S,
    bounds: ModelBounds,
    steps: &[S3ModelStep],
) -> Result<ModelCounts, ModelMismatch> {
    let mut server = start();
    S3Model::new(&mut server, bounds).run(steps)
}

/// Leaves out pieces of the list as long as it still fails.
fn shortest<S: ModelServer>(
    start: &impl Fn() -> S,
    bounds: ModelBounds,
    steps: Vec<S3ModelStep>,
    found: ModelMismatch,
) -> (Vec<S3ModelStep>, ModelMismatch) {
    let (mut steps, mut last, mut runs) = (steps, found, 0);
    steps.truncate(last.step + 1);
    let mut piece = steps.len() / 2;
    while piece > 0 && runs < RUNS_MAX {
        let mut from = 0;
        while from < steps.len() && runs < RUNS_MAX {
            let to = (from + piece).min(steps.len());
            let fewer = [&steps[..from], &steps[to..]].concat();
            runs += 1;
            match run(start, bounds, &fewer) {
                Err(mismatch) if kind(&mismatch) == kind(&last) => {
                    steps = fewer;
                    steps.truncate(mismatch.step + 1);
                    last = mismatch;
                }
                // Fewer steps may fail otherwise: that is another search.
                _ => from = to,
            }
        }
        piece /= 2;
    }
    (steps, last)
}

/// The action that failed, and what of its answer differs.
fn kind(mismatch: &ModelMismatch) -> Option<&str> {
    mismatch.what.rsplit_once(": expected").map(|(kind, _)| kind)
}
