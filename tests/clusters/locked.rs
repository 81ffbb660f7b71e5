//! A cluster that encrypts, asks for certificates and for a password, and allows its users only some things: who has what it
//! takes is let in, others are told what is wrong.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larder_cassandra_nodes::{Lock, Options};
use larder_tests::{Machines, Node, S3, wait, wait_for};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How long a new node may take to make its first user, and to notice what users are allowed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user of the gateways.
const USER: &str = "gateway";
/// One that makes no keyspaces.
const GUEST: &str = "guest";
/// What a gateway that gives up says why after.
const REFUSAL: &str = "larder: cannot use the engine cassandra: ";
/// What is said of one that the nodes do not know.
const REFUSED: &str = "refused the user name and password";

/// Two that sign certificates: one that the cluster and its gateways trust, one that nobody does.
struct Files {
    dir: TempDir,
}

impl Files {
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

    /// What a client shows and trusts that is let in.
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

    /// Starts a gateway of this user with these files; `None` for each that is not given.
    ///
    /// # Errors
    /// The line that says why it is not let in.
    fn gateway(&self, machines: &Machines, user: &str, told: [Option<&str>; 3]) -> Result<Node, String> {
        let [trusted, shown, password] = told;
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
        machines.try_gateway_of(&machines.cluster().contact_points(), &args).map_err(|ended| {
            assert!(ended.code.is_some_and(|code| code != 0) && !ended.stderr.contains("panicked"), "{ended:?}");
            // The driver logs lines of its own before.
            let last = ended.stderr.lines().next_back().and_then(|line| line.strip_prefix(REFUSAL));
            last.unwrap_or_else(|| panic!("{}", ended.stderr)).to_owned()
        })
    }
}

/// The cluster's administrator, as soon as a new cluster has one.
struct Administrator {
    runtime: Runtime,
    session: Session,
}

impl Administrator {
    fn of(machines: &Machines, tls: &TlsContext) -> Self {
        let runtime = Runtime::new().unwrap();
        let session = wait_for("a new cluster has its user", PATIENCE, || {
            let builder = SessionBuilder::new().user(Lock::USER, Lock::PASSWORD).tls_context(Some(tls.clone()));
            let builder = builder.known_nodes([machines.cluster().contact_points()]);
            runtime.block_on(async { timeout(PATIENCE, builder.build()).await }).expect("an answer").map_err(Box::new)
        });
        Self { runtime, session }
    }

    fn run(&self, statement: &str) {
        self.runtime.block_on(self.session.query_unpaged(statement, ())).unwrap();
    }
}

#[test]
fn a_cluster_lets_in_who_has_certificates_the_password_and_the_rights() {
    let files = Files::new();
    let lock = Lock { identity: files.path("ours-both.pem"), trusted: files.path("ours-ca.pem") };
    let locked = |options| Options { lock: Some(lock), ..options };
    let Some(machines) = Machines::start_with(1, locked) else { return };
    let administrator = Administrator::of(&machines, &files.tls());
    for user in [USER, GUEST] {
        administrator.run(&format!("CREATE ROLE {user} WITH PASSWORD = 'right' AND LOGIN = true"));
    }
    let all = [Some("ours"), Some("ours"), Some("right")];
    let error = files.gateway(&machines, USER, all).expect_err("let in");
    assert!(error.contains("User gateway has no CREATE permission on <all keyspaces>"), "{error}");

    let allowed = |user: &str, rights: &[&str]| {
        for right in rights {
            administrator.run(&format!("GRANT {right} TO {user}"));
        }
        wait_for("the rights are known", PATIENCE, || {
            files.gateway(&machines, user, all).inspect_err(|error| assert!(error.contains("permission"), "{error}"))
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
    // The nodes remember for seconds what a user was not allowed.
    wait("settings are told to who may read them", PATIENCE, || {
        let another = files.gateway(&machines, USER, all).unwrap();
        another.banner().contains("(commitlog_sync: periodic)")
    });
    refuses(&files, &machines);
}

/// Uses a gateway.
fn serves(node: &Node) {
    let mut s3 = S3::admin(node);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "v");
    s3.put("/things", "").expect(200);
    s3.put("/things/large", "x".repeat(1 << 20)).expect(200);
    assert_eq!(s3.get("/things/large").expect(200).text().len(), 1 << 20);
    for done in ["/things/large", "/things"] {
        s3.delete(done).expect(204);
    }
}

/// Tries what does not suffice.
fn refuses(files: &Files, machines: &Machines) {
    let told =
        |trusted, shown, password| files.gateway(machines, USER, [trusted, shown, password]).expect_err("let in");
    let (ours, theirs, right) = (Some("ours"), Some("theirs"), Some("right"));
    for (trusted, shown, password, said) in [
        (ours, ours, Some("wrong"), REFUSED),
        (ours, ours, None, "it asks for them, and none are set"),
        (theirs, ours, right, "invalid peer certificate"),
        (ours, None, right, "CertificateRequired"),
        (ours, theirs, right, "received fatal alert"),
        (None, None, right, "no node of the cluster could be reached"),
    ] {
        let error = told(trusted, shown, password);
        eprintln!("{trusted:?} {shown:?} {password:?}: {error}");
        assert!(error.contains(said), "{trusted:?} {shown:?} {password:?}: {error}");
    }
}
