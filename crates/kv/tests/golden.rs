//! Golden scripts: the requests to one key and the output of its reads. A bug gets a script named after what went wrong.
//!
//! ```text
//! mode siblings | newest | last_write_wins | write_once
//! g1: put tea [with c]      a put through gateway g1, with the context that was read as c
//! g1: delete [with c]
//! read [as c]               prints the siblings and keeps the context as c
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where an expectation does not hold")]

use std::collections::HashMap;

use larder_kv::rules::causality::{ConflictPolicy, Context, KeyVersions};

use crate::key::{KeyRows, delete, put, texts, via_client};

#[test]
fn every_script_prints_its_expected_output() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, expected) = text.split_once("---\n").expect("a script and its output");
        assert_eq!(run(script), expected, "{}", path.display());
        ran += 1;
    }
    assert!(ran >= 8, "{ran} scripts ran");
}

struct ScriptRun {
    policy: ConflictPolicy,
    key: KeyRows,
    clock: u64,
    contexts: HashMap<String, Context>,
    printed: String,
}

fn run(script: &str) -> String {
    let key = KeyRows::default();
    let policy = ConflictPolicy::Siblings;
    let mut run = ScriptRun { policy, key, clock: 0, contexts: HashMap::new(), printed: String::new() };
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        run.step(&words);
    }
    run.printed
}

impl ScriptRun {
    fn step(&mut self, words: &[&str]) {
        self.clock += 1;
        match words {
            ["mode", name] => self.policy = policy(name),
            ["read", rest @ ..] => self.read(rest),
            [gateway, "put", text, rest @ ..] => {
                let write = put(self.policy, actor(gateway), self.clock, text, &self.context(rest));
                self.key.apply(&write.object_changes());
            }
            [gateway, "delete", rest @ ..] => {
                let write = delete(self.policy, actor(gateway), self.clock, &self.context(rest));
                self.key.apply(&write.object_changes());
            }
            other => panic!("unknown line: {other:?}"),
        }
    }

    fn read(&mut self, rest: &[&str]) {
        let versions = self.key.read(self.policy);
        self.printed += &shown(&versions);
        if let ["as", name] = rest {
            self.contexts.insert((*name).into(), via_client(&versions.context));
        }
    }

    fn context(&self, rest: &[&str]) -> Context {
        match rest {
            ["with", name] => self.contexts[*name].clone(),
            [] => Context::default(),
            other => panic!("unknown end of line: {other:?}"),
        }
    }
}

fn shown(versions: &KeyVersions) -> String {
    match texts(versions).as_slice() {
        [] if versions.deleted => "deleted\n".into(),
        [] => "nothing\n".into(),
        texts => format!("{}\n", texts.join(" ")),
    }
}

fn actor(gateway: &str) -> u64 {
    gateway.trim_matches(['g', ':']).parse().unwrap()
}

fn policy(name: &str) -> ConflictPolicy {
    match name {
        "siblings" => ConflictPolicy::Siblings,
        "newest" => ConflictPolicy::Newest,
        "last_write_wins" => ConflictPolicy::LastWriteWins,
        "write_once" => ConflictPolicy::WriteOnce,
        other => panic!("unknown mode: {other}"),
    }
}
