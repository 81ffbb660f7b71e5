//! One node: its files, its process, what state it is in.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Life, Lock, Options};
use crate::cql::Cql;
use crate::files::Told;
use crate::ports::{Ports, address};
use crate::process::Process;
use crate::{Error, Java, Result, jars};

/// How long a start may take: half a minute on two cores that do nothing else.
const START: Duration = Duration::from_secs(240);
/// How long an orderly end may take before it is ended the other way.
const STOP: Duration = Duration::from_secs(30);
/// How long a node has for a small answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often a condition is looked at.
const STEP: Duration = Duration::from_millis(100);

/// Starts a node, notes its id, and ends it when whoever holds the other end of the input is gone: by whatever way.
const GUARD: &str = r#"file=$1; shift
"$@" </dev/null &
echo $! >"$file.new" && mv "$file.new" "$file"
read -r _
kill -9 $! 2>/dev/null
wait"#;

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does not run.
    Down,
    /// It runs and does not answer yet, or no more.
    Silent,
    /// It is held by [`Node::stop`].
    Stopped,
    /// It answers clients.
    Up,
}

/// One node of a cluster. It may be killed and started again by another thread than the one that asks how it is.
#[derive(Debug)]
pub struct Node {
    number: usize,
    dir: PathBuf,
    ports: Ports,
    /// The seeds' addresses: those of the whole cluster, so that each may start while any other is down.
    seeds: Vec<Ipv4Addr>,
    heap_mib: u32,
    life: Life,
    keeps_schema: bool,
    /// Number of its datacenter, from 1.
    datacenter: usize,
    lock: Option<Lock>,
    /// Ends the node when this process ends.
    guard: Mutex<Option<Child>>,
}

impl Node {
    /// Node `number`, counted from 1, of a cluster. Nothing is started.
    pub(crate) fn new(number: usize, options: &Options) -> Self {
        Self {
            number,
            dir: options.dir.join(format!("node{number}")),
            ports: options.ports,
            seeds: (1..=options.nodes).map(address).collect(),
            heap_mib: options.heap_mib,
            life: options.life,
            keeps_schema: options.keeps_schema,
            datacenter: (number - 1) % options.datacenters + 1,
            lock: options.lock.clone(),
            guard: Mutex::default(),
        }
    }

    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Where it answers clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (address(self.number), self.ports.native()).into()
    }

    /// Where its log is.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("system.log")
    }

    /// The id of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.process().map(Process::id)
    }

    /// What it is doing; asks it, which takes up to two seconds.
    #[must_use]
    pub fn state(&self) -> State {
        match self.process() {
            None => State::Down,
            Some(process) if process.is_held => State::Stopped,
            Some(_) if self.answers() => State::Up,
            Some(_) => State::Silent,
        }
    }

    /// Bytes of its tables on disk.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        bytes_below(&self.dir.join("data"))
    }

    /// Starts it on the data it has, unless it runs, and waits until it answers clients.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without Java or jars; [`Error::Failed`] when a port is taken, or it does not answer in four
    /// minutes, with what it said.
    pub fn start(&self) -> Result<()> {
        self.launch()?;
        self.wait_until_up()
    }

    /// Starts it and does not wait.
    pub(crate) fn launch(&self) -> Result<()> {
        if self.process().is_some() {
            return Ok(());
        }
        let (java, lib) = (Java::find()?, jars::fetch(crate::cluster::home().as_path())?);
        if let Some(at) = self.ports.taken_of(self.number) {
            return Err(Error::failed(format!("{at} is taken by something else: give another port base")));
        }
        self.release();
        fs::create_dir_all(&self.dir).map_err(|error| Error::file(&self.dir, &error))?;
        let told = self.told();
        self.write("cassandra.yaml", &told.cassandra_yaml())?;
        self.write("cassandra-rackdc.properties", &told.rackdc())?;
        self.write("logback.xml", &told.logback())?;
        let words = told.java(&lib, &jars::agent(&lib)?);
        self.spawn(&java, &words)
    }

    /// Waits until it answers clients.
    ///
    /// # Errors
    /// [`Error::Failed`] when it ends instead, or takes more than four minutes, with what it said.
    pub fn wait_until_up(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if self.answers() {
                return Ok(());
            }
            let what = if self.process().is_none() {
                "ended when it started"
            } else if Instant::now() > deadline {
                "does not answer"
            } else {
                thread::sleep(STEP);
                continue;
            };
            return Err(Error::failed(format!("node {} {what}: {}", self.number, self.complaint())));
        }
    }

    /// Whether it takes clients. One that lets in who it knows is only listened for: it listens when it is ready.
    fn answers(&self) -> bool {
        match self.lock {
            None => Cql::answers(self.address(), ANSWER),
            Some(_) => TcpStream::connect_timeout(&self.address(), ANSWER).is_ok(),
        }
    }

    /// Ends it at once, as a power cut does (SIGKILL), and waits until it is gone. It may be held, or not run at all.
    ///
    /// # Errors
    /// [`Error::Failed`] when it is not gone in half a minute.
    pub fn kill(&self) -> Result<()> {
        if let Some(process) = self.process() {
            process.send(Signal::KILL)?;
        }
        if !self.is_gone_within(STOP) {
            return Err(Error::failed(format!("node {} does not end", self.number)));
        }
        self.release();
        Ok(())
    }

    /// Asks it to end, and waits; one that takes more than half a minute, or is held, is killed.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn end(&self) -> Result<()> {
        self.ask_to_end()?;
        if self.process().is_some_and(|process| !process.is_held) {
            self.is_gone_within(STOP);
        }
        self.kill()
    }

    /// Asks it to end (SIGTERM), unless it is held.
    pub(crate) fn ask_to_end(&self) -> Result<()> {
        self.process().filter(|process| !process.is_held).map_or(Ok(()), |process| process.send(Signal::TERM))
    }

    /// Holds it (SIGSTOP), and returns when it is held: its connections stay, and nothing is answered.
    ///
    /// # Errors
    /// [`Error::Failed`] when it does not run.
    pub fn stop(&self) -> Result<()> {
        self.hold(Signal::STOP, true)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// [`Error::Failed`] when it does not run.
    pub fn cont(&self) -> Result<()> {
        self.hold(Signal::CONT, false)
    }

    /// The addresses of the others that it knows.
    ///
    /// # Errors
    /// [`Error::Failed`] when it does not say.
    pub fn peers(&self) -> Result<usize> {
        let asked =
            Cql::connect(self.address(), ANSWER).and_then(|mut cql| cql.query("SELECT peer FROM system.peers_v2"));
        asked.map(|rows| rows.len()).map_err(|error| Error::failed(format!("node {}: {error}", self.number)))
    }

    fn hold(&self, signal: Signal, held: bool) -> Result<()> {
        let process = || self.process().ok_or_else(|| Error::failed(format!("node {} does not run", self.number)));
        process()?.send(signal)?;
        let deadline = Instant::now() + ANSWER;
        while process()?.is_held != held && Instant::now() < deadline {
            thread::sleep(STEP / 100);
        }
        Ok(())
    }

    fn process(&self) -> Option<Process> {
        Process::of(&self.pid_file(), &self.told().mark())
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("pid")
    }

    fn told(&self) -> Told<'_> {
        Told {
            dir: &self.dir,
            number: self.number,
            address: address(self.number),
            seeds: &self.seeds,
            ports: self.ports,
            heap_mib: self.heap_mib,
            keeps_schema: self.keeps_schema,
            datacenter: self.datacenter,
            lock: self.lock.as_ref(),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|error| Error::file(&path, &error))
    }

    /// A process group of its own: Ctrl-C is for whoever started it, who then ends it.
    fn spawn(&self, java: &Java, words: &[String]) -> Result<()> {
        let pid_file = self.pid_file();
        let _ = fs::remove_file(&pid_file);
        let out = self.dir.join("out.log");
        let said = File::create(&out).and_then(|file| file.try_clone().map(|copy| (file, copy)));
        let (stdout, stderr) = said.map_err(|error| Error::file(&out, &error))?;
        let mut command = match self.life {
            Life::Bound => {
                let mut guard = Command::new("sh");
                guard.args(["-c", GUARD, "guard"]).arg(&pid_file).arg(&java.program).stdin(Stdio::piped());
                guard
            }
            Life::Detached => {
                let mut node = Command::new(&java.program);
                node.stdin(Stdio::null());
                node
            }
        };
        command.args(words).current_dir(&self.dir).stdout(stdout).stderr(stderr).process_group(0);
        let child = command.spawn().map_err(|error| Error::failed(format!("{}: {error}", java.program.display())))?;
        match self.life {
            Life::Detached => self.write("pid", &format!("{}\n", child.id()))?,
            Life::Bound => *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(child),
        }
        self.wait_until_seen();
        Ok(())
    }

    /// Waits until its process can be seen: the guard has to write down its id, and the kernel what it was started with.
    /// One that ends at once is never seen, and whoever waits until it is up is told.
    fn wait_until_seen(&self) {
        let deadline = Instant::now() + ANSWER;
        while self.process().is_none() && Instant::now() < deadline {
            thread::sleep(STEP / 10);
        }
    }

    fn is_gone_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.process().is_some() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(STEP / 10);
        }
        true
    }

    /// Lets go of the guard, which ends the node if it still runs.
    fn release(&self) {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut guard) = guard {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }

    /// The last thing the node called an error, else the last line it said.
    fn complaint(&self) -> String {
        let text = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let (log, out) = (text("system.log"), text("out.log"));
        let line = log.lines().rfind(|line| line.contains(" ERROR ")).or_else(|| out.lines().last());
        let line = line.or_else(|| log.lines().last()).unwrap_or("it said nothing");
        format!("{line} ({})", self.log().display())
    }
}

impl Drop for Node {
    /// What is bound to this process does not outlive it.
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
    fn waiting(dir: &Path) -> Node {
        let node = Node::new(1, &Options::bound(dir, 1, 512).unwrap());
        fs::create_dir_all(&node.dir).unwrap();
        let java = Java { program: "sh".into(), major: 17 };
        node.spawn(&java, &["-c".into(), "while :; do sleep 1; done".into(), node.told().mark()]).unwrap();
        node
    }

    #[test]
    fn a_node_is_held_let_go_and_killed() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        assert!(node.pid().is_some());
        node.stop().unwrap();
        assert_eq!(node.state(), State::Stopped);
        node.cont().unwrap();
        assert_eq!(node.state(), State::Silent);
        node.kill().unwrap();
        assert_eq!((node.state(), node.pid()), (State::Down, None));
        assert!(node.stop().is_err());
    }

    #[test]
    fn a_node_that_is_held_does_not_outlive_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.stop().unwrap();
        let (file, mark) = (node.pid_file(), node.told().mark());
        assert!(Process::of(&file, &mark).is_some());
        drop(node);
        assert!(Process::of(&file, &mark).is_none());
    }

    #[test]
    fn what_ends_when_it_starts_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let node = waiting(dir.path());
        node.kill().unwrap();
        fs::write(node.dir.join("out.log"), "no room\n").unwrap();
        let error = node.wait_until_up().unwrap_err().to_string();
        assert!(error.starts_with("node 1 ended when it started: no room ("), "{error}");
    }
}
