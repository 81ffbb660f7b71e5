//! The start of a server, refused starts, and the stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Home, HttpClient, HttpConnection, HttpRequest, LarderNode, Process, ProcessEnd, TestEngine};

/// Fails the test unless the start was refused with one line that has these words.
///
/// Lines at level INFO may come first: over a cluster a server logs that it connects.
#[track_caller]
fn refused(ended: &ProcessEnd, words: &[&str]) {
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    assert!(!ended.stdout.contains("Riak HTTP"), "{ended:?}");
    let reasons: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains(" INFO ")).collect();
    let &[reason] = reasons.as_slice() else { panic!("{}", ended.stderr) };
    for word in words {
        assert!(reason.contains(word), "{word}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = Home::new();
    refused(&home.fails_to_start(&["--http", &address]), &[&address]);
    assert!(!home.data().exists(), "a folder of data is left");
}

#[test]
fn a_second_server_on_the_same_data_is_refused_and_the_first_still_serves() {
    let node = LarderNode::buffered();
    let data = node.home().data();
    let ended = Process::start(&mut node.home().command(&[])).wait_for_end(Duration::from_secs(30));
    refused(&ended, &[data.to_str().unwrap()]);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    node.admin().check(&["ping"], "pong\n");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let home = Home::new();
    fs::write(home.data(), "a file").unwrap();
    refused(&home.fails_to_start(&[]), &[home.data().to_str().unwrap()]);
}

#[test]
fn other_users_cannot_read_the_data() {
    let node = LarderNode::s3(&[]);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    let home = node.into_home();
    let mut open = vec![home.data()];
    while let Some(path) = open.pop() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} {mode:o}", path.display());
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let ended = home.fails_to_start(&[]);
    let data = home.data().display().to_string();
    refused(&ended, &[&data, "755", "chmod -R go-rwx"]);
}

#[test]
fn a_full_log_pipe_does_not_stop_the_server() {
    let home = Home::new();
    let mut command = home.command(&["--log-level", "debug", "--s3", "127.0.0.1:0"]);
    // The variables of the test run are no settings of the server.
    std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("LARDER_")).for_each(|name| {
        command.env_remove(name);
    });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut banner = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while !banner.contains("Ctrl-C stops") {
        if out.read_line(&mut banner).unwrap() == 0 {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("{banner}{stderr}");
        }
    }
    let at = banner.split_once("S3          http://").unwrap().1.lines().next().unwrap().parse().unwrap();
    let mut client = HttpClient::new(at);
    // A pipe holds 64 KiB; each answer logs a line, which no reader takes.
    for _ in 0..2_000 {
        client.get("/none/none").expect(404);
    }
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_socket_path_that_is_too_long_is_named() {
    let home = Home::new();
    let path = home.path().join("s".repeat(150));
    refused(&home.fails_to_start(&["--admin-socket", path.to_str().unwrap()]), &["socket"]);
}

#[test]
fn sigterm_ends_a_start_that_waits_for_its_cluster() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let home = Home::new();
    let process = Process::start(&mut home.command(&["--engine", "cassandra", "--cassandra", &at]));
    let _asked = silent.accept().unwrap();
    process.terminate();
    let ended = process.wait_for_end(Duration::from_secs(60));
    assert!(ended.code == Some(0) && !ended.stderr.contains("cannot use the engine"), "{ended:?}");
}

#[test]
fn unknown_settings_are_named_wherever_they_stand() {
    let home = Home::new();
    let flag = home.fails_to_start(&["--no-such-setting", "1"]);
    assert!(flag.code.is_some_and(|code| code != 0) && flag.stderr.contains("--no-such-setting"), "{flag:?}");
    let mut command = home.command(&[]);
    command.env("LARDER_NO_SUCH_SETTING", "1");
    refused(&Process::start(&mut command).wait_for_end(Duration::from_secs(30)), &["LARDER_NO_SUCH_SETTING"]);
    let file = home.path().join("larder.toml");
    fs::write(&file, "no-such-setting = 1\n").unwrap();
    let ended = home.fails_to_start(&["--config", file.to_str().unwrap()]);
    assert!(ended.code.is_some_and(|code| code != 0) && ended.stderr.contains("no-such-setting"), "{ended:?}");
    for (setting, value) in [("--engine", "paper"), ("--durability", "maybe"), ("--http", "nonsense")] {
        let ended = home.fails_to_start(&[setting, value]);
        assert!(ended.code.is_some_and(|code| code != 0) && ended.stderr.contains(value), "{ended:?}");
    }
}

#[test]
fn settings_come_from_the_environment_and_from_a_file_too() {
    let home = Home::new();
    let mut command = home.command(&[]);
    command.env("LARDER_NODE_NAME", "one@127.0.0.1");
    let mut process = Process::start(&mut command);
    process.wait_for(Duration::from_secs(30), |out| out.contains("Riak HTTP").then_some(())).expect("it starts");
    process.terminate();
    assert_eq!(process.wait_for_end(Duration::from_secs(30)).code, Some(0));
    let file = home.path().join("larder.toml");
    fs::write(&file, "node-name = \"two@127.0.0.1\"\ndurability = \"buffered\"\n").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let node = LarderNode::start_in(home, &["--config", &path]);
    assert_eq!(node.client().get("/stats").expect(200).json()["nodename"], "two@127.0.0.1");
}

#[test]
fn the_banner_shows_the_settings_and_commands_to_try() {
    let node = LarderNode::start(&[]);
    let banner = node.banner();
    for word in [&node.http().to_string(), node.home().socket().to_str().unwrap(), "kv-admin", "bucket-type"] {
        assert!(banner.contains(word), "{word}: {banner}");
    }
    for word in ["8087", "8080"] {
        assert!(!banner.contains(word), "the banner shows a protocol that is off: {banner}");
    }
    if !TestEngine::is_local_for("when a write is on its disk") {
        return;
    }
    assert!(banner.contains("disk"), "the banner does not show the durability: {banner}");
    let buffered = LarderNode::buffered().banner();
    assert!(buffered.contains("buffered"), "{buffered}");
}

#[test]
fn a_listener_may_be_off() {
    let home = Home::new();
    let mut process = Process::start(&mut home.command(&["--http", "off"]));
    let socket = home.socket();
    let there = process.wait_for(Duration::from_secs(30), |out| out.contains("kv-admin").then_some(()));
    assert!(there.is_some() && socket.exists(), "{} {}", process.stdout(), process.stderr());
    assert!(!process.stdout().contains("Riak HTTP   http://"), "{}", process.stdout());
    process.terminate();
    assert_eq!(process.wait_for_end(Duration::from_secs(30)).code, Some(0));
}

#[test]
fn the_memory_engine_loses_its_data_at_the_stop() {
    let mut node = LarderNode::start(&["--engine", "memory"]);
    node.client().put("/buckets/b/keys/k", "v").expect(204);
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "v");
    assert_eq!(node.terminate().code, Some(0));
    node.restart();
    node.client().get("/buckets/b/keys/k").expect(404);
}

#[test]
fn help_and_version_answer_without_a_server() {
    let home = Home::new();
    let help = home.fails_to_start(&["--help"]);
    assert_eq!(help.code, Some(0));
    for setting in [
        "--data-dir",
        "--http",
        "--pb",
        "--s3",
        "--admin-socket",
        "--engine",
        "--durability",
        "--node-name",
        "LARDER_HTTP",
    ] {
        assert!(help.stdout.contains(setting), "{setting}: {}", help.stdout);
    }
    assert_eq!(home.fails_to_start(&["--version"]).code, Some(0));
}

#[test]
fn a_restart_keeps_the_data() {
    let mut node = LarderNode::start(&[]);
    for number in 0..50 {
        node.client().put(&format!("/buckets/b/keys/{number}"), number.to_string()).expect(204);
    }
    for round in 0..2 {
        if round == 0 {
            assert_eq!(node.terminate().code, Some(0));
        } else {
            node.kill();
        }
        node.restart();
        for number in 0..50 {
            assert_eq!(node.client().get(&format!("/buckets/b/keys/{number}")).expect(200).text(), number.to_string());
        }
    }
}

#[test]
fn a_buffered_write_survives_an_orderly_stop() {
    let mut node = LarderNode::buffered();
    node.client().put("/buckets/b/keys/k?dw=0", "v").expect(204);
    assert_eq!(node.terminate().code, Some(0));
    node.restart();
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "v");
}

#[test]
fn a_request_under_way_is_answered_before_the_server_stops() {
    let mut node = LarderNode::start(&[]);
    let mut connection = HttpConnection::open(node.http());
    let whole = HttpRequest::put("/buckets/b/keys/k", "helloworld").bytes();
    connection.write(&whole[..whole.len() - 5]).unwrap();
    thread::sleep(Duration::from_millis(200));
    let rest = thread::spawn(move || {
        thread::sleep(Duration::from_millis(400));
        connection.write("world").and_then(|()| connection.receive())
    });
    let ended = node.terminate();
    let answer = rest.join().unwrap();
    assert_eq!(answer.expect("it is answered").status, 204);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!node.home().socket().exists(), "the stop leaves the socket");
    node.restart();
    assert_eq!(node.client().get("/buckets/b/keys/k").expect(200).text(), "helloworld");
}

#[test]
fn an_idle_connection_does_not_hold_up_the_stop() {
    let mut node = LarderNode::start(&[]);
    let mut client = node.client();
    client.get("/ping").expect(200);
    let _silent = HttpConnection::open(node.http());
    assert_eq!(node.terminate().code, Some(0));
}

#[test]
fn log_lines_may_be_json() {
    let mut node = LarderNode::start(&["--log-format", "json"]);
    node.client().get("/ping").expect(200);
    let ended = node.terminate();
    assert!(!ended.stderr.is_empty());
    for line in ended.stderr.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}
