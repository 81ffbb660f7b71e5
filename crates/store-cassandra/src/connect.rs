//! The way to a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustls::ClientConfig;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError, NewSessionError,
};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::statement::Consistency;
use tokio::time::{Instant, timeout, timeout_at};

use larder_store::{Clock, Kind, Partition};

use crate::clock::ClusterClock;
use crate::cluster::Cluster;
use crate::options::{ConnectOptions, Replication, TlsOptions};
use crate::retry::Retry;
use crate::settings::Settings;
use crate::tls;

/// How long a start may take until the cluster has been looked at.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the tables may take to be made, the first time: all nodes have to agree on each.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(180);
/// How long one connection may take.
const CONNECTION: Duration = Duration::from_secs(5);
/// A node that has not answered anything for these two together is not asked any more.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Most descriptors the driver needs: it has a connection to each node of Cassandra and to each shard of ScyllaDB, one more for
/// what changes in the cluster, and makes new ones before it lets broken ones go. Enough for 32 nodes, or for 3 of 32 shards.
pub const DESCRIPTORS_MAX: usize = 160;

/// Why there is no store, in one line for whoever starts it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options contradict themselves or name what is not there.
    #[error("{0}")]
    Options(String),
    /// No contact point answered.
    #[error("no node of the cluster could be reached at {contact_points}: {cause}")]
    Unreachable {
        /// Who was asked.
        contact_points: String,
        /// What the last of them said.
        cause: String,
    },
    /// The cluster does not take the user name and password, or asks for some.
    #[error("the cluster refused the user name and password: {0}")]
    Authentication(String),
    /// The keyspaces or tables could not be made.
    #[error("the keyspaces could not be made: {0}")]
    Schema(String),
}

/// Connects, makes the schema and reads what the nodes say of themselves.
///
/// # Errors
/// Within half a minute, or three where tables are to be made; and the time of one connection where the nodes are asked why.
pub(crate) async fn connect(options: ConnectOptions) -> Result<(Cluster, Vec<String>), ConnectError> {
    let deadline = Instant::now() + PATIENCE;
    check(&options)?;
    let retry = Retry::default();
    let session = Arc::new(open(&options, retry.clone(), deadline).await?);
    retry.watch(&session);
    let settings = Settings::read(&session, deadline).await;
    let clock: Arc<dyn Clock> = match &options.clock {
        Some(clock) => clock.clone(),
        None => {
            ClusterClock::start(&session, deadline).await.map_err(|error| ConnectError::Schema(error.to_string()))?
        }
    };
    let ConnectOptions { keyspace, replication, .. } = options;
    let cluster = Cluster::new(session, keyspace, replication, clock, settings.syncs());
    if let Some(local) = cluster.replication.local()
        && cluster.nodes(Some(local)).1 == 0
    {
        return Err(ConnectError::Options(format!("the cluster has no node in the datacenter {local:?}")));
    }
    let made = cluster.ensure_keyspace(Partition::N_VAL, Instant::now() + SCHEMA_PATIENCE).await;
    made.map_err(|error| match error.kind {
        Kind::Misuse => ConnectError::Options(error.to_string()),
        _ => ConnectError::Schema(error.to_string()),
    })?;
    let mut notes: Vec<String> = settings.note().into_iter().collect();
    notes.extend(fewer_copies(&cluster));
    Ok((cluster, notes))
}

fn check(options: &ConnectOptions) -> Result<(), ConnectError> {
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

async fn open(options: &ConnectOptions, retry: Retry, deadline: Instant) -> Result<Session, ConnectError> {
    let mut policy = DefaultPolicy::builder().token_aware(true);
    if let Some(local) = options.replication.local() {
        policy = policy.prefer_datacenter(local.to_owned()).permit_dc_failover(false);
    }
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(PATIENCE))
        .load_balancing_policy(policy.build())
        .retry_policy(Arc::new(retry))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.contact_points)
        .connection_timeout(CONNECTION)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .schema_agreement_timeout(PATIENCE)
        .default_execution_profile_handle(profile.into_handle());
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    let tls = match &options.tls {
        Some(options) => Some(config(options).await?),
        None => None,
    };
    builder = builder.tls_context(tls.clone().map(TlsContext::Rustls023));
    match timeout_at(deadline, builder.build()).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(why(options, tls, Some(error)).await),
        Err(_) => Err(why(options, tls, None).await),
    }
}

/// Why there is no session, by the driver's error; `None`: it did not end.
async fn why(options: &ConnectOptions, tls: Option<Arc<ClientConfig>>, error: Option<NewSessionError>) -> ConnectError {
    let setup = error.as_ref().and_then(setup_error);
    if let Some(refused) = setup.and_then(refused) {
        return refused;
    }
    // The driver forgets why a connection broke before its first request was sent, or waits for its answer for ever.
    let forgotten = error.is_none() || matches!(setup, Some(ConnectionSetupRequestErrorKind::BrokenConnection(_)));
    let alert = match tls {
        Some(config) if forgotten => refusal(config, &options.contact_points).await,
        _ => None,
    };
    let said = || error.map_or_else(|| "no answer in half a minute".to_owned(), |error| error.to_string());
    // One line, though the driver may say it in several.
    let cause = alert.unwrap_or_else(said).split_whitespace().collect::<Vec<_>>().join(" ");
    ConnectError::Unreachable { contact_points: options.contact_points.join(", "), cause }
}

/// Reads certificates, where waiting for a disk disturbs nobody.
async fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, ConnectError> {
    let options = options.clone();
    let read = tokio::task::spawn_blocking(move || tls::config(&options)).await;
    read.unwrap_or_else(|error| Err(error.to_string())).map_err(ConnectError::Options)
}

/// What a node says that ends encrypted connections: all are asked at once.
async fn refusal(config: Arc<ClientConfig>, contact_points: &[String]) -> Option<String> {
    let asked = contact_points.iter().map(|point| timeout(CONNECTION, tls::refusal(config.clone(), point)));
    join_all(asked).await.into_iter().flatten().flatten().next()
}

/// What went wrong in the first words that were exchanged with a node.
fn setup_error(error: &NewSessionError) -> Option<&ConnectionSetupRequestErrorKind> {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
        })) => Some(&setup.error),
        _ => None,
    }
}

/// What a cluster says of a user name and password that it does not take.
fn refused(setup: &ConnectionSetupRequestErrorKind) -> Option<ConnectError> {
    let said = match setup {
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError | DbError::Unauthorized, text) => text,
        ConnectionSetupRequestErrorKind::MissingAuthentication => "it asks for them, and none are set",
        _ => return None,
    };
    Some(ConnectError::Authentication(said.to_owned()))
}

/// What there is to say of a keyspace that has fewer copies than its number.
fn fewer_copies(cluster: &Cluster) -> Option<String> {
    let (n_val, copies) = (usize::from(Partition::N_VAL), cluster.copies(Partition::N_VAL).local);
    let keyspace = cluster.keyspace(Partition::N_VAL);
    let nodes = cluster.nodes(cluster.replication.local()).1;
    (copies < n_val).then(|| {
        let made_for = nodes_in_words(copies);
        format!("{keyspace} keeps {copies} of {n_val} copies, as it was made for {made_for}; the cluster has {nodes}")
    })
}

fn nodes_in_words(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
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
    fn a_name_that_is_no_word_begins_no_keyspace() {
        for name in ["larder", "l", "larder_2", "a_b"] {
            assert_eq!(check(&options(name)), Ok(()), "{name}");
        }
        for name in ["", "Larder", "2larder", "a-b", "a b", "a;b", "\"a", &"a".repeat(41)] {
            assert!(check(&options(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn the_local_datacenter_holds_copies() {
        let both = |local: &str| Replication::Datacenters { local: local.into(), all: vec!["a".into(), "b".into()] };
        assert_eq!(check(&ConnectOptions { replication: both("a"), ..options("l") }), Ok(()));
        assert!(check(&ConnectOptions { replication: both("c"), ..options("l") }).is_err());
        assert!(check(&ConnectOptions { contact_points: Vec::new(), ..options("l") }).is_err());
    }

    #[test]
    fn nodes_are_counted_in_words() {
        assert_eq!([1, 2].map(nodes_in_words), ["1 node", "2 nodes"]);
    }

    #[tokio::test]
    async fn where_nobody_listens_is_said_in_one_line() {
        let Err(error) = connect(options("larder")).await else { panic!("nobody listens there") };
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{text}");
        assert!(text.contains("127.0.0.1:1") && !text.contains('\n'), "{text}");
    }

    /// Lets nobody in who shows no certificate.
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
    async fn a_certificate_that_is_missed_is_said_whatever_the_driver_fails_of() {
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
            let told = ConnectOptions { contact_points: contact_points.clone(), tls, ..options("larder") };
            let Err(error) = connect(told).await else { panic!("let in") };
            let text = error.to_string();
            assert!(text.contains("received fatal alert: CertificateRequired") && !text.contains('\n'), "{text}");
        }
    }
}
