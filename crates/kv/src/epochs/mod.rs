//! Splits the indexes of large buckets: counts the rows of shards in the background, and opens epochs with more shards.
//!
//! ```text
//! writes ──sampled──> growth: rows that an index may have gained ──enough──> the rows of one shard are counted, page by page
//!                                                                                        │ too many
//! catalogue   known ──all members show it──> both ──all members show it──> open <────────┘
//! ```
//! Keys are spread by their hash, so one shard stands for all of its epoch. A gateway that meets an index for the first time
//! counts it soon, so an index that grew before a restart is found with its next writes. Nothing moves: rows stay in the epoch
//! that they were written in, and readers merge all epochs ([`crate::views`]).
//!
//! **Stages.** Gateways take a change of the catalogue one after the other. A stage begins after all members show the one before
//! it, so two gateways are one stage apart at most ([`larder_rows::EpochStage`]):
//!
//! - *known* before *both*: when the first row is added to the new epoch, every reader merges it and every removal reaches it
//!   [invariant 132].
//! - *both* before *open*: while some gateways still add rows to the old epoch alone, all others add them to both, so no hit
//!   moves from the new epoch to the old one, behind a reader that reads the old one first [invariant 133].
//!
//! No write holds a catalogue guard for this: a late write is decided on what its epochs were then, and readers merge these, too
//! (`docs/decisions/0029-epochs-open-in-three-stages.md`).

mod growth;
mod opener;

pub(crate) use growth::IndexGrowth;
pub(crate) use opener::spawn_epoch_opener;
