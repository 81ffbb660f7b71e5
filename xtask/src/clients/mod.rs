//! The published clients of the product tests. Everything is in `.work` of the working copy, nothing is installed on the
//! machine.
//!
//! ```text
//! riak_python  the Python client of Riak, in .work/venv
//! riak_node    the Node client of Riak, in .work/node
//! riak_java    the Java client of Riak, in .work/java, and Maven's own files in .work/m2
//! s3           S3 clients and strace, in .work/s3-venv and .work/deb; for the benchmark redis-server, too
//! go_programs  a program over the S3 SDK for Go, in .work/go, for a soak MinIO in .work/minio; modules in .work/go-modules
//! ```
//! A client that cannot be had is named with the cause, and its tests report that they were skipped.

mod folder;
mod go_programs;
mod riak_java;
mod riak_node;
mod riak_python;
mod s3;
mod venv;

use std::path::PathBuf;

pub(crate) use s3::redis;

use crate::report::StageEnd;
use crate::shell::{Result, Shell, first_line};
use crate::test_summary::TestSummary;

/// Clients that are installed together.
struct ClientSet {
    /// Installs what is missing, and returns the causes of what this machine cannot have.
    install: fn(&Shell) -> Result<Vec<String>>,
    /// The variables that hold the places of the installed clients for the tests.
    places: fn(&Shell) -> Vec<(&'static str, PathBuf)>,
}

static SETS: &[ClientSet] =
    &[riak_python::CLIENTS, riak_node::CLIENTS, riak_java::CLIENTS, s3::CLIENTS, go_programs::CLIENTS];

/// The clients of a first look.
static FIRST_LOOK: &[ClientSet] = &[riak_python::CLIENTS];

/// Installs the missing clients.
///
/// # Errors
/// When the programs that a client needs are there, but it cannot be installed.
pub(crate) fn prepare(shell: &Shell) -> Result<StageEnd> {
    let mut missing = Vec::new();
    let sets = if shell.is_first_look() { FIRST_LOOK } else { SETS };
    for set in sets {
        missing.extend((set.install)(shell)?);
    }
    Ok(if missing.is_empty() {
        StageEnd::Passed(TestSummary::default())
    } else {
        StageEnd::Skipped(missing.join(", "))
    })
}

/// The shell with a variable for the place of each client that is installed.
pub(crate) fn with_places(shell: Shell) -> Shell {
    let places: Vec<_> = SETS.iter().flat_map(|set| (set.places)(&shell)).collect();
    places.into_iter().fold(shell, |shell, (variable, place)| shell.with_variable(variable, place))
}

/// The cause why a client cannot run here: the first of these programs that does not start.
fn missing_program(shell: &Shell, programs: &[&str]) -> Option<String> {
    programs.iter().find_map(|program| {
        let failed = shell.output(program, &["--version"]).err()?;
        Some(format!("no {program}: {}", first_line(&failed)))
    })
}
