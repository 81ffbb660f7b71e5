//! Rules for browsers: which pages of other origins may ask what.

use serde::{Deserialize, Serialize};

/// The rules of a bucket; the first that matches counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cors {
    /// Up to 100.
    pub rules: Vec<CorsRule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CorsRule {
    /// Its name, if it has one.
    pub id: Option<String>,
    /// Origins, each with at most one `*`.
    pub origins: Vec<String>,
    /// Methods.
    pub methods: Vec<String>,
    /// Headers that may be asked with, each with at most one `*`.
    pub headers: Vec<String>,
    /// Headers that scripts may see.
    pub expose: Vec<String>,
    /// How many seconds an answer to a preflight holds.
    pub max_age: Option<u32>,
}
