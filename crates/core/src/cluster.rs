//! The cluster as operators see it: running gateways and the engine's nodes. All commands that show it read it here, so they
//! agree.

use larder_store::{ConsistencyLevel, ReadQuery};

use crate::gateway_core::internal_options;
use crate::members::{MEMBERS_MAX, Members, decode_member};
use crate::{EngineNode, Member, Result};

/// Age of the last heartbeat, in microseconds, above which a gateway counts as down: two heartbeats and the time to write one.
const UNHEARD_MICROS: u64 = 5_000_000;

/// A gateway and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// The gateway.
    pub member: Member,
    /// Whether its last heartbeat is younger than five seconds.
    pub up: bool,
}

/// The cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    /// The gateways that run, in the order of their actors.
    pub members: Vec<MemberState>,
    /// The nodes of the engine; none for an engine in the gateway's process.
    pub nodes: Vec<EngineNode>,
}

impl ClusterState {
    /// Names of the gateways and nodes that are down.
    #[must_use]
    pub fn unreachable(&self) -> Vec<&str> {
        let members = self.members.iter().filter(|state| !state.up).map(|state| state.member.row.node.as_str());
        members.chain(self.nodes.iter().filter(|node| !node.up).map(|node| node.address.as_str())).collect()
    }

    /// Names of the gateways with an older catalogue than others.
    #[must_use]
    pub fn behind(&self) -> Vec<&str> {
        let rows = || self.members.iter().map(|state| &state.member.row);
        let newest = rows().map(|row| row.catalogue).max().unwrap_or_default();
        rows().filter(|row| row.catalogue < newest).map(|row| row.node.as_str()).collect()
    }

    /// Whether all are up and have the same catalogue.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unreachable().is_empty() && self.behind().is_empty()
    }
}

impl Members {
    /// The current cluster, from the live nodes of the engine. Keeps the gateways' names for `/stats`.
    ///
    /// # Errors
    /// The store's, and damage of a heartbeat.
    pub async fn cluster(&self) -> Result<ClusterState> {
        let partition = larder_store::Partition::members();
        // Fallback: operators look at the cluster when nodes are down, so fewer replicas will do.
        let rows = self.core.read_internal_table(&partition, &ReadQuery::all(MEMBERS_MAX)).await?.rows;
        let now = self.core.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        let state = |row: larder_rows::Row| {
            let up = now.since(row.stamp) <= UNHEARD_MICROS;
            Ok(MemberState { member: decode_member(row)?, up })
        };
        let members = rows.into_iter().map(state).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = members.iter().map(|state| state.member.row.node.clone()).collect();
        self.note_names(names);
        Ok(ClusterState { members, nodes: self.core.ports.engine.nodes() })
    }
}

#[cfg(test)]
mod tests {
    use larder_rows::MemberRow;
    use larder_rows::{ActorId, Timestamp};

    use super::*;

    fn member(node: &str, catalogue: u64, up: bool) -> MemberState {
        let row = MemberRow {
            node: node.into(),
            address: String::new(),
            version: String::new(),
            catalogue: Timestamp(catalogue),
        };
        MemberState { member: Member { actor: ActorId(1), row }, up }
    }

    #[test]
    fn a_cluster_is_ready_when_all_are_up_and_agree() {
        let node = |up| EngineNode { address: "127.0.0.2:9042".into(), up };
        let state = |members, nodes| ClusterState { members, nodes };
        assert!(state(vec![member("a", 2, true), member("b", 2, true)], vec![node(true)]).is_ready());
        let held = state(vec![member("a", 2, true), member("b", 2, false)], Vec::new());
        assert_eq!((held.unreachable(), held.is_ready()), (vec!["b"], false));
        let down = state(vec![member("a", 2, true)], vec![node(false)]);
        assert_eq!((down.unreachable(), down.is_ready()), (vec!["127.0.0.2:9042"], false));
        let late = state(vec![member("a", 1, true), member("b", 2, true)], Vec::new());
        assert_eq!((late.behind(), late.is_ready()), (vec!["a"], false));
    }
}
