//! The test targets of the workspace, each built with the same features.
//!
//! `cargo test -p CRATE` builds tokio, hyper and forty others anew for each crate, since each asks for other features of them.
//! All stages therefore build for the whole workspace and choose their targets by name.

use serde_json::Value;

use crate::shell::{Result, Shell};

/// The package of the product tests, which need the release programs.
pub(crate) const PRODUCT: &str = "larder-tests";
/// The tests that start clusters of their own.
pub(crate) const CLUSTERS: &str = "clusters";

/// Test targets by package.
#[derive(Debug)]
pub(crate) struct TestTargets {
    /// Package and target.
    found: Vec<(String, String)>,
}

impl TestTargets {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo fails.
    pub(crate) fn read(shell: &Shell) -> Result<Self> {
        let printed = shell.output("cargo", &["metadata", "--no-deps", "--format-version", "1"])?;
        let metadata: Value = serde_json::from_str(&printed).map_err(|error| format!("cargo metadata: {error}"))?;
        let mut found = Vec::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            for target in package["targets"].as_array().into_iter().flatten() {
                if let (Some(package), Some(name), true) =
                    (package["name"].as_str(), target["name"].as_str(), target["kind"][0] == "test")
                {
                    found.push((package.to_owned(), name.to_owned()));
                }
            }
        }
        Ok(Self { found })
    }

    /// Arguments of `cargo test` for the targets of one package. No other package has one of their names.
    pub(crate) fn of(&self, package: &str) -> Vec<String> {
        self.arguments(|owner| owner == package)
    }

    /// Arguments of `cargo test` for the targets of all packages but the product's.
    pub(crate) fn of_crates(&self) -> Vec<String> {
        self.arguments(|owner| owner != PRODUCT)
    }

    fn arguments(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<&str> =
            self.found.iter().filter(|(package, _)| is_wanted(package)).map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().flat_map(|name| ["--test".to_owned(), name.to_owned()]).collect()
    }
}

/// Runs tests of the whole workspace: those that the targets and options choose.
///
/// # Errors
/// When one fails.
pub(crate) fn run(shell: &Shell, targets: &[String], options: &[&str]) -> Result<()> {
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    shell.cargo(&[&["test", "--workspace", "--no-fail-fast"], &targets[..], options].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_a_stage_runs_alone_have_names_of_their_own() {
        let targets = TestTargets::read(&Shell::at_root()).unwrap();
        for package in [PRODUCT, "larder-store-cassandra"] {
            let others = targets.arguments(|owner| owner != package);
            let own = targets.of(package);
            assert!(own.contains(&"--test".to_owned()), "{package} has no tests");
            let shared: Vec<&String> = own.iter().filter(|name| *name != "--test" && others.contains(name)).collect();
            assert!(shared.is_empty(), "{package} shares {shared:?}");
        }
        assert!(targets.of(PRODUCT).contains(&CLUSTERS.to_owned()));
    }
}
