//! Wrappers around a store: one counts calls, one injects faults. Callers see the same trait and the same promises.

pub mod faulty;
pub mod metered;
pub(crate) mod random;
