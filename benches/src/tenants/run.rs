//! A run of `tenants`: a fresh server for each attack, calm and attacked times in turn, its report.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use tokio::time::sleep;

use super::attack::TenantAttack;
use super::attackers::RunningAttack;
use super::calm::CalmTenant;
use super::certificate;
use super::site::{TenantSite, WebhookHosts};
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::report::{BenchReport, ReportStyle, size, thousands};
use crate::s3::own_account;
use crate::server::{ServerConfig, ServerProcess, log_end};
use crate::targets::BenchTarget;

const NOTES: &str = "\
- Each attack has a server of its own with the embedded engine and its defaults. One connection of a calm tenant sends its requests one after the
  other, first without the attack, then while it runs; the p99 of both times stands beside their ratio. The attackers run on a thread of their
  own, and share the two cores with the server and the calm client.
- Webhooks: four connections put into a bucket with eight webhooks, half of them at a host that answers nothing, half at one that refuses; the
  calm tenant puts into a bucket with a webhook that is received. Jobs and hooks: twelve connections with a function that never ends; the
  calm tenant puts into a bucket with a precommit hook in JavaScript.
- Policies: two connections delete 1,000 keys of 900 bytes at a time, anonymously, against a policy of 110 wildcards with twenty stars each; the
  calm tenant reads 1 KB over S3. Log-ins: sixteen connections guess the password of one user; the calm tenant's log-ins come from the
  same address, are spread over the time, and are the first of their users, since a right password is remembered.
- Backups: `kv-admin backup` copies 460 MB of values to another disk, in memory, again and again; the calm tenant puts.
";

/// The style of the report of `tenants`.
const STYLE: ReportStyle = ReportStyle { command: "tenants", size, shows_moved: false, notes: NOTES };
/// The module of the server in JavaScript.
const MODULE: &str = include_str!("bench.js");
/// From the calm requests to the attack: their notices and syncs end.
const PAUSE: Duration = Duration::from_secs(1);

/// The arguments of `tenants`.
#[derive(Debug, clap::Args)]
pub(crate) struct TenantsBenchArgs {
    #[command(flatten)]
    args: CommonArgs,
    /// Only these attacks.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<TenantAttack>,
}

/// Runs all attacks, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When a server cannot be started, prepared or reached, and when a calm request gets another answer than in calm. A missed target
/// is no error.
pub(crate) async fn run(TenantsBenchArgs { args, only }: TenantsBenchArgs) -> Result<ExitCode> {
    if args.url.is_some() || args.beside.is_some() || args.engine.as_deref() == Some("cassandra") {
        bail!(
            "tenants gives hooks, policies and users to a server that it starts itself: it takes no --url, no --beside and no cluster"
        );
    }
    std::fs::create_dir_all(&args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-tenants-").tempdir_in(&args.scratch)?;
    let length = Duration::from_secs(args.seconds.unwrap_or(if args.quick { 2 } else { 60 }));
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let report = args.report(arguments, scratch.path(), length.as_secs_f64());
    let mut report = BenchReport { style: STYLE, ..report };
    let scratch = scratch.path().canonicalize()?;
    for attack in TenantAttack::ALL.into_iter().filter(|attack| only.is_empty() || only.contains(attack)) {
        let config = ServerConfig::of(&args, &scratch, &format!("{attack:?}").to_lowercase())?;
        let log = config.log.clone();
        let target = measure(attack, config, &scratch, length).await;
        report.targets.push(target.with_context(|| log_end(&log))?);
    }
    args.publish(&mut report)
}

/// Starts a server, measures the calm tenant without and with the attack, and ends the server.
async fn measure(attack: TenantAttack, config: ServerConfig, scratch: &Path, length: Duration) -> Result<BenchTarget> {
    eprintln!("measuring a calm tenant beside {attack:?}");
    let hosts = WebhookHosts::start()?;
    let (pair, client) = certificate::make(scratch)?;
    let js_dir = scratch.join("js");
    std::fs::create_dir_all(&js_dir)?;
    std::fs::write(js_dir.join("bench.js"), MODULE)?;
    let account = own_account();
    let config = ServerConfig {
        s3: Some(account.clone()),
        tls: Some(pair),
        js_dir: Some(js_dir),
        webhook_hosts: Some(hosts.setting()?),
        ..config
    };
    let socket = config.data.join("admin.sock");
    let server = ServerProcess::start(config)?;
    let https = Endpoint { tls: Some(client), ..server.https.clone() };
    let site = TenantSite { http: server.endpoint.clone(), https, s3: server.s3.clone(), account, socket };
    site.prepare(attack, &server, &hosts).await?;
    let mut tenant = CalmTenant::connect(&site, attack).await?;
    let calm = tenant.measure(length).await.context("in calm")?;
    sleep(PAUSE).await;
    let running = RunningAttack::start(&site, attack).await;
    let attacked = tenant.measure(length).await.context("under attack");
    let answered = running.stop()?;
    let attacked = attacked?;
    server.stop()?;
    let ratio = p99(&attacked) / p99(&calm);
    let detail =
        format!("{}; attacked: {}, {} hostile answers", shown(&calm), shown(&attacked), thousands(answered as f64));
    Ok(BenchTarget::new(attack.target(), Some(ratio), detail))
}

/// In milliseconds.
fn p99(latencies: &Histogram<u64>) -> f64 {
    latencies.value_at_quantile(0.99) as f64 / 1e3
}

fn shown(latencies: &Histogram<u64>) -> String {
    let median = latencies.value_at_quantile(0.5) as f64 / 1e3;
    format!("{} requests, median {median:.2} ms, p99 {:.2} ms", thousands(latencies.len() as f64), p99(latencies))
}
