//! Connecting to a cluster.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use larder_store::{Clock, Kind, Partition, Table};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError, NewSessionError,
};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::statement::Consistency;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::client::ClusterClient;
use crate::clock::ClusterClock;
use crate::errors::LarderRetryPolicy;
use crate::options::{ConnectOptions, NodeSettings, Replication, TlsOptions};
use crate::session::ClusterSession;
use crate::statements::RowStatement;

/// How long connecting and reading the settings may take.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// How long creating the tables may take: all nodes have to agree on each.
const SCHEMA_MAX: Duration = Duration::from_secs(180);
/// How long one connection may take.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// Interval of keepalives, and their timeout: a node silent for both together is no longer used.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Most file descriptors of the driver. It holds a connection to each Cassandra node or ScyllaDB shard and one for
/// events, and opens new ones before it closes broken ones. Enough for 32 nodes, or for 3 nodes of 32 shards.
pub const DESCRIPTORS_MAX: usize = 160;

/// Why a connection failed, in one line for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options contradict each other, or name something that does not exist.
    #[error("{0}")]
    Options(String),
    /// No contact point answered.
    #[error("no node of the cluster could be reached at {contact_points}: {cause}")]
    Unreachable {
        /// The contact points.
        contact_points: String,
        /// The error of the last one.
        cause: String,
    },
    /// The cluster refuses the user name and password, or requires them.
    #[error("the cluster refused the user name and password: {0}")]
    Authentication(String),
    /// The keyspaces or tables could not be created.
    #[error("the keyspaces could not be made: {0}")]
    Schema(String),
}

/// Connects, creates the schema and reads the settings of a node.
///
/// # Errors
/// Within half a minute, or three minutes if tables are created; plus the time of one connection to read a TLS alert.
pub(crate) async fn connect(options: ConnectOptions) -> Result<(ClusterClient, Vec<String>), ConnectError> {
    let deadline = Instant::now() + CONNECT_MAX;
    check_options(&options)?;
    let retry = LarderRetryPolicy::default();
    let session = Arc::new(open(&options, retry.clone(), deadline).await?);
    // The policy is built before the session, and needs it to see the connected nodes.
    retry.watch(&session);
    let settings = NodeSettings::read(&session, deadline).await;
    let clock: Arc<dyn Clock> = match &options.clock {
        Some(clock) => clock.clone(),
        None => {
            ClusterClock::start(&session, deadline).await.map_err(|error| ConnectError::Schema(error.to_string()))?
        }
    };
    let ConnectOptions { keyspace, replication, .. } = options;
    let session = ClusterSession::new(session);
    let mut cluster = ClusterClient::new(session, keyspace, replication, clock, settings.syncs());
    if let Some(local) = cluster.replication.local()
        && cluster.session.node_count(Some(local)) == 0
    {
        return Err(ConnectError::Options(format!("the cluster has no node in the datacenter {local:?}")));
    }
    let created = cluster.ensure_keyspace(Partition::DEFAULT_COPIES, Instant::now() + SCHEMA_MAX).await;
    created.map_err(|error| match error.kind {
        Kind::Misuse => ConnectError::Options(error.to_string()),
        _ => ConnectError::Schema(error.to_string()),
    })?;
    // After the keyspace exists: a read of it tells whether other nodes reach a silent one.
    let read = RowStatement::One.text(&cluster.keyspace(Partition::DEFAULT_COPIES), Table::Keys);
    cluster.session.watch_nodes(cluster.replication.local(), read);
    let mut notes: Vec<String> = settings.note().into_iter().collect();
    notes.extend(note_fewer_copies(&cluster));
    Ok((cluster, notes))
}

fn check_options(options: &ConnectOptions) -> Result<(), ConnectError> {
    let refuse = |text: String| Err(ConnectError::Options(text));
    if options.contact_points.is_empty() {
        return refuse("no contact point of the cluster is named".into());
    }
    let name = &options.keyspace;
    let is_word = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if name.len() > 40 || !is_word(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return refuse(format!(
            "{name:?} cannot begin names of keyspaces: a letter, then letters, digits and _; 40 at most"
        ));
    }
    if let Replication::Datacenters { local, all } = &options.replication
        && !all.contains(local)
    {
        return refuse(format!("the local datacenter {local:?} is not among those that hold copies"));
    }
    Ok(())
}

async fn open(options: &ConnectOptions, retry: LarderRetryPolicy, deadline: Instant) -> Result<Session, ConnectError> {
    let mut policy = DefaultPolicy::builder().token_aware(true);
    if let Some(local) = options.replication.local() {
        // LOCAL_QUORUM counts copies where the coordinator is: a coordinator elsewhere would read other copies.
        policy = policy.prefer_datacenter(local.to_owned()).permit_dc_failover(false);
    }
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(CONNECT_MAX))
        .load_balancing_policy(policy.build())
        .retry_policy(Arc::new(retry))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.contact_points)
        .connection_timeout(CONNECTION_MAX)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .schema_agreement_timeout(CONNECT_MAX)
        .default_execution_profile_handle(profile.into_handle());
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    let tls = match &options.tls {
        Some(options) => Some(load_tls_config(options).await?),
        None => None,
    };
    builder = builder.tls_context(tls.clone().map(TlsContext::Rustls023));
    match timeout_at(deadline, builder.build()).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(connect_error(options, tls, Some(error)).await),
        Err(_) => Err(connect_error(options, tls, None).await),
    }
}

/// The error of a failed session, from the driver's error; `None` after the deadline.
async fn connect_error(
    options: &ConnectOptions,
    tls: Option<Arc<ClientConfig>>,
    error: Option<NewSessionError>,
) -> ConnectError {
    let setup = error.as_ref().and_then(setup_error);
    if let Some(auth_error) = setup.and_then(auth_error) {
        return auth_error;
    }
    // The driver drops the cause if a connection breaks before its first request was sent, and may wait forever for the
    // answer.
    let is_cause_lost = error.is_none() || matches!(setup, Some(ConnectionSetupRequestErrorKind::BrokenConnection(_)));
    let alert = match tls {
        Some(config) if is_cause_lost => tls_refusal(config, &options.contact_points).await,
        _ => None,
    };
    let text = || error.map_or_else(|| "no answer in half a minute".to_owned(), |error| error.to_string());
    // The driver's text may have several lines; this error has one.
    let cause = alert.unwrap_or_else(text).split_whitespace().collect::<Vec<_>>().join(" ");
    ConnectError::Unreachable { contact_points: options.contact_points.join(", "), cause }
}

/// Reads certificates on a thread that may block.
async fn load_tls_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, ConnectError> {
    let options = options.clone();
    let read = tokio::task::spawn_blocking(move || config(&options)).await;
    read.unwrap_or_else(|error| Err(error.to_string())).map_err(ConnectError::Options)
}

/// The TLS alert of a node; asks all contact points at once.
async fn tls_refusal(config: Arc<ClientConfig>, contact_points: &[String]) -> Option<String> {
    let asked = contact_points.iter().map(|point| timeout(CONNECTION_MAX, refusal(config.clone(), point)));
    join_all(asked).await.into_iter().flatten().flatten().next()
}

/// The error of the first request on a connection.
fn setup_error(error: &NewSessionError) -> Option<&ConnectionSetupRequestErrorKind> {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
        })) => Some(&setup.error),
        _ => None,
    }
}

/// The error for credentials that the cluster refuses.
fn auth_error(setup: &ConnectionSetupRequestErrorKind) -> Option<ConnectError> {
    let text = match setup {
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError | DbError::Unauthorized, text) => text,
        ConnectionSetupRequestErrorKind::MissingAuthentication => "it asks for them, and none are set",
        _ => return None,
    };
    Some(ConnectError::Authentication(text.to_owned()))
}

/// A note about a keyspace with fewer copies than its number.
fn note_fewer_copies(cluster: &ClusterClient) -> Option<String> {
    let (n_val, copies) = (usize::from(Partition::DEFAULT_COPIES), cluster.copies(Partition::DEFAULT_COPIES).local);
    let keyspace = cluster.keyspace(Partition::DEFAULT_COPIES);
    let nodes = cluster.session.node_count(cluster.replication.local());
    (copies < n_val).then(|| {
        let made_for = format_node_count(copies);
        format!("{keyspace} keeps {copies} of {n_val} copies, as it was made for {made_for}; the cluster has {nodes}")
    })
}

fn format_node_count(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

/// The driver's TLS configuration.
///
/// # Errors
/// One line that names the file.
pub(crate) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&options.ca)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", options.ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let config = match &options.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
            let config = config.with_client_auth_cert(chain, private);
            config.map_err(|error| format!("{}: {error}", certificate.display()))?
        }
    };
    Ok(Arc::new(config))
}

/// The TLS alert with which a node ends connections; `None` if there is none, or the node is unreachable.
///
/// In TLS 1.3 the client finishes its handshake before the server checks its certificate (RFC 8446 §2). The alert comes
/// later, and a client that sends data in between may fail with another error. This function sends nothing and reads
/// the alert.
pub(crate) async fn refusal(config: Arc<ClientConfig>, contact_point: &str) -> Option<String> {
    let address = lookup_host(contact_point).await.ok()?.next()?;
    let stream = TcpStream::connect(address).await.ok()?;
    let connecting = TlsConnector::from(config).connect(ServerName::IpAddress(address.ip().into()), stream);
    let ended = match connecting.await {
        Ok(mut stream) => stream.read_u8().await.err()?,
        Err(error) => error,
    };
    // Errors of other kinds come from the connection, not from TLS.
    (ended.kind() == ErrorKind::InvalidData).then(|| ended.to_string())
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::{fs, thread};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    fn options(keyspace: &str) -> ConnectOptions {
        ConnectOptions {
            contact_points: vec!["127.0.0.1:1".into()],
            keyspace: keyspace.into(),
            replication: Replication::Simple,
            credentials: None,
            tls: None,
            clock: None,
        }
    }

    #[test]
    fn a_keyspace_prefix_is_a_lower_case_word() {
        for name in ["larder", "l", "larder_2", "a_b"] {
            assert_eq!(check_options(&options(name)), Ok(()), "{name}");
        }
        for name in ["", "Larder", "2larder", "a-b", "a b", "a;b", "\"a", &"a".repeat(41)] {
            assert!(check_options(&options(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn the_local_datacenter_must_hold_copies() {
        let both = |local: &str| Replication::Datacenters { local: local.into(), all: vec!["a".into(), "b".into()] };
        assert_eq!(check_options(&ConnectOptions { replication: both("a"), ..options("l") }), Ok(()));
        assert!(check_options(&ConnectOptions { replication: both("c"), ..options("l") }).is_err());
        assert!(check_options(&ConnectOptions { contact_points: Vec::new(), ..options("l") }).is_err());
    }

    #[test]
    fn one_node_is_singular() {
        assert_eq!([1, 2].map(format_node_count), ["1 node", "2 nodes"]);
    }

    #[tokio::test]
    async fn an_unreachable_cluster_is_a_one_line_error() {
        let Err(error) = connect(options("larder")).await else { panic!("no node listens there") };
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{text}");
        assert!(text.contains("127.0.0.1:1") && !text.contains('\n'), "{text}");
    }

    /// A node that refuses clients without a certificate.
    fn node(listener: &TcpListener, certificate: CertificateDer<'static>, key: &KeyPair) {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
        let config = Arc::new(config);
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_client_certificate_is_named_whatever_the_driver_reports() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        fs::write(&ca, certificate.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let contact_points = vec![listener.local_addr().unwrap().to_string()];
        thread::spawn(move || node(&listener, certificate.der().clone(), &key));

        for _ in 0..20 {
            let tls = Some(TlsOptions { ca: ca.clone(), identity: None });
            let options = ConnectOptions { contact_points: contact_points.clone(), tls, ..options("larder") };
            let Err(error) = connect(options).await else { panic!("the node accepted the client") };
            let text = error.to_string();
            assert!(text.contains("received fatal alert: CertificateRequired") && !text.contains('\n'), "{text}");
        }
    }
}
