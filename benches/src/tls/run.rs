//! A run of `tls`: its server, its comparisons, its report.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{handshakes, pair};
use crate::cells::{KvOperation, KvSubject};
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::keys::ValuePool;
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::report::{BenchReport, ReportStyle, size};
use crate::server::{ServerConfig, ServerProcess, log_end};
use crate::targets;
use crate::turns::{BARE_CONNECTIONS, BARE_VALUE_BYTES, Comparison, Rounds, in_turns, kv_turns};

const NOTES: &str = "\
- 1 KB is 1,024 bytes. Both sides are one server with the embedded engine, which holds the same 10,000 keys in memory: one side comes in by
  `--http`, the other by `--https`, in turns that begin alternately. Ratios are of medians.
- TLS 1.3 with `TLS_AES_256_GCM_SHA384` between rustls on both sides: the generator decrypts in one thread what the server encrypts, and
  shares its cores. The CPU time of the server alone stands beside each rate.
- A new connection is one of TCP, a whole handshake without resumption, one `GET /ping`, and its end. The certificate is self-signed
  with ECDSA P-256, so a chain of a public authority costs the client more, and the server some bytes.
";

/// The style of the report of `tls`.
const STYLE: ReportStyle = ReportStyle { command: "tls", size, shows_moved: false, notes: NOTES };

/// The arguments of `tls`.
#[derive(Debug, clap::Args)]
pub(crate) struct TlsBenchArgs {
    #[command(flatten)]
    args: CommonArgs,
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When a server cannot be started, loaded or reached. A missed target is no error. A wrong answer fails the run after the
/// report is printed.
pub(crate) async fn run(TlsBenchArgs { args }: TlsBenchArgs) -> Result<ExitCode> {
    if args.url.is_some() || args.beside.is_some() {
        bail!("tls gives a certificate to a server that it starts itself: it takes no --url and no --beside");
    }
    std::fs::create_dir_all(&args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-tls-").tempdir_in(&args.scratch)?;
    let milliseconds = args.seconds.map_or(if args.quick { 500 } else { 2_000 }, |seconds| seconds * 1_000);
    let rounds = Rounds { count: if args.quick { 2 } else { 5 }, length: Duration::from_millis(milliseconds) };
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let report = args.report(arguments, scratch.path(), rounds.length.as_secs_f64());
    let mut report = BenchReport { style: STYLE, ..report };
    let scratch = scratch.path().canonicalize()?;
    let (pair, client) = pair::make(&scratch)?;
    let config = ServerConfig { tls: Some(pair), ..ServerConfig::of(&args, &scratch, "tls")? };
    let log = config.log.clone();
    let measured = async {
        let server = ServerProcess::start(config)?;
        let encrypted = Endpoint { tls: Some(client), ..server.https.clone() };
        measure(&mut report, &server, &encrypted, rounds, if args.quick { 2_000 } else { 10_000 }).await?;
        server.stop()
    };
    measured.await.with_context(|| log_end(&log))?;
    args.publish(&mut report)
}

async fn measure(
    report: &mut BenchReport,
    server: &ServerProcess,
    encrypted: &Endpoint,
    rounds: Rounds,
    keys: u64,
) -> Result<()> {
    let place =
        KvLocation { endpoint: server.endpoint.clone(), protocol: KvProtocol::Http, value_bytes: BARE_VALUE_BYTES };
    let plain = KvSubject {
        place,
        values: Arc::new(ValuePool::new(BARE_VALUE_BYTES)),
        pid: Some(server.pid()),
        read_keys: (load::READ, keys),
        new_keys: Arc::default(),
    };
    load::fill(&plain, keys).await?;
    let over_tls = plain.at(encrypted, KvProtocol::Http, Some(server.pid()));
    for (operation, name) in [(KvOperation::Get, "GET"), (KvOperation::PutBuffered, "PUT with `dw=0`")] {
        eprintln!("comparing {name} over HTTPS with HTTP");
        let turns = |subject| kv_turns(subject, operation, BARE_CONNECTIONS);
        let [ours, base] = in_turns([turns(&over_tls), turns(&plain)], rounds).await?;
        let compared = Comparison::of(&ours, &base);
        match operation {
            KvOperation::Get => report.rate_target(targets::TLS_GET, &compared, "plain"),
            _ => report.comparison(format!("{name} 1 KB, 64 connections, HTTPS to HTTP"), &compared, "plain"),
        }
    }
    eprintln!("comparing new connections over HTTPS with HTTP");
    let runners = [handshakes::turns(encrypted, server.pid()), handshakes::turns(&server.endpoint, server.pid())];
    let [ours, base] = in_turns(runners, rounds).await?;
    let name = format!("new connections with one GET each, {} at a time, HTTPS to HTTP", handshakes::AT_A_TIME);
    report.comparison(name, &Comparison::of(&ours, &base), "plain");
    Ok(())
}
