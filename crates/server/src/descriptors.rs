//! File descriptors: the process's limit, and the shares of the engine and of connections.
//!
//! ```text
//! limit   process | engine | webhooks | connections, and the blob files that they read and write
//!         └────── reserve ────────────┘
//! ```
//! An engine that cannot open a file cannot write. So connections get only the descriptors outside the reserve.

use larder_net::REFUSALS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin::socket::COMMANDS_MAX;
use crate::failure::ServerFailure;
use crate::settings::{EngineKind, ServerSettings, table};
use crate::webhook_client::WEBHOOK_CONNECTIONS_MAX;

/// Descriptors besides those of the engine and of connections: standard streams, the runtime and its signals, listeners,
/// commands of `kv-admin`, files of an export, refusals.
const PROCESS: usize = 32 + COMMANDS_MAX + REFUSALS_MAX;
/// The server does not start with room for fewer connections than these.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of open files to the hard one, and returns the limit that holds. A failure is logged, and the soft
/// limit holds.
#[must_use]
pub fn raise_limit() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    let limit = if limits.current == limits.maximum {
        limits.current
    } else if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(soft = limits.current, hard = limits.maximum, %error, "limit of open files not raised");
        limits.current
    } else {
        raised.current
    };
    // Without a limit every number of connections fits.
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Connections that are enough for most servers.
const CONNECTIONS_USUAL: usize = 1_000;

/// The descriptors that an engine and its connections need.
#[derive(Debug, Clone, Copy)]
struct DescriptorNeeds {
    /// Descriptors of the process and the engine, closed to connections.
    reserve: usize,
    /// Descriptors of a connection: its socket and, on the embedded engine, the blob that it copies and the new one.
    each: usize,
}

impl DescriptorNeeds {
    fn for_engine(engine: EngineKind) -> Self {
        match engine {
            EngineKind::Local => Self { reserve: PROCESS + larder_store_local::DESCRIPTORS_MAX, each: 3 },
            EngineKind::Memory => Self { reserve: PROCESS, each: 1 },
            EngineKind::Cassandra => Self { reserve: PROCESS + larder_store_cassandra::DESCRIPTORS_MAX, each: 1 },
        }
    }

    /// The number of connections within a limit.
    fn connections(self, limit: usize) -> usize {
        limit.saturating_sub(self.reserve) / self.each
    }

    /// The least limit that leaves room for [`CONNECTIONS_MIN`].
    fn limit_min(self) -> usize {
        self.reserve + CONNECTIONS_MIN * self.each
    }
}

/// The bound of connections of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionBudget {
    /// Most connections, of all listeners together.
    pub(crate) connections: usize,
    /// A note for the operator when this is below the setting.
    pub(crate) note: Option<String>,
}

impl ConnectionBudget {
    /// The bound of the settings, cut to the limit of open files.
    ///
    /// # Errors
    /// A line that says that the limit is too low to serve.
    pub(crate) fn new(settings: &ServerSettings, limit: usize) -> Result<Self, ServerFailure> {
        let (mut needs, requested) = (DescriptorNeeds::for_engine(settings.engine), settings.connections_max);
        needs.reserve += (settings.webhook_hosts.len() + settings.s3_event_targets.len()) * WEBHOOK_CONNECTIONS_MAX;
        // Too few descriptors would show as refused connections later; the start says so at once.
        if limit < needs.limit_min() {
            return Err(ServerFailure(format!(
                "only {limit} files may be open at a time: {} at least are needed; raise the hard limit (ulimit -Hn)",
                needs.limit_min()
            )));
        }
        let connections = requested.min(needs.connections(limit));
        // The default is a wish: as many as most servers have are no news at each start.
        let is_default = table::CONNECTIONS_MAX.default.parse() == Ok(requested);
        let enough = if is_default { requested.min(CONNECTIONS_USUAL) } else { requested };
        let note = (connections < enough).then(|| {
            format!(
                "at most {connections} connections instead of {requested} ({}): {limit} files may be open at a time",
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

    fn budget(arguments: &str, limit: usize) -> Result<ConnectionBudget, ServerFailure> {
        let arguments = std::iter::once("larder").chain(arguments.split_whitespace()).map(Into::into);
        match read(arguments, &[], |_| Ok(String::new())).unwrap() {
            Invocation::Serve(settings) => ConnectionBudget::new(&settings, limit),
            other => panic!("no server is started: {other:?}"),
        }
    }

    #[test]
    fn connections_never_take_what_the_engine_needs() {
        for engine in [EngineKind::Local, EngineKind::Memory, EngineKind::Cassandra] {
            let needs = DescriptorNeeds::for_engine(engine);
            for limit in (needs.limit_min()..5_000).chain([65_536, usize::MAX]) {
                let connections = needs.connections(limit);
                let taken = needs.reserve.saturating_add(connections.saturating_mul(needs.each));
                assert!(connections >= CONNECTIONS_MIN && taken <= limit, "{engine:?} {limit}: {connections}");
            }
        }
    }

    #[test]
    fn a_usual_limit_cuts_the_connections_with_a_note() {
        let budget = |arguments, limit| budget(arguments, limit).unwrap();
        let low = budget("", 1024);
        assert_eq!(low.connections, 170);
        let note = low.note.unwrap();
        assert!(["170", "10000", "1024", "connections-max"].iter().all(|word| note.contains(word)), "{note}");
        // A limit of 20,000 files once was a warning at every start.
        assert_eq!(budget("", 20_000).note, None);
        assert!(budget("--connections-max 9000", 20_000).note.is_some());
        let enough = ConnectionBudget { connections: 150, note: None };
        assert_eq!(budget("--connections-max 150", 1024), enough);
        assert_eq!(budget("", 40_000), ConnectionBudget { connections: 10_000, note: None });
        assert_eq!(budget("--engine memory", 1024).connections, 928);
        assert_eq!(budget("--engine memory --webhook-hosts a,b", 1024).connections, 908);
    }

    #[test]
    fn a_limit_too_low_to_serve_is_refused() {
        let failure = budget("", 256).unwrap_err().to_string();
        assert!(failure.contains("256") && failure.contains("560") && !failure.contains('\n'), "{failure}");
        assert_eq!(budget("", 560).unwrap().connections, CONNECTIONS_MIN);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let limit = raise_limit();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        assert_eq!(limits.current.map(|limit| limit as usize), Some(limit));
    }
}
