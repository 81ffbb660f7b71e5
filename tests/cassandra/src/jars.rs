//! Cassandra's jars, fetched by Maven into cargo's target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// The artifact that Maven fetches.
const GROUP: &str = "org.apache.cassandra";
const ARTIFACT: &str = "cassandra-all";
const VERSION: &str = "5.0.6";
/// Environment variable for another version, such as 4.1.10.
const OTHER: &str = "LARDER_TEST_CASSANDRA";

/// The folder of the jars below `dir`; fetches them if it is missing or has another version.
///
/// Several processes may call this concurrently: one of them fetches.
///
/// # Errors
/// [`Error::Unavailable`] when Maven is missing or cannot fetch the jars, with its first error; [`Error::Failed`] for
/// an invalid version.
pub(crate) fn fetch(dir: &Path) -> Result<PathBuf> {
    let (lib, version) = (dir.join("lib"), version());
    if !version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)) {
        return Err(Error::failed(format!("{OTHER}={version} is no version")));
    }
    fs::create_dir_all(dir).map_err(|error| Error::file(dir, &error))?;
    let lock = dir.join("lock");
    let lock = File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(|e| Error::file(&lock, &e))?;
    // Checked under the lock: another process may have fetched the jars while this one waited.
    if is_fetched(dir) {
        return Ok(lib);
    }
    let _ = fs::remove_dir_all(&lib);
    let pom = dir.join("pom.xml");
    fs::write(&pom, project(&version)).map_err(|error| Error::file(&pom, &error))?;
    copy(&pom, &lib, &version)?;
    // The stamp is written last: after a crash the jars are fetched again.
    let stamp = stamp(dir);
    fs::write(&stamp, version).map_err(|error| Error::file(&stamp, &error))?;
    drop(lock);
    Ok(lib)
}

/// Whether all jars are below `dir`.
pub(crate) fn is_fetched(dir: &Path) -> bool {
    fs::read_to_string(stamp(dir)).is_ok_and(|found| found == version())
}

/// The version of Cassandra to run.
fn version() -> String {
    std::env::var(OTHER).unwrap_or_else(|_| VERSION.to_owned())
}

/// The file that is written after all jars.
fn stamp(dir: &Path) -> PathBuf {
    dir.join("lib/larder-stamp")
}

/// A Maven project that depends only on Cassandra.
fn project(version: &str) -> String {
    format!(
        "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>larder</groupId>\n  \
         <artifactId>cassandra-nodes</artifactId>\n  <version>1</version>\n  <packaging>pom</packaging>\n  \
         <dependencies>\n    <dependency>\n      <groupId>{GROUP}</groupId>\n      <artifactId>{ARTIFACT}</artifactId>\n      \
         <version>{version}</version>\n    </dependency>\n  </dependencies>\n</project>\n"
    )
}

fn copy(pom: &Path, lib: &Path, version: &str) -> Result<()> {
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "--file"])
        .arg(pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", lib.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Unavailable(format!("no Maven: mvn: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Err(Error::Unavailable(format!("Maven cannot get {ARTIFACT} {version}: {}", first_error(&text))))
}

/// The first error in Maven's output; its first line may begin with a colour code.
fn first_error(text: &str) -> &str {
    let errors = text.lines().filter_map(|line| line.split_once("[ERROR] "));
    errors.map(|(_, error)| error.trim()).find(|line| !line.is_empty()).unwrap_or("no reason given")
}

/// The Java agent that Cassandra uses to measure objects.
pub(crate) fn agent(lib: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(lib).map_err(|error| Error::file(lib, &error))?;
    let is_agent = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("jamm-"));
    let found = entries.flatten().map(|entry| entry.path()).find(is_agent);
    found.ok_or_else(|| Error::failed(format!("{}: no jamm", lib.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_names_what_is_fetched() {
        let text = project(VERSION);
        assert!(text.contains("<artifactId>cassandra-all</artifactId>\n      <version>5.0.6</version>"), "{text}");
    }

    #[test]
    fn the_first_error_of_maven_is_reported() {
        let text = "[WARNING] slow\n[ERROR] \n\u{1b}[0m[ERROR] Could not resolve cassandra-all\n[ERROR] more\n";
        assert_eq!(first_error(text), "Could not resolve cassandra-all");
        assert_eq!(first_error(""), "no reason given");
    }
}
