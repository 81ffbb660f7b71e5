//! Property values, and their forms in JSON and on the console.
//!
//! The forms are those of Riak KV over HTTP and in `bucket-type status`.

use serde_json::{Value as Json, json};

use super::quorum::Quorum;
use crate::rules::erlang;

/// The value of one bucket property.
///
/// [`Value::to_json`] and [`PropKind::decode`](super::PropKind::decode) of the property's kind are inverse functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number of replicas.
    Quorum(Quorum),
    /// Text of a client (`backend`, `search_index`, `name`).
    Text(String),
    /// A node name.
    Node(String),
    /// The replicas that flush a write before its answer.
    Sync(SyncOnWrite),
    /// The replication to other clusters.
    Repl(Repl),
    /// The data type of the bucket's values.
    Datatype(Datatype),
    /// Commit hooks, in the order of the request.
    Hooks(Vec<Hook>),
    /// The function that places a key.
    KeyFun(ModFun),
    /// The function that finds links.
    LinkFun(LinkFun),
}

impl Value {
    /// The JSON form of this value, as in Riak's HTTP interface.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Bool(flag) => json!(flag),
            Self::Int(number) => json!(number),
            Self::Quorum(Quorum::Count(count)) => json!(count),
            Self::Quorum(quorum) => json!(quorum.name()),
            Self::Text(text) | Self::Node(text) => json!(text),
            Self::Sync(sync) => json!(sync.name()),
            Self::Repl(Repl::False) => json!(false),
            Self::Repl(Repl::True) => json!(true),
            Self::Repl(repl) => json!(repl.name()),
            Self::Datatype(datatype) => json!(datatype.name()),
            Self::Hooks(hooks) => Json::Array(hooks.iter().map(Hook::to_json).collect()),
            Self::KeyFun(fun) | Self::LinkFun(LinkFun::ModFun(fun)) => fun.to_json(),
            Self::LinkFun(LinkFun::Named(name)) => json!({ "jsfun": name }),
            Self::LinkFun(LinkFun::Source(source)) => json!({ "jsanon": source }),
            Self::LinkFun(LinkFun::Stored { bucket, key }) => json!({ "jsanon": { "bucket": bucket, "key": key } }),
        }
    }

    /// The text after `name: ` in `bucket-type status`.
    #[must_use]
    pub fn console(&self) -> String {
        match self {
            Self::Bool(flag) => flag.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Quorum(Quorum::Count(count)) => count.to_string(),
            Self::Quorum(quorum) => quorum.name().unwrap_or_default().to_owned(),
            Self::Text(text) => erlang::binary(text),
            Self::Node(node) => erlang::atom(node),
            Self::Sync(sync) => sync.name().to_owned(),
            Self::Repl(repl) => repl.name().to_owned(),
            Self::Datatype(datatype) => datatype.name().to_owned(),
            Self::Hooks(hooks) => format!("[{}]", hooks.iter().map(Hook::console).collect::<Vec<_>>().join(",")),
            Self::KeyFun(fun) => format!("{{{}}}", fun.console()),
            Self::LinkFun(fun) => fun.console(),
        }
    }
}

/// A function by module and name. Only one that is built in is ever called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModFun {
    /// The module.
    pub module: String,
    /// The function in it.
    pub function: String,
}

impl ModFun {
    fn to_json(&self) -> Json {
        json!({ "mod": self.module, "fun": self.function })
    }

    fn console(&self) -> String {
        format!("{},{}", erlang::atom(&self.module), erlang::atom(&self.function))
    }
}

/// The forms of a `linkfun`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFun {
    /// `{"mod":M,"fun":F}`.
    ModFun(ModFun),
    /// `{"jsfun":NAME}`.
    Named(String),
    /// `{"jsanon":SOURCE}`.
    Source(String),
    /// `{"jsanon":{"bucket":B,"key":K}}`: the source is an object.
    Stored {
        /// Bucket of the object.
        bucket: String,
        /// Key of the object.
        key: String,
    },
}

impl LinkFun {
    fn console(&self) -> String {
        match self {
            Self::ModFun(fun) => format!("{{modfun,{}}}", fun.console()),
            Self::Named(name) => format!("{{jsfun,{}}}", erlang::binary(name)),
            Self::Source(source) => format!("{{jsanon,{}}}", erlang::binary(source)),
            Self::Stored { bucket, key } => {
                format!("{{jsanon,{{{},{}}}}}", erlang::binary(bucket), erlang::binary(key))
            }
        }
    }
}

/// One commit hook, in the form of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// A hook name as a plain string.
    Text(String),
    /// `{"name":N}`.
    Named(String),
    /// `{"mod":M,"fun":F}`.
    ModFun(ModFun),
    /// `{"mod":M,"fun":F,"arg":A}`, Larder's own form.
    WithArgument {
        /// The function.
        function: ModFun,
        /// Its argument.
        argument: Json,
    },
}

impl Hook {
    fn to_json(&self) -> Json {
        match self {
            Self::Text(name) => json!(name),
            Self::Named(name) => json!({ "name": name }),
            Self::ModFun(fun) => fun.to_json(),
            Self::WithArgument { function, argument } => {
                json!({ "mod": function.module, "fun": function.function, "arg": argument })
            }
        }
    }

    fn console(&self) -> String {
        match self {
            Self::Text(name) => erlang::binary(name),
            Self::Named(name) => members(&[("name", name)]),
            Self::ModFun(fun) => members(&[("mod", &fun.module), ("fun", &fun.function)]),
            Self::WithArgument { function, argument } => {
                members(&[("mod", &function.module), ("fun", &function.function), ("arg", &argument.to_string())])
            }
        }
    }
}

/// A JSON object of strings in the form of Riak's console.
fn members(pairs: &[(&str, &str)]) -> String {
    let inner: Vec<_> =
        pairs.iter().map(|(name, text)| format!("{{{},{}}}", erlang::binary(name), erlang::binary(text))).collect();
    format!("{{struct,[{}]}}", inner.join(","))
}

/// Defines an enum whose variants are names only, with `name`, `named` and the list of all.
macro_rules! named {
    ($(#[$doc:meta])* $enum:ident { $($(#[$member_doc:meta])* $member:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $enum { $($(#[$member_doc])* $member),+ }

        impl $enum {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$member),+];

            /// Its name in JSON and on the console.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $name),+ }
            }

            /// The variant of this exact name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$member),)+ _ => None }
            }
        }
    };
}
pub(super) use named;

named! {
    /// The data type of the values of a bucket.
    Datatype {
        /// A counter.
        Counter = "counter",
        /// A set.
        Set = "set",
        /// A map of other data types.
        Map = "map",
        /// A HyperLogLog: an estimate of the number of different added values.
        Hll = "hll",
        /// A set that only grows.
        Gset = "gset",
    }
}

named! {
    /// Whether a write waits for a disk before its answer.
    SyncOnWrite {
        /// As the durability of the server says.
        Backend = "backend",
        /// At least one replica has it on disk: dw is at least 1.
        One = "one",
        /// As `one`. Only the query parameter `sync_on_write=all` asks for every replica.
        All = "all",
    }
}

named! {
    /// The replication of a bucket to other clusters.
    Repl {
        /// None.
        False = "false",
        /// Each write as it happens.
        Realtime = "realtime",
        /// With the next full comparison.
        Fullsync = "fullsync",
        /// In both ways.
        True = "true",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fun() -> ModFun {
        ModFun { module: "m".into(), function: "F".into() }
    }

    #[test]
    fn every_form_is_written_as_in_riak() {
        let text = |s: &str| s.to_owned();
        let stored = LinkFun::Stored { bucket: text("b"), key: text("k") };
        for (value, as_json, on_console) in [
            (Value::Bool(true), "true", "true"),
            (Value::Int(86400), "86400", "86400"),
            (Value::Quorum(Quorum::Quorum), r#""quorum""#, "quorum"),
            (Value::Quorum(Quorum::Count(2)), "2", "2"),
            (Value::Text(text("other")), r#""other""#, r#"<<"other">>"#),
            (Value::Node(text("larder@127.0.0.1")), r#""larder@127.0.0.1""#, "'larder@127.0.0.1'"),
            (Value::Sync(SyncOnWrite::Backend), r#""backend""#, "backend"),
            (Value::Repl(Repl::True), "true", "true"),
            (Value::Repl(Repl::False), "false", "false"),
            (Value::Repl(Repl::Realtime), r#""realtime""#, "realtime"),
            (Value::Datatype(Datatype::Hll), r#""hll""#, "hll"),
            (Value::Hooks(vec![]), "[]", "[]"),
            (
                Value::Hooks(vec![Hook::Text(text("x")), Hook::Named(text("f")), Hook::ModFun(fun())]),
                r#"["x",{"name":"f"},{"mod":"m","fun":"F"}]"#,
                r#"[<<"x">>,{struct,[{<<"name">>,<<"f">>}]},{struct,[{<<"mod">>,<<"m">>},{<<"fun">>,<<"F">>}]}]"#,
            ),
            (Value::KeyFun(fun()), r#"{"mod":"m","fun":"F"}"#, "{m,'F'}"),
            (Value::LinkFun(LinkFun::ModFun(fun())), r#"{"mod":"m","fun":"F"}"#, "{modfun,m,'F'}"),
            (Value::LinkFun(LinkFun::Named(text("n"))), r#"{"jsfun":"n"}"#, r#"{jsfun,<<"n">>}"#),
            (Value::LinkFun(LinkFun::Source(text("s"))), r#"{"jsanon":"s"}"#, r#"{jsanon,<<"s">>}"#),
            (Value::LinkFun(stored), r#"{"jsanon":{"bucket":"b","key":"k"}}"#, r#"{jsanon,{<<"b">>,<<"k">>}}"#),
        ] {
            assert_eq!(value.to_json().to_string(), as_json);
            assert_eq!(value.console(), on_console);
        }
    }

    #[test]
    fn data_types_are_found_by_name() {
        for datatype in Datatype::ALL {
            assert_eq!(Datatype::named(datatype.name()), Some(*datatype));
        }
        assert_eq!(Datatype::named("Set"), None);
    }
}
