//! The places of the published clients, from the environment.

use std::path::PathBuf;

/// The place of a client in this variable; without it the test reports that it is skipped.
#[must_use]
pub fn client_place(variable: &str, client: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: {client} is not installed");
    }
    found
}
