//! The Java client of Riak, the published `com.basho.riak:riak-client`, in `.work/java`: the jars that
//! `tests/java/pom.xml` names. Maven keeps its own files in `.work/m2`.

use std::path::{Path, PathBuf};

use super::folder::{ClientFolder, text_of};
use super::{ClientSet, missing_program};
use crate::shell::{Result, Shell};

/// The client and its jars.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

const DIR: &str = ".work/java";
const POM: &str = "tests/java/pom.xml";
/// The folder of Maven's own files.
const REPOSITORY: &str = ".work/m2";
/// The goal that copies jars, of a version that does not change by itself.
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// The folder of the jars, if Java can compile against them and run them.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let current = folder(shell).is_ok_and(|folder| folder.is_current(shell));
    let runs = current && missing_program(shell, &["java", "javac"]).is_none();
    if runs { vec![("LARDER_JAVA_CLIENT", shell.path(DIR))] } else { Vec::new() }
}

fn folder(shell: &Shell) -> Result<ClientFolder> {
    Ok(ClientFolder { dir: DIR, content: text_of(shell, POM)? })
}

/// Fetches the jars, unless they are there.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let folder = folder(shell)?;
    let needs: &[&str] = if folder.is_current(shell) { &["java", "javac"] } else { &["java", "javac", "mvn"] };
    if let Some(why) = missing_program(shell, needs) {
        return Ok(vec![format!("no Java client of Riak ({why})")]);
    }
    if !folder.is_current(shell) {
        folder.clear(shell)?;
        let repository = format!("-Dmaven.repo.local={}", shell.path(REPOSITORY).display());
        let jars = format!("-DoutputDirectory={}", folder.path(shell).display());
        let maven = ["--batch-mode", "--quiet", "--file", POM, &repository, GOAL, "-DincludeScope=runtime", &jars];
        shell.run(Path::new("mvn"), &maven)?;
        folder.finish(shell)?;
    }
    Ok(Vec::new())
}
