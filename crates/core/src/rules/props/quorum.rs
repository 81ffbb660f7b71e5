//! Quorums: the number of replicas that must answer.

/// A number of replicas, named or counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quorum {
    /// One replica.
    One,
    /// More than half of the replicas.
    Quorum,
    /// Every replica.
    All,
    /// This many. It may exceed `n_val`: each request checks that, a change of properties does not.
    Count(u32),
}

impl Quorum {
    /// The number it stands for when there are `n_val` replicas.
    ///
    /// one = 1, quorum = floor(n/2)+1, all = n, and a count is itself (Riak KV property reference, quorum semantics).
    #[must_use]
    pub const fn resolve(self, n_val: u32) -> u32 {
        match self {
            Self::One => 1,
            Self::Quorum => n_val / 2 + 1,
            Self::All => n_val,
            Self::Count(count) => count,
        }
    }

    /// The quorum of this name. Names are lower case, and `default` is not one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "one" => Some(Self::One),
            "quorum" => Some(Self::Quorum),
            "all" => Some(Self::All),
            _ => None,
        }
    }

    /// Its name; `None` for a count.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::One => Some("one"),
            Self::Quorum => Some("quorum"),
            Self::All => Some("all"),
            Self::Count(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_resolve_as_in_riak() {
        for (n_val, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(Quorum::One.resolve(n_val), 1);
            assert_eq!(Quorum::Quorum.resolve(n_val), quorum);
            assert_eq!(Quorum::All.resolve(n_val), n_val);
            assert_eq!(Quorum::Count(9).resolve(n_val), 9);
        }
        assert_eq!(Quorum::Quorum.resolve(u32::MAX), 1 << 31);
    }

    #[test]
    fn quorums_are_found_by_name() {
        for quorum in [Quorum::One, Quorum::Quorum, Quorum::All] {
            assert_eq!(quorum.name().and_then(Quorum::named), Some(quorum));
        }
        assert_eq!(Quorum::named("default"), None);
    }
}
