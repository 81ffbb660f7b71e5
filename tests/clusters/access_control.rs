//! A cluster with TLS, client certificates, passwords and permissions: a gateway with valid credentials starts, and every other
//! one prints the cause of its refusal.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{LarderNode, TestCluster, wait, wait_for};
use larder_cassandra_nodes::{ClientAuth, ClusterOptions};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// The longest time until a new node has its first user, and until it applies new permissions.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user of the gateways.
const USER: &str = "gateway";
/// A user without the right to make keyspaces.
const GUEST: &str = "guest";
/// The prefix of the cause when a gateway does not start.
const REFUSAL: &str = "larder: cannot use the engine cassandra: ";
/// The cause when the nodes do not accept the password.
const REFUSED: &str = "refused the user name and password";

/// Certificates of two signers: `ours` is trusted by the cluster and its gateways, `theirs` is not.
struct CertificateFiles {
    dir: TempDir,
}

impl CertificateFiles {
    fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        for signer in ["ours", "theirs"] {
            let mut params = CertificateParams::new([]).unwrap();
            params.distinguished_name.push(DnType::CommonName, signer);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            files.write(&format!("{signer}-ca.pem"), &params.self_signed(&key).unwrap().pem());
            let (issuer, own) = (Issuer::new(params, key), KeyPair::generate().unwrap());
            let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&own, &issuer);
            let certificate = certificate.unwrap().pem();
            files.write(&format!("{signer}-key.pem"), &own.serialize_pem());
            files.write(&format!("{signer}-certificate.pem"), &certificate);
            files.write(&format!("{signer}-both.pem"), &(own.serialize_pem() + &certificate));
        }
        files.write("right-password", "right");
        files.write("wrong-password", "guessed");
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The TLS of a client with a valid certificate.
    fn tls(&self) -> TlsContext {
        let [ca, certificate, key] = ["ca", "certificate", "key"].map(|file| self.path(&format!("ours-{file}.pem")));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        TlsContext::Rustls023(Arc::new(config))
    }

    /// Starts a gateway of this user with these files: CA, certificate, password. `None` leaves a file out.
    ///
    /// # Errors
    /// The cause of a refusal.
    fn gateway(&self, cluster: &TestCluster, user: &str, credentials: [Option<&str>; 3]) -> Result<LarderNode, String> {
        let [trusted, shown, password] = credentials;
        let file = |name: String| self.path(&name).to_str().unwrap().to_owned();
        let mut args = vec!["--s3".to_owned(), "127.0.0.1:0".to_owned()];
        let mut give = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        if let Some(trusted) = trusted {
            give("--cassandra-tls-ca", file(format!("{trusted}-ca.pem")));
        }
        if let Some(shown) = shown {
            give("--cassandra-tls-cert", file(format!("{shown}-certificate.pem")));
            give("--cassandra-tls-key", file(format!("{shown}-key.pem")));
        }
        if let Some(password) = password {
            give("--cassandra-user", user.to_owned());
            give("--cassandra-password-file", file(format!("{password}-password")));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        cluster.try_gateway_of(&cluster.cluster().contact_points(), &args).map_err(|ended| {
            assert!(ended.code.is_some_and(|code| code != 0) && !ended.stderr.contains("panicked"), "{ended:?}");
            // The driver logs lines of its own before the cause.
            let last = ended.stderr.lines().next_back().and_then(|line| line.strip_prefix(REFUSAL));
            last.unwrap_or_else(|| panic!("{}", ended.stderr)).to_owned()
        })
    }
}

/// The cluster's administrator.
struct RoleAdministrator {
    runtime: Runtime,
    session: Session,
}

impl RoleAdministrator {
    fn of(cluster: &TestCluster, tls: &TlsContext) -> Self {
        let runtime = Runtime::new().unwrap();
        let session = wait_for("the new cluster has its first user", PATIENCE, || {
            let builder =
                SessionBuilder::new().user(ClientAuth::USER, ClientAuth::PASSWORD).tls_context(Some(tls.clone()));
            let builder = builder.known_nodes([cluster.cluster().contact_points()]);
            runtime.block_on(async { timeout(PATIENCE, builder.build()).await }).expect("an answer").map_err(Box::new)
        });
        Self { runtime, session }
    }

    fn run(&self, statement: &str) {
        self.runtime.block_on(self.session.query_unpaged(statement, ())).unwrap();
    }
}

#[test]
fn a_gateway_needs_certificates_a_password_and_permissions() {
    let files = CertificateFiles::new();
    let auth = ClientAuth { identity: files.path("ours-both.pem"), trusted: files.path("ours-ca.pem") };
    let locked = |options| ClusterOptions { auth: Some(auth), ..options };
    let Some(cluster) = TestCluster::start_with(1, locked) else { return };
    let administrator = RoleAdministrator::of(&cluster, &files.tls());
    for user in [USER, GUEST] {
        administrator.run(&format!("CREATE ROLE {user} WITH PASSWORD = 'right' AND LOGIN = true"));
    }
    let all = [Some("ours"), Some("ours"), Some("right")];
    let error = files.gateway(&cluster, USER, all).expect_err("the gateway is refused");
    assert!(error.contains("User gateway has no CREATE permission on <all keyspaces>"), "{error}");

    let allowed = |user: &str, rights: &[&str]| {
        for right in rights {
            administrator.run(&format!("GRANT {right} TO {user}"));
        }
        wait_for("the permissions are applied", PATIENCE, || {
            files.gateway(&cluster, user, all).inspect_err(|error| assert!(error.contains("permission"), "{error}"))
        })
    };
    let node = allowed(USER, &["CREATE ON ALL KEYSPACES", "SELECT ON KEYSPACE system_views"]);
    serves(&node);
    let guest = allowed(GUEST, &["SELECT ON KEYSPACE larder_n3", "MODIFY ON KEYSPACE larder_n3"]);
    assert!(guest.banner().contains("do not tell when they sync"), "{}", guest.banner());
    assert_eq!(guest.client().get("/buckets/b/keys/k").expect(200).text(), "v");
    serves(&guest);
    node.admin().check(&["bucket-type", "create", "once", r#"{"props":{"n_val":1}}"#], "once created\n");
    let ended = guest.admin().run(&["bucket-type", "activate", "once"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("User guest has no CREATE permission"), "{ended:?}");
    node.admin().check(&["bucket-type", "activate", "once"], "once has been activated\n");
    node.client().put("/types/once/buckets/b/keys/k", "v").expect(204);
    // The nodes cache denied permissions for seconds.
    wait("a gateway that may read the settings shows them", PATIENCE, || {
        let another = files.gateway(&cluster, USER, all).unwrap();
        another.banner().contains("(commitlog_sync: periodic)")
    });
    refuses(&files, &cluster);
}

/// Uses a gateway.
fn serves(node: &LarderNode) {
    let mut s3 = node.s3_admin();
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "v");
    s3.put("/things", "").expect(200);
    s3.put("/things/large", "x".repeat(1 << 20)).expect(200);
    assert_eq!(s3.get("/things/large").expect(200).text().len(), 1 << 20);
    for done in ["/things/large", "/things"] {
        s3.delete(done).expect(204);
    }
}

/// Starts gateways with insufficient credentials.
fn refuses(files: &CertificateFiles, cluster: &TestCluster) {
    let refusal = |trusted, shown, password| {
        files.gateway(cluster, USER, [trusted, shown, password]).expect_err("the gateway is refused")
    };
    let (ours, theirs, right) = (Some("ours"), Some("theirs"), Some("right"));
    for (trusted, shown, password, cause) in [
        (ours, ours, Some("wrong"), REFUSED),
        (ours, ours, None, "it asks for them, and none are set"),
        (theirs, ours, right, "invalid peer certificate"),
        (ours, None, right, "CertificateRequired"),
        (ours, theirs, right, "received fatal alert"),
        (None, None, right, "no node of the cluster could be reached"),
    ] {
        let error = refusal(trusted, shown, password);
        eprintln!("{trusted:?} {shown:?} {password:?}: {error}");
        assert!(error.contains(cause), "{trusted:?} {shown:?} {password:?}: {error}");
    }
}
