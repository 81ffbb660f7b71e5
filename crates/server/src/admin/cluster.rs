//! What `riak-admin` says about nodes, the ring and services, answered from the members that run.

use std::time::Duration;

use serde_json::json;

use larder_gateway::Member;
use larder_model::props::Value;

use super::Answer;
use super::answer::{reasons, shown};
use super::table::Call;

/// The services other programs wait for.
const SERVICES: [&str; 2] = ["riak_kv", "riak_pipe"];
const SERVICE_TRIES: u32 = 20;
const SERVICE_PAUSE: Duration = Duration::from_secs(3);

/// A header of Riak's console: 79 columns, the title in the middle.
fn header(title: &str) -> String {
    format!("{:=^79}\n", format!(" {title} "))
}

pub(super) async fn member_status(call: Call<'_>) -> Answer {
    let members = match call.gateway.members().await {
        Ok(members) => members,
        Err(error) => return Answer::failed(format!("Cannot read the members: {}", reasons(&error))),
    };
    let share = share(members.len());
    if call.json {
        let rows = members.iter().map(|member| {
            let row = &member.row;
            json!({ "node": row.node, "status": "valid", "ring": share, "address": row.address,
                "version": row.version, "catalogue": row.catalogue })
        });
        return Answer::json(&json!({ "members": rows.collect::<Vec<_>>() }));
    }
    let rule = "-".repeat(79);
    let rows: String = members
        .iter()
        .map(|member| format!("valid     {share:>5.1}%      --      {}\n", shown(member.row.node.as_bytes())))
        .collect();
    Answer::done(format!(
        "{}Status     Ring    Pending    Node\n{rule}\n{rows}{rule}\n\
         Valid:{} / Leaving:0 / Exiting:0 / Joining:0 / Down:0",
        header("Membership"),
        members.len()
    ))
}

/// Riak's table: the columns are as wide as their widest cell, which is in the middle.
pub(super) async fn status(call: Call<'_>) -> Answer {
    let members = match call.gateway.members().await {
        Ok(members) => members,
        Err(error) => return Answer::failed(format!("Cannot read the members: {}", reasons(&error))),
    };
    let names = members.iter().map(|member| shown(member.row.node.as_bytes()));
    let mut names: Vec<String> = names.enumerate().map(|(at, name)| named(at, &name)).collect();
    let ready = agree(&members);
    if call.json {
        let rows = members.iter().enumerate().map(|(at, member)| {
            json!({ "node": member.row.node, "claimant": at == 0, "status": "valid", "available": true,
                "ring": share(members.len()), "address": member.row.address, "version": member.row.version })
        });
        return Answer::json(&json!({ "ready": ready, "nodes": rows.collect::<Vec<_>>() }));
    }
    names.sort_by(|a, b| a[4..].cmp(&b[4..]));
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default() + 2;
    let rule = format!("+{}+------+-------+-----+-------+\n", "-".repeat(width));
    let row =
        |name: &String| format!("| {name:<0$}|valid |  up   |{1:>5.1}|  --   |\n", width - 1, share(members.len()));
    let rows: String = names.iter().map(row).collect();
    Answer::done(format!(
        "---- Cluster Status ----\nRing ready: {ready}\n\n{rule}|{:^width$}|status| avail |ring |pending|\n{rule}{rows}{rule}\n\
         Key: (C) = Claimant; availability marked with '!' is unexpected",
        "node"
    ))
}

/// The first of the running gateways does what one alone has to do.
fn named(at: usize, name: &str) -> String {
    format!("{} {name}", if at == 0 { "(C)" } else { "   " })
}

fn share(members: usize) -> f64 {
    100.0 / members.max(1) as f64
}

/// Whether all serve from the same catalogue.
fn agree(members: &[Member]) -> bool {
    members.windows(2).all(|pair| pair[0].row.catalogue == pair[1].row.catalogue)
}

/// How words behind `cluster` are answered that change what Riak calls a cluster.
pub(super) fn no_joining(words: &[&str]) -> Answer {
    let word = words.get(1).map_or_else(String::new, |word| shown(word.as_bytes()));
    Answer::failed(match word.as_str() {
        "" => "Usage: kv-admin cluster status".to_owned(),
        _ => format!(
            "cluster {word} is not supported: gateways over one Cassandra are members while they run; start or stop one"
        ),
    })
}

pub(super) async fn ring_status(call: Call<'_>) -> Answer {
    let first = call.gateway.members().await.ok().and_then(|members| members.into_iter().next());
    let claimant = atom(first.as_ref().map_or(&call.gateway.config().node, |member| &member.row.node));
    let (status, ready) = if call.gateway.is_ready() { ("up", "true") } else { ("down", "unknown") };
    Answer::done(format!(
        "{}Claimant:  {claimant}\nStatus:     {status}\nRing Ready: {ready}\n\n\
         {}No pending changes.\n\n{}All nodes are up and reachable\n\n",
        header("Claimant"),
        header("Ownership Handoff"),
        header("Unreachable Nodes"),
    ))
}

pub(super) async fn ringready(call: Call<'_>) -> Answer {
    let members = match call.gateway.members().await {
        Ok(members) => members,
        Err(error) => return Answer::negative(format!("FALSE {}", reasons(&error))),
    };
    let newest = members.iter().map(|member| member.row.catalogue).max().unwrap_or_default();
    let behind: Vec<String> =
        members.iter().filter(|member| member.row.catalogue < newest).map(|member| atom(&member.row.node)).collect();
    let all: Vec<String> = members.iter().map(|member| atom(&member.row.node)).collect();
    if behind.is_empty() {
        Answer::done(format!("TRUE All nodes agree on the ring [{}]", all.join(",")))
    } else {
        Answer::negative(format!("FALSE [{}] have not caught up with the newest bucket types", behind.join(",")))
    }
}

pub(super) async fn transfers(_: Call<'_>) -> Answer {
    Answer::done("No transfers active\n\nActive Transfers:\n\n\n")
}

pub(super) async fn services(call: Call<'_>) -> Answer {
    Answer::done(running(&call))
}

fn running(call: &Call<'_>) -> String {
    if call.gateway.is_ready() { format!("[{}]", SERVICES.join(",")) } else { "[]".to_owned() }
}

pub(super) async fn wait_for_service(call: Call<'_>) -> Answer {
    let service = shown(call.args[0].as_bytes());
    let mut waited = String::new();
    for turn in 0..SERVICE_TRIES {
        if call.gateway.is_ready() && SERVICES.contains(&call.args[0]) {
            return Answer::done(format!("{waited}{service} is up"));
        }
        waited.push_str(&format!("{service} is not up: {}\n", running(&call)));
        if !SERVICES.contains(&call.args[0]) {
            break;
        }
        if turn + 1 < SERVICE_TRIES {
            tokio::time::sleep(SERVICE_PAUSE).await;
        }
    }
    Answer::failed(waited)
}

pub(super) async fn ping(_: Call<'_>) -> Answer {
    Answer::done("pong")
}

pub(super) async fn version(_: Call<'_>) -> Answer {
    Answer::done(env!("CARGO_PKG_VERSION"))
}

fn atom(node: &str) -> String {
    Value::Node(node.to_owned()).console()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_riaks_console() {
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
