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
    /// A row covers the slots that its writer knows dead, so that their owners take them again.
    CarryCovers,
    /// A gateway that remembers no slot of a key makes a new one.
    NewBirthWhenForgotten,
    /// A slot that holds a tombstone, or what an acknowledged write replaced, is taken again by any write.
    ReuseTombstones,
    /// A row that another one covers is not shown, and removed by the next write.
    HideCovered,
    /// An overwrite leaves the entries of the rows it replaces.
    LeaveKeyRows,
    /// A deletion removes the entries of all slots that its context covers.
    UnlistCovered,
    /// An entry is left to its row as long as that may still come.
    AwaitRows,
    /// Entries of views are named by slot.
    NameViewBySlot,
    /// The sibling after the last allowed one is refused.
    LimitSiblings,
    /// A delete leaves a tombstone row.
    LeaveTombstone,
    /// Every start is a new actor, above the clock's stored mark.
    NewActor,
    /// A delete without context reads at a quorum.
    DeleteAtQuorum,
    /// With too few replicas up a write goes to fewer of them as it is, same names and stamps.
    SameStampStepDown,
    /// A not-found read that is to ask all replicas asks those that are up.
    AllThatAreUp,
    /// Where a type's data is was decided by the n_val it was created with.
    PlaceByCreation,
    /// `returnbody` shows what was written even where a replica that missed it answers.
    MergeOwnRow,
    /// `returnbody` reads after the write.
    ReadBack,
    /// A `write_once` row is named by its content.
    NameByContent,
    /// The delete of a `write_once` key is answered when the clocks of all gateways are past its tombstone.
    OutwaitLateClocks,
    /// A put of a consistent type that meets another head than it saw is refused.
    RefuseConflicts,
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
    /// A sweeper marks a blob of the key-value side before it looks again and removes; a writer looks for the mark before it
    /// answers.
    FenceKvSweeper,
    /// Beside other gateways no blob younger than a day is swept.
    SweepOldBlobs,
    /// A row is not written when its blob was under way for half a day.
    RefuseOldBlobs,
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
