//! Rules of this repository that no other tool knows.
//!
//! Each check is a pure function from the files to their problems; only this file reads the disk and runs git.
//!
//! ```text
//! dependencies  the allowed directions between our crates, and the lints of the workspace in each
//! length        a file has one noun: at most 500 lines without its tests
//! layout        spaces, tabs, ends of files
//! documents     the changelog's head, and that commands and links in documents are real
//! homonyms      a type name is defined in one file
//! cycles        files of a crate import in one direction, except in listed groups
//! purity        values and rules wait for nothing, and read no clock or disk
//! commits       subjects of commits are at most 72 characters
//! ```

mod commits;
mod cycles;
mod dependencies;
mod documents;
mod homonyms;
mod layout;
mod length;
mod purity;
mod source;

use std::fs;

use crate::shell::{Result, Shell};

pub(crate) use source::{SourceFile, TidyProblem};

/// Checks every rule.
///
/// # Errors
/// The problems, a line each.
pub(crate) fn tidy(shell: &Shell) -> Result<()> {
    let files = files(shell)?;
    let mut problems = [check(&files), commits(shell)].concat();
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    if problems.is_empty() {
        println!("tidy: {} files, no problems", files.len());
        return Ok(());
    }
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    Err(format!("{lines}tidy: {} problems", problems.len()))
}

fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    let tasks = crate::task_names();
    [
        dependencies::check(files),
        length::check(files),
        layout::check(files),
        documents::check(files, &tasks),
        homonyms::check(files),
        cycles::check(files),
        purity::check(files),
    ]
    .concat()
}

/// The subjects of commits; a copy without their history is not checked.
fn commits(shell: &Shell) -> Vec<TidyProblem> {
    match shell.output("git", &["log", "--format=%h %s", &format!("{}..HEAD", commits::SINCE)]) {
        Ok(log) => commits::check(&log),
        Err(_) => {
            println!("tidy: subjects of commits are not checked: no history since {}", commits::SINCE);
            Vec::new()
        }
    }
}

/// Every file that git tracks or would track; a picture has no text.
fn files(shell: &Shell) -> Result<Vec<SourceFile>> {
    let listed = shell.output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    let read = paths.filter_map(|path| {
        let text = String::from_utf8(fs::read(shell.root().join(path)).ok()?).unwrap_or_default();
        Some(SourceFile { path: path.to_owned(), text })
    });
    Ok(read.collect())
}

#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
fn shown(problems: &[TidyProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
