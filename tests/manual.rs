//! The pages for users, run as they are printed: each `console` block of the README and of `docs/`, against a server on other ports.
//!
//! A block that no test can run has a comment before it, `<!-- not run: REASON -->`. The commands of a page are one shell, so a
//! variable of one is there for the next. As root, server and commands run as an account without rights that nothing else has: a reader
//! starts the server himself, in a folder of his own. Printed lines must be the command's output; `…` stands for any text in a line, and a
//! client that reports its progress (`aws`) may print more.
//!
//! `LARDER_PYTHON` names the interpreter of an environment with Riak's client, `LARDER_S3_PYTHON` the folder with `aws`
//! (`cargo xtask test` makes both). Without one the examples that need it are skipped; the others take any `python3`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, and reads the places of clients from the environment"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Home, LarderNode, Process, S3_KEY, S3_SECRET, TestEngine};

/// Pages with examples that another test runs, or that none can run, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("docs/hooks.md", "tests/commit_hooks.rs runs it beside a receiver of webhooks"),
    ("docs/benchmarks", "a benchmark runs for minutes, and writes its page itself"),
];
/// The beginning of the comment before a block that is not run.
const NOT_RUN: &str = "<!-- not run: ";
/// Before the output of each command.
const MARK: char = '\u{1e}';
/// The commands that the shell of a page has: our programs, whose warnings a terminal shows between their lines, and the clients under
/// their usual names. A server that a page starts and that goes on is in a block that is not run; the others are refused.
const PROLOGUE: &str = r#"
kv-admin() { "$KV_ADMIN" --socket "$SOCKET" "$@" 2>&1; }
larder() { ! "$LARDER" "$@" 2>&1; }
cargo() { shift; kv-admin "$@"; }
python3() { command "$PYTHON" "$@"; }
aws() { "$AWS" "$@"; }
"#;

/// A command of a document and the lines that it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManualExample {
    pub(crate) command: String,
    pub(crate) prints: String,
}

/// A block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ManualBlock {
    /// Why no test runs it.
    not_run: Option<String>,
    examples: Vec<ManualExample>,
}

/// The console blocks of a document.
fn blocks(document: &str) -> Vec<ManualBlock> {
    let mut parts = document.split("```console\n");
    let mut before = parts.next().unwrap_or_default();
    let mut blocks = Vec::new();
    for part in parts {
        let last = before.trim_end().lines().next_back().unwrap_or_default();
        let not_run = last.strip_prefix(NOT_RUN).and_then(|rest| rest.strip_suffix(" -->")).map(str::to_owned);
        let (text, rest) = part.split_once("```").expect("a block ends");
        blocks.push(ManualBlock { not_run, examples: examples(text) });
        before = rest;
    }
    blocks
}

/// The commands of a block. A command goes on to the line that closes its quotes, after a `\` at the end of a line, and to the
/// `done` of its loop.
fn examples(block: &str) -> Vec<ManualExample> {
    let mut examples: Vec<ManualExample> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(ManualExample { command: command.into(), prints: String::new() }),
            (None, Some(last)) if goes_on(&last.command) => {
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

fn goes_on(command: &str) -> bool {
    let is_open = command.matches('\'').count() % 2 == 1;
    is_open
        || command.ends_with('\\')
        || command.ends_with("; do")
        || (command.contains("; do\n") && !command.ends_with("done"))
}

/// Whether the output is the printed text.
pub(crate) fn fits(example: &ManualExample, output: &str) -> bool {
    let lines_fit = |printed: &str, line: &str| match printed.split_once('…') {
        Some((begin, end)) => line.len() >= begin.len() + end.len() && line.starts_with(begin) && line.ends_with(end),
        None => printed == line,
    };
    if example.prints.is_empty() && example.command.contains("aws ") {
        return true;
    }
    // A line that is `…` alone stands for any number of them.
    let (mut lines, mut printed) = (output.lines().peekable(), example.prints.lines().peekable());
    while let Some(wanted) = printed.next() {
        if wanted == "…" {
            let next = printed.peek().copied();
            while lines.next_if(|line| next.is_none_or(|next| !lines_fit(next, line))).is_some() {}
        } else if !lines.next().is_some_and(|line| lines_fit(wanted, line)) {
            return false;
        }
    }
    lines.next().is_none()
}

/// The program of a client, if this machine has it and the account of this home may run it.
fn client(home: &Home, variable: &str, program: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from)?;
    let program = if program.is_empty() { place } else { place.join(program) };
    home.can_run(&program).then_some(program)
}

/// The interpreter with Riak's client.
fn riak_python(home: &Home) -> Option<PathBuf> {
    client(home, "LARDER_PYTHON", "")
}

/// The client of S3.
fn aws(home: &Home) -> Option<PathBuf> {
    client(home, "LARDER_S3_PYTHON", "aws")
}

/// Whether this machine has the clients of an example.
fn is_runnable(example: &ManualExample, home: &Home) -> bool {
    let has = |word: &str, client: &dyn Fn(&Home) -> Option<PathBuf>| {
        let has_it = !example.command.contains(word) || client(home).is_some();
        if !has_it {
            eprintln!("skipped: there is no client for {word} that an ordinary account may run");
        }
        has_it
    };
    has("import riak", &riak_python) && has("aws ", &aws)
}

/// The examples as one script, each after a line with the mark. A command that fails ends it.
fn script(node: &LarderNode, examples: &[&ManualExample]) -> String {
    let mut script = PROLOGUE.to_owned();
    for example in examples {
        let command = example
            .command
            .replace("127.0.0.1:8098", &node.http().to_string())
            .replace("127.0.0.1:8080", &node.s3_at().to_string())
            .replace(INSTALLED, &installed(node))
            .replace("8087", &node.pb().port().to_string())
            .replace("AWS_ACCESS_KEY_ID=…", &format!("AWS_ACCESS_KEY_ID='{S3_KEY}'"))
            .replace("AWS_SECRET_ACCESS_KEY=…", &format!("AWS_SECRET_ACCESS_KEY='{S3_SECRET}'"));
        // curl shows its progress on standard error only.
        script.push_str(&format!("printf '\\036'\n{command}\n[ $? = 0 ] || exit 1\n"));
    }
    script
}

/// The folder of a page that stands for the one of an installed package, and its place in a test.
const INSTALLED: &str = "/var/lib/larder";

fn installed(node: &LarderNode) -> String {
    node.home().path().join("installed").display().to_string()
}

/// The output of each example.
fn run(node: &LarderNode, examples: &[&ManualExample]) -> Vec<String> {
    let home = node.home();
    let (python, aws) = (riak_python(home), aws(home));
    let clients: Vec<PathBuf> = [&python, &aws].into_iter().flatten().cloned().collect();
    let mut command = home.shell(&script(node, examples), &clients);
    command
        .current_dir(home.path())
        .env("KV_ADMIN", home.path().join("kv-admin"))
        .env("LARDER", home.path().join("larder"))
        .env("SOCKET", home.socket())
        .env("PYTHON", python.unwrap_or_else(|| "python3".into()))
        .env("AWS", aws.unwrap_or_default())
        .env("HOME", home.path())
        .env("PYTHONPATH", home.path().join("shim"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore::DeprecationWarning")
        .env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let ended = Process::start(&mut command).wait_for_end(Duration::from_secs(300));
    let stdout = ended.stdout.replace(&installed(node), INSTALLED);
    let mut outputs: Vec<String> = stdout.split(MARK).skip(1).map(str::to_owned).collect();
    let last = outputs.len().checked_sub(1).map(|last| &examples[last].command);
    assert_eq!(ended.code, Some(0), "{last:?}\n{:?}\n{}", outputs.pop(), ended.stderr);
    outputs
}

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page)).unwrap()
}

/// The examples of a page, but for those of blocks that no test runs.
pub(crate) fn page_examples(page: &str) -> Vec<ManualExample> {
    let blocks = blocks(&read(page)).into_iter();
    blocks.filter(|block| block.not_run.is_none()).flat_map(|block| block.examples).collect()
}

/// Runs the examples of a page, but for the blocks that are marked.
#[track_caller]
fn check(page: &str) {
    // The pages are written for a first start, which has the embedded engine.
    if TestEngine::current() != TestEngine::Local {
        return;
    }
    let home = Home::of_fresh_account();
    let all = page_examples(page);
    let examples: Vec<_> = all.iter().filter(|example| is_runnable(example, &home)).collect();
    assert!(!examples.is_empty(), "{page} has examples");
    let working_copy = Path::new(env!("CARGO_MANIFEST_DIR"));
    home.take_in(&working_copy.join("../README.md"));
    home.take_in(&working_copy.join("python/shim"));
    let arguments = ["--durability", "buffered", "--pb", "127.0.0.1:0", "--s3", "127.0.0.1:0"];
    let node = LarderNode::start_in(home, &arguments);
    let outputs = run(&node, &examples);
    for (example, output) in examples.iter().zip(outputs) {
        let mut output = output;
        // The server learns a moment later that the client before has closed its connections.
        for _ in 0..50 {
            if fits(example, &output) || !example.command.contains("/stats") {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            output = run(&node, &[example]).concat();
        }
        assert!(fits(example, &output), "{page}: {output:?} instead of {example:?}");
    }
}

#[test]
fn the_readme_prints_what_it_says() {
    check("README.md");
}

#[test]
fn the_manual_prints_what_it_says() {
    check("docs/manual.md");
}

#[test]
fn the_page_of_security_prints_what_it_says() {
    check("docs/security.md");
}

#[test]
fn the_page_of_protocol_buffers_prints_what_it_says() {
    check("docs/protocol-buffers.md");
}

#[test]
fn the_page_of_indexes_prints_what_it_says() {
    check("docs/indexes.md");
}

#[test]
fn the_pages_of_links_and_jobs_print_what_they_say() {
    check("docs/links.md");
    check("docs/mapreduce.md");
}

#[test]
fn the_page_of_data_types_prints_what_it_says() {
    check("docs/data-types.md");
}

/// A new page with examples must be run here, or say why not.
#[test]
fn every_page_with_examples_is_run_or_says_why_not() {
    let docs = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")).unwrap();
    let names = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    let here = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manual.rs")).unwrap();
    let mut run = 0;
    for page in names.chain(["README.md".to_owned()]).filter(|name| name.ends_with(".md")) {
        let text = read(&page);
        let hidden = text.split("```text\n").skip(1).find(|block| block.starts_with("$ "));
        assert!(hidden.is_none(), "{page} has commands that no test sees: {hidden:?}");
        let blocks = blocks(&text);
        for block in &blocks {
            assert!(block.not_run.as_ref().is_none_or(|reason| reason.len() > 10), "{page}: a reason");
        }
        if blocks.iter().all(|block| block.not_run.is_some())
            || ELSEWHERE.iter().any(|(name, _)| page.starts_with(name))
        {
            continue;
        }
        assert!(here.contains(&format!("check(\"{page}\")")), "{page} has console blocks: run it, or mark them");
        run += 1;
    }
    assert!(run >= 6, "{run}");
}

#[test]
fn a_command_goes_on_until_its_quotes_and_loops_are_closed() {
    let document = "a\n```console\n$ one 'x\ny'\nprinted\nmore\n$ two \\\n  three\n$ for n in 1; do\n    four\n  done\n```\n\
                    <!-- not run: it would take a day -->\n```console\n$ five\n```\n```text\n$ no\n```\n";
    let example = |command: &str, prints: &str| ManualExample { command: command.into(), prints: prints.into() };
    let first = [
        example("one 'x\ny'", "printed\nmore\n"),
        example("two \\\n  three", ""),
        example("for n in 1; do\n    four\n  done", ""),
    ];
    let second = ManualBlock { not_run: Some("it would take a day".into()), examples: vec![example("five", "")] };
    assert_eq!(blocks(document), [ManualBlock { not_run: None, examples: first.to_vec() }, second]);
}

#[test]
fn dots_stand_for_any_text_and_nothing_else_does() {
    let example = |prints: &str| ManualExample { command: "c".into(), prints: prints.into() };
    assert!(fits(&example("id: …\nend\n"), "id: 7\nend\n") && fits(&example("a\n…\nb\n"), "a\nx\ny\nb\n"));
    for (prints, output) in
        [("", "x\n"), ("id: …\n", "ie: 7\n"), ("a\n", "a\nb\n"), ("a\n…\nb\n", "a\nx\n"), ("a\n", "")]
    {
        assert!(!fits(&example(prints), output), "{prints:?} {output:?}");
    }
}
