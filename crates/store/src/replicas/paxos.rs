//! Swaps: one at a time for each partition, decided by a majority, and sometimes not by the one who asked.
//!
//! ```text
//! a proposal that nobody took      never was
//! taken by fewer than a majority   done by the next one who meets a taker, gone for ever if the next one meets none
//! taken by a majority              done by the next one, whoever that is
//! done, the answer lost            done
//! ```
//! To who asked, all four are `TimedOut`.

use std::sync::Arc;

use super::cells::{Cells, balloted};
use super::cluster::State;
use super::node::Mutation;
use crate::{Change, Error, Kind, Level, Micros, Partition, Result, Row, Stamp, Swap};

/// A swap that was begun and is not done.
pub(super) struct Proposal {
    mutation: Arc<Mutation>,
    takers: Vec<usize>,
}

/// A majority of those who vote, gathered by a coordinator.
pub(super) struct Majority {
    pub(super) coordinator: usize,
    pub(super) nodes: Vec<usize>,
    voters: usize,
}

/// How far a swap comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    NotTaken,
    TakenByFew,
    TakenByMost,
    AnswerLost,
    Done,
}

/// A swap as the one who asks puts it.
pub(super) struct Ask<'a> {
    pub(super) partition: &'a Partition,
    pub(super) expected: Option<Stamp>,
    pub(super) head: Row,
    pub(super) changes: Vec<Change>,
}

impl State {
    /// Asks a majority, and finishes what another one left.
    ///
    /// # Errors
    /// `Unavailable` without a majority.
    pub(super) fn gather(&mut self, side: usize, partition: &Partition) -> Result<Majority> {
        let (voters, electorate) = self.electorate(side, partition);
        let (coordinator, required) = self.coordinate(side, &electorate, Level::Quorum)?;
        let nodes = self.choose(side, &electorate, required);
        let majority = Majority { coordinator, nodes, voters };
        if let Some(left) = self.proposals.remove(&(voters, partition.clone()))
            && left.takers.iter().any(|taker| majority.nodes.contains(taker))
        {
            self.commit(&majority, &left.mutation);
        }
        Ok(majority)
    }

    /// Makes a swap, or the part of it that its fate allows.
    ///
    /// # Errors
    /// `Unavailable`, `TimedOut`.
    pub(super) fn swap(&mut self, side: usize, ask: Ask<'_>, now: Micros) -> Result<Swap> {
        let Ask { partition, expected, head, mut changes } = ask;
        let fate = self.fate();
        let majority = self.gather(side, partition)?;
        let timed_out = Err(Error::new(Kind::TimedOut, "the swap was not answered"));
        if fate == Fate::NotTaken {
            return timed_out;
        }
        let rows = self.merged(&majority.nodes, partition).rows(now);
        let current = rows.get(&head.name);
        if current.map(|row| row.stamp) != expected {
            return if fate == Fate::Done { Ok(Swap::Conflict(current.cloned())) } else { timed_out };
        }
        self.ballot = now.max(self.ballot) + 2;
        changes.push(Change::Put(head));
        let writes = balloted(changes, &rows, self.ballot, now);
        let mutation = Arc::new(Mutation { partition: partition.clone(), writes });
        match fate {
            Fate::Done | Fate::AnswerLost => self.commit(&majority, &mutation),
            Fate::NotTaken | Fate::TakenByFew | Fate::TakenByMost => {
                let all = majority.nodes.len();
                let count = if fate == Fate::TakenByMost { all } else { all / 2 };
                let proposal = Proposal { mutation, takers: majority.nodes[..count].to_vec() };
                self.proposals.insert((majority.voters, partition.clone()), proposal);
            }
        }
        if fate == Fate::Done { Ok(Swap::Applied) } else { timed_out }
    }

    /// A majority has it before anybody is told; the others get it as they get everything.
    fn commit(&mut self, majority: &Majority, mutation: &Arc<Mutation>) {
        let answers = super::cluster::Answers::default();
        for node in self.replicas(&mutation.partition) {
            if majority.nodes.contains(&node) {
                self.nodes[node].take(mutation, self.setup.syncs);
            } else {
                self.send(majority.coordinator, node, mutation, &answers);
            }
        }
    }

    /// What these nodes know together.
    pub(super) fn merged(&self, nodes: &[usize], partition: &Partition) -> Cells {
        let mut merged = Cells::default();
        for node in nodes {
            merged.absorb(&self.nodes[*node].cells(partition));
        }
        merged
    }

    fn fate(&mut self) -> Fate {
        if !self.random.chance(self.weather.swaps_torn_per_mille) {
            return Fate::Done;
        }
        [Fate::NotTaken, Fate::TakenByFew, Fate::TakenByMost, Fate::AnswerLost][self.random.below(4) as usize]
    }
}
