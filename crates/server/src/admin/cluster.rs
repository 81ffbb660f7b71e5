//! The commands of `riak-admin` about nodes and the ring. The answers come from the running members.

use larder_core::rules::props::Value;
use larder_core::{ClusterState, MemberState};
use larder_kv_admin::frame::AdminAnswer;
use serde_json::json;

use super::command::{CommandCall, CommandResult, reasons, shown};

/// A header of Riak's console: 79 columns, the title centred.
fn header(title: &str) -> String {
    format!("{:=^79}\n", format!(" {title} "))
}

pub(super) async fn member_status(call: CommandCall<'_>) -> CommandResult {
    let members = read_cluster(&call).await?.members;
    let share = share(members.len());
    if call.json {
        let rows = members.iter().map(|state| {
            let row = &state.member.row;
            json!({ "node": row.node, "status": node_status(state), "ring": share, "address": row.address,
                "version": row.version, "catalogue": row.catalogue })
        });
        return Ok(AdminAnswer::json(&json!({ "members": rows.collect::<Vec<_>>() })));
    }
    let rule = "-".repeat(79);
    let rows: String = members
        .iter()
        .map(|state| {
            let (status, name) = (node_status(state), shown(state.member.row.node.as_bytes()));
            format!("{status:<10}{share:>5.1}%      --      {name}\n")
        })
        .collect();
    let valid = members.iter().filter(|state| state.up).count();
    Ok(AdminAnswer::done(format!(
        "{}Status     Ring    Pending    Node\n{rule}\n{rows}{rule}\n\
         Valid:{valid} / Leaving:0 / Exiting:0 / Joining:0 / Down:{}",
        header("Membership"),
        members.len() - valid
    )))
}

fn node_status(state: &MemberState) -> &'static str {
    if state.up { "valid" } else { "down" }
}

async fn read_cluster(call: &CommandCall<'_>) -> Result<ClusterState, AdminAnswer> {
    let cluster = call.gateway().members().cluster().await;
    cluster.map_err(|error| AdminAnswer::failed(format!("Cannot read the members: {}", reasons(&error))))
}

/// Riak's table: each column as wide as its widest cell, which is centred.
pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let cluster = read_cluster(&call).await?;
    let members = &cluster.members;
    if call.json {
        let rows = members.iter().enumerate().map(|(at, state)| {
            let row = &state.member.row;
            json!({ "node": row.node, "claimant": at == 0, "status": node_status(state), "available": state.up,
                "ring": share(members.len()), "address": row.address, "version": row.version })
        });
        let nodes = cluster.nodes.iter().map(|node| json!({ "node": node.address, "available": node.up }));
        return Ok(AdminAnswer::json(&json!({ "ready": cluster.is_ready(), "nodes": rows.collect::<Vec<_>>(),
            "engine_nodes": nodes.collect::<Vec<_>>() })));
    }
    let named = |(at, state): (usize, &MemberState)| (named(at, &shown(state.member.row.node.as_bytes())), state.up);
    let mut names: Vec<(String, bool)> = members.iter().enumerate().map(named).collect();
    names.sort_by(|(a, _), (b, _)| a[4..].cmp(&b[4..]));
    let width = names.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default() + 2;
    let rule = format!("+{}+------+-------+-----+-------+\n", "-".repeat(width));
    let row = |(name, up): &(String, bool)| {
        let (status, available) = if *up { ("valid", "  up   ") } else { ("down ", " down! ") };
        format!("| {name:<0$}|{status} |{available}|{1:>5.1}|  --   |\n", width - 1, share(members.len()))
    };
    let rows: String = names.iter().map(row).collect();
    Ok(AdminAnswer::done(format!(
        "---- Cluster Status ----\nRing ready: {}\n\n{rule}|{:^width$}|status| avail |ring |pending|\n{rule}{rows}{rule}\n\
         Key: (C) = Claimant; availability marked with '!' is unexpected{}",
        cluster.is_ready(),
        "node",
        engine_nodes(&cluster)
    )))
}

/// The nodes of the engine, one line each; empty for an engine without nodes.
fn engine_nodes(cluster: &ClusterState) -> String {
    let line = |node: &larder_core::EngineNode| {
        format!("\n  {:<24}{}", shown(node.address.as_bytes()), if node.up { "up" } else { "down!" })
    };
    let lines: String = cluster.nodes.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n\nNodes of the engine:{lines}") }
}

/// A member's name, marked `(C)` for the first one: it leads, and does the work of Riak's claimant.
fn named(at: usize, name: &str) -> String {
    format!("{} {name}", if at == 0 { "(C)" } else { "   " })
}

fn share(members: usize) -> f64 {
    100.0 / members.max(1) as f64
}

/// The answer to a `cluster` command that would change the membership.
pub(super) fn refuse_membership_change(words: &[&str]) -> AdminAnswer {
    let word = words.get(1).map_or_else(String::new, |word| shown(word.as_bytes()));
    AdminAnswer::failed(match word.as_str() {
        "" => "Usage: kv-admin cluster status | repair-advice".to_owned(),
        _ => format!(
            "cluster {word} is not supported: gateways over one Cassandra are members while they run; start or stop one"
        ),
    })
}

pub(super) async fn ring_status(call: CommandCall<'_>) -> CommandResult {
    let cluster = read_cluster(&call).await?;
    let first = cluster.members.first();
    let claimant = atom(first.map_or(&call.gateway().context().config.node, |state| &state.member.row.node));
    let status = if first.is_none_or(|state| state.up) { "up" } else { "down" };
    let unreachable = cluster.unreachable();
    let unreachable = match unreachable.is_empty() {
        true => "All nodes are up and reachable".to_owned(),
        false => format!("The following nodes are unreachable: [{}]", atoms(&unreachable)),
    };
    Ok(AdminAnswer::done(format!(
        "{}Claimant:  {claimant}\nStatus:     {status}\nRing Ready: {}\n\n\
         {}No pending changes.\n\n{}{unreachable}\n\n",
        header("Claimant"),
        cluster.is_ready(),
        header("Ownership Handoff"),
        header("Unreachable Nodes"),
    )))
}

pub(super) async fn ringready(call: CommandCall<'_>) -> CommandResult {
    let cluster = call.gateway().members().cluster().await;
    let cluster = cluster.map_err(|error| AdminAnswer::negative(format!("FALSE {}", reasons(&error))))?;
    let (unreachable, lagging) = (cluster.unreachable(), cluster.behind());
    if !unreachable.is_empty() {
        let down = atoms(&unreachable);
        Err(AdminAnswer::negative(format!("FALSE [{down}] down.  All nodes need to be up to check.")))
    } else if !lagging.is_empty() {
        let lagging = atoms(&lagging);
        Err(AdminAnswer::negative(format!("FALSE [{lagging}] have not caught up with the newest bucket types")))
    } else {
        let all: Vec<&str> = cluster.members.iter().map(|state| state.member.row.node.as_str()).collect();
        Ok(AdminAnswer::done(format!("TRUE All nodes agree on the ring [{}]", atoms(&all))))
    }
}

pub(super) async fn transfers(_: CommandCall<'_>) -> CommandResult {
    Ok(AdminAnswer::done("No transfers active\n\nActive Transfers:\n\n\n"))
}

fn atoms(nodes: &[&str]) -> String {
    nodes.iter().map(|node| atom(node)).collect::<Vec<_>>().join(",")
}

fn atom(node: &str) -> String {
    Value::Node(node.to_owned()).console()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_match_riaks_console() {
        for (title, line) in [
            ("Membership", "================================= Membership ==================================\n"),
            ("Claimant", "================================== Claimant ===================================\n"),
            ("Ownership Handoff", "============================== Ownership Handoff ==============================\n"),
            ("Unreachable Nodes", "============================== Unreachable Nodes ==============================\n"),
        ] {
            assert_eq!(header(title), line);
        }
    }
}
