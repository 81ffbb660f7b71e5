//! Tests of the model: golden scripts, laws of data types.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod causality;
mod datatype_golden;
mod datatypes;
mod golden;
mod key;
