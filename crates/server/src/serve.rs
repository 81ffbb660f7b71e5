//! The composition root: it opens everything in order, serves, and closes in the reverse order.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_admission::MemoryBudget;
use larder_api_riak::http::HttpSettings;
use larder_api_riak::pb::PbSettings;
use larder_api_s3::auth::PresignedGet;
use larder_api_s3::{PublicUrl, S3Settings};
use larder_console::{ConsoleAccess, ConsoleSettings, RunningCommands, ShareLink, SharedObject};
use larder_core::{AuditSink, CertificateStatus, Config, GatewayPorts, IndexSplitting, Scripts};
use larder_encryption::key_ring::KeyRing;
use larder_kv::Gateway;
use larder_moving::Mover;
use larder_net::{BrowserRules, ConnectionLimit, ConnectionSettings, ShutdownRequest, TrustedProxies};
use larder_rows::ActorId;
use larder_s3::{Objects, ObjectsConfig};
use larder_s3_rules::User;
use larder_store::{Clock, SystemClock};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::command::AdminContext;
use crate::admin::socket::{AdminSocket, check_path};
use crate::audit_log::AuditLog;
use crate::banner::{AdminKey, Banner, LaunchContext, ListenAddresses};
use crate::console::ConsoleLinks;
use crate::descriptors::ConnectionBudget;
use crate::engine::OpenEngine;
use crate::failure::ServerFailure;
use crate::key_ring_file;
use crate::listeners::{self, BoundListener, BoundListeners, ListenerCertificate};
use crate::memory::MemoryPlan;
use crate::metrics_listener::MetricsHandler;
use crate::private::check_private;
use crate::recent_log::{AuditKeeper, RecentLogs};
use crate::scripts::start_scripts;
use crate::settings::{DurabilitySetting, Listener, ScrapeAccess, ServerSettings};
use crate::signals::{self, ProcessSignals};
use crate::source_client::source_client;
use crate::start_buckets::make_buckets;
use crate::webhook_client::webhook_client;

/// Serves until SIGTERM or SIGINT, then ends in order. At most `files_max` files and sockets may be open at a time.
///
/// # Errors
/// A line that says which part could not be opened or closed.
pub(crate) async fn serve(
    settings: &ServerSettings,
    files_max: usize,
    recent: RecentLogs,
) -> Result<(), ServerFailure> {
    let budget = ConnectionBudget::new(settings, files_max)?;
    let memory = MemoryPlan::new(settings);
    let signals = signals::watch().map_err(|error| ServerFailure(format!("cannot listen for signals: {error}")))?;
    let ProcessSignals { stop: mut shutdown, hangups } = signals;
    check_path(&settings.admin_socket).map_err(|error| ServerFailure(error.to_string()))?;
    // Before the engine opens: it would put data into a directory that others may read.
    check_private(&settings.data_dir)?;
    let tls = listeners::load(settings.tls.as_ref())?;
    // A first start that cannot listen leaves no folder of data.
    if !settings.data_dir.exists() {
        let needed = ServerSettings { console: Listener::Off, metrics: Listener::Off, ..settings.clone() };
        drop(BoundListeners::bind(&needed, tls.as_ref()).await?);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    // Drawn at each start: a server whose clock was set back must not issue a dot again [invariant 12].
    let actor = actor(&*clock);
    // The guard is dropped last: it writes the lines that still wait.
    let audit = settings.audit_log.as_ref().map(|target| AuditLog::open(target, clock.clone())).transpose()?;
    let (audit, _audit_guard) = audit.map(|(log, guard)| (Arc::new(log) as Arc<dyn AuditSink>, guard)).unzip();
    let keeper = AuditKeeper { log: audit.clone(), recent: recent.clone(), clock: clock.clone() };
    // The console shows what no file keeps.
    let audit = if settings.console == Listener::Off { audit } else { Some(Arc::new(keeper) as Arc<dyn AuditSink>) };
    let key_ring = key_ring_file::open(settings)?;
    let engine = tokio::select! {
        biased;
        opened = OpenEngine::open(settings, &memory, clock.clone(), ActorId(actor), &key_ring) => opened?,
        // A cluster may delay the start for minutes; a signal ends the wait.
        _ = shutdown.wait_for(|down| *down) => return Ok(()),
    };
    // A member that cannot listen would hold up the others: the ports are bound before the gateway starts.
    let bound = BoundListeners::bind(settings, tls.as_ref()).await?;
    let at = bound.addresses(&settings.admin_socket);
    // Before the first heartbeat: other gateways would wait for one that then fails to start.
    let socket = bind_admin(settings).await?;
    let name = node_name(settings, at);
    let config = gateway_config(settings, &name, at.http, budget.connections);
    let scripts = start_scripts(settings, clock.clone())?;
    let certificate = tls.clone().map(|tls| Arc::new(ListenerCertificate(tls)) as Arc<dyn CertificateStatus>);
    let webhooks = webhook_client(settings.webhook_ca.as_deref()).map_err(ServerFailure)?;
    let sources = source_client(settings.webhook_ca.as_deref()).map_err(ServerFailure)?;
    let ports =
        GatewayPorts { audit, certificate, webhooks: Some(webhooks), ..gateway_ports(&engine, clock, actor, scripts) };
    let gateway = Gateway::start(ports, config).await;
    let gateway = gateway.map_err(|error| ServerFailure(format!("cannot start: {error}")))?;
    let objects =
        Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], objects_config(settings, key_ring));
    let s3_admin = s3_admin(settings, &objects).await?;
    make_buckets(&settings.s3_buckets, s3_admin.as_ref().map(|(user, _)| user), &objects).await?;
    let admin = s3_admin.and_then(|(user, is_new)| new_key(settings, &user, is_new));
    let mut background = engine.start_background(&gateway, &objects, settings);
    let mover = Mover::new(gateway.clone(), objects.clone(), sources);
    background.spawn(mover.clone().run());

    let connection = connection_settings(settings, budget.connections, memory.clients);
    let mut listeners = JoinSet::new();
    for bound in bound.http {
        let (gateway, http) = (gateway.clone(), http_settings(settings, connection.clone(), &bound));
        listeners.spawn(larder_api_riak::http::serve(bound.listener, gateway, http, ended(shutdown.clone())));
    }
    for bound in bound.pb {
        let (gateway, pb) = (gateway.clone(), PbSettings { connection: connection.clone(), tls: tls.clone() });
        listeners.spawn(larder_api_riak::pb::serve(bound.listener, gateway, pb, ended(shutdown.clone())));
    }
    if !bound.s3.is_empty() {
        let s3 = s3_settings(settings, connection.clone(), &bound.s3);
        let bound = bound.s3.into_iter().map(|bound| bound.listener).collect();
        listeners.spawn(larder_api_s3::serve(bound, objects.clone(), s3, ended(shutdown.clone())));
    }
    if let Some(bound) = bound.metrics {
        let hosts = bound_hosts(&bound, Some(Vec::new()));
        let browsers = Arc::new(BrowserRules { hosts, ..BrowserRules::default() });
        let handler = MetricsHandler { core: Arc::clone(gateway.shared()), connection: connection.clone(), browsers };
        listeners.spawn(larder_net::serve(bound.listener, handler, ended(shutdown.clone())));
    }
    let commands = RunningCommands::default();
    let console = bound.console.map(|bound| {
        let console = ConsoleSettings {
            commands: commands.clone(),
            log: Arc::clone(&recent.log),
            changes: Arc::clone(&recent.changes),
            refusals: Arc::clone(&recent.refusals),
            share: share_link(settings, at),
            ..console_settings(settings, connection.clone(), &bound, mover.clone())
        };
        let links = ConsoleLinks::new(console.access.clone(), bound.address);
        listeners.spawn(larder_console::serve(
            bound.listener,
            gateway.clone(),
            objects.clone(),
            console,
            ended(shutdown.clone()),
        ));
        links
    });
    let certificate = tls.map(|tls| listeners::keep_current(tls, hangups));
    let console_link = console.as_ref().filter(|_| std::io::stdout().is_terminal());
    let console_link = console_link.map(|links| links.issue(gateway.context().monotonic()));
    let context = AdminContext {
        gateway: gateway.clone(),
        objects: objects.clone(),
        console,
        listeners: [at.http, at.https, at.s3, at.s3_https].into_iter().flatten().collect(),
        mover,
        backup: engine.backup.clone(),
        data_keys: engine.data_keys.clone(),
        commands,
    };
    listeners.spawn(socket.serve(context, shutdown.clone()));
    let kv_admin = LaunchContext::current().kv_admin(&settings.admin_socket);
    let notes: Vec<_> = engine.notes.iter().cloned().chain(budget.note).chain(memory.note).collect();
    let is_minio_server = settings.is_minio_server;
    let data = &engine.description;
    announce(&Banner { name: &name, at, data, notes: &notes, admin, kv_admin, is_minio_server, console_link });

    wait_for_shutdown(shutdown, &mut listeners).await;
    gateway.context().begin_stopping();
    // Running requests may still write, so the listeners end before the engine closes.
    drain(&mut listeners, settings.drain_timeout).await;
    // The background tasks end before the engine closes: a sweep of a closed store would log errors.
    drop((background, certificate));
    if let Err(error) = objects.usage.flush().await {
        tracing::warn!(%error, "usage of S3 users not written: the last minute is lost");
    }
    // The gateway leaves the members while the store still takes its last write.
    gateway.shutdown().await;
    engine.close().await
}

/// Waits for the signal. A listener that ends before it is a defect, but does not stop the others.
async fn wait_for_shutdown(mut shutdown: watch::Receiver<bool>, listeners: &mut JoinSet<()>) {
    loop {
        let ended = tokio::select! {
            // `biased`: a listener that ends because of the signal must not count as a defect.
            biased;
            _ = shutdown.wait_for(|down| *down) => return,
            Some(ended) = listeners.join_next() => ended,
        };
        // The listener may see the signal first: its end is then no defect.
        if *shutdown.borrow() {
            return;
        }
        tracing::error!(?ended, "listener ended without a signal: its clients cannot connect");
    }
}

/// Waits for running requests until the deadline.
async fn drain(listeners: &mut JoinSet<()>, deadline: Duration) {
    let all = async { while listeners.join_next().await.is_some() {} };
    if tokio::time::timeout(deadline, all).await.is_err() {
        // Bound: a client that holds its connection must not hold up the shutdown.
        tracing::warn!(?deadline, "drain timed out: running requests are cut off");
        listeners.shutdown().await;
    }
}

async fn bind_admin(settings: &ServerSettings) -> Result<AdminSocket, ServerFailure> {
    if let Some(dir) = settings.admin_socket.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)
            .map_err(|error| ServerFailure(format!("cannot make the directory {}: {error}", dir.display())))?;
    }
    AdminSocket::bind(&settings.admin_socket).await.map_err(|error| ServerFailure(error.to_string()))
}

/// This gateway's name: the configured one, or the machine's name and the port, so that several may run on a machine.
fn node_name(settings: &ServerSettings, at: ListenAddresses<'_>) -> String {
    settings.node_name.clone().unwrap_or_else(|| {
        let machine = rustix::system::uname();
        let port =
            at.http.or(at.https).or(at.s3).or(at.s3_https).map_or_else(String::new, |at| format!(":{}", at.port()));
        format!("larder@{}{port}", machine.nodename().to_string_lossy())
    })
}

fn gateway_ports(engine: &OpenEngine, clock: Arc<dyn Clock>, actor: u64, scripts: Arc<dyn Scripts>) -> GatewayPorts {
    let (store, blobs, view) = (engine.store.clone(), engine.blobs.clone(), engine.view.clone());
    GatewayPorts {
        store,
        blobs,
        actor: ActorId(actor),
        random: fill_random,
        clock,
        engine: view,
        scripts: Some(scripts),
        audit: None,
        certificate: None,
        webhooks: None,
        product: larder_s3::S3Catalogue::empty(),
    }
}

fn gateway_config(settings: &ServerSettings, name: &str, address: Option<SocketAddr>, connections: usize) -> Config {
    Config {
        node: name.to_owned(),
        address: address.map_or_else(String::new, |address| address.to_string()),
        durable: settings.durability == DurabilitySetting::Disk,
        object_bytes_max: settings.object_bytes_max,
        siblings_max: settings.siblings_max,
        index_splitting: IndexSplitting { shard_rows: settings.index_shard_rows, ..IndexSplitting::default() },
        delete_mode: settings.delete_mode,
        webhook_hosts: settings.webhook_hosts.clone(),
        event_targets: settings.s3_event_targets.clone(),
        timeout: settings.request_timeout,
        offers_tls: settings.tls.is_some() || !settings.proxies.is_empty(),
        single_process: settings.engine.is_single_process(),
        // A connection has one request at a time, so the bound of connections also bounds requests.
        requests_max: connections,
    }
}

/// The id of this run: 64 bits of the standard library's random keys, mixed with the process id and the time. Never 0.
fn actor(clock: &dyn Clock) -> u64 {
    ActorId::for_run(RandomState::new().hash_one((std::process::id(), clock.now()))).0
}

/// Random bytes of the system, for keys and secrets.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    // A panic is better than a key that can be guessed.
    getrandom::fill(bytes).unwrap_or_else(|error| panic!("the system gives no randomness: {error}"));
}

fn objects_config(settings: &ServerSettings, key_ring: Arc<KeyRing>) -> ObjectsConfig {
    ObjectsConfig {
        region: settings.s3_region.clone(),
        buckets_max: settings.s3_buckets_max,
        single_process: settings.engine.is_single_process(),
        key_ring,
        ..ObjectsConfig::default()
    }
}

/// Ensures that an S3 admin exists; returns it, and whether this start created it.
async fn s3_admin(settings: &ServerSettings, objects: &Objects) -> Result<Option<(Arc<User>, bool)>, ServerFailure> {
    if !settings.serves_s3() {
        return Ok(None);
    }
    let failed = |error| ServerFailure(format!("cannot start: the S3 admin: {error}"));
    match objects.users.ensure_admin(settings.s3_admin.clone()).await {
        Err(larder_s3::Error::Gateway(larder_core::Error::DiskFull)) => {
            tracing::warn!("S3 admin not written: the disk is full; the next start writes it");
            Ok(None)
        }
        ensured => ensured.map(Some).map_err(failed),
    }
}

/// The key of the S3 admin, if this start created it.
fn new_key(settings: &ServerSettings, admin: &User, is_new: bool) -> Option<AdminKey> {
    let shown = is_new && settings.s3_admin.is_none();
    shown.then(|| AdminKey::hand_over(admin.key_id.clone(), admin.secret.clone(), &settings.data_dir))
}

fn announce(banner: &Banner<'_>) {
    let text = banner.text();
    let mut out = std::io::stdout().lock();
    // A closed standard output does not stop the server.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let ListenAddresses { http, https, pb, pb_tls, s3, s3_https, console, .. } = banner.at;
    let shown = |at: Option<SocketAddr>| at.map(tracing::field::display);
    let (http, https, pb, pb_tls) = (shown(http), shown(https), shown(pb), shown(pb_tls));
    tracing::info!(
        node = banner.name,
        http,
        https,
        pb,
        pb_tls,
        s3 = shown(s3),
        s3_https = shown(s3_https),
        console = shown(console),
        "ready"
    );
    for note in banner.notes {
        tracing::warn!("{note}");
    }
}

/// The settings of connections, with the limits that all listeners share.
fn connection_settings(settings: &ServerSettings, connections: usize, memory: MemoryBudget) -> ConnectionSettings {
    let (connections, drain_timeout) = (ConnectionLimit::new(connections), settings.drain_timeout);
    let proxies = TrustedProxies::new(&settings.proxies);
    let slow_after = settings.slow_log;
    ConnectionSettings { connections, memory, proxies, slow_after, drain_timeout, ..ConnectionSettings::default() }
}

fn http_settings(settings: &ServerSettings, connection: ConnectionSettings, bound: &BoundListener) -> HttpSettings {
    let hosts = bound_hosts(bound, settings.http_hosts.clone());
    HttpSettings { connection, browsers: BrowserRules { origins: settings.http_origins.clone(), hosts } }
}

fn console_settings(
    settings: &ServerSettings,
    connection: ConnectionSettings,
    bound: &BoundListener,
    mover: Arc<Mover>,
) -> ConsoleSettings {
    ConsoleSettings {
        mover,
        connection,
        browsers: BrowserRules { hosts: bound_hosts(bound, settings.console_hosts.clone()), ..BrowserRules::default() },
        access: Arc::new(ConsoleAccess::new(fill_random)),
        port: bound.address.port(),
        read_only: settings.console_read_only,
        commands: RunningCommands::default(),
        log: Arc::default(),
        changes: Arc::default(),
        refusals: Arc::default(),
        share: None,
    }
}

/// Makes links to S3 objects, at the address that clients are told, or else at that of a listener.
fn share_link(settings: &ServerSettings, at: ListenAddresses<'_>) -> Option<ShareLink> {
    // Every address of the machine is none for a link.
    let listens = |scheme: &str, address: Option<SocketAddr>| {
        let address = address.filter(|address| !address.ip().is_unspecified())?;
        PublicUrl::parse(&format!("{scheme}://{address}")).ok()
    };
    let root = settings.s3_public_url.clone();
    let root = root.or_else(|| listens("https", at.s3_https)).or_else(|| listens("http", at.s3))?;
    let region = S3Settings::default().region;
    Some(Arc::new(move |user: &User, shared: &SharedObject<'_>| {
        let SharedObject { bucket, key, version, seconds, now } = *shared;
        let get = PresignedGet { bucket, key, version, now, seconds, region: region.as_deref() };
        get.address(&root, &user.key_id, &user.secret)
    }))
}

/// The hosts that requests of a listener may name, beside loopback; `None`: any.
fn bound_hosts(bound: &BoundListener, mut hosts: Option<Vec<String>>) -> Option<Vec<String>> {
    if let Some(hosts) = &mut hosts {
        hosts.extend(bound.names());
    }
    // A machine's other addresses have names that the server does not know, and no page can reach them through loopback.
    hosts.filter(|_| bound.is_on_loopback())
}

fn s3_settings(settings: &ServerSettings, connection: ConnectionSettings, bound: &[BoundListener]) -> S3Settings {
    let mut roots = settings.s3_hosts.clone();
    roots.extend(bound.iter().flat_map(BoundListener::names));
    let public_url = settings.s3_public_url.clone();
    roots.extend(public_url.as_ref().map(|url| url.host().to_owned()));
    let is_on_loopback = bound.iter().all(BoundListener::is_on_loopback);
    let has_public_metrics = settings.s3_metrics == ScrapeAccess::Public;
    let websites = settings.s3_website_hosts.clone();
    S3Settings {
        roots,
        websites,
        public_url,
        connection,
        is_on_loopback,
        has_public_metrics,
        takes_plain_customer_keys: settings.s3_ssec_plain,
        ..S3Settings::default()
    }
}

/// Waits until the server is to end.
fn ended(mut shutdown: watch::Receiver<bool>) -> ShutdownRequest {
    Box::pin(async move {
        let _ = shutdown.wait_for(|down| *down).await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_own_actor() {
        let clock = SystemClock::default();
        let actors: std::collections::BTreeSet<u64> = (0..1000).map(|_| actor(&clock)).collect();
        assert_eq!(actors.len(), 1000);
        assert!(!actors.contains(&0));
    }
}
