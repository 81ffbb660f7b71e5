//! The properties of a type or a bucket at its source: those that move, and those that an operator has to look at.

use larder_core::rules::props::Prop;
use serde_json::{Map, Value};

/// Properties that describe the source's own machinery, or the moment: they mean nothing elsewhere.
const LEFT: [&str; 11] = [
    "name",
    "active",
    "claimant",
    "chash_keyfun",
    "linkfun",
    "young_vclock",
    "old_vclock",
    "small_vclock",
    "big_vclock",
    "repl",
    "backend",
];
/// The lists of hooks.
const HOOKS: [&str; 2] = ["precommit", "postcommit"];

/// The properties of a type or a bucket that move.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MovedProps {
    /// Those that it gets here.
    pub props: Map<String, Value>,
    /// What its operator has to know.
    pub notes: Vec<PropsNote>,
}

/// A property that does not move, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropsNote {
    /// A hook that is code of the source.
    Hook {
        /// The property.
        list: &'static str,
        /// The hook, as JSON.
        hook: String,
    },
    /// A search index.
    SearchIndex(String),
    /// A property that this server does not know.
    Unknown(String),
}

impl MovedProps {
    /// The properties of the answer of `/types/T/props` or of a bucket's.
    ///
    /// # Errors
    /// The answer is none.
    pub fn from_answer(answer: &[u8]) -> Result<Self, &'static str> {
        let answer: Value = serde_json::from_slice(answer).map_err(|_| "the answer is no JSON")?;
        let Some(Value::Object(props)) = answer.get("props") else { return Err("the answer has no properties") };
        let mut moved = Self::default();
        for (name, value) in props {
            moved.add(name, value);
        }
        Ok(moved)
    }

    /// Those that differ from `others`: what a bucket sets itself.
    #[must_use]
    pub fn own(&self, others: &Self) -> Map<String, Value> {
        let differs = |(name, value): &(&String, &Value)| others.props.get(*name) != Some(*value);
        self.props.iter().filter(differs).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Whether its buckets are consistent.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.props.get("consistent") == Some(&Value::Bool(true))
    }

    fn add(&mut self, name: &str, value: &Value) {
        if LEFT.contains(&name) {
            return;
        }
        if let Some(list) = HOOKS.into_iter().find(|list| *list == name) {
            let hooks = value.as_array().map(Vec::as_slice).unwrap_or_default();
            self.notes.extend(hooks.iter().map(|hook| PropsNote::Hook { list, hook: hook.to_string() }));
            return;
        }
        if name == "search_index" {
            let none = ["_dont_index_", ""];
            let index = value.as_str().filter(|index| !none.contains(index));
            self.notes.extend(index.map(|index| PropsNote::SearchIndex(index.to_owned())));
            return;
        }
        match Prop::named(name) {
            Some(_) => drop(self.props.insert(name.to_owned(), value.clone())),
            None => self.notes.push(PropsNote::Unknown(name.to_owned())),
        }
    }
}

impl std::fmt::Display for PropsNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hook { list, hook } => {
                write!(f, "{list} {hook} does not move: write it as a hook of Larder (docs/hooks.md)")
            }
            Self::SearchIndex(index) => write!(f, "search_index {index} does not move: Larder has no search"),
            Self::Unknown(name) => write!(f, "property {name} does not move: Larder does not have it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a node of Riak 3.2.3.
    const PLAIN: &str = r#"{"props":{"young_vclock":20,"w":"quorum","sync_on_write":"backend","small_vclock":50,"rw":"quorum","r":"quorum","pw":0,"precommit":[],"pr":0,"postcommit":[],"old_vclock":86400,"notfound_ok":true,"node_confirms":0,"n_val":3,"linkfun":{"mod":"riak_kv_wm_link_walker","fun":"mapreduce_linkfun"},"last_write_wins":false,"dw":"quorum","dvv_enabled":true,"chash_keyfun":{"mod":"riak_core_util","fun":"chash_std_keyfun"},"big_vclock":50,"basic_quorum":false,"allow_mult":true,"active":true,"claimant":"riak@127.0.0.1"}}"#;

    #[test]
    fn what_describes_the_source_stays_there() {
        let props = MovedProps::from_answer(PLAIN.as_bytes()).unwrap();
        assert_eq!(props.notes, []);
        let names: Vec<_> = props.props.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "w",
                "sync_on_write",
                "rw",
                "r",
                "pw",
                "pr",
                "notfound_ok",
                "node_confirms",
                "n_val",
                "last_write_wins",
                "dw",
                "dvv_enabled",
                "basic_quorum",
                "allow_mult"
            ]
        );
        assert!(!props.is_consistent());
    }

    #[test]
    fn hooks_and_searches_are_named_with_what_to_do() {
        let answer = r#"{"props":{"postcommit":[{"mod":"m","fun":"f"}],"search_index":"i","novel":1,"n_val":2}}"#;
        let props = MovedProps::from_answer(answer.as_bytes()).unwrap();
        let notes: Vec<_> = props.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 3);
        assert!(notes[0].starts_with(r#"postcommit {"mod":"m","fun":"f"} does not move"#), "{notes:?}");
        let plain = MovedProps::from_answer(PLAIN.as_bytes()).unwrap();
        assert_eq!(props.own(&plain), Map::from_iter([("n_val".to_owned(), Value::from(2))]));
        assert!(MovedProps::from_answer(b"<html>").is_err());
        assert!(MovedProps::from_answer(b"{}").is_err());
    }
}
