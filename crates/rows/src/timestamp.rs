//! Points in time, and the actors that issue them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in time, in microseconds since 1970: of a wall clock, or of a hybrid clock, whose timestamps no actor issues twice.
///
/// It orders the writes to a row. It is never zero in a stored row; the stamps of rows that only count their writes begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// Identity of one run of one gateway process, drawn anew at every start. Zero is of no run. Those of [`ActorId::SOURCES`] stand for
/// the writers of another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId(pub u64);

impl ActorId {
    /// The first of the actors that stand for writers of another store: all with this highest byte.
    pub const SOURCES: Self = Self(0xfe << 56);

    /// Whether it stands for a writer of another store.
    #[must_use]
    pub fn is_of_source(self) -> bool {
        self.0 >> 56 == Self::SOURCES.0 >> 56
    }

    /// Stands, in the context of a data type, for all actors of runs that it does not name.
    pub const OTHERS: Self = Self(0);

    /// Stands, at the source of a move, for what was reset here of its counters.
    pub const RESETS: Self = Self((0xfe << 56) + 1);

    /// The actor of a run, of 64 random bits.
    #[must_use]
    pub fn for_run(random: u64) -> Self {
        match random {
            // Zero is of no run.
            0 => Self(1),
            // Race: a gateway with the actor of a source would take its imports for own rows [invariant 198].
            _ if Self(random).is_of_source() => Self(random ^ (1 << 63)),
            _ => Self(random),
        }
    }
}

impl Timestamp {
    /// Below every timestamp of a write.
    pub const ZERO: Self = Self(0);
    /// Above every timestamp of a write.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `micros` later, at most [`Self::MAX`].
    #[must_use]
    #[inline]
    pub const fn saturating_add(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The point `micros` earlier, at least [`Self::ZERO`].
    #[must_use]
    #[inline]
    pub const fn saturating_sub(self, micros: u64) -> Self {
        Self(self.0.saturating_sub(micros))
    }

    /// Microseconds since `earlier`; zero when it is later.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since 1970.
    #[must_use]
    #[inline]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Microseconds between two points, whichever is later.
    #[must_use]
    #[inline]
    pub const fn abs_diff(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

impl Add<u64> for Timestamp {
    type Output = Self;

    fn add(self, micros: u64) -> Self {
        Self(self.0 + micros)
    }
}

impl AddAssign<u64> for Timestamp {
    fn add_assign(&mut self, micros: u64) {
        self.0 += micros;
    }
}

impl Sub<u64> for Timestamp {
    type Output = Self;

    fn sub(self, micros: u64) -> Self {
        Self(self.0 - micros)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_has_the_actor_of_a_source() {
        for random in [0, 1, ActorId::SOURCES.0, ActorId::SOURCES.0 | 7, (0xff << 56) - 1, u64::MAX, 0x7e << 56] {
            let actor = ActorId::for_run(random);
            assert!(actor.0 != 0 && !actor.is_of_source(), "{random}");
        }
    }
}
