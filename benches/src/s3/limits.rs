//! GETs beside their limits: small ones beside Riak's HTTP of the same process, large ones beside `sendfile`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};

use super::bucket::{BucketJob, S3Subject, loaded};
use super::cells::{self, CreatedKeys, S3BenchOperation, VALUE_BYTES, cell};
use super::driver::BucketLocation;
use crate::bare_file::BareFile;
use crate::cells::{KvOperation, KvSubject};
use crate::keys::{BenchRandom, ValuePool};
use crate::kv_location::{KvLocation, KvProtocol};
use crate::limits::CELL_OPERATIONS_MAX;
use crate::load;
use crate::report::BenchReport;
use crate::server::{S3Account, ServerProcess};
use crate::targets;
use crate::turns::{BARE_CONNECTIONS, Comparison, Rounds, TurnRunner, in_turns, kv_turns};

/// The size of a large body.
pub(crate) const LARGE_BYTES: usize = VALUE_BYTES[2];

/// The connections of the target of large bodies.
pub(crate) const LARGE_CONNECTIONS: u64 = 4;

/// The pause after which a server counts as settled.
const SETTLE: Duration = Duration::from_secs(2);

/// A started server with S3, and its bucket for small bodies, which is not made yet.
pub(crate) fn subject(server: &ServerProcess, account: S3Account, values: Arc<ValuePool>) -> S3Subject {
    S3Subject {
        place: BucketLocation { endpoint: server.s3.clone(), account, bucket: "larder-bench-small".to_owned() },
        kv: Some(server.endpoint.clone()),
        values,
        pid: Some(server.pid()),
        // Numbers below are for keys that are made outside of cells.
        new_keys: Arc::new(AtomicU64::new(CELL_OPERATIONS_MAX)),
    }
}

/// Makes the bucket and its small keys.
///
/// # Errors
///
/// When the server refuses.
pub(crate) async fn load_small(subject: &S3Subject, keys: u64) -> Result<()> {
    subject.make().await?;
    subject.work(BucketJob::Load(VALUE_BYTES[0]), keys).await.map(drop)
}

/// Makes the bucket and its large keys.
///
/// # Errors
///
/// When the server refuses.
pub(crate) async fn load_large(subject: &S3Subject, keys: u64) -> Result<()> {
    subject.make().await?;
    subject.work(BucketJob::Load(LARGE_BYTES), keys).await.map(drop)
}

/// Compares GETs of the loaded small keys with GETs of as many bytes over Riak's HTTP of the same process.
///
/// # Errors
///
/// When a connection cannot be made, or the server refuses.
pub(crate) async fn small_gets(report: &mut BenchReport, subject: &S3Subject, keys: u64, rounds: Rounds) -> Result<()> {
    eprintln!("comparing GET 4 KiB over S3 with one over Riak's HTTP");
    let endpoint = subject.kv.clone().context("a server without Riak's HTTP")?;
    let kv = KvSubject {
        place: KvLocation { endpoint, protocol: KvProtocol::Http, value_bytes: VALUE_BYTES[0] },
        values: subject.values.clone(),
        pid: subject.pid,
        read_keys: (load::READ, keys),
        new_keys: Arc::default(),
    };
    load::fill(&kv, keys).await?;
    let connections = BARE_CONNECTIONS as u64;
    let sides =
        [s3_turns(subject, VALUE_BYTES[0], connections, keys), kv_turns(&kv, KvOperation::Get, BARE_CONNECTIONS)];
    let [ours, base] = in_turns(sides, rounds).await?;
    let gets = Comparison::of(&ours, &base);
    report.rate_target(targets::S3_SMALL_GET, &gets, "KV over HTTP");
    Ok(())
}

/// Compares GETs of the loaded large keys with a bare server that sends one of them from a file with `sendfile`. The target is
/// about [`LARGE_CONNECTIONS`]; other numbers of connections are single figures.
///
/// # Errors
///
/// When a connection cannot be made, or the bare server does not start.
pub(crate) async fn large_gets(
    report: &mut BenchReport,
    subject: &S3Subject,
    keys: u64,
    scratch: &Path,
    rounds: Rounds,
    connections: &[u64],
) -> Result<()> {
    let file = scratch.join("bare-file");
    std::fs::write(&file, subject.values.cut(&mut BenchRandom::new(1), LARGE_BYTES))?;
    let bare_server = BareFile::start(&file)?;
    let place = BucketLocation { endpoint: bare_server.endpoint.clone(), ..subject.place.clone() };
    let bare = S3Subject { place, pid: Some(bare_server.pid()), ..subject.clone() };
    // Each key is read once before the measurement: the page cache is warm on both sides.
    let mut driver = subject.connect(0).await?;
    for number in 0..keys {
        driver.get(&loaded(number)).await?;
    }
    tokio::time::sleep(SETTLE).await;
    for connections in connections.iter().copied() {
        eprintln!("comparing GET 64 MiB over S3 with sendfile, {connections} connections");
        let turns = |subject| s3_turns(subject, LARGE_BYTES, connections, keys);
        let [ours, base] = in_turns([turns(subject), turns(&bare)], rounds).await?;
        let gets = Comparison::of(&ours, &base);
        if connections == LARGE_CONNECTIONS {
            report.rate_target(targets::S3_GET, &gets, "sendfile");
            report.cpu_target(targets::S3_GET_CPU, &gets, "sendfile");
        } else {
            report.comparison(format!("S3 GET 64 MiB to sendfile, connections: {connections}"), &gets, "sendfile");
        }
    }
    drop(bare_server);
    Ok(std::fs::remove_file(&file)?)
}

fn s3_turns(subject: &S3Subject, value_bytes: usize, connections: u64, keys: u64) -> TurnRunner<'_> {
    let cell = cell(S3BenchOperation::Get, value_bytes, connections);
    Box::new(move |_, length| {
        let made = CreatedKeys::default();
        Box::pin(
            async move { Ok((&cells::run(subject, cell, S3BenchOperation::Get, keys, &made, length).await?).into()) },
        )
    })
}
