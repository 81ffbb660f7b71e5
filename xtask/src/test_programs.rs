//! The test programs of the workspace and the programs under test, compiled once: with the lints, in the profile `dev`.
//!
//! Cargo compiles a dependency anew for each set of its features. Every build of tests therefore asks for the features of the whole
//! workspace: it chooses all packages, or one beside [`ALL_FEATURES`].

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::linting_compiler;
use crate::shell::{Result, Shell};

/// The package of the product tests, which need the programs.
pub(crate) const PRODUCT: &str = "larder-tests";
/// Packages without a library that depend on all others: beside a chosen package they add features and no work.
const ALL_FEATURES: &[&str] = &["-p", PRODUCT, "-p", "larder-bench"];

/// The choice of the tests of schedules.
pub(crate) const SCHEDULES: &[&str] = &["-p", "larder-store-local", "--features", "schedules", "--lib"];

/// A built test program.
#[derive(Debug, Clone)]
pub(crate) struct TestProgram {
    /// Its package.
    pub(crate) package: String,
    /// Its target: `lib`, or the name of a test or program.
    pub(crate) target: String,
    /// Its file.
    pub(crate) path: PathBuf,
    /// The folder in which cargo would run it.
    pub(crate) directory: PathBuf,
}

impl TestProgram {
    /// Its package without the prefix that all have, and its target where it is not the only one: `kv`, `kv_tests`.
    pub(crate) fn short_name(&self) -> &str {
        if self.target == "lib" { self.package.strip_prefix("larder-").unwrap_or(&self.package) } else { &self.target }
    }

    /// The test program that a message of cargo names.
    pub(crate) fn of_message(message: &Value) -> Option<Self> {
        let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let directory = manifest.parent()?.to_owned();
        // `path+file:///folder#name@version`, where the name is left out if the folder has it.
        let id = message["package_id"].as_str()?.rsplit(['#', '/']).next()?;
        let package = match id.split_once('@') {
            Some((package, _)) => package.to_owned(),
            None => directory.file_name()?.to_string_lossy().into_owned(),
        };
        let target = match message["target"]["kind"][0].as_str()? {
            "lib" => "lib".to_owned(),
            _ => message["target"]["name"].as_str()?.to_owned(),
        };
        Some(Self { package, target, path: path.into(), directory })
    }
}

/// All programs of a build.
#[derive(Debug, Default)]
pub(crate) struct TestBuild {
    /// The test programs.
    pub(crate) tests: Vec<TestProgram>,
    warnings: usize,
}

impl TestBuild {
    /// Builds all test programs, `larder` and `kv-admin`.
    ///
    /// # Errors
    /// Something does not compile, or a lint warns.
    pub(crate) fn of_workspace(shell: &Shell) -> Result<Self> {
        Self::build(shell, &["--workspace"])
    }

    /// Builds the test programs of one crate, named without the prefix of all.
    ///
    /// # Errors
    /// As those of [`of_workspace`](Self::of_workspace), or there is no such crate.
    pub(crate) fn of_crate(shell: &Shell, krate: &str) -> Result<Self> {
        let (package, tests) = (format!("larder-{krate}"), format!("{}_tests", krate.replace('-', "_")));
        let mut choice = [&["-p", &package, "--lib"], ALL_FEATURES].concat();
        if shell.path("crates").join(krate).join("tests").exists() {
            choice.extend(["--test", &tests]);
        }
        let mut build = Self::build(shell, &choice)?;
        build.tests.retain(|program| program.package == package);
        Ok(build)
    }

    /// Builds the tests of the engine's schedules, whose threads are those of `shuttle`: no other test runs over these.
    ///
    /// # Errors
    /// As those of [`of_workspace`](Self::of_workspace).
    pub(crate) fn of_schedules(shell: &Shell) -> Result<Self> {
        Self::build(shell, SCHEDULES)
    }

    fn build(shell: &Shell, choice: &[&str]) -> Result<Self> {
        let shell = shell.clone().with_variable("RUSTC_WORKSPACE_WRAPPER", linting_compiler::place(shell)?);
        let mut build = Self::default();
        let args = [&["test", "--no-run", "--message-format", "json"], choice].concat();
        let built = shell.cargo_messages(&args, |message| build.note(message));
        if build.warnings > 0 {
            return Err(format!("{} warnings of the compiler and its lints", build.warnings));
        }
        built.map(|()| build)
    }

    fn note(&mut self, message: &Value) {
        if let Some(text) = message["message"]["rendered"].as_str() {
            print!("{text}");
            // The last one, which counts the others, has no place.
            let has_place = message["message"]["spans"].as_array().is_some_and(|spans| !spans.is_empty());
            self.warnings += usize::from(message["message"]["level"] == "warning" && has_place);
        }
        self.tests.extend(TestProgram::of_message(message));
    }
}

/// The arguments of cargo that choose one test target with the features of the whole workspace.
pub(crate) fn target_choice<'a>(package: &'a str, target: &'a str) -> Vec<&'a str> {
    match target {
        "lib" => [&["-p", package, "--lib"], ALL_FEATURES].concat(),
        _ => vec!["--workspace", "--test", target],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_cargo_names_a_test_program() {
        let message = |kind: &str, name: &str, is_test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///w/crates/rows#larder-rows@0.1.0",
                "manifest_path": "/w/crates/rows/Cargo.toml",
                "target": {"kind": [kind], "name": name},
                "profile": {"test": is_test},
                "executable": "/w/target/debug/deps/x",
            })
        };
        let found = TestProgram::of_message(&message("lib", "larder_rows", true)).unwrap();
        assert_eq!((found.package.as_str(), found.target.as_str(), found.short_name()), ("larder-rows", "lib", "rows"));
        assert_eq!(found.directory, Path::new("/w/crates/rows"));
        let found = TestProgram::of_message(&message("test", "kv_tests", true)).unwrap();
        assert_eq!(found.short_name(), "kv_tests");
        assert!(TestProgram::of_message(&message("bin", "larder", false)).is_none());
    }

    #[test]
    fn the_package_of_a_folder_of_its_name_is_found() {
        let message = serde_json::json!({
            "package_id": "path+file:///w/xtask#0.1.0", "manifest_path": "/w/xtask/Cargo.toml",
            "target": {"kind": ["bin"], "name": "xtask"}, "profile": {"test": true}, "executable": "/x",
        });
        assert_eq!(TestProgram::of_message(&message).unwrap().package, "xtask");
    }
}
