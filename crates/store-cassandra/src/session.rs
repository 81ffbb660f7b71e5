//! The connections to a cluster, which refuse at once what silent nodes would keep waiting.

use std::sync::Arc;

use larder_store::Error;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement as Text;

use crate::silent_nodes::{self, SilentNodes, WatchScope};

/// A statement that this node alone answers, about itself.
pub(crate) fn statement_to(text: &str, node: &Arc<Node>) -> Text {
    let mut text = Text::new(text);
    text.set_consistency(Consistency::One);
    text.set_is_idempotent(true);
    let target = NodeIdentifier::Node(Arc::clone(node));
    text.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(target, None)));
    text
}

/// A session of the driver, and the nodes that do not answer it. Cheap to clone.
#[derive(Clone)]
pub struct ClusterSession {
    driver: Arc<Session>,
    silent: Arc<SilentNodes>,
    /// The datacenter of the gateway, if the cluster may have several.
    datacenter: Option<Arc<str>>,
}

impl ClusterSession {
    /// A session whose nodes are not watched: nothing is refused before it is sent.
    #[must_use]
    pub fn new(driver: Arc<Session>) -> Self {
        Self { driver, silent: Arc::default(), datacenter: None }
    }

    /// Watches the nodes of a datacenter, or all, for as long as the session is in use. `read` is a read of one row of a table
    /// with several copies: key, name.
    pub(crate) fn watch_nodes(&mut self, datacenter: Option<&str>, read: String) {
        self.datacenter = datacenter.map(Arc::from);
        let scope = WatchScope { datacenter: datacenter.map(str::to_owned), read };
        silent_nodes::watch(&self.driver, &self.silent, scope);
    }

    /// The session itself.
    #[must_use]
    pub fn driver(&self) -> &Arc<Session> {
        &self.driver
    }

    /// Whether a node of the cluster does not answer.
    pub(crate) fn has_silent_node(&self) -> bool {
        self.silent.is_any()
    }

    /// Requests sent to nodes, without probes of the nodes themselves.
    pub(crate) fn requests(&self) -> u64 {
        self.driver.get_metrics().get_requests_unpaged_num().saturating_sub(self.silent.probes())
    }

    /// Refuses a statement that needs more replicas than answer.
    ///
    /// # Errors
    /// `Unavailable`, with the number of replicas that answer.
    pub(crate) fn check(
        &self,
        prepared: &PreparedStatement,
        values: &impl SerializeRow,
        consistency: Consistency,
    ) -> Result<(), Error> {
        self.silent.check(&self.driver, self.datacenter.as_deref(), (prepared, values, consistency))
    }

    /// The number of nodes of a datacenter, or of all.
    pub(crate) fn node_count(&self, datacenter: Option<&str>) -> usize {
        self.driver.get_cluster_state().get_nodes_info().iter().filter(|node| is_in(node, datacenter)).count()
    }

    /// The nodes of a datacenter, or all, by address, and whether each is connected and answers.
    pub(crate) fn node_states(&self, datacenter: Option<&str>) -> Vec<(String, bool)> {
        let state = self.driver.get_cluster_state();
        let nodes = state.get_nodes_info().iter().filter(|node| is_in(node, datacenter));
        let is_up = |id, is_connected| is_connected && !self.silent.contains(id);
        let mut all: Vec<_> =
            nodes.map(|node| (node.address.to_string(), is_up(node.host_id, node.is_connected()))).collect();
        all.sort_unstable();
        all
    }
}

/// Whether a node is in this datacenter, or in any.
fn is_in(node: &Node, datacenter: Option<&str>) -> bool {
    datacenter.is_none_or(|expected| node.datacenter.as_deref() == Some(expected))
}
