//! Descriptors: how many files and sockets the process may have open, and who may take how many of them.
//!
//! ```text
//! limit   process | engine | connections, and the blob files that they read and write
//!         └── reserve ───┘
//! ```
//! An engine that cannot open a file cannot write. So connections get what is left after the reserve, never more.

use larder_http_edge::REFUSALS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin::socket::COMMANDS_MAX;
use crate::serve::Failure;
use crate::settings::{Engine, Settings, table};

/// What the process has open besides its engine and its connections: standard streams, the runtime and its signals, listeners,
/// commands of `kv-admin`, files of an export, connections that are being refused.
const PROCESS: usize = 32 + COMMANDS_MAX + REFUSALS_MAX;
/// A server for fewer connections than these is of no use: it does not start.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of open files to the hard one, and answers how many may be open then. When it could not, a line in
/// the log says so, and the soft limit holds.
#[must_use]
pub fn raise_limit() -> usize {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, ..found };
    let limit = if found.current == found.maximum {
        found.current
    } else if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(soft = found.current, hard = found.maximum, %error, "limit of open files not raised");
        found.current
    } else {
        raised.current
    };
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Who needs how many descriptors with an engine.
#[derive(Debug, Clone, Copy)]
struct DescriptorNeeds {
    /// Kept from connections: what the process and the engine have open.
    reserve: usize,
    /// What a connection may hold: its socket, and with an engine of files the blob that it copies and the new one.
    each: usize,
}

impl DescriptorNeeds {
    fn of(engine: Engine) -> Self {
        match engine {
            Engine::Local => Self { reserve: PROCESS + larder_store_local::DESCRIPTORS_MAX, each: 3 },
            Engine::Memory => Self { reserve: PROCESS, each: 1 },
            Engine::Cassandra => Self { reserve: PROCESS + larder_store_cassandra::DESCRIPTORS_MAX, each: 1 },
        }
    }

    /// How many connections a limit leaves room for.
    fn connections(self, limit: usize) -> usize {
        limit.saturating_sub(self.reserve) / self.each
    }

    /// The least limit that leaves room for some.
    fn limit_min(self) -> usize {
        self.reserve + CONNECTIONS_MIN * self.each
    }
}

/// How many connections the process may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionBudget {
    /// At most so many, of all listeners together.
    pub(crate) connections: usize,
    /// When these are fewer than the setting asks for: a line that says so.
    pub(crate) note: Option<String>,
}

impl ConnectionBudget {
    /// What the settings ask for, held against the limit of open files.
    ///
    /// # Errors
    /// The line that says that the limit is too low to serve anybody.
    pub(crate) fn new(settings: &Settings, limit: usize) -> Result<Self, Failure> {
        let (needs, wanted) = (DescriptorNeeds::of(settings.engine), settings.connections_max);
        if limit < needs.limit_min() {
            return Err(Failure(format!(
                "only {limit} files may be open at a time: {} at least are needed; raise the hard limit (ulimit -Hn)",
                needs.limit_min()
            )));
        }
        let connections = wanted.min(needs.connections(limit));
        let note = (connections < wanted).then(|| {
            format!(
                "at most {connections} connections instead of {wanted} ({}): {limit} files may be open at a time",
                table::CONNECTIONS_MAX.name
            )
        });
        Ok(Self { connections, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::cli::{Invocation, read};

    fn budget(arguments: &str, limit: usize) -> Result<ConnectionBudget, Failure> {
        let arguments = std::iter::once("larder").chain(arguments.split_whitespace()).map(Into::into);
        match read(arguments, &[], |_| Ok(String::new())).unwrap() {
            Invocation::Serve(settings) => ConnectionBudget::new(&settings, limit),
            other => panic!("no server is started: {other:?}"),
        }
    }

    #[test]
    fn connections_never_take_what_the_engine_needs() {
        for engine in [Engine::Local, Engine::Memory, Engine::Cassandra] {
            let needs = DescriptorNeeds::of(engine);
            for limit in (needs.limit_min()..5_000).chain([65_536, usize::MAX]) {
                let connections = needs.connections(limit);
                let taken = needs.reserve.saturating_add(connections.saturating_mul(needs.each));
                assert!(connections >= CONNECTIONS_MIN && taken <= limit, "{engine:?} {limit}: {connections}");
            }
        }
    }

    #[test]
    fn a_usual_limit_leaves_few_connections_and_says_so_with_its_numbers() {
        let budget = |arguments, limit| budget(arguments, limit).unwrap();
        let low = budget("", 1024);
        assert_eq!(low.connections, 213);
        let note = low.note.unwrap();
        assert!(["213", "10000", "1024", "connections-max"].iter().all(|word| note.contains(word)), "{note}");
        let enough = ConnectionBudget { connections: 200, note: None };
        assert_eq!(budget("--connections-max 200", 1024), enough);
        assert_eq!(budget("", 40_000), ConnectionBudget { connections: 10_000, note: None });
        assert_eq!(budget("--engine memory", 1024).connections, 928);
    }

    #[test]
    fn a_limit_that_serves_nobody_is_named() {
        let failure = budget("", 256).unwrap_err().to_string();
        assert!(failure.contains("256") && failure.contains("432") && !failure.contains('\n'), "{failure}");
        assert_eq!(budget("", 432).unwrap().connections, CONNECTIONS_MIN);
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_may() {
        let limit = raise_limit();
        let found = getrlimit(Resource::Nofile);
        assert_eq!(found.current, found.maximum);
        assert_eq!(found.current.map(|limit| limit as usize), Some(limit));
    }
}
