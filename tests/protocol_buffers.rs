//! The examples of the page of protocol buffers and of the README, run as they are printed, against a server on other ports.
//!
//! `LARDER_PYTHON` names the interpreter of an environment with Riak's client (`cargo xtask test` makes one). Without it the
//! examples that need the client are skipped; the others take any `python3`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the path of Python from the environment"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use larder_tests::{LarderNode, Process, figure};

/// A command of a document and the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
struct ManualExample {
    command: String,
    prints: String,
}

/// The commands in the console blocks of a document. A command goes on to the line that closes its quotes.
fn examples(document: &str) -> Vec<ManualExample> {
    let mut examples: Vec<ManualExample> = Vec::new();
    let blocks = document.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(ManualExample { command: command.into(), prints: String::new() }),
            (None, Some(last)) if last.command.matches('\'').count() % 2 == 1 => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (None, Some(last)) => {
                last.prints.push_str(line);
                last.prints.push('\n');
            }
            (None, None) => panic!("a block begins with a command: {line}"),
        }
    }
    examples
}

/// Runs an example against `node`; `None` when the machine lacks what it needs.
fn run(node: &LarderNode, example: &ManualExample) -> Option<String> {
    let python = std::env::var("LARDER_PYTHON").ok();
    if example.command.contains("import riak") && python.is_none() {
        figure("example of protocol buffers", "skipped: LARDER_PYTHON names no interpreter");
        return None;
    }
    let script = example
        .command
        .replace("python3 ", &format!("{} ", python.as_deref().unwrap_or("python3")))
        .replace("127.0.0.1:8098", &node.http().to_string())
        .replace("8087", &node.pb().port().to_string());
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/shim");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .env("PYTHONPATH", shim)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore::DeprecationWarning")
        .env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    let ended = Process::start(&mut command).wait_for_end(Duration::from_secs(60));
    assert_eq!(ended.code, Some(0), "{}\n{}\n{}", example.command, ended.stdout, ended.stderr);
    Some(ended.stdout)
}

/// Runs the examples of a document that `wanted` chooses.
#[track_caller]
fn check(document: &str, wanted: impl Fn(&str) -> bool) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document)).unwrap();
    let examples: Vec<_> = examples(&text).into_iter().filter(|example| wanted(&example.command)).collect();
    assert!(!examples.is_empty(), "{document} has examples");
    let node = LarderNode::start(&["--durability", "buffered", "--pb", "127.0.0.1:0"]);
    for example in examples {
        let mut printed = run(&node, &example);
        // The server learns a moment later that the client before has closed its connections.
        for _ in 0..50 {
            if printed.as_ref().is_none_or(|printed| *printed == example.prints) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            printed = run(&node, &example);
        }
        assert!(
            printed.as_ref().is_none_or(|printed| *printed == example.prints),
            "{printed:?} instead of {example:?}"
        );
    }
}

#[test]
fn the_examples_of_the_page_print_what_it_says() {
    check("docs/protocol-buffers.md", |_| true);
}

#[test]
fn the_examples_of_secondary_indexes_print_what_their_page_says() {
    check("docs/indexes.md", |command| !command.starts_with("kv-admin"));
}

#[test]
fn the_examples_of_links_and_jobs_print_what_their_pages_say() {
    check("docs/links.md", |_| true);
    check("docs/mapreduce.md", |_| true);
}

#[test]
fn the_example_of_the_readme_prints_what_it_says() {
    check("README.md", |command| command.contains("8087"));
}

#[test]
fn a_command_goes_on_until_its_quotes_are_closed() {
    let found = examples("a\n```console\n$ one 'x\ny'\nprinted\nmore\n$ two\n```\n```text\n$ no\n```\n");
    let example = |command: &str, prints: &str| ManualExample { command: command.into(), prints: prints.into() };
    assert_eq!(found, [example("one 'x\ny'", "printed\nmore\n"), example("two", "")]);
}
