//! The server under test as a child process: started on loopback with its own directory, ended by SIGTERM.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::child::ChildProcess;
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::limits::START_WAIT_MAX;
use crate::wire::WireProtocol;

/// The pause between two requests to a starting server.
const PING_INTERVAL: Duration = Duration::from_millis(2);

/// The longest time of one such request.
const PING_WAIT_MAX: Duration = Duration::from_secs(2);

/// The bytes of the log's end that an error shows.
const LOG_SHOWN_BYTES: usize = 2_000;

/// An access key of an S3 server, and its secret.
#[derive(Debug, Clone)]
pub(crate) struct S3Account {
    /// The access key.
    pub(crate) key: String,
    /// Its secret.
    pub(crate) secret: String,
}

/// A cluster, and the keyspaces in it.
#[derive(Debug, Clone)]
pub(crate) struct GatewayCluster {
    /// `HOST:PORT`, separated by commas.
    pub(crate) nodes: String,
    /// The prefix of the keyspaces.
    pub(crate) keyspace: String,
}

/// The files of a server's certificate.
#[derive(Debug, Clone)]
pub(crate) struct TlsPair {
    /// The certificate, in PEM.
    pub(crate) certificate: PathBuf,
    /// Its key, in PEM.
    pub(crate) key: PathBuf,
}

/// The program, the flags and the folders of a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerConfig {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// `--engine`, if given.
    pub(crate) engine: Option<String>,
    /// `--durability`, if given.
    pub(crate) durability: Option<String>,
    /// The S3 admin, for a server that also serves S3.
    pub(crate) s3: Option<S3Account>,
    /// The certificate, for a server that also serves HTTPS.
    pub(crate) tls: Option<TlsPair>,
    /// The folder of `--js-dir`, if given.
    pub(crate) js_dir: Option<PathBuf>,
    /// `--webhook-hosts`, if given.
    pub(crate) webhook_hosts: Option<String>,
    /// The cluster of `--engine cassandra`, and the number of this gateway.
    pub(crate) cluster: Option<(GatewayCluster, u8)>,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The file of its output.
    pub(crate) log: PathBuf,
}

/// A running server.
pub(crate) struct ServerProcess {
    child: ChildProcess,
    config: ServerConfig,
    /// Its address.
    pub(crate) endpoint: Endpoint,
    /// Its address for protocol buffers.
    pub(crate) pb: Endpoint,
    /// Its address for S3, if it serves S3.
    pub(crate) s3: Endpoint,
    /// Its address for HTTPS, if it has a certificate.
    pub(crate) https: Endpoint,
    /// The time from its start to its first answer.
    pub(crate) started_in: Duration,
}

impl ServerProcess {
    /// Starts a server and waits for its first answer.
    ///
    /// # Errors
    ///
    /// When it ends, or does not answer in time.
    pub(crate) fn start(config: ServerConfig) -> Result<Self> {
        let [endpoint, pb, s3, https] = [Endpoint::free()?, Endpoint::free()?, Endpoint::free()?, Endpoint::free()?];
        let started = Instant::now();
        let mut child = ChildProcess::start(&mut config.command([&endpoint, &pb, &s3, &https])?)?;
        wait_for_answer(&mut child, &endpoint)?;
        Ok(Self { child, config, endpoint, pb, s3, https, started_in: started.elapsed() })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Ends it and starts it again on the same data.
    ///
    /// # Errors
    ///
    /// When it does not end cleanly, or does not start.
    pub(crate) fn restart(self) -> Result<Self> {
        let config = self.config.clone();
        self.stop()?;
        Self::start(config)
    }

    /// Ends it by SIGTERM.
    ///
    /// # Errors
    ///
    /// When it does not end cleanly.
    pub(crate) fn stop(self) -> Result<()> {
        self.child.terminate()
    }
}

impl ServerConfig {
    /// A server without S3, scripts and cluster, as the arguments say, with its data and log in `scratch`.
    ///
    /// # Errors
    ///
    /// When there is no binary.
    pub(crate) fn of(args: &CommonArgs, scratch: &Path, name: &str) -> Result<Self> {
        Ok(Self {
            binary: args.binary()?,
            engine: args.engine.clone(),
            durability: args.durability.clone(),
            s3: None,
            tls: None,
            js_dir: None,
            webhook_hosts: None,
            cluster: None,
            data: scratch.join(format!("data-{name}")),
            log: scratch.join(format!("log-{name}")),
        })
    }

    /// Whether its data survives its process.
    pub(crate) fn is_persistent(&self) -> bool {
        self.engine.as_deref() != Some("memory")
    }

    /// The command line. The environment is empty: a `LARDER_` variable of the caller would change the measurement.
    fn command(&self, [endpoint, pb, s3, https]: [&Endpoint; 4]) -> Result<Command> {
        fs::create_dir_all(&self.data)?;
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.binary);
        command.env_clear().arg("--data-dir").arg(&self.data);
        command.arg("--http").arg(endpoint.address.to_string()).arg("--pb").arg(pb.address.to_string());
        command.args(["--console", "off"]);
        match &self.s3 {
            None => command.args(["--s3", "off"]),
            Some(account) => command
                .arg("--s3")
                .arg(s3.address.to_string())
                .env("LARDER_S3_ADMIN_KEY", &account.key)
                .env("LARDER_S3_ADMIN_SECRET", &account.secret),
        };
        if let Some(TlsPair { certificate, key }) = &self.tls {
            command.arg("--https").arg(https.address.to_string());
            command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
        }
        if let Some(js_dir) = &self.js_dir {
            command.arg("--js-dir").arg(js_dir);
        }
        if let Some((cluster, which)) = &self.cluster {
            command.args(["--cassandra", &cluster.nodes, "--cassandra-keyspace", &cluster.keyspace]);
            command.arg("--node-name").arg(format!("bench{which}@127.0.0.1"));
        }
        let passed_on =
            [("--engine", &self.engine), ("--durability", &self.durability), ("--webhook-hosts", &self.webhook_hosts)];
        for (flag, value) in passed_on {
            if let Some(value) = value {
                command.arg(flag).arg(value);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }
}

/// Sends `GET /ping` until it is answered.
///
/// # Errors
///
/// When the child ends, or does not answer in time.
pub(crate) fn wait_for_answer(child: &mut ChildProcess, endpoint: &Endpoint) -> Result<()> {
    wait_until(child, || ping(endpoint))
}

/// Sends a ping over a protocol of frames until it is answered.
///
/// # Errors
///
/// When the child ends, or does not answer in time.
pub(crate) fn wait_for_frame(child: &mut ChildProcess, endpoint: &Endpoint, protocol: WireProtocol) -> Result<()> {
    wait_until(child, || ping_framed(endpoint, protocol))
}

fn wait_until(child: &mut ChildProcess, ping: impl Fn() -> Result<()>) -> Result<()> {
    let give_up = Instant::now() + START_WAIT_MAX;
    loop {
        if ping().is_ok() {
            return Ok(());
        }
        if let Some(status) = child.ended()? {
            bail!("the server ended with {status} before its first answer");
        }
        if Instant::now() >= give_up {
            bail!("the server does not answer within {} s", START_WAIT_MAX.as_secs());
        }
        std::thread::sleep(PING_INTERVAL);
    }
}

fn ping_framed(endpoint: &Endpoint, protocol: WireProtocol) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&endpoint.address, PING_WAIT_MAX)?;
    stream.set_read_timeout(Some(PING_WAIT_MAX))?;
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    protocol.add_ping(&mut request);
    stream.write_all(&request)?;
    while protocol.reply(&answer)?.is_none() {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend_from_slice(&byte);
    }
    Ok(())
}

/// Sends `GET /ping` once.
///
/// # Errors
///
/// Any answer but 200.
pub(crate) fn ping(endpoint: &Endpoint) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&endpoint.address, PING_WAIT_MAX)
        .with_context(|| format!("connecting to {}", endpoint.address))?;
    stream.set_read_timeout(Some(PING_WAIT_MAX))?;
    write!(stream, "GET /ping HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", endpoint.host)?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).context("reading the answer to /ping")?;
    if &start != b"HTTP/1.1 200" {
        bail!("/ping was answered by {}", String::from_utf8_lossy(&start));
    }
    Ok(())
}

/// The end of a server's log, for the text of an error.
pub(crate) fn log_end(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let end = &text[text.len().saturating_sub(LOG_SHOWN_BYTES)..];
    format!("the server's log ends: {}", String::from_utf8_lossy(end).trim())
}
