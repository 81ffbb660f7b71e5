//! Tests of the store in memory and of its wrappers.

mod derived_rows;
mod memory;
mod metered;
