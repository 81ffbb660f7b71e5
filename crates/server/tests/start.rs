//! The binary from outside: its start, its refusals and its end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use larder_kv_admin::frame::{AdminAnswer, AdminReply, AdminRequest};
use tempfile::TempDir;

const END_TIME_MAX: Duration = Duration::from_secs(20);

fn larder(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    // Servers of other tests run at the same time, so these listeners take a free port unless a flag names one.
    command.env_clear().envs([
        ("LARDER_PB", "127.0.0.1:0"),
        ("LARDER_S3", "127.0.0.1:0"),
        ("LARDER_CONSOLE", "127.0.0.1:0"),
    ]);
    command.current_dir(dir).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running server.
struct LarderProcess {
    child: Child,
    banner: String,
}

impl LarderProcess {
    /// Starts a server and reads its banner.
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut child = larder(dir, arguments).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut banner = String::new();
        while !banner.contains("All commands: ") {
            banner += &(lines.next().expect("a banner").unwrap() + "\n");
        }
        Self { child, banner }
    }

    /// The value of a line of the banner.
    fn line(&self, name: &str) -> &str {
        let found = self.banner.lines().find_map(|line| line.trim_start().strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in\n{}", self.banner)).trim()
    }

    fn end(mut self, signal: &str) -> ExitStatus {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        ended(&mut self.child)
    }
}

impl Drop for LarderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < END_TIME_MAX, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a server that must refuse; returns its line and its exit code.
#[track_caller]
fn refused(dir: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let mut child = larder(dir, arguments).spawn().unwrap();
    let status = ended(&mut child);
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(stdout).unwrap(), "", "{arguments:?}");
    let line = String::from_utf8(stderr).unwrap();
    assert_eq!(line.matches('\n').count(), 1, "one line, not\n{line}");
    (line.trim_end().to_owned(), status.code())
}

#[test]
fn the_server_starts_prints_its_addresses_and_ends_in_order() {
    let dir = TempDir::new().unwrap();
    for signal in ["-TERM", "-INT"] {
        let server = LarderProcess::start(dir.path(), &["--http", "127.0.0.1:0"]);
        let port = server.line("Riak HTTP").strip_prefix("http://127.0.0.1:").unwrap().parse::<u16>().unwrap();
        assert_ne!(port, 0);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert_eq!(server.line("kv-admin"), "./data/admin.sock");
        assert!(UnixStream::connect(dir.path().join("data/admin.sock")).is_ok());
        assert_eq!(server.end(signal).code(), Some(0), "{signal}");
        assert!(!dir.path().join("data/admin.sock").exists());
    }
}

#[test]
fn a_server_without_listeners_answers_kv_admin() {
    let dir = TempDir::new().unwrap();
    let server = LarderProcess::start(dir.path(), &["--http", "off", "--engine", "memory"]);
    assert_eq!(server.line("Riak HTTP"), "off");
    let mut stream = UnixStream::connect(dir.path().join("data/admin.sock")).unwrap();
    let request = AdminRequest { args: vec!["ping".to_owned()], ..AdminRequest::default() };
    std::io::Write::write_all(&mut stream, &request.encode().unwrap()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(AdminReply::decode(&answer[4..]), Ok(AdminReply::Answer(AdminAnswer::done("pong"))));
    assert_eq!(server.end("-TERM").code(), Some(0));
}

#[test]
fn a_failed_start_is_one_line_and_an_exit_code() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let long = "x".repeat(120);
    for (arguments, exit, beginning) in [
        (&["--htp", "off"][..], 2, "larder: unexpected argument '--htp' found"),
        (&["--engine", "big"], 2, "larder: --engine is \"big\": expected local, memory or cassandra"),
        (&["--engine", "cassandra"], 1, "larder: the engine is cassandra, but nobody says where the cluster is: "),
        (&["--config", "none.toml"], 1, "larder: cannot read the settings file none.toml: No such file"),
        (&["--data-dir", "file"], 1, "larder: file cannot be opened: "),
        (&["--http", &taken], 1, "larder: cannot listen on 127.0.0.1:"),
        (&["--admin-socket", &long], 1, "larder: the path of the admin socket has 120 bytes, more than 107: "),
        (&["--http", "off", "--metrics", "off", "--admin-socket", "file"], 1, "larder: file is not a socket: "),
    ] {
        let (line, code) = refused(dir.path(), arguments);
        assert!(line.starts_with(beginning), "{line}");
        assert_eq!(code, Some(exit), "{line}");
    }
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let dir = TempDir::new().unwrap();
    let first = LarderProcess::start(dir.path(), &["--http", "127.0.0.1:0"]);
    let (line, code) = refused(dir.path(), &["--http", "127.0.0.1:0", "--admin-socket", "other.sock"]);
    assert_eq!((line.as_str(), code), ("larder: ./data is in use by another server", Some(1)));
    assert!(UnixStream::connect(dir.path().join("data/admin.sock")).is_ok(), "the first one goes on");
    assert_eq!(first.end("-TERM").code(), Some(0));
}

#[test]
fn the_next_server_replaces_the_socket_of_a_killed_one() {
    let dir = TempDir::new().unwrap();
    let first = LarderProcess::start(dir.path(), &["--http", "127.0.0.1:0"]);
    first.end("-KILL");
    assert!(dir.path().join("data/admin.sock").exists());
    let second = LarderProcess::start(dir.path(), &["--http", "127.0.0.1:0"]);
    assert_eq!(second.end("-TERM").code(), Some(0));
}
