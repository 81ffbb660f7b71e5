//! A cluster that encrypts, asks for certificates and for a password: who has them all is let in, others are told what is wrong.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_cassandra_nodes::{Lock, Options};
use larder_tests::{Machines, Node, S3};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// How long a new node may take to make its first user.
const USER_MADE: Duration = Duration::from_secs(60);
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
        files.write("right-password", Lock::PASSWORD);
        files.write("wrong-password", "guessed");
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a gateway with these files; `None` for each that is not given.
    ///
    /// # Errors
    /// The line that says why it is not let in.
    fn gateway(&self, machines: &Machines, told: [Option<&str>; 3]) -> Result<Node, String> {
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
            give("--cassandra-user", Lock::USER.to_owned());
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

#[test]
fn a_cluster_lets_in_who_has_certificates_and_the_password() {
    let files = Files::new();
    let lock = Lock { identity: files.path("ours-both.pem"), trusted: files.path("ours-ca.pem") };
    let locked = |options| Options { lock: Some(lock), ..options };
    let Some(machines) = Machines::start_with(1, locked) else { return };
    let deadline = Instant::now() + USER_MADE;
    let node = loop {
        match files.gateway(&machines, [Some("ours"), Some("ours"), Some("right")]) {
            Ok(node) => break node,
            Err(error) => assert!(error.contains(REFUSED) && Instant::now() < deadline, "{error}"),
        }
    };
    let mut s3 = S3::admin(&node);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    s3.put("/things", "").expect(200);
    s3.put("/things/large", "x".repeat(1 << 20)).expect(200);
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "v");
    assert_eq!(s3.get("/things/large").expect(200).text().len(), 1 << 20);

    let told = |trusted, shown, password| files.gateway(&machines, [trusted, shown, password]).expect_err("let in");
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
