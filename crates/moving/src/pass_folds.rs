//! Whether a pass goes on asking for folds over the trees of its source.

/// Failures after which a pass asks for no more.
const FAILURES_MAX: u32 = 3;

/// The folds of one pass.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PassFolds {
    is_on: bool,
    /// Whether one has shown a key that was asked for.
    has_shown: bool,
    failures: u32,
}

/// What a fold was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldEnd {
    /// Keys that were asked for.
    Shown,
    /// None of them.
    Empty,
    /// No answer to it, or none that can be read.
    Failed,
    /// The source has no such request.
    Unknown,
}

impl PassFolds {
    /// Those of a pass that begins; `is_on`: it may ask for some.
    pub(crate) fn begin(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes an answer; whether it says that the source has no trees.
    pub(crate) fn note(&mut self, end: FoldEnd) -> bool {
        match end {
            FoldEnd::Shown => self.has_shown = true,
            // Of a source that has trees: the keys were written a moment ago.
            FoldEnd::Empty if self.has_shown => {}
            FoldEnd::Empty | FoldEnd::Unknown => self.is_on = false,
            FoldEnd::Failed => {
                self.failures += 1;
                self.is_on = self.failures < FAILURES_MAX;
            }
        }
        end == FoldEnd::Empty && !self.has_shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_fold_says_that_there_are_no_trees_unless_another_has_shown_keys() {
        let mut folds = PassFolds::begin(true);
        assert!(!folds.note(FoldEnd::Shown));
        assert!(!folds.note(FoldEnd::Empty) && folds.is_on());
        let mut folds = PassFolds::begin(true);
        assert!(folds.note(FoldEnd::Empty) && !folds.is_on());
    }

    #[test]
    fn folds_that_fail_again_and_again_end() {
        let mut folds = PassFolds::begin(true);
        assert!(!folds.note(FoldEnd::Failed) && !folds.note(FoldEnd::Failed) && folds.is_on());
        assert!(!folds.note(FoldEnd::Failed) && !folds.is_on());
        let mut folds = PassFolds::begin(true);
        assert!(!folds.note(FoldEnd::Unknown) && !folds.is_on());
    }
}
