//! Log lines about lost nodes of the engine: since when they are lost, and which requests still work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_core::{EngineNode, EngineStatus};
use tokio::time::Instant;

/// How often the check runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The lost nodes, with the time of their loss.
#[derive(Debug, Default)]
struct NodeWatch {
    lost: BTreeMap<String, Instant>,
}

/// A node that was lost or came back.
#[derive(Debug, PartialEq, Eq)]
enum NodeChange {
    Lost(String),
    Back { node: String, after: Duration },
}

/// Checks the engine's nodes for as long as it runs, and logs each node that is lost or returns.
pub(crate) async fn watch_nodes(engine: Arc<dyn EngineStatus>) {
    let mut watch = NodeWatch::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let nodes = engine.nodes();
        let up = nodes.iter().filter(|node| node.up).count();
        for change in watch.update(&nodes, Instant::now()) {
            log(&change, up, nodes.len());
        }
    }
}

impl NodeWatch {
    /// The changes since the last call. A node that left the cluster is no longer lost.
    fn update(&mut self, nodes: &[EngineNode], now: Instant) -> Vec<NodeChange> {
        let mut changes = Vec::new();
        for EngineNode { address, up } in nodes {
            if !up && !self.lost.contains_key(address) {
                self.lost.insert(address.clone(), now);
                changes.push(NodeChange::Lost(address.clone()));
            } else if *up && let Some(since) = self.lost.remove(address) {
                changes.push(NodeChange::Back { node: address.clone(), after: now - since });
            }
        }
        // A node that left the cluster must not be reported as lost for ever.
        self.lost.retain(|address, _| nodes.iter().any(|node| node.address == *address));
        changes
    }
}

fn log(change: &NodeChange, up: usize, nodes: usize) {
    match change {
        NodeChange::Lost(node) => {
            tracing::warn!(node, up, nodes, "a node of the engine is not reached: {}", impact(up, nodes));
        }
        NodeChange::Back { node, after } => {
            let seconds = after.as_secs();
            tracing::info!(node, seconds, up, nodes, "a node of the engine is reached again: {}", impact(up, nodes));
        }
    }
}

/// The requests that still work with so many nodes up. Usually each of three copies is on another node.
fn impact(up: usize, nodes: usize) -> &'static str {
    match nodes - up {
        0 => "all are",
        _ if up == 0 => "nothing is served until one is",
        1 if nodes > 2 => "everything goes on, with a copy less",
        _ => {
            "where most copies of a key are on such nodes, reads and small writes go on with the others; deletes, data \
             types, queries, S3, `consistent` types and changes of types are refused"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_node_is_logged_once_and_its_return_once() {
        let node = |address: &str, up| EngineNode { address: address.to_owned(), up };
        let (mut watch, begun) = (NodeWatch::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(watch.update(&[node("a", true), node("b", true)], at(0)), []);
        assert_eq!(watch.update(&[node("a", true), node("b", false)], at(1)), [NodeChange::Lost("b".into())]);
        assert_eq!(watch.update(&[node("a", true), node("b", false)], at(2)), []);
        let back = NodeChange::Back { node: "b".into(), after: Duration::from_secs(23) };
        assert_eq!(watch.update(&[node("a", true), node("b", true)], at(24)), [back]);
        watch.update(&[node("a", false)], at(25));
        assert_eq!(watch.update(&[node("b", true)], at(26)), [], "it left the cluster");
        assert!(watch.lost.is_empty());
    }

    #[test]
    fn the_impact_depends_on_the_number_of_lost_nodes() {
        assert_eq!(impact(3, 3), "all are");
        assert_eq!(impact(2, 3), "everything goes on, with a copy less");
        assert!(impact(1, 3).starts_with("where most copies"));
        assert!(impact(1, 2).starts_with("where most copies"));
        assert_eq!(impact(0, 3), "nothing is served until one is");
    }
}
