//! The connections of the hostile tenant, and their requests without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::admin_socket::run_command;
use super::attack::TenantAttack;
use super::site::TenantSite;
use super::value_requests::ValueDriver;
use crate::client::KeepAliveClient;

/// From the first hostile request to the first calm one: calls that never end have their workers then, and queues are full.
const SETTLE: Duration = Duration::from_secs(2);
/// A folder on another disk than the data: what is backed up there is copied, not linked.
const OTHER_DISK: &str = "/dev/shm";
/// A function that never ends by itself.
const ENDLESS: &str = "function(object) { for (;;) {} }";
/// Keys of a request that deletes many, and the bytes of each.
const DELETED: (usize, usize) = (1_000, 900);

/// An attack under way, on a thread of its own: its work must not delay the clock of the calm requests.
pub(super) struct RunningAttack {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
    answered: Arc<AtomicU64>,
}

impl RunningAttack {
    /// Starts all connections, and waits until the server feels them.
    pub(super) async fn start(site: &TenantSite, attack: TenantAttack) -> Self {
        let (stop, stopped) = oneshot::channel();
        let answered = Arc::<AtomicU64>::default();
        let (site, counted) = (site.clone(), Arc::clone(&answered));
        let thread = thread::spawn(move || {
            Builder::new_current_thread().enable_all().build()?.block_on(run(site, attack, counted, stopped))
        });
        sleep(SETTLE).await;
        Self { stop, thread, answered }
    }

    /// Ends the connections; returns how many requests were answered.
    ///
    /// # Errors
    ///
    /// When a connection broke before, or got an answer that it should not get.
    pub(super) fn stop(self) -> Result<u64> {
        // A thread that has failed does not listen.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the thread of the attackers panicked"))??;
        Ok(self.answered.load(Ordering::Relaxed))
    }
}

async fn run(
    site: TenantSite,
    attack: TenantAttack,
    answered: Arc<AtomicU64>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..attack.connections() {
        tasks.spawn(repeat(site.clone(), attack, number, Arc::clone(&answered)));
    }
    tokio::select! {
        _ = stopped => Ok(()),
        Some(ended) = tasks.join_next() => {
            ended??;
            bail!("an attacker stopped")
        }
    }
}

/// Sends the hostile request for ever. A server may close a connection that it refuses: a new one takes its place.
async fn repeat(site: TenantSite, attack: TenantAttack, number: u64, answered: Arc<AtomicU64>) -> Result<()> {
    loop {
        let mut tenant = HostileTenant::connect(&site, attack, number).await?;
        while let Ok(status) = tenant.send(attack, number, answered.load(Ordering::Relaxed)).await {
            ensure!(attack.statuses().contains(&status), "{attack:?}: status {status}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A connection of the hostile tenant.
enum HostileTenant {
    /// Requests of Riak's HTTP.
    Values(ValueDriver),
    /// Anonymous requests of S3 that delete many keys.
    Deletes(MassDelete),
    /// Backups by the admin socket.
    Backups(TenantSite),
}

impl HostileTenant {
    async fn connect(site: &TenantSite, attack: TenantAttack, number: u64) -> Result<Self> {
        Ok(match attack {
            TenantAttack::Policies => Self::Deletes(MassDelete::new(site, number).await?),
            TenantAttack::Backups => Self::Backups(site.clone()),
            TenantAttack::LogIns => Self::Values(ValueDriver::connect(&site.https).await?),
            _ => Self::Values(ValueDriver::connect(&site.http).await?),
        })
    }

    /// Sends the next request; returns its status.
    async fn send(&mut self, attack: TenantAttack, number: u64, sent: u64) -> Result<u16> {
        match self {
            Self::Deletes(request) => request.send().await,
            Self::Backups(site) => back_up(site.clone()).await.map(|()| 200),
            Self::Values(driver) => {
                build(attack, number, sent, driver)?;
                Ok(driver.send().await?.status)
            }
        }
    }
}

/// Makes a whole backup on another disk, and removes it.
async fn back_up(site: TenantSite) -> Result<()> {
    let work = move || {
        let folder = tempfile::tempdir_in(OTHER_DISK)?;
        let into = folder.path().join("backup");
        run_command(&site.socket, &["backup", &into.display().to_string()])
    };
    tokio::task::spawn_blocking(work).await?
}

fn build(attack: TenantAttack, number: u64, sent: u64, driver: &mut ValueDriver) -> Result<()> {
    let request = &mut driver.request;
    match attack {
        TenantAttack::Jobs => {
            let source = serde_json::to_vec(ENDLESS)?;
            request.post(format_args!("/mapred"));
            let start = br#"{"inputs":[["noisy-input","one"]],"query":[{"map":{"language":"javascript","source":"#;
            request.add(&[start, &source, b"}}]}"]);
        }
        TenantAttack::LogIns => {
            request.get(format_args!("/buckets/noisy/keys/none"));
            let guess = STANDARD.encode(format!("victim:wrong-{number}-{sent}"));
            request.add_header(format_args!("Authorization: Basic {guess}"));
        }
        _ => {
            request.put(format_args!("/buckets/noisy/keys/{number}-{sent}"));
            request.add(&[ENDLESS.as_bytes()]);
        }
    }
    Ok(())
}

/// An anonymous request that deletes many keys, and its connection.
struct MassDelete {
    client: KeepAliveClient,
    head: Vec<u8>,
    body: String,
}

impl MassDelete {
    async fn new(site: &TenantSite, number: u64) -> Result<Self> {
        let (count, bytes) = DELETED;
        let mut body = "<Delete><Quiet>true</Quiet>".to_owned();
        for key in 0..count {
            body += &format!("<Object><Key>{}{number}-{key:04}</Key></Object>", "a".repeat(bytes));
        }
        body += "</Delete>";
        let digest = STANDARD.encode(Sha1::digest(body.as_bytes()));
        let head = format!(
            "POST /noisy?delete HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nx-amz-checksum-sha1: {digest}\r\n\r\n",
            site.s3.host,
            body.len()
        );
        Ok(Self { client: KeepAliveClient::connect(&site.s3).await?, head: head.into_bytes(), body })
    }

    async fn send(&mut self) -> Result<u16> {
        // The client puts a short body behind the head.
        let mut head = self.head.clone();
        Ok(self.client.exchange_body(&mut head, self.body.as_bytes(), false).await?.status)
    }
}
