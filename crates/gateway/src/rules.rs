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
    /// A heartbeat shows no catalogue that a write under way does not know.
    HoldSections,
    /// A head that has no version any more stays a day.
    KeepDeletedHeads,
    /// A sweeper marks a blob and touches the head before it looks and removes; a writer looks for the mark before it commits.
    FenceSweeper,
    /// Blobs of an upload are released when it has ended.
    KeepPartsUntilEnd,
    /// An upload left in the middle of its completion is taken back behind the object's head, never carried on.
    FenceCompleting,
    /// A manifest is written before the head that names it.
    ManifestFirst,
    /// Versions of one key share bytes, copies to another key do not.
    CopyBytes,
    /// What a head lists for release is released by whoever touches it next.
    DrainReleases,
    /// Bytes that are being read are not removed.
    PinReaders,
    /// Rows of a bucket are found by its id, and a bucket goes only when every gateway has closed it.
    CloseBuckets,
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
