//! Changes of a type's state that are refused.

/// Why a type's status or activation was refused. Refused properties are [`crate::rules::props::PropsError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TypeStateError {
    /// There is no such type.
    #[error("no such bucket type")]
    Unknown,
    /// Not every running node has the type yet.
    #[error("not ready to activate")]
    NotReady,
}
