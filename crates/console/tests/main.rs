//! Tests of the pages of the console.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod datatype_pages;
mod pages;
mod s3_metadata;
mod s3_pages;
mod support;
