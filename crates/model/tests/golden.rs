//! Golden scripts: conversations with one key, and what a read shows. A bug gets a script named after what went wrong.
//!
//! ```text
//! mode siblings | newest | last_write_wins | write_once
//! g1: put tea [with c]      a put through gateway g1, with the context read as c
//! g1: delete [with c]
//! read [as c]               prints what is shown; remembers the context
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]

mod key;

use std::collections::HashMap;

use key::{Key, carried, delete, put, texts};
use larder_model::causality::{Context, Mode, Versions};

#[test]
fn every_script_reads_as_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, expected) = text.split_once("---\n").expect("a script and what it prints");
        assert_eq!(run(script), expected, "{}", path.display());
        ran += 1;
    }
    assert!(ran >= 8, "{ran} scripts ran");
}

struct Run {
    mode: Mode,
    key: Key,
    clock: u64,
    contexts: HashMap<String, Context>,
    printed: String,
}

fn run(script: &str) -> String {
    let key = Key::default();
    let mut run = Run { mode: Mode::Siblings, key, clock: 0, contexts: HashMap::new(), printed: String::new() };
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        run.step(&words);
    }
    run.printed
}

impl Run {
    fn step(&mut self, words: &[&str]) {
        self.clock += 1;
        match words {
            ["mode", name] => self.mode = mode(name),
            ["read", rest @ ..] => self.read(rest),
            [gateway, "put", text, rest @ ..] => {
                let write = put(self.mode, actor(gateway), self.clock, text, &self.context(rest));
                self.key.apply(&write.object_changes());
            }
            [gateway, "delete", rest @ ..] => {
                let write = delete(self.mode, actor(gateway), self.clock, &self.context(rest));
                self.key.apply(&write.object_changes());
            }
            other => panic!("no such line: {other:?}"),
        }
    }

    fn read(&mut self, rest: &[&str]) {
        let versions = self.key.read(self.mode);
        self.printed += &shown(&versions);
        if let ["as", name] = rest {
            self.contexts.insert((*name).into(), carried(&versions.context));
        }
    }

    fn context(&self, rest: &[&str]) -> Context {
        match rest {
            ["with", name] => self.contexts[*name].clone(),
            [] => Context::default(),
            other => panic!("no such ending: {other:?}"),
        }
    }
}

fn shown(versions: &Versions) -> String {
    match texts(versions).as_slice() {
        [] if versions.deleted => "deleted\n".into(),
        [] => "nothing\n".into(),
        texts => format!("{}\n", texts.join(" ")),
    }
}

fn actor(gateway: &str) -> u64 {
    gateway.trim_matches(['g', ':']).parse().unwrap()
}

fn mode(name: &str) -> Mode {
    match name {
        "siblings" => Mode::Siblings,
        "newest" => Mode::Newest,
        "last_write_wins" => Mode::LastWriteWins,
        "write_once" => Mode::WriteOnce,
        other => panic!("no such mode: {other}"),
    }
}
