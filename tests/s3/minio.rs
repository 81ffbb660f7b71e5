//! `larder server` in place of MinIO: its command, its variables, its probes and its line of a server that is ready.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Home, HttpClient, Process, S3Client, client_place};

const TIME: Duration = Duration::from_secs(120);
const KEY: &str = "minioadmin";
const SECRET: &str = "minio-secret";
const PUBLIC: &str = "https://s3.public.example";
/// The variables of a container of MinIO.
const VARIABLES: &[(&str, &str)] = &[
    ("MINIO_ROOT_USER", KEY),
    ("MINIO_ROOT_PASSWORD", SECRET),
    ("MINIO_DEFAULT_BUCKETS", "teas,leaflets:public"),
    ("MINIO_REGION", "auto"),
    ("MINIO_SERVER_URL", PUBLIC),
];

/// The command of MinIO with our program.
fn command(home: &Home, words: &[&str]) -> Command {
    let mut command = Command::new(home.command(&[]).get_program());
    command.current_dir(home.path()).arg("server").arg(home.data()).args(words).envs(VARIABLES.iter().copied());
    command
}

/// The address in the output of a server that is ready.
fn address(out: &str) -> Option<SocketAddr> {
    out.contains("Status:         1 Online, 0 Offline. \n").then_some(())?;
    out.lines().find_map(|line| line.strip_prefix("  S3          http://")?.parse().ok())
}

/// A server on a free port, and its address.
fn start(home: &Home, words: &[&str]) -> (Process, SocketAddr) {
    let mut process = Process::start(&mut command(home, &[&["--address", "127.0.0.1:0"], words].concat()));
    let at = process.wait_for(TIME, address).unwrap_or_else(|| panic!("{}{}", process.stdout(), process.stderr()));
    (process, at)
}

#[test]
fn the_command_and_the_variables_of_minio_start_a_server_with_its_buckets() {
    let home = Home::new();
    for _ in 0..2 {
        let (process, at) = start(&home, &[]);
        let banner = process.stdout();
        assert!(banner.contains("Riak HTTP   off") && !banner.contains("bucket-type"), "{banner}");
        let mut probe = HttpClient::new(at);
        for path in
            ["/minio/health/live", "/minio/health/ready", "/minio/health/cluster", "/health/live", "/health/ready"]
        {
            probe.get(path).expect(200);
        }
        probe.get("/leaflets").expect(200);
        probe.get("/teas").expect(403);
        S3Client::new(at, KEY, SECRET).get("/teas").expect(200);
        process.terminate();
        assert_eq!(process.wait_for_end(TIME).code, Some(0));
    }
}

#[test]
fn a_policy_of_its_owner_is_kept_by_the_next_start() {
    let home = Home::new();
    let (process, at) = start(&home, &[]);
    let mut admin = S3Client::new(at, KEY, SECRET);
    let policy = r#"{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::leaflets/*"}]}"#;
    admin.put("/leaflets?policy", policy).expect(204);
    process.terminate();
    assert_eq!(process.wait_for_end(TIME).code, Some(0));
    let (process, at) = start(&home, &[]);
    HttpClient::new(at).get("/leaflets").expect(403);
    process.terminate();
    assert_eq!(process.wait_for_end(TIME).code, Some(0));
}

#[test]
fn a_start_that_cannot_be_what_it_was_asked_for_is_refused_by_name() {
    let home = Home::new();
    for (words, variable, named) in [
        (&["/another"][..], ("A", "b"), "name one DIR"),
        (&["--address", "127.0.0.1:0"], ("MINIO_KMS_SECRET_KEY", "k"), "MINIO_KMS_SECRET_KEY"),
        (&["--address", "127.0.0.1:0"], ("LARDER_S3_REGION", "eu"), "MINIO_REGION and LARDER_S3_REGION differ"),
        (&["--s3", "off"], ("A", "b"), "the bucket teas of s3-buckets"),
        (&["--address", "127.0.0.1:0"], ("MINIO_DEFAULT_BUCKETS", "teas:write"), "MINIO_DEFAULT_BUCKETS"),
    ] {
        let ended = Process::start(command(&home, words).env(variable.0, variable.1)).wait_for_end(TIME);
        assert!(ended.code.is_some_and(|code| code != 0) && ended.stderr.contains(named), "{words:?} {ended:?}");
        assert!(!ended.stdout.contains("Online"), "{ended:?}");
    }
}

/// The commands of `aws` in the page's table, and its JSON documents.
fn page() -> (Vec<String>, Vec<String>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/from-minio.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| mc | aws, or kv-admin |").unwrap();
    let rows = table.lines().take_while(|line| line.is_empty() || line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split(" | ").nth(1).map(|cell| cell.trim_end_matches(" |").to_owned()));
    let commands = cells.flat_map(|cell| match cell.strip_prefix("``") {
        Some(quoted) => vec![quoted.trim_end_matches("``").to_owned()],
        None => cell.split("`, `").map(|command| command.trim_matches('`').to_owned()).collect(),
    });
    let documents = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned);
    (commands.filter(|command| command.starts_with("aws ")).collect(), documents.collect())
}

#[test]
fn the_commands_for_users_of_mc_do_as_the_page_says() {
    let (commands, documents) = page();
    assert!(commands.len() >= 20 && documents.len() == 2, "{commands:?}");
    let Some(bin) = client_place("LARDER_S3_PYTHON", "aws") else { return };
    let home = Home::new();
    let mut command = command(&home, &["--address", "127.0.0.1:0"]);
    let mut process = Process::start(command.env("MINIO_DEFAULT_BUCKETS", "cups"));
    let at = process.wait_for(TIME, address).unwrap_or_else(|| panic!("{}{}", process.stdout(), process.stderr()));
    let work = home.path().join("work");
    fs::create_dir_all(work.join("dir")).unwrap();
    for (name, content) in [
        ("file", "f"),
        ("dir/one", "1"),
        ("dir/a.txt", "a"),
        ("read.json", &documents[0]),
        ("rules.json", &documents[1]),
    ] {
        fs::write(work.join(name), content).unwrap();
    }
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", &command.replacen("aws", "\"$AWS\"", 1)]).current_dir(&work).env("AWS", bin.join("aws"));
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            shell.env_remove(name);
        }
        let endpoint = format!("http://{at}");
        shell.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_DEFAULT_REGION", "us-east-1");
        let ended = Process::start(shell.env("AWS_ENDPOINT_URL", endpoint).env("HOME", &work)).wait_for_end(TIME);
        assert_eq!(ended.code, Some(0), "{command}\n{}\n{}", ended.stdout, ended.stderr);
        match command.as_str() {
            "aws s3 ls s3://teas/dir/" => assert!(ended.stdout.contains(" file\n"), "{}", ended.stdout),
            command if command.contains("ends_with") => assert!(ended.stdout.contains("\"a.txt\""), "{}", ended.stdout),
            _ => {}
        }
    }
    let left = S3Client::new(at, KEY, SECRET).get("/").expect(200).text();
    assert!(left.contains("<Name>cups</Name>") && !left.contains("<Name>teas</Name>"), "{left}");
}

#[test]
fn boto3_behind_another_name() {
    let Some(bin) = client_place("LARDER_S3_PYTHON", "boto3") else { return };
    let home = Home::new();
    let (process, at) = start(&home, &["--proxy", "127.0.0.1"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/s3/minio_env.py");
    let mut python = Command::new(bin.join("python"));
    python.arg(script).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", home.path());
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        python.env_remove(name);
    }
    python.env("LARDER_S3_PORT", at.port().to_string()).env("LARDER_S3_KEY", KEY).env("LARDER_S3_SECRET", SECRET);
    let ended = Process::start(python.env("LARDER_S3_PUBLIC", PUBLIC)).wait_for_end(TIME);
    assert_eq!(ended.code, Some(0), "{}\n{}\nserver: {}", ended.stdout, ended.stderr, process.stderr());
}
