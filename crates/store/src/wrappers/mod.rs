//! Stores around a store: one counts, one breaks things on purpose. Callers see the same trait and promises.

pub mod faulty;
pub mod metered;
pub(crate) mod random;
