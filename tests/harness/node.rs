//! A server on its own directory and ports.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use larder_testkit::SplitMix64;
use larder_testkit::http::HttpClient;
use larder_testkit::s3::S3Client;

use crate::harness::admin::KvAdmin;
use crate::harness::home::Home;
use crate::harness::process::{Process, ProcessEnd};

/// The longest time of a start; generous, because a debug machine under load is slow.
pub(super) const START: Duration = Duration::from_secs(120);
/// The longest time of a drain.
const STOP: Duration = Duration::from_secs(30);
/// The text of the banner before the addresses.
const HTTP_BANNER: &str = "  Riak HTTP   ";
const PB_BANNER: &str = "  Riak PB     ";
const S3_BANNER: &str = "  S3          ";

/// The access key of the S3 admin of servers under test.
pub const S3_KEY: &str = "LARDERTESTADMIN";
/// Its secret.
pub const S3_SECRET: &str = "a/secret+of=the-tests";

/// A running server.
#[derive(Debug)]
pub struct LarderNode {
    // Field order: the process ends before its home is removed.
    process: Option<Process>,
    home: Home,
    args: Vec<String>,
    at: NodeAddresses,
}

/// The addresses of a server.
#[derive(Debug, Clone, Copy)]
struct NodeAddresses {
    http: Option<SocketAddr>,
    https: Option<SocketAddr>,
    pb: Option<SocketAddr>,
    pb_tls: Option<SocketAddr>,
    s3: Option<SocketAddr>,
    s3_https: Option<SocketAddr>,
}

impl LarderNode {
    /// The program under test.
    #[must_use]
    pub fn binary() -> PathBuf {
        binary("LARDER_BIN", "larder")
    }

    /// Starts a server on new data.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        Self::start_in(Home::new(), args)
    }

    /// Starts a server whose writes do not wait for the disk, for tests that are not about durability.
    #[must_use]
    pub fn buffered() -> Self {
        Self::start(&["--durability", "buffered"])
    }

    /// Starts a server that also serves S3, with these additional arguments.
    #[must_use]
    pub fn s3(args: &[&str]) -> Self {
        Self::start(&[&["--s3", "127.0.0.1:0"], args].concat())
    }

    /// Starts another gateway over the data of this one, with these arguments.
    ///
    /// # Panics
    /// When the engine is no cluster: the embedded one has one server.
    #[must_use]
    pub fn beside(&self, args: &[&str]) -> Self {
        Self::start_in(self.home.beside(), args)
    }

    /// Starts a server on the data of `home`.
    #[must_use]
    pub fn start_in(home: Home, args: &[&str]) -> Self {
        match Self::try_start(home, args) {
            Ok(node) => node,
            Err(ended) => panic!("no banner\nstdout: {}\nstderr: {}", ended.stdout, ended.stderr),
        }
    }

    /// Starts a server on the data of `home`.
    ///
    /// # Errors
    /// The end of a server that refuses to start.
    pub fn try_start(home: Home, args: &[&str]) -> Result<Self, ProcessEnd> {
        let (process, at) = launch(&mut home.command(args))?;
        Ok(Self { home, args: args.iter().map(|arg| (*arg).to_owned()).collect(), process: Some(process), at })
    }

    /// Starts a server on the data of `home` with a command that is made of [`Home::command`], such as one under a tracer.
    /// [`restart`](Self::restart) cannot start it again.
    ///
    /// # Errors
    /// The end of a server that refuses to start.
    pub fn start_command(home: Home, command: &mut Command) -> Result<Self, ProcessEnd> {
        let (process, at) = launch(command)?;
        Ok(Self { home, args: Vec::new(), process: Some(process), at })
    }

    /// The id of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running().id()
    }

    /// Its address for HTTP.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.at.http.expect("it serves HTTP")
    }

    /// Its address for HTTP with TLS.
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.at.https.expect("it serves HTTP with TLS")
    }

    /// Its address for protocol buffers with TLS.
    #[must_use]
    pub fn pb_tls(&self) -> SocketAddr {
        self.at.pb_tls.expect("it serves protocol buffers with TLS")
    }

    /// Its address for S3 with TLS.
    #[must_use]
    pub fn s3_https(&self) -> SocketAddr {
        self.at.s3_https.expect("it serves S3 with TLS")
    }

    /// Its address for protocol buffers.
    #[must_use]
    pub fn pb(&self) -> SocketAddr {
        self.at.pb.expect("it serves protocol buffers")
    }

    /// Its address for S3.
    #[must_use]
    pub fn s3_at(&self) -> SocketAddr {
        self.at.s3.expect("it serves S3")
    }

    /// Its directory.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// A client with a connection of its own.
    #[must_use]
    pub fn client(&self) -> HttpClient {
        HttpClient::new(self.http())
    }

    /// The S3 admin, with a connection of its own.
    #[must_use]
    pub fn s3_admin(&self) -> S3Client {
        S3Client::new(self.s3_at(), S3_KEY, S3_SECRET)
    }

    /// The `kv-admin` of its socket.
    #[must_use]
    pub fn admin(&self) -> KvAdmin {
        KvAdmin::new(&self.home.socket())
    }

    /// Its output on stdout, which begins with the banner.
    #[must_use]
    pub fn banner(&self) -> String {
        self.running().stdout()
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.running().stderr()
    }

    /// Its resident memory in bytes, as the kernel counts it.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.running().id())).expect("it is running");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel counts memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number of KiB");
        kib * 1024
    }

    /// Ends it at once with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Ends it with SIGKILL after a pause, under the load of writers. Each has its number, a client and random numbers of its own,
    /// and ends without an answer, or once the flag is set.
    pub fn kill_under<T: Send>(
        &mut self,
        pause: Duration,
        random: &mut SplitMix64,
        writers: &mut [T],
        write: impl Fn(usize, &mut T, &mut HttpClient, &mut SplitMix64, &AtomicBool) + Sync,
    ) {
        let (stop, address) = (AtomicBool::new(false), self.http());
        thread::scope(|scope| {
            for (number, writer) in writers.iter_mut().enumerate() {
                let (mut random, stop, write) = (SplitMix64::new(random.number()), &stop, &write);
                scope.spawn(move || write(number, writer, &mut HttpClient::new(address), &mut random, stop));
            }
            thread::sleep(pause);
            self.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// Pauses it (SIGSTOP): its connections stay, and it answers nothing.
    pub fn stop(&self) {
        self.running().stop();
    }

    /// Continues it (SIGCONT).
    pub fn cont(&self) {
        self.running().cont();
    }

    /// Stops it with SIGTERM and returns its end.
    pub fn terminate(&mut self) -> ProcessEnd {
        let process = self.process.take().expect("it is running");
        process.terminate();
        process.wait_for_end(STOP)
    }

    /// Starts it again on the same data and on new ports; it must not be running.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "end it first");
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let (process, at) = match launch(&mut self.home.command(&args)) {
            Ok(running) => running,
            Err(ended) => panic!("no banner\nstdout: {}\nstderr: {}", ended.stdout, ended.stderr),
        };
        self.process = Some(process);
        self.at = at;
    }

    /// Its home, after it ended.
    #[must_use]
    pub fn into_home(mut self) -> Home {
        self.kill();
        self.home
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("it is running")
    }
}

fn launch(command: &mut Command) -> Result<(Process, NodeAddresses), ProcessEnd> {
    let mut process = Process::start(command);
    match process.wait_for(START, announced) {
        Some(at) => Ok((process, at)),
        None if process.status().is_none() => {
            panic!("no banner in {START:?}\nstdout: {}\nstderr: {}", process.stdout(), process.stderr())
        }
        None => Err(process.wait_for_end(START)),
    }
}

/// The addresses in the banner, when their lines are complete.
fn announced(stdout: &str) -> Option<NodeAddresses> {
    let line = |name: &str| stdout.split_once(name)?.1.split_once('\n').map(|(line, _)| line);
    let (http, pb, s3) = (line(HTTP_BANNER)?, line(PB_BANNER)?, line(S3_BANNER)?);
    let address =
        |line: &str, before: &str| line.split(", ").find_map(|place| place.strip_prefix(before)?.parse().ok());
    Some(NodeAddresses {
        http: address(http, "http://"),
        https: address(http, "https://"),
        pb: address(pb, ""),
        pb_tls: address(pb, "TLS "),
        s3: address(s3, "http://"),
        s3_https: address(s3, "https://"),
    })
}

/// The path of a program under test: from the environment, else in the release directory.
pub(crate) fn binary(variable: &str, name: &str) -> PathBuf {
    let given = std::env::var_os(variable).map(PathBuf::from);
    let path = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release").join(name));
    assert!(path.exists(), "{} is missing: run `cargo xtask test`, or build it with --release", path.display());
    path.canonicalize().expect("it is there")
}
