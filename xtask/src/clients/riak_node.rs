//! The Node client of Riak, the published `basho-riak-client`, and the S3 SDK for JavaScript, in `.work/node`: the packages of
//! `tests/node/package-lock.json`.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{ClientFolder, text_of};
use super::{ClientSet, missing_program};
use crate::shell::{Result, Shell};

/// The client and its packages.
pub(super) const CLIENTS: ClientSet = ClientSet { install, places };

const DIR: &str = ".work/node";
/// The folder of the files that name the packages.
const SOURCE: &str = "tests/node";
const FILES: &[&str] = &["package.json", "package-lock.json"];

/// The folder of the packages, if Node can run them.
fn places(shell: &Shell) -> Vec<(&'static str, PathBuf)> {
    let current = folder(shell).is_ok_and(|folder| folder.is_current(shell));
    let runs = current && missing_program(shell, &["node"]).is_none();
    if runs { vec![("LARDER_NODE_CLIENT", shell.path(DIR).join("node_modules"))] } else { Vec::new() }
}

fn folder(shell: &Shell) -> Result<ClientFolder> {
    let texts: Result<Vec<String>> = FILES.iter().map(|file| text_of(shell, &format!("{SOURCE}/{file}"))).collect();
    Ok(ClientFolder { dir: DIR, content: texts?.concat() })
}

/// Installs the packages, unless they are there.
fn install(shell: &Shell) -> Result<Vec<String>> {
    let folder = folder(shell)?;
    let needs: &[&str] = if folder.is_current(shell) { &["node"] } else { &["node", "npm"] };
    if let Some(why) = missing_program(shell, needs) {
        return Ok(vec![format!("no Node client of Riak ({why})")]);
    }
    if !folder.is_current(shell) {
        folder.clear(shell)?;
        for file in FILES {
            let (from, to) = (shell.path(SOURCE).join(file), folder.path(shell).join(file));
            fs::copy(&from, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        }
        let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        shell.run(Path::new("npm"), &[&["ci", "--prefix", DIR], &quiet[..]].concat())?;
        folder.finish(shell)?;
    }
    Ok(Vec::new())
}
