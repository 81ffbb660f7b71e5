//! `cluster repair-advice`: what the nodes of the engine need of their operator now, with the commands to run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use larder_kv_admin::frame::AdminAnswer;
use larder_rows::Timestamp;
use larder_rows::text::rfc3339;
use larder_store::upkeep::{NodeUpkeep, RepairedTable};
use serde_json::{Value, json};

use super::command::{CommandCall, CommandResult, shown};

pub(super) async fn repair_advice(call: CommandCall<'_>) -> CommandResult {
    let context = call.gateway().context();
    let (upkeep, now) = (context.ports.engine.upkeep().await, context.now());
    Ok(match upkeep {
        _ if call.json => AdminAnswer::json(&as_json(&upkeep.unwrap_or_default(), now)),
        Some(upkeep) => AdminAnswer::done(as_text(&upkeep, now)),
        None => AdminAnswer::done("Nothing is due: this engine is one machine's, and looks after itself"),
    })
}

fn as_json(upkeep: &NodeUpkeep, now: Timestamp) -> Value {
    let tables = upkeep.tables.iter().map(|table| {
        json!({ "keyspace": table.keyspace, "table": table.table, "within_seconds": table.within.as_secs(),
            "repaired": table.repaired.map(rfc3339), "due": table.is_due(now) })
    });
    let hints = upkeep.hints.iter().map(|hints| {
        json!({ "node": hints.node, "target": hints.target, "files": hints.files, "oldest": hints.oldest.map(rfc3339) })
    });
    let wide = upkeep
        .wide
        .iter()
        .map(|partition| json!({ "node": partition.node, "table": partition.table, "mebibytes": partition.mebibytes }));
    json!({ "tables": tables.collect::<Vec<_>>(), "hints": hints.collect::<Vec<_>>(),
        "wide_partitions": wide.collect::<Vec<_>>(), "unknown": upkeep.unknown })
}

fn as_text(upkeep: &NodeUpkeep, now: Timestamp) -> String {
    let parts = [repairs(upkeep, now), hints(upkeep), wide(upkeep), unknown(upkeep)];
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "Nothing is due".to_owned() } else { parts.join("\n\n") }
}

/// The tables whose repair is due, by keyspace and by the time that they have, and the commands for them.
fn repairs(upkeep: &NodeUpkeep, now: Timestamp) -> String {
    let mut due: BTreeMap<(&str, Duration), Vec<&RepairedTable>> = BTreeMap::new();
    for table in upkeep.tables.iter().filter(|table| table.is_due(now)) {
        due.entry((&table.keyspace, table.within)).or_default().push(table);
    }
    if due.is_empty() {
        return String::new();
    }
    let mut text = "Repairs that are due: later, deleted rows may come back\n".to_owned();
    let mut commands: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((keyspace, within), tables) in &due {
        // The oldest: what nobody repaired counts as that.
        let repaired = tables.iter().map(|table| table.repaired).min().flatten();
        let repaired = repaired.map_or_else(|| "never".to_owned(), |at| format!("last since {}", rfc3339(at)));
        let (count, within) = (tables.len(), days(*within));
        let noun = if count == 1 { "table" } else { "tables" };
        let _ = writeln!(text, "  {keyspace:<20} {count} {noun} within {within}, {repaired}");
        commands.entry(keyspace).or_default().extend(tables.iter().map(|table| table.table.as_str()));
    }
    text.push_str("Run on every node, one after the other:\n");
    for (keyspace, mut tables) in commands {
        let all = upkeep.tables.iter().filter(|table| table.keyspace == keyspace).count();
        tables.sort_unstable();
        let named = if tables.len() == all { String::new() } else { format!(" {}", tables.join(" ")) };
        let _ = writeln!(text, "  nodetool repair -pr {keyspace}{named}");
    }
    text
}

fn hints(upkeep: &NodeUpkeep) -> String {
    let mut text = String::new();
    for hints in &upkeep.hints {
        let since = hints.oldest.map_or_else(String::new, |at| format!(", the oldest of {}", rfc3339(at)));
        let _ = writeln!(text, "  {} keeps {} files for {}{since}", hints.node, hints.files, hints.target);
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "Hints that wait: a node gets them once it is back. Away longer than max_hint_window, it is repaired first\n{text}"
    )
}

fn wide(upkeep: &NodeUpkeep) -> String {
    let mut text = String::new();
    for partition in &upkeep.wide {
        let table = shown(partition.table.as_bytes());
        let _ = writeln!(text, "  {table} on {}: {} MiB", partition.node, partition.mebibytes);
    }
    if text.is_empty() {
        return text;
    }
    format!("Partitions above 100 MiB: their reads and compactions are slow. Spread the keys over more buckets\n{text}")
}

fn unknown(upkeep: &NodeUpkeep) -> String {
    let lines: String = upkeep.unknown.iter().map(|line| format!("  {}\n", shown(line.as_bytes()))).collect();
    if lines.is_empty() { lines } else { format!("Not known\n{lines}") }
}

fn days(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 86_400 == 0 && seconds > 0 => match seconds / 86_400 {
            1 => "a day".to_owned(),
            days => format!("{days} days"),
        },
        seconds => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use larder_store::upkeep::{WaitingHints, WidePartition};

    use super::*;

    const DAY: u64 = 86_400_000_000;

    fn table(keyspace: &str, table: &str, days: u64, repaired: Option<u64>) -> RepairedTable {
        let within = Duration::from_secs(days * 86_400);
        RepairedTable { keyspace: keyspace.into(), table: table.into(), within, repaired: repaired.map(Timestamp) }
    }

    #[test]
    fn the_advice_names_what_is_due_and_its_command() {
        let mut upkeep = NodeUpkeep {
            tables: vec![
                table("larder_n3", "objects", 10, Some(95 * DAY)),
                table("larder_n3", "keys", 1, Some(98 * DAY)),
                table("larder_n3", "index", 1, None),
                table("larder_n5", "objects", 10, Some(80 * DAY)),
            ],
            ..NodeUpkeep::default()
        };
        let now = Timestamp(100 * DAY);
        assert_eq!(
            as_text(&upkeep, now),
            "Repairs that are due: later, deleted rows may come back\n\
             \x20 larder_n3            2 tables within a day, never\n\
             \x20 larder_n5            1 table within 10 days, last since 1970-03-22T00:00:00.000000Z\n\
             Run on every node, one after the other:\n\
             \x20 nodetool repair -pr larder_n3 index keys\n\
             \x20 nodetool repair -pr larder_n5"
        );
        upkeep.tables.clear();
        assert_eq!(as_text(&upkeep, now), "Nothing is due");
    }

    #[test]
    fn hints_wide_partitions_and_what_is_not_known_have_their_parts() {
        let (node, target) = ("127.0.0.1:9042".to_owned(), "127.0.0.3".to_owned());
        let upkeep = NodeUpkeep {
            hints: vec![WaitingHints { node: node.clone(), target, files: 3, oldest: Some(Timestamp(DAY)) }],
            wide: vec![WidePartition { node: node.clone(), table: "larder_n3.index".into(), mebibytes: 140 }],
            unknown: vec![format!("hints on {node}: no answer")],
            ..NodeUpkeep::default()
        };
        let text = as_text(&upkeep, Timestamp(0));
        for line in [
            "\n  127.0.0.1:9042 keeps 3 files for 127.0.0.3, the oldest of 1970-01-02T00:00:00.000000Z\n",
            "\n  larder_n3.index on 127.0.0.1:9042: 140 MiB\n",
            "\nNot known\n  hints on 127.0.0.1:9042: no answer",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let json = as_json(&upkeep, Timestamp(0));
        assert_eq!((&json["hints"][0]["files"], &json["wide_partitions"][0]["mebibytes"]), (&json!(3), &json!(140)));
    }
}
