//! Compare-and-set by Paxos: one at a time for each partition, decided by a majority. A later proposer may finish a
//! proposal.
//!
//! ```text
//! no replica accepted           it never happens
//! a minority accepted           the next proposer finishes it if it meets an acceptor; otherwise it never happens
//! a majority accepted           the next proposer finishes it, whoever that is
//! committed, the answer lost    it has happened
//! ```
//! The caller gets `TimedOut` in all four cases.

use std::sync::Arc;

use super::cells::{ReplicaCells, paxos_writes};
use super::cluster::ReplicasState;
use super::node::ReplicaMutation;
use larder_store::{CasResult, Change, ConsistencyLevel, Error, Kind, Partition, Result, Row, Timestamp};

/// A proposal that was accepted by some replicas and is not committed.
pub(super) struct Proposal {
    mutation: Arc<ReplicaMutation>,
    acceptors: Vec<usize>,
}

/// A majority of the voting replicas, reached by a coordinator.
pub(super) struct Majority {
    pub(super) coordinator: usize,
    pub(super) nodes: Vec<usize>,
    voters: usize,
}

/// The step at which a proposal stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProposalFate {
    NotAccepted,
    AcceptedByMinority,
    AcceptedByMajority,
    AnswerLost,
    Done,
}

/// The arguments of a compare-and-set.
pub(super) struct CasArgs<'a> {
    pub(super) partition: &'a Partition,
    pub(super) expected: Option<Timestamp>,
    pub(super) head: Row,
    pub(super) changes: Vec<Change>,
}

impl ReplicasState {
    /// Reaches a majority, and finishes a proposal that another coordinator left.
    ///
    /// # Errors
    /// `Unavailable` without a majority.
    pub(super) fn reach_majority(&mut self, side: usize, partition: &Partition) -> Result<Majority> {
        let (voters, electorate) = self.voters(side, partition);
        let (coordinator, required) = self.choose_coordinator(side, &electorate, ConsistencyLevel::Quorum)?;
        let nodes = self.choose(side, &electorate, required);
        let majority = Majority { coordinator, nodes, voters };
        if let Some(left) = self.proposals.remove(&(voters, partition.clone()))
            && left.acceptors.iter().any(|acceptor| majority.nodes.contains(acceptor))
        {
            self.commit(&majority, &left.mutation);
        }
        Ok(majority)
    }

    /// Runs a compare-and-set, up to the step that its fate allows.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`.
    pub(super) fn compare_and_set(&mut self, side: usize, args: CasArgs<'_>, now: Timestamp) -> Result<CasResult> {
        let CasArgs { partition, expected, head, mut changes } = args;
        let fate = self.fate();
        // The majority finishes an earlier proposal first: otherwise that one could still overwrite this one.
        let majority = self.reach_majority(side, partition)?;
        let timed_out = Err(Error::new(Kind::TimedOut, "the compare-and-set was not answered"));
        if fate == ProposalFate::NotAccepted {
            return timed_out;
        }
        let rows = self.merged(&majority.nodes, partition).rows(now);
        let current = rows.get(&head.name);
        // The guard is compared with what the majority knows, after the earlier proposal was finished.
        if current.map(|row| row.stamp) != expected {
            return if fate == ProposalFate::Done { Ok(CasResult::Conflict(current.cloned())) } else { timed_out };
        }
        // Ballots grow by two, so that a clear of this write has a ballot below it and above the last one.
        self.ballot = (now.max(Timestamp(self.ballot)) + 2).0;
        changes.push(Change::Put(head));
        let writes = paxos_writes(changes, &rows, self.ballot, now);
        let mutation = Arc::new(ReplicaMutation { partition: partition.clone(), writes });
        match fate {
            ProposalFate::Done | ProposalFate::AnswerLost => self.commit(&majority, &mutation),
            ProposalFate::NotAccepted | ProposalFate::AcceptedByMinority | ProposalFate::AcceptedByMajority => {
                let all = majority.nodes.len();
                // The acceptors keep the proposal; the next coordinator that meets one of them commits it.
                let count = if fate == ProposalFate::AcceptedByMajority { all } else { all / 2 };
                let proposal = Proposal { mutation, acceptors: majority.nodes[..count].to_vec() };
                self.proposals.insert((majority.voters, partition.clone()), proposal);
            }
        }
        if fate == ProposalFate::Done { Ok(CasResult::Applied) } else { timed_out }
    }

    /// Writes to the majority before the caller gets an answer; the other replicas get a message.
    fn commit(&mut self, majority: &Majority, mutation: &Arc<ReplicaMutation>) {
        let answers = super::cluster::AckCount::default();
        for node in self.replicas(&mutation.partition) {
            if majority.nodes.contains(&node) {
                self.nodes[node].take(mutation, self.setup.syncs);
            } else {
                self.send(majority.coordinator, node, mutation, &answers);
            }
        }
    }

    /// The merged cells of these nodes.
    pub(super) fn merged(&self, nodes: &[usize], partition: &Partition) -> ReplicaCells {
        let mut merged = ReplicaCells::default();
        for node in nodes {
            merged.merge(&self.nodes[*node].cells(partition));
        }
        merged
    }

    fn fate(&mut self) -> ProposalFate {
        if !self.random.chance(self.faults.cas_torn_per_mille) {
            return ProposalFate::Done;
        }
        [
            ProposalFate::NotAccepted,
            ProposalFate::AcceptedByMinority,
            ProposalFate::AcceptedByMajority,
            ProposalFate::AnswerLost,
        ][self.random.below(4)]
    }
}
