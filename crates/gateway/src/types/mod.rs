//! Bucket types and bucket properties: rows of one guarded catalogue that every gateway holds a copy of.
//!
//! ```text
//! create ──> created ──(every running node shows its number)──> ready ──activate──> active ──update──> active
//! ```
//! The catalogue has one number, the stamp of its head: every change rewrites the head, so changes are linearizable and "has
//! everybody seen it" is a comparison of numbers. Nothing is served from a copy that was not checked for five seconds.

mod catalogue;
mod change;
mod copies;
mod props;
mod refresh;
mod shared_map;

use larder_model::props::display::List;

pub(crate) use catalogue::{Catalogue, Edit};
pub(crate) use refresh::LastCheck;

/// Why a type's status or activation was refused. What properties refuse is [`larder_model::props::Refused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such type.
    #[error("no such bucket type")]
    Unknown,
    /// Not every running node has the type yet.
    #[error("not ready to activate")]
    NotReady,
}

/// How far a type has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Created, not yet on all running nodes.
    Created,
    /// On all running nodes: may be activated.
    Ready,
    /// In use.
    Active,
}

/// What `status` shows of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeStatus {
    /// How far it has come.
    pub stage: Stage,
    /// Its properties, in the order Riak prints them.
    pub props: List,
}
