//! The order of two states of a key at its source, by their clocks.

use super::vector_clock::{ClockOrder, VectorClock};

/// The order of a state in relation to the one that was moved before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceOrder {
    /// It is the same state.
    Same,
    /// It replaces the other.
    Newer,
    /// The other replaced it.
    Older,
    /// Neither has seen the other.
    Concurrent,
}

impl SourceOrder {
    /// Whether both are the same clock, whatever their bytes: Riak compresses a clock otherwise than the server does, and a queue
    /// has it uncompressed. The times count.
    #[must_use]
    pub fn is_same_clock(now: &[u8], before: &[u8]) -> bool {
        let decoded = |bytes: &[u8]| VectorClock::from_deflated(bytes).ok();
        now == before || decoded(now).is_some_and(|now| decoded(before) == Some(now))
    }

    /// Compares the clock of an answer with the one before it. Contexts of a Larder are opaque: each answer is read from one
    /// store, so another context is a newer state.
    #[must_use]
    pub fn of_answer(now: &[u8], before: &[u8]) -> Self {
        if now == before {
            return Self::Same;
        }
        match (VectorClock::from_deflated(now), VectorClock::from_deflated(before)) {
            (Ok(now), Ok(before)) => match now.compare(&before) {
                ClockOrder::Equal => Self::Same,
                ClockOrder::Newer => Self::Newer,
                ClockOrder::Older => Self::Older,
                ClockOrder::Concurrent => Self::Concurrent,
            },
            _ => Self::Newer,
        }
    }
}
