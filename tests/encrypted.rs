//! Listeners with TLS, as clients of them see them: the three protocols, new certificates, certificates of clients, and clients
//! that break off or speak something else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says that it is skipped")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{
    Home, HttpClient, KvAdmin, LarderNode, S3_KEY, S3_SECRET, TestAuthority, client_trusting, connect, wait,
};
use larder_testkit::pb::{PbField, frame, message};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The longest wait for the server to read a certificate again.
const RELOAD: Duration = Duration::from_secs(30);

/// A certificate and its key, made by `kv-admin`.
struct TestPair(PathBuf);

impl TestPair {
    fn make(admin: &KvAdmin, directory: PathBuf) -> Self {
        let printed = admin.output(&["tls", "self-signed", directory.to_str().unwrap()]);
        assert!(printed.contains("--tls-cert"), "{printed}");
        Self(directory)
    }

    fn certificate(&self) -> PathBuf {
        self.0.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.certificate()).unwrap()
    }

    /// The settings of a client that trusts this certificate, and shows that of `own`.
    fn client(&self, own: Option<&Self>) -> Arc<ClientConfig> {
        let own = own.map(|own| (own.der(), PrivateKeyDer::from_pem_file(own.key()).unwrap()));
        client_trusting(self.der(), own)
    }
}

/// An encrypted connection.
struct TlsConnection(StreamOwned<ClientConnection, TcpStream>);

impl TlsConnection {
    /// Connects and ends the handshake.
    fn open(at: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut stream = connect(at, None)?;
        let mut client = ClientConnection::new(Arc::clone(config), ServerName::IpAddress(at.ip().into())).unwrap();
        while client.is_handshaking() {
            client.complete_io(&mut stream)?;
        }
        Ok(Self(StreamOwned::new(client, stream)))
    }

    /// The certificate that the server showed.
    fn shown(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// Sends a request of HTTP, and returns the status line and the body of its answer.
    fn http(&mut self, request: &str, body: &str) -> io::Result<(String, String)> {
        let length = body.len();
        write!(
            self.0,
            "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        Ok((head.lines().next().unwrap().to_owned(), String::from_utf8_lossy(&body).into_owned()))
    }
}

/// The pair that a first server makes, and a home for the server that uses it.
fn pair() -> (TestPair, Home) {
    let first = LarderNode::buffered();
    let pair = TestPair::make(&first.admin(), first.home().path().join("tls"));
    (pair, first.into_home())
}

fn start(home: Home, pair: &TestPair, more: &[&str]) -> LarderNode {
    let (certificate, key) = (pair.certificate(), pair.key());
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    LarderNode::start_in(home, &[&["--durability", "buffered", "--https", "127.0.0.1:0"][..], &files, more].concat())
}

fn copy(from: &Path, to: &Path) {
    fs::write(to, fs::read(from).unwrap()).unwrap();
}

#[test]
fn every_protocol_is_served_with_tls() {
    let (pair, home) = pair();
    let listeners = ["--s3", "127.0.0.1:0", "--s3-https", "127.0.0.1:0", "--pb-tls", "127.0.0.1:0"];
    let node = start(home, &pair, &listeners);
    let client = pair.client(None);
    let mut http = TlsConnection::open(node.https(), &client).unwrap();
    let large = "x".repeat(3 << 20);
    assert_eq!(http.http("PUT /buckets/b/keys/k", &large).unwrap().0, "HTTP/1.1 204 No Content");
    assert_eq!(http.http("GET /buckets/b/keys/k", "").unwrap(), ("HTTP/1.1 200 OK".to_owned(), large));
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).body.len(), 3 << 20);
    let mut pb = TlsConnection::open(node.pb_tls(), &client).unwrap();
    pb.0.write_all(&[0, 0, 0, 1, 1]).unwrap();
    let mut pong = [0; 5];
    pb.0.read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0, 0, 0, 1, 2]);
    // Answers larger than the buffers of both sides, short ones behind them, to a client that reads late.
    let get = frame(9, &message(&[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k")]));
    pb.0.write_all(&[get.repeat(4), frame(1, b"").repeat(20_000)].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut answers = vec![0; 4 * (3 << 20)];
    pb.0.read_exact(&mut answers).unwrap();
    while !answers.ends_with(&frame(2, b"").repeat(20_000)) {
        let mut piece = [0; 4096];
        let read = pb.0.read(&mut piece).unwrap();
        answers.extend_from_slice(&piece[..read]);
    }
    // The usual policy of a bucket: nothing without TLS.
    let mut admin = node.s3_admin();
    admin.put("/vault", "").expect(200);
    admin.put("/vault/k", "secret").expect(200);
    let policy = r#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::vault/*"},
        {"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::vault/*",
         "Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}"#;
    admin.put("/vault?policy", policy).expect(204);
    HttpClient::new(node.s3_at()).get("/vault/k").expect(403);
    let mut s3 = TlsConnection::open(node.s3_https(), &client).unwrap();
    assert_eq!(s3.http("GET /vault/k", "").unwrap(), ("HTTP/1.1 200 OK".to_owned(), "secret".to_owned()));
}

/// Runs curl against an address with this certificate; `None` where curl is missing or knows no HTTP/2.
fn curl(pair: &TestPair, args: &[&str]) -> Option<String> {
    let version = Command::new("curl").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("HTTP2") {
        eprintln!("skipped: curl here knows no HTTP/2");
        return None;
    }
    let certificate = pair.certificate();
    let fixed = ["--silent", "--show-error", "--max-time", "60", "--http2", "--cacert", certificate.to_str().unwrap()];
    let ended = Command::new("curl").args(fixed).args(args).output().unwrap();
    assert!(ended.status.success(), "curl {args:?}: {ended:?}");
    Some(String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn openssl_trusts_every_encrypted_listener() {
    let (pair, home) = pair();
    let node = start(home, &pair, &["--s3", "127.0.0.1:0", "--s3-https", "127.0.0.1:0", "--pb-tls", "127.0.0.1:0"]);
    let certificate = pair.certificate();
    for (at, version) in [(node.https(), "-tls1_2"), (node.s3_https(), "-tls1_3"), (node.pb_tls(), "-tls1_3")] {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &at.to_string(), "-brief", "-verify_return_error", version, "-CAfile"]);
        // The end of its input ends the connection.
        let Ok(ended) = command.arg(&certificate).stdin(Stdio::null()).output() else {
            eprintln!("skipped: openssl is missing");
            return;
        };
        let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && shown.contains("Verification: OK"), "{at}: {shown}");
    }
}

#[test]
fn clients_that_ask_for_http2_get_it() {
    let (pair, home) = pair();
    let node = start(home, &pair, &["--s3", "127.0.0.1:0", "--s3-https", "127.0.0.1:0"]);
    let large = node.home().path().join("large");
    fs::write(&large, "x".repeat(3 << 20)).unwrap();
    let (upload, show) = (format!("@{}", large.display()), "%{http_version} %{http_code} %{size_download}");
    let url = format!("https://{}/buckets/b/keys/k", node.https());
    let put = ["-X", "PUT", "-H", "Content-Type: text/plain", "--data-binary", &upload, "-w", show, &url];
    let Some(stored) = curl(&pair, &put) else { return };
    assert_eq!(stored, "2 204 0");
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).body.len(), 3 << 20);
    // More requests than a connection takes at a time, all at once.
    let urls = format!("{url}?n=[1-100]");
    let mixed = ["--parallel", "--parallel-max", "100", "-o", "/dev/null", "-w", "%{http_version} %{size_download}\n"];
    let all = curl(&pair, &[&mixed[..], &[&urls]].concat()).unwrap();
    assert_eq!(all, "2 3145728\n".repeat(100));
    let refused = curl(&pair, &["-o", "/dev/null", "-w", show, &format!("https://{}/nosuch", node.https())]).unwrap();
    assert!(refused.starts_with("2 404"), "{refused}");
    // A client that still sends its body gets the text of the refusal.
    for _ in 0..5 {
        let put = ["-X", "PUT", "-H", "Content-Type: text/plain", "-d", "1", "-w", " %{http_version} %{http_code}"];
        let refused = curl(&pair, &[&put[..], &[&format!("https://{}/nosuch", node.https())]].concat()).unwrap();
        assert!(refused.ends_with(" 2 404") && refused.len() > 20, "{refused}");
    }
    // A signature covers the host, which HTTP/2 names elsewhere.
    let (user, bucket) = (format!("{S3_KEY}:{S3_SECRET}"), format!("https://{}/bucket", node.s3_https()));
    let empty = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user, "-H", empty, "-w", show];
    assert_eq!(curl(&pair, &[&signed[..], &["-X", "PUT", &bucket]].concat()).unwrap(), "2 200 0");
    let listed = curl(&pair, &[&signed[..], &[&format!("{bucket}?list-type=2")]].concat()).unwrap();
    assert!(listed.contains("<KeyCount>0</KeyCount>") && listed.contains("2 200"), "{listed}");
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

#[test]
fn a_new_certificate_serves_new_clients_and_cuts_off_none() {
    let (old, home) = pair();
    let node = start(home, &old, &[]);
    let new = TestPair::make(&node.admin(), node.home().path().join("new"));
    let mut running = TlsConnection::open(node.https(), &old.client(None)).unwrap();
    assert_eq!(running.shown(), old.der());
    let page = node.client().get("/metrics").expect(200).text();
    let ends =
        page.lines().find_map(|line| line.strip_prefix("larder_tls_certificate_ends_seconds ")?.parse::<f64>().ok());
    let days =
        (ends.expect("a sample") - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()) / 86_400.0;
    assert!((300.0..=366.0).contains(&days), "{days}");
    // A tool replaces one file after the other: the pair between does not fit, and must harm nothing.
    copy(&new.certificate(), &old.certificate());
    let pid = Pid::from_raw(node.id().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    wait("the warning about half a pair", RELOAD, || node.log().contains("certificate not read again"));
    running.http("GET /ping", "").unwrap();
    copy(&new.key(), &old.key());
    kill_process(pid, Signal::HUP).unwrap();
    wait("the new certificate", RELOAD, || {
        TlsConnection::open(node.https(), &new.client(None)).is_ok_and(|connection| connection.shown() == new.der())
    });
    assert_eq!(running.http("GET /ping", "").unwrap().1, "OK");
    assert_eq!(node.log().matches("certificate not read again").count(), 1, "{}", node.log());
}

#[test]
fn clients_without_a_certificate_are_refused_where_one_is_needed() {
    let (pair, home) = pair();
    let certificate = pair.certificate();
    let node = start(home, &pair, &["--tls-client-ca", certificate.to_str().unwrap(), "--tls-min", "1.3"]);
    let ping = |client: &Arc<ClientConfig>| TlsConnection::open(node.https(), client)?.http("GET /ping", "");
    // A client of TLS 1.3 ends its handshake before the server judges it: its request fails, or the alert comes in its answer's place.
    ping(&pair.client(None)).unwrap_err();
    let stranger = TestPair::make(&node.admin(), node.home().path().join("stranger"));
    ping(&pair.client(Some(&stranger))).unwrap_err();
    assert_eq!(ping(&pair.client(Some(&pair))).unwrap().1, "OK");
}

#[test]
fn a_revoked_certificate_is_refused_once_its_list_is_read_again() {
    let home = Home::new();
    let authority = TestAuthority::make(home.path());
    let server = authority.sign("localhost").write(home.path(), "server");
    let (kept, revoked) = (authority.sign("kept"), authority.sign("revoked"));
    let list = home.path().join("revoked.pem");
    fs::write(&list, authority.revocations(&[], 2100)).unwrap();
    let args = ["--https", "127.0.0.1:0", "--tls-client-ca", authority.file(), "--tls-client-crl"];
    let node = LarderNode::start_in(home, &[&args[..], &[list.to_str().unwrap()], &server.args()].concat());
    let is_served = |pair| {
        let answer = TlsConnection::open(node.https(), &authority.client(Some(pair)))
            .and_then(|mut connection| connection.http("GET /ping", ""));
        answer.is_ok_and(|(_, body)| body == "OK")
    };
    let read_again = |text: &str| {
        fs::write(&list, text).unwrap();
        kill_process(Pid::from_raw(node.id().cast_signed()).unwrap(), Signal::HUP).unwrap();
    };
    assert!(is_served(&kept) && is_served(&revoked));
    read_again(&authority.revocations(&[&revoked], 2100));
    wait("the refusal of the revoked certificate", RELOAD, || !is_served(&revoked));
    assert!(is_served(&kept));
    // A list that is too old may hide a revocation, so it vouches for nothing.
    read_again(&authority.revocations(&[&revoked], 2021));
    wait("the refusal under an old list", RELOAD, || !is_served(&kept));
    read_again("no list");
    wait("the warning about the file", RELOAD, || {
        node.log().contains("revoked.pem: there is no revocation list in it")
    });
    read_again(&authority.revocations(&[], 2100));
    wait("the revocation taken back", RELOAD, || is_served(&revoked));
}

#[test]
fn clients_that_speak_no_tls_or_never_end_their_handshake_harm_no_other() {
    let (pair, home) = pair();
    let node = start(home, &pair, &[]);
    let client = pair.client(None);
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(node.https(), None).unwrap();
        // The begin of a record that announces more.
        stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
        silent.push(stream);
    }
    for nonsense in [&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..], &[0xff; 4096], &[22, 3, 1, 0xff, 0xff, 1, 0xff]] {
        let mut stream = connect(node.https(), None).unwrap();
        stream.write_all(nonsense).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 64, "an alert at most: {answer:?}");
        assert_eq!(TlsConnection::open(node.https(), &client).unwrap().http("GET /ping", "").unwrap().1, "OK");
    }
    let mut last = silent.pop().unwrap();
    assert_eq!(last.read(&mut [0]).unwrap_or(0), 0, "a handshake without an end is broken off");
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

#[test]
fn files_that_do_not_serve_are_named_at_the_start() {
    let (pair, home) = pair();
    let [certificate, key] = [pair.certificate(), pair.key()].map(|path| path.to_str().unwrap().to_owned());
    let absent = home.path().join("absent.pem").to_str().unwrap().to_owned();
    for (certificate, key, named) in
        [(&absent, &key, &absent), (&certificate, &absent, &absent), (&certificate, &certificate, &certificate)]
    {
        let args = ["--https", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key];
        let ended = home.fails_to_start(&args);
        assert!(ended.stderr.contains(named.as_str()) && !ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
    let ended = home.fails_to_start(&["--tls-min", "1.3"]);
    assert!(ended.stderr.contains("--tls-min is given, but no listener is encrypted"), "{}", ended.stderr);
    let refused = pair.0.to_str().unwrap().to_owned();
    let node = LarderNode::start_in(home, &["--durability", "buffered"]);
    let again = node.admin().run(&["tls", "self-signed", &refused]);
    assert!(again.code != Some(0) && again.stderr.contains("key.pem: File exists"), "{again:?}");
}
