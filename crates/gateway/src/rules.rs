//! The rules of the design that a simulated schedule proves necessary. Outside tests every rule is on and costs nothing: the
//! switch exists only with the feature `rules`.

/// A rule that can be switched off in the simulation, named by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A clock counts as issued before the write is sent, whatever becomes of it.
    IssueBeforeSend,
    /// The clock passes every stamp it reads or is sent.
    PassWhatIsSeen,
    /// Without `allow_mult` a put without context reads first, and that is its context.
    ReadFirst,
    /// A gateway whose clock is off the engine's refuses writes.
    RefuseSkew,
    /// A read's context names the rows it does not show.
    NameHidden,
    /// A context ahead of the clock is refused.
    RefuseAhead,
    /// A retry is shown once.
    MergeRetries,
    /// The sibling after the last allowed one is refused.
    LimitSiblings,
    /// A delete leaves a tombstone row.
    LeaveTombstone,
    /// Every start is a new actor, above the clock's stored mark.
    NewActor,
    /// A delete without context reads at a quorum.
    DeleteAtQuorum,
    /// `returnbody` reads after the write.
    ReadBack,
    /// A `write_once` row is named by its content.
    NameByContent,
    /// Nothing is served from an old catalogue.
    FreshCatalogue,
    /// A change of types is answered when all live members show it.
    AwaitMembers,
}

/// Which rules are in force: all, except the one a test switched off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    #[cfg(feature = "rules")]
    off: Option<Rule>,
}

impl Rules {
    /// All but one.
    #[cfg(feature = "rules")]
    #[must_use]
    pub fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    /// Whether `rule` is in force.
    #[cfg(feature = "rules")]
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    /// Whether `rule` is in force: always.
    #[cfg(not(feature = "rules"))]
    #[inline]
    #[must_use]
    pub fn has(self, _: Rule) -> bool {
        true
    }
}
