//! One node: its files, its process and its state.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{ClientAuth, ClusterOptions, NodeLifetime};
use crate::config::{NodeConfig, opened_packages};
use crate::cql::CqlConnection;
use crate::ports::{CassandraPorts, address};
use crate::process::NodeProcess;
use crate::{Error, Java, Result, jars};

/// How long a start may take: half a minute on two idle cores.
const START_MAX: Duration = Duration::from_secs(240);
/// How long an orderly stop may take before the node is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Timeout of a small query.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts a node, writes its id to a file, and kills the node when the process at the other end of stdin is gone, in
/// whatever way.
const GUARD_SCRIPT: &str = r#"file=$1; shift
"$@" </dev/null &
echo $! >"$file.new" && mv "$file.new" "$file"
read -r _
kill -9 $! 2>/dev/null
wait"#;

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// The node does not run.
    Down,
    /// The node runs, and does not answer yet or any more.
    Silent,
    /// The node is stopped by [`CassandraNode::stop`].
    Stopped,
    /// The node answers clients.
    Up,
}

/// One node of a cluster. Threads may kill, start and query it concurrently.
#[derive(Debug)]
pub struct CassandraNode {
    number: usize,
    dir: PathBuf,
    ports: CassandraPorts,
    /// The seeds: all nodes of the cluster, so that each may start while any other is down.
    seeds: Vec<Ipv4Addr>,
    heap_mib: u32,
    life: NodeLifetime,
    syncs_schema: bool,
    syncs_writes: bool,
    compiles_once: bool,
    /// Number of the datacenter, from 1.
    datacenter: usize,
    auth: Option<ClientAuth>,
    /// The guard that kills the node when this process ends.
    guard: Mutex<Option<Child>>,
}

impl CassandraNode {
    /// Node `number` of a cluster, counted from 1. Nothing is started.
    pub(crate) fn new(number: usize, options: &ClusterOptions) -> Self {
        Self {
            number,
            dir: options.dir.join(format!("node{number}")),
            ports: options.ports,
            seeds: (1..=options.nodes).map(address).collect(),
            heap_mib: options.heap_mib,
            life: options.life,
            syncs_schema: options.syncs_schema,
            syncs_writes: options.syncs_writes,
            compiles_once: options.compiles_once,
            datacenter: (number - 1) % options.datacenters + 1,
            auth: options.auth.clone(),
            guard: Mutex::default(),
        }
    }

    /// The number, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (address(self.number), self.ports.native()).into()
    }

    /// Path of the log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("system.log")
    }

    /// The id of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.process().map(NodeProcess::id)
    }

    /// The state of the node; the check takes up to two seconds.
    #[must_use]
    pub fn state(&self) -> NodeState {
        match self.process() {
            None => NodeState::Down,
            Some(process) if process.is_stopped => NodeState::Stopped,
            Some(_) if self.is_answering() => NodeState::Up,
            Some(_) => NodeState::Silent,
        }
    }

    /// Bytes of the tables on disk.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        bytes_below(&self.dir.join("data"))
    }

    /// Starts the node on its data, unless it runs, and waits until it answers clients.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without Java or jars; [`Error::Failed`] when a port is in use, or the node does not
    /// answer in four minutes, with its last error.
    pub fn start(&self) -> Result<()> {
        self.launch()?;
        self.wait_until_up()
    }

    /// Runs `nodetool` on the node, and returns what it prints.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without Java or jars; [`Error::Failed`] when it fails, with what it prints.
    pub fn nodetool(&self, args: &[&str]) -> Result<String> {
        let (java, lib) = (Java::find()?, jars::fetch(crate::cluster::home().as_path())?);
        let mut command = Command::new(&java.program);
        command
            .args(opened_packages())
            .args(["-Xmx128m", "-Dcom.sun.jndi.rmiURLParsing=legacy"])
            // It writes its history below the home of its user.
            .arg(format!("-Duser.home={}", self.dir.display()))
            .arg(format!("-Dlogback.configurationFile={}", self.dir.join("logback.xml").display()))
            .args(["-cp", &format!("{}/*", lib.display()), "org.apache.cassandra.tools.NodeTool"])
            .args(["-h", "127.0.0.1", "-p", &self.ports.jmx(self.number).to_string()])
            .args(args)
            .stdin(Stdio::null());
        let ended = command.output().map_err(|error| Error::failed(format!("nodetool {args:?}: {error}")))?;
        let text = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        if ended.status.success() { Ok(text) } else { Err(Error::failed(format!("nodetool {args:?}: {text}"))) }
    }

    /// Starts the node without waiting.
    pub(crate) fn launch(&self) -> Result<()> {
        if self.process().is_some() {
            return Ok(());
        }
        let (java, lib) = (Java::find()?, jars::fetch(crate::cluster::home().as_path())?);
        if let Some(at) = self.ports.first_in_use_of(self.number) {
            return Err(Error::failed(format!("{at} is in use: choose another port base")));
        }
        self.release();
        fs::create_dir_all(&self.dir).map_err(|error| Error::file(&self.dir, &error))?;
        let config = self.config();
        self.write("cassandra.yaml", &config.cassandra_yaml())?;
        self.write("cassandra-rackdc.properties", &config.rackdc())?;
        self.write("logback.xml", &config.logback())?;
        let args = config.java(&lib, &jars::agent(&lib)?);
        self.spawn(&java, &args)
    }

    /// Waits until the node answers clients.
    ///
    /// # Errors
    /// [`Error::Failed`] when the node ends, or takes more than four minutes, with its last error.
    pub fn wait_until_up(&self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            if self.is_answering() {
                return Ok(());
            }
            let what = if self.process().is_none() {
                "ended when it started"
            } else if Instant::now() > deadline {
                "does not answer"
            } else {
                thread::sleep(POLL_INTERVAL);
                continue;
            };
            return Err(Error::failed(format!("node {} {what}: {}", self.number, self.last_error())));
        }
    }

    /// Whether the node accepts clients. With authentication only the port is checked: a node listens when it is ready.
    fn is_answering(&self) -> bool {
        match self.auth {
            None => CqlConnection::is_answering(self.address(), ANSWER_MAX),
            Some(_) => TcpStream::connect_timeout(&self.address(), ANSWER_MAX).is_ok(),
        }
    }

    /// Kills the node (SIGKILL), as a power cut does, and waits until it is gone. The node may be stopped, or not run
    /// at all.
    ///
    /// # Errors
    /// [`Error::Failed`] when the node is not gone in half a minute.
    pub fn kill(&self) -> Result<()> {
        if let Some(process) = self.process() {
            process.send(Signal::KILL)?;
        }
        if !self.is_gone_within(STOP_MAX) {
            return Err(Error::failed(format!("node {} does not end", self.number)));
        }
        self.release();
        Ok(())
    }

    /// Stops the node in order, and waits. A node that is stopped, or takes more than half a minute, is killed.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn end(&self) -> Result<()> {
        self.ask_to_end()?;
        if self.process().is_some_and(|process| !process.is_stopped) {
            self.is_gone_within(STOP_MAX);
        }
        self.kill()
    }

    /// Sends SIGTERM, unless the node is stopped.
    pub(crate) fn ask_to_end(&self) -> Result<()> {
        self.process().filter(|process| !process.is_stopped).map_or(Ok(()), |process| process.send(Signal::TERM))
    }

    /// Stops the node (SIGSTOP), and returns when it is stopped: its connections stay open, and no request is answered.
    ///
    /// # Errors
    /// [`Error::Failed`] when it does not run.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP, true)
    }

    /// Continues a stopped node (SIGCONT).
    ///
    /// # Errors
    /// [`Error::Failed`] when it does not run.
    pub fn cont(&self) -> Result<()> {
        self.signal(Signal::CONT, false)
    }

    /// Number of other nodes that this node knows.
    ///
    /// # Errors
    /// [`Error::Failed`] when the node does not answer.
    pub fn peers(&self) -> Result<usize> {
        let asked = CqlConnection::connect(self.address(), ANSWER_MAX)
            .and_then(|mut cql| cql.query("SELECT peer FROM system.peers_v2"));
        asked.map(|rows| rows.len()).map_err(|error| Error::failed(format!("node {}: {error}", self.number)))
    }

    fn signal(&self, signal: Signal, stopped: bool) -> Result<()> {
        let process = || self.process().ok_or_else(|| Error::failed(format!("node {} does not run", self.number)));
        process()?.send(signal)?;
        let deadline = Instant::now() + ANSWER_MAX;
        while process()?.is_stopped != stopped && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL / 100);
        }
        Ok(())
    }

    fn process(&self) -> Option<NodeProcess> {
        NodeProcess::of(&self.pid_file(), &self.config().mark())
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("pid")
    }

    fn config(&self) -> NodeConfig<'_> {
        NodeConfig {
            dir: &self.dir,
            number: self.number,
            address: address(self.number),
            seeds: &self.seeds,
            ports: self.ports,
            heap_mib: self.heap_mib,
            syncs_schema: self.syncs_schema,
            syncs_writes: self.syncs_writes,
            compiles_once: self.compiles_once,
            datacenter: self.datacenter,
            auth: self.auth.as_ref(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|error| Error::file(&path, &error))
    }

    /// Starts the process in a group of its own: Ctrl-C reaches only the parent, which then ends the node.
    fn spawn(&self, java: &Java, args: &[String]) -> Result<()> {
        let pid_file = self.pid_file();
        // An old id must not be taken for the new process.
        let _ = fs::remove_file(&pid_file);
        let out = self.dir.join("out.log");
        let files = File::create(&out).and_then(|file| file.try_clone().map(|copy| (file, copy)));
        let (stdout, stderr) = files.map_err(|error| Error::file(&out, &error))?;
        let mut command = match self.life {
            NodeLifetime::Bound => {
                let mut guard = Command::new("sh");
                guard.args(["-c", GUARD_SCRIPT, "guard"]).arg(&pid_file).arg(&java.program).stdin(Stdio::piped());
                guard
            }
            NodeLifetime::Detached => {
                let mut node = Command::new(&java.program);
                node.stdin(Stdio::null());
                node
            }
        };
        command.args(args).current_dir(&self.dir).stdout(stdout).stderr(stderr).process_group(0);
        let child = command.spawn().map_err(|error| Error::failed(format!("{}: {error}", java.program.display())))?;
        match self.life {
            // A bound node's guard writes the id itself.
            NodeLifetime::Detached => self.write("pid", &format!("{}\n", child.id()))?,
            NodeLifetime::Bound => *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(child),
        }
        self.wait_until_seen();
        Ok(())
    }

    /// Waits until the process is visible: the guard has to write its id, and the kernel its command line. A process
    /// that ends at once is never visible; then `wait_until_up` fails.
    fn wait_until_seen(&self) {
        let deadline = Instant::now() + ANSWER_MAX;
        while self.process().is_none() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL / 10);
        }
    }

    fn is_gone_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.process().is_some() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL / 10);
        }
        true
    }

    /// Closes the guard's stdin: the guard kills the node if it still runs.
    fn release(&self) {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut guard) = guard {
            // The guard's `read` ends when stdin closes; it then kills the node.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }

    /// The last error in the node's log, else its last line of output.
    fn last_error(&self) -> String {
        let text = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let (log, out) = (text("system.log"), text("out.log"));
        let line = log.lines().rfind(|line| line.contains(" ERROR ")).or_else(|| out.lines().last());
        let line = line.or_else(|| log.lines().last()).unwrap_or("no output");
        format!("{line} ({})", self.log().display())
    }
}

impl Drop for CassandraNode {
    /// A bound node does not outlive its value.
    fn drop(&mut self) {
        self.release();
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node whose Java is a shell that waits.
    fn waiting(dir: &Path) -> CassandraNode {
        let node = CassandraNode::new(1, &ClusterOptions::bound(dir, 1, 512).unwrap());
        fs::create_dir_all(&node.dir).unwrap();
        let java = Java { program: "sh".into(), major: 17 };
        node.spawn(&java, &["-c".into(), "while :; do sleep 1; done".into(), node.config().mark()]).unwrap();
        node
    }

    #[test]
    fn a_node_is_stopped_continued_and_killed() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        assert!(node.pid().is_some());
        node.stop().unwrap();
        assert_eq!(node.state(), NodeState::Stopped);
        node.cont().unwrap();
        assert_eq!(node.state(), NodeState::Silent);
        node.kill().unwrap();
        assert_eq!((node.state(), node.pid()), (NodeState::Down, None));
        assert!(node.stop().is_err());
    }

    #[test]
    fn a_stopped_node_does_not_outlive_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.stop().unwrap();
        let (file, mark) = (node.pid_file(), node.config().mark());
        assert!(NodeProcess::of(&file, &mark).is_some());
        drop(node);
        assert!(NodeProcess::of(&file, &mark).is_none());
    }

    #[test]
    fn a_node_that_ends_at_its_start_is_reported_with_its_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.kill().unwrap();
        fs::write(node.dir.join("out.log"), "no room\n").unwrap();
        let error = node.wait_until_up().unwrap_err().to_string();
        assert!(error.starts_with("node 1 ended when it started: no room ("), "{error}");
    }
}
