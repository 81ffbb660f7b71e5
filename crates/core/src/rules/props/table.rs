//! The table of bucket properties, which HTTP, `kv-admin` and the manual read.
//!
//! Names, kinds and defaults are those of the Riak KV property reference. The order is that of a type which was created and
//! never updated, as Riak prints it.

use super::quorum::Quorum;
use super::value::{LinkFun, ModFun, Repl, SyncOnWrite, Value};

/// The kind of a property's value. It decides how JSON is decoded and which reason a bad value gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropKind {
    /// true or false.
    Flag,
    /// A whole number from 1.
    Positive,
    /// A whole number from 0.
    NonNegative,
    /// A HyperLogLog precision, 4 to 16.
    Precision,
    /// A number of replicas from 1, or its name.
    Quorum,
    /// A number of replicas from 0, or its name.
    QuorumOrZero,
    /// Any text.
    Text,
    /// A node name.
    Node,
    /// A flush policy.
    Sync,
    /// A replication choice.
    Repl,
    /// A data type.
    Datatype,
    /// A list of commit hooks.
    Hooks,
    /// A function that places keys.
    KeyFun,
    /// A function that finds links.
    LinkFun,
}

/// When a property may change, as the manual says it. The rules themselves are in `validate`: a new limit needs both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropMutability {
    /// At any time, on a type or on a bucket.
    Anytime,
    /// At any time, but only to a smaller value.
    OnlyDown,
    /// Only at the creation of the type.
    OnlyAtCreation,
    /// Never by a client. A request may repeat the current value.
    ReadOnly,
}

/// Makes a default value; a static table cannot hold the value itself.
pub type Preset = fn() -> Value;

/// The column of defaults for a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// The defaults of type `default`, to which buckets without a type belong.
    DefaultType,
    /// The defaults of every created type.
    CustomType,
}

/// One bucket property.
#[derive(Debug)]
pub struct Prop {
    /// Its name in every protocol.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: PropKind,
    /// Its value in type `default`; `None` when that type does not show it.
    pub preset_in_default: Option<Preset>,
    /// Its value in a type that does not set it; `None` when such a type does not show it.
    pub preset_in_created: Option<Preset>,
    /// When it may change.
    pub mutability: PropMutability,
    /// Its field in `RpbBucketProps`; `None` when that message cannot carry it. A test of the codec compares.
    pub pb: Option<u32>,
    /// One sentence for the manual.
    pub help: &'static str,
}

impl Prop {
    /// The property of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROPS.iter().find(|prop| prop.name == name)
    }

    /// Its default in this column.
    #[must_use]
    pub const fn preset(&self, defaults: Defaults) -> Option<Preset> {
        match defaults {
            Defaults::DefaultType => self.preset_in_default,
            Defaults::CustomType => self.preset_in_created,
        }
    }

    const fn new(name: &'static str, kind: PropKind, help: &'static str) -> Self {
        Self {
            name,
            kind,
            preset_in_default: None,
            preset_in_created: None,
            mutability: PropMutability::Anytime,
            pb: None,
            help,
        }
    }

    const fn both(self, preset: Preset) -> Self {
        self.in_default(preset).in_created(preset)
    }

    const fn in_default(mut self, preset: Preset) -> Self {
        self.preset_in_default = Some(preset);
        self
    }

    const fn in_created(mut self, preset: Preset) -> Self {
        self.preset_in_created = Some(preset);
        self
    }

    const fn mutability(mut self, mutability: PropMutability) -> Self {
        self.mutability = mutability;
        self
    }

    const fn pb(mut self, field: u32) -> Self {
        self.pb = Some(field);
        self
    }
}

const NO: Preset = || Value::Bool(false);
const YES: Preset = || Value::Bool(true);
const QUORUM: Preset = || Value::Quorum(Quorum::Quorum);
const ZERO: Preset = || Value::Quorum(Quorum::Count(0));

fn modfun(module: &str, function: &str) -> ModFun {
    ModFun { module: module.into(), function: function.into() }
}

/// Every bucket property, in the order of a new type. A stored name that is not in this table is an error: a property that was
/// released stays here.
pub static PROPS: &[Prop] = &[
    Prop::new("name", PropKind::Text, "The bucket's name; shown, never set.").mutability(PropMutability::ReadOnly),
    Prop::new(
        "young_vclock",
        PropKind::NonNegative,
        "Seconds a causality entry was never pruned in Riak; kept and shown, without effect.",
    )
    .both(|| Value::Int(20))
    .pb(11),
    Prop::new("w", PropKind::Quorum, "Replicas that must accept a write.").both(QUORUM).pb(16),
    Prop::new(
        "sync_on_write",
        PropKind::Sync,
        "When a write is flushed to disk: backend (as the server is set), one or all.",
    )
    .both(|| Value::Sync(SyncOnWrite::Backend)),
    Prop::new(
        "small_vclock",
        PropKind::Positive,
        "Length up to which Riak never pruned causality; kept and shown, without effect.",
    )
    .both(|| Value::Int(50))
    .pb(13),
    Prop::new("rw", PropKind::Quorum, "Replicas for a delete that names neither r nor w.").both(QUORUM).pb(19),
    Prop::new("r", PropKind::Quorum, "Replicas that must answer a read.").both(QUORUM).pb(15),
    Prop::new("pw", PropKind::QuorumOrZero, "Primary replicas that must accept a write.").both(ZERO).pb(17),
    Prop::new("precommit", PropKind::Hooks, "Hooks that run before a write and may refuse it.")
        .both(|| Value::Hooks(Vec::new()))
        .pb(4),
    Prop::new("pr", PropKind::QuorumOrZero, "Primary replicas that must answer a read.").both(ZERO).pb(14),
    Prop::new("postcommit", PropKind::Hooks, "Hooks that run after a write.").both(|| Value::Hooks(Vec::new())).pb(6),
    Prop::new(
        "old_vclock",
        PropKind::Positive,
        "Seconds after which Riak pruned a causality entry; kept and shown, without effect.",
    )
    .both(|| Value::Int(86_400))
    .pb(10),
    Prop::new("notfound_ok", PropKind::Flag, "A replica that lacks the key counts towards r.").both(YES).pb(21),
    Prop::new("node_confirms", PropKind::QuorumOrZero, "Different machines that must answer.").both(ZERO),
    Prop::new("n_val", PropKind::Positive, "Number of replicas; bounds r, w and the other quorums.")
        .both(|| Value::Int(3))
        .pb(1),
    Prop::new(
        "linkfun",
        PropKind::LinkFun,
        "The function that finds an object's links: only the default one can be walked.",
    )
    .both(|| Value::LinkFun(LinkFun::ModFun(modfun("riak_kv_wm_link_walker", "mapreduce_linkfun"))))
    .pb(9),
    Prop::new(
        "last_write_wins",
        PropKind::Flag,
        "The newest write replaces what is there without a look at causality.",
    )
    .both(NO)
    .pb(3),
    Prop::new("dw", PropKind::QuorumOrZero, "Replicas that must have stored a write on disk.").both(QUORUM).pb(18),
    Prop::new(
        "dvv_enabled",
        PropKind::Flag,
        "Siblings are tracked by dotted version vectors; must be false with last_write_wins.",
    )
    .in_default(NO)
    .in_created(YES),
    Prop::new("chash_keyfun", PropKind::KeyFun, "The function that places keys; kept and shown.")
        .both(|| Value::KeyFun(modfun("riak_core_util", "chash_std_keyfun")))
        .pb(8),
    Prop::new(
        "big_vclock",
        PropKind::Positive,
        "Length above which Riak pruned causality; kept and shown, without effect.",
    )
    .both(|| Value::Int(50))
    .pb(12),
    Prop::new("basic_quorum", PropKind::Flag, "A read stops early once a majority of replicas lacks the key.")
        .both(NO)
        .pb(20),
    Prop::new("hll_precision", PropKind::Precision, "Precision of a hll data type, 4 to 16; may only be reduced.")
        .mutability(PropMutability::OnlyDown)
        .pb(29),
    Prop::new("allow_mult", PropKind::Flag, "Concurrent writes are kept as siblings.")
        .in_default(NO)
        .in_created(YES)
        .pb(2),
    Prop::new("aae_tree_exclude", PropKind::Flag, "Keeps the bucket out of the exchange trees; kept and shown."),
    Prop::new("backend", PropKind::Text, "Name of the storage backend; kept and shown.").pb(22),
    Prop::new("consistent", PropKind::Flag, "A write needs the current context of the object.")
        .mutability(PropMutability::OnlyAtCreation)
        .pb(27),
    Prop::new("datatype", PropKind::Datatype, "The bucket holds counters, sets, maps, hlls or gsets.")
        .mutability(PropMutability::OnlyAtCreation)
        .pb(26),
    Prop::new("repl", PropKind::Repl, "Replication to other clusters: false, realtime, fullsync or true.")
        .in_default(|| Value::Repl(Repl::True))
        .pb(24),
    Prop::new("search", PropKind::Flag, "Switch of the old search; kept and shown.").pb(23),
    Prop::new("search_index", PropKind::Text, "The search index of the bucket; _dont_index_ switches it off.").pb(25),
    Prop::new("stat_tracked", PropKind::Flag, "Statistics are kept for this bucket."),
    Prop::new("write_once", PropKind::Flag, "Keys are written once and never updated.")
        .in_default(NO)
        .mutability(PropMutability::OnlyAtCreation)
        .pb(28),
    Prop::new("active", PropKind::Flag, "The type may be used; set by activation.")
        .mutability(PropMutability::ReadOnly),
    Prop::new("claimant", PropKind::Node, "The node that created the type.").mutability(PropMutability::ReadOnly),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_fields_are_unique() {
        let names: BTreeSet<_> = PROPS.iter().map(|prop| prop.name).collect();
        assert_eq!(names.len(), PROPS.len());
        let fields: Vec<_> = PROPS.iter().filter_map(|prop| prop.pb).collect();
        assert_eq!(fields.iter().collect::<BTreeSet<_>>().len(), fields.len());
    }

    #[test]
    fn every_default_has_the_kind_of_its_property() {
        for prop in PROPS {
            for preset in [prop.preset_in_default, prop.preset_in_created].into_iter().flatten() {
                let value = preset();
                assert_eq!(prop.kind.decode(&value.to_json()), Ok(value), "{}", prop.name);
            }
        }
    }

    #[test]
    fn help_is_one_sentence() {
        for prop in PROPS {
            assert!(prop.help.ends_with('.') && prop.help.len() < 100, "{}", prop.name);
        }
    }
}
