//! Rules of this repository that no other tool knows.
//!
//! Each rule is a pure function from the files to what is wrong with them; only this file touches the disk.
//!
//! ```text
//! edges       which of our crates may use which, and that each takes the workspace's lints
//! length      a file has one noun: at most 500 lines without its tests
//! words       what does not belong in finished code
//! layout      spaces, tabs, ends of files
//! documents   the changelog's head, and that commands and links in documents are real
//! ```

mod documents;
mod edges;
mod layout;
mod length;
mod source;
mod words;

use std::fmt;
use std::fs;

use crate::shell::{Result, Shell};

/// A file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Its path from the root.
    path: String,
    /// What is in it.
    text: String,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl Problem {
    fn at(file: &File, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }

    fn missing(path: &str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 1, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Checks every rule.
///
/// # Errors
/// What is wrong, a line each.
pub(crate) fn tidy(shell: &Shell) -> Result<()> {
    let files = files(shell)?;
    let mut problems = check(&files);
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    if problems.is_empty() {
        println!("tidy: {} files, nothing to say", files.len());
        return Ok(());
    }
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    Err(format!("{lines}tidy: {} problems", problems.len()))
}

fn check(files: &[File]) -> Vec<Problem> {
    let tasks = crate::task_names();
    [
        edges::check(files),
        length::check(files),
        words::check(files),
        layout::check(files),
        documents::check(files, &tasks),
    ]
    .concat()
}

/// Every text file that git tracks or would track.
fn files(shell: &Shell) -> Result<Vec<File>> {
    let listed = shell.output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    let read = paths.filter_map(|path| {
        let text = String::from_utf8(fs::read(shell.root().join(path)).ok()?).ok()?;
        Some(File { path: path.to_owned(), text })
    });
    Ok(read.collect())
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
fn said(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
