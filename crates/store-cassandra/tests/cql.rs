//! Checks every word of CQL that is sent against ScyllaDB's documentation: the tests run Cassandra, not ScyllaDB.

use std::collections::BTreeSet;

use larder_store::Table;
use larder_store_cassandra::Replication;
use larder_store_cassandra::blobs::cql;
use larder_store_cassandra::statements::{self, LayoutStatement, RowStatement};

/// Pages of ScyllaDB's documentation, below `docs.scylladb.com/manual/stable/`.
const DDL: &str = "cql/ddl.html";
const DML_SELECT: &str = "cql/dml/select.html";
const DML_UPDATE: &str = "cql/dml/update.html";
const DML_INSERT: &str = "cql/dml/insert.html";
const DML_DELETE: &str = "cql/dml/delete.html";
const TYPES: &str = "cql/types.html";
const FUNCTIONS: &str = "cql/functions.html";
const LWT: &str = "features/lwt.html";
const COMPACTION: &str = "cql/compaction.html";

/// Allowed words, and the page that documents each.
const DOCUMENTED: &[(&str, &str)] = &[
    // Statements and clauses.
    ("CREATE KEYSPACE", DDL),
    ("CREATE TABLE", DDL),
    ("IF NOT EXISTS", DDL),
    ("PRIMARY KEY", DDL),
    ("WITH", DDL),
    ("AND", DDL),
    ("SELECT", DML_SELECT),
    ("FROM", DML_SELECT),
    ("WHERE", DML_SELECT),
    ("ORDER BY", DML_SELECT),
    ("ASC", DML_SELECT),
    ("DESC", DML_SELECT),
    ("PER PARTITION LIMIT", DML_SELECT),
    ("LIMIT", DML_SELECT),
    ("UPDATE", DML_UPDATE),
    ("SET", DML_UPDATE),
    ("USING TIMESTAMP", DML_UPDATE),
    ("USING TTL", DML_UPDATE),
    ("AND TTL", DML_UPDATE),
    ("AND TIMESTAMP", DML_UPDATE),
    ("IF", LWT),
    ("INSERT INTO", DML_INSERT),
    ("VALUES", DML_INSERT),
    ("DELETE", DML_DELETE),
    // Functions.
    ("TTL(", DML_SELECT),
    ("WRITETIME(", DML_SELECT),
    ("token(", FUNCTIONS),
    ("toTimestamp(", FUNCTIONS),
    ("now(", FUNCTIONS),
    // Types.
    ("bigint", TYPES),
    ("blob", TYPES),
    ("boolean", TYPES),
    ("int", TYPES),
    ("text", TYPES),
    // Options.
    ("replication", DDL),
    ("'class'", DDL),
    ("'SimpleStrategy'", DDL),
    ("'NetworkTopologyStrategy'", DDL),
    ("'replication_factor'", DDL),
    ("gc_grace_seconds", DDL),
    ("speculative_retry", DDL),
    ("'100ms'", DDL),
    ("compaction", COMPACTION),
    ("'LeveledCompactionStrategy'", COMPACTION),
    ("'SizeTieredCompactionStrategy'", COMPACTION),
];

/// Names of our columns, and of the system's tables and columns.
const NAMES: &[&str] = &[
    "p",
    "r",
    "v",
    "s",
    "w",
    "name",
    "value",
    "'version'",
    "'lock'",
    "'east'",
    "ks",
    "layout",
    "system",
    "local",
    "system_schema",
    "tables",
    "keyspaces",
    "table_name",
    "keyspace_name",
    // Cassandra's own table: ScyllaDB does not have it, and the answer counts as unknown settings.
    "system_views",
    "settings",
    "pending_hints",
    "address",
    "files",
    "oldest",
    "max_partition_size",
    "mebibytes",
    // The history of repairs: ScyllaDB's is elsewhere, and the answer says that it is not known.
    "system_distributed",
    "parent_repair_history",
    "started_at",
    "columnfamily_names",
    "successful_ranges",
    // Of blobs.
    "blob_records",
    "blob_blocks",
    "shard",
    "id",
    "run",
    "head",
    "groups",
    "length",
    "finished",
    "removed",
    "abandoned",
    "lease",
    "grp",
    "n",
    "crc",
    "data",
];

fn texts() -> Vec<String> {
    let both = Replication::Datacenters { local: "east".into(), all: vec!["east".into()] };
    let mut texts: Vec<String> =
        [statements::TIME, statements::TABLES, statements::KEYSPACES, statements::SETTINGS].map(str::to_owned).into();
    let blobs = cql::SCHEMA.iter().map(|(_, text)| text).chain(cql::BlobStatement::ALL.iter().map(|(_, text)| text));
    texts.extend(blobs.map(|text| text.replace("{k}", "ks")));
    texts.extend([Replication::Simple, both].map(|places| statements::create_keyspace("ks", &places, |_| 3)));
    let upkeep = [statements::TABLE_OPTIONS, statements::REPAIRS, statements::HINTS, statements::PARTITIONS];
    texts.extend(upkeep.map(str::to_owned));
    texts.extend(LayoutStatement::ALL.map(|statement| statement.text("ks")));
    for table in Table::ALL {
        texts.push(statements::create_table("ks", table));
        let fitting = RowStatement::ALL.into_iter().filter(|statement| statement.fits(table));
        texts.extend(fitting.map(|statement| statement.text("ks", table)));
    }
    texts
}

/// Words, strings and functions (with their bracket) of a text. Numbers and signs mean the same in both engines.
#[expect(clippy::expect_used, reason = "a test says what it expects by failing")]
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for sign in text.chars() {
        let last = words.last_mut().expect("words is never empty");
        match sign {
            '(' if !last.is_empty() => last.push('('),
            sign if sign.is_alphanumeric() || sign == '_' || sign == '\'' => {
                last.push(sign);
                continue;
            }
            _ => {}
        }
        words.push(String::new());
    }
    words.retain(|word| !word.is_empty() && !word.chars().all(|sign| sign.is_ascii_digit()));
    words
}

/// Words of a text without documentation.
fn unknown(text: &str, used: &mut BTreeSet<&'static str>) -> Vec<String> {
    let (words, tables) = (words(text), Table::ALL.map(Table::name));
    let mut clauses: Vec<(Vec<&str>, &'static str)> =
        DOCUMENTED.iter().map(|(clause, _)| (clause.split(' ').collect(), *clause)).collect();
    clauses.sort_by_key(|(words, _)| std::cmp::Reverse(words.len()));
    let (mut unknown, mut rest) = (Vec::new(), &words[..]);
    while let Some(word) = rest.first() {
        // A bracket may also open a list after a word.
        let is = |clause: &str, word: &str| word == clause || word.strip_suffix('(') == Some(clause);
        let found = clauses.iter().find(|(clause, _)| {
            clause.len() <= rest.len() && clause.iter().zip(rest).all(|(clause, word)| is(clause, word))
        });
        if let Some((clause, name)) = found {
            used.insert(name);
            rest = &rest[clause.len()..];
            continue;
        }
        let plain = word.trim_end_matches('(');
        if !NAMES.contains(&plain) && !tables.contains(&plain) {
            unknown.push(word.clone());
        }
        rest = &rest[1..];
    }
    unknown
}

#[test]
fn every_word_is_documented_by_both_engines() {
    let mut used = BTreeSet::new();
    for text in texts() {
        assert_eq!(unknown(&text, &mut used), Vec::<String>::new(), "{text}");
    }
    let unused: Vec<_> = DOCUMENTED.iter().filter(|(clause, _)| !used.contains(clause)).collect();
    assert!(unused.is_empty(), "nothing uses {unused:?}");
}

#[test]
fn a_word_of_only_one_engine_is_found() {
    let mut used = BTreeSet::new();
    for text in [
        "SELECT r FROM ks.objects WHERE p = ? ALLOW FILTERING",
        "SELECT maxwritetime(v) FROM ks.objects",
        "CREATE TABLE ks.objects (p vector PRIMARY KEY)",
        "CREATE TABLE ks.objects (p blob PRIMARY KEY) WITH memtable = 'trie'",
        "UPDATE ks.objects USING TIMEOUT 5 SET v = ?",
        "CREATE CUSTOM INDEX ON ks.objects (v)",
    ] {
        assert!(!unknown(text, &mut used).is_empty(), "{text}");
    }
}
