//! What a request may do, decided before it does anything: the bucket's properties, its replica counts, its deadline.

use std::time::Duration;

use larder_model::address::BucketAddress;
use larder_model::causality::Mode;
use larder_model::props::{Effective, Quorum, SyncOnWrite};
use larder_store::{Durability, Kind, Level, Options};
use tokio::time::{Instant, timeout_at};

use super::Quorums;
use super::step_down::{READ_FLOOR, Steps, WRITE_FLOOR, level_of, needs};
use crate::{Error, Feature, Gateway, Result, Rule, Which};

/// A request that may go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permit {
    /// The bucket's properties.
    pub(super) props: Effective,
    /// How its writes meet.
    pub(super) mode: Mode,
    /// When to give up.
    pub(super) deadline: Instant,
    /// How long the engine may take once a body has arrived.
    pub(super) timeout: Duration,
}

/// How many replicas a request asks, and the words to refuse it with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Options of the store calls.
    pub(super) options: Options,
    /// Copies there are.
    copies: u32,
    /// Replicas it may not be stepped down below.
    floor: u32,
    words: Words,
}

/// The replica counts as the client gave them.
#[derive(Debug, Clone, Copy)]
struct Words {
    reading: bool,
    /// The value that may be stepped down.
    sloppy: (Which, u32),
    /// The value that may not, if there is one, and the replicas it stands for.
    strict: Option<(Which, u32, u32)>,
    /// Machines that must answer.
    confirms: u32,
}

impl Asked {
    /// The same request at another level.
    pub(super) fn at(self, level: Level) -> Self {
        let floor = self.floor.min(needs(level, self.copies));
        Self { options: Options { level, ..self.options }, floor, ..self }
    }

    /// The same request at this level at least, and never below it.
    pub(super) fn never_below(self, level: Level) -> Self {
        let floor = self.floor.max(needs(level, self.copies));
        Self { options: Options { level: self.options.level.max(level), ..self.options }, floor, ..self }
    }

    /// The same request, which is not stepped down at all.
    pub(super) fn firm(self) -> Self {
        self.never_below(self.options.level)
    }

    /// The same request with this long to go: the time a body took to arrive is not the engine's.
    pub(super) fn renewed(self, timeout: Duration) -> Self {
        Self { options: Options { deadline: Instant::now() + timeout, ..self.options }, ..self }
    }

    /// The same write, answered from disk if the server syncs at all: what it removes is gone for good afterwards.
    pub(super) fn on_disk(self, durable: bool) -> Self {
        let durability = if durable { Durability::Disk } else { Durability::Buffered };
        Self { options: Options { durability, ..self.options }, ..self }
    }

    /// The same write, which removes something.
    pub(super) fn reclaiming(self) -> Self {
        Self { options: self.options.reclaiming(), ..self }
    }

    /// The levels it may be written at.
    pub(super) fn writing(self) -> Steps {
        Steps::new(self.options, self.copies, self.floor)
    }

    /// The levels it may be read at, be it on behalf of a write.
    pub(super) fn reading(self) -> Steps {
        Steps::new(self.options, self.copies, self.floor.max(READ_FLOOR))
    }

    /// The store's answer in the words of this request: of its strict values the one that was not met, as Riak looks at them.
    pub(super) fn refuse(self, error: larder_store::Error) -> Error {
        let Kind::Unavailable { alive: got, required } = error.kind else { return error.into() };
        // Where n_val is not the number of copies, more may be up than the value says and yet too few.
        let wanted = |count: u32| if count > got { count } else { required };
        let Words { reading, sloppy, strict, confirms } = self.words;
        match strict {
            Some((which, count, replicas)) if got < replicas => {
                Error::Unsatisfied { which, got, wanted: wanted(count) }
            }
            _ if got < confirms => Error::NodeConfirms { got, wanted: confirms, reading },
            _ => Error::Unsatisfied { which: sloppy.0, got, wanted: wanted(sloppy.1) },
        }
    }
}

impl Gateway {
    /// Looks the bucket up.
    ///
    /// # Errors
    /// [`Error::UnknownType`]; [`Error::NotReady`] when the catalogue is too old to serve from.
    pub(super) async fn permit(&self, bucket: &BucketAddress, timeout: Option<Duration>) -> Result<Permit> {
        let timeout = timeout.unwrap_or(self.config.timeout);
        let deadline = Instant::now() + timeout;
        let known = timeout_at(deadline, self.knowing(&bucket.bucket_type)).await;
        let catalogue = known.map_err(|_| Error::TimedOut)??;
        let mut props = catalogue.effective(bucket).ok_or_else(|| Error::UnknownType(bucket.bucket_type.clone()))?;
        if !self.rule(Rule::PlaceByCreation) {
            props.copies = u8::try_from(props.n_val).unwrap_or(u8::MAX);
        }
        Ok(Permit { props, mode: mode(&props), deadline, timeout })
    }

    /// Refuses what would be stored past something that is not built yet, and writes of a gateway that must not write.
    pub(super) fn permit_write(&self, permit: &Permit) -> Result<()> {
        if permit.props.has_precommit || permit.props.has_postcommit {
            return Err(Error::NotBuilt(Feature::Hooks));
        }
        if permit.props.datatype.is_some() {
            return Err(Error::NotBuilt(Feature::DataTypes));
        }
        if self.skewed.load(std::sync::atomic::Ordering::Acquire) {
            return Err(Error::NotReady("this machine's clock is off the engine's by more than 500 ms".into()));
        }
        Ok(())
    }

    /// Replica counts of a read.
    ///
    /// # Errors
    /// [`Error::QuorumAboveN`], [`Error::NodeConfirms`].
    pub(super) fn ask_read(&self, permit: &Permit, quorums: &Quorums) -> Result<Asked> {
        let props = &permit.props;
        let r = count(props, quorums.r, props.r)?;
        let pr = count(props, quorums.pr, props.pr)?;
        let confirms = self.confirms(props, quorums, true)?;
        let words = Words { reading: true, sloppy: (Which::R, r), strict: self.strict(props, Which::Pr, pr), confirms };
        let options = Options::new(Level::One, permit.deadline, Durability::Buffered);
        Ok(self.asked(props, options, words))
    }

    /// Replica counts of a write; with dw > 0 it waits for the disk, if this server syncs.
    ///
    /// # Errors
    /// As [`Self::ask_read`].
    pub(super) fn ask_write(&self, permit: &Permit, quorums: &Quorums) -> Result<Asked> {
        let props = &permit.props;
        let w = count(props, quorums.w, props.w)?;
        let pw = count(props, quorums.pw, props.pw)?;
        let dw = count(props, quorums.dw, props.dw)?.max(u32::from(props.sync_on_write != SyncOnWrite::Backend));
        let confirms = self.confirms(props, quorums, false)?;
        let sloppy = if dw > w { (Which::Dw, dw) } else { (Which::W, w) };
        let words = Words { reading: false, sloppy, strict: self.strict(props, Which::Pw, pw), confirms };
        let durability = if dw > 0 && self.config.durable { Durability::Disk } else { Durability::Buffered };
        let options = Options::new(Level::One, permit.deadline, durability);
        Ok(self.asked(props, options, words))
    }

    /// The level that meets them all, and how far down it may go.
    fn asked(&self, props: &Effective, options: Options, words: Words) -> Asked {
        let copies = self.replicas(props);
        let least = if words.reading { READ_FLOOR } else { WRITE_FLOOR };
        let strict = words.strict.map_or(least, |(_, _, replicas)| replicas);
        // Machines are counted as they are, not as parts of n_val: every copy is on one of its own.
        let floor = strict.max(if words.confirms > 1 { words.confirms.min(copies) } else { least });
        let level = level_of(scaled(words.sloppy.1, props.n_val, copies).max(floor), copies);
        // One machine is up or it is not. It keeps no tombstones either: a write sent again after a lost answer would bring
        // back what was replaced meanwhile.
        let floor = if self.ports.store.limits().replicated { floor } else { needs(level, copies) };
        Asked { options: Options { level, ..options }, copies, floor, words }
    }

    /// A strict value, unless it is 0, with the replicas that its level asks for.
    fn strict(&self, props: &Effective, which: Which, count: u32) -> Option<(Which, u32, u32)> {
        let copies = self.replicas(props);
        let replicas = needs(level_of(scaled(count, props.n_val, copies), copies), copies);
        (count > 0).then_some((which, count, replicas))
    }

    /// Replicas a level is counted of: the copies of the bucket's type. One machine stands for as many as n_val says.
    fn replicas(&self, props: &Effective) -> u32 {
        if self.ports.store.limits().replicated { props.copies.into() } else { props.n_val }
    }

    /// Machines that must confirm; more than there are is refused at once.
    fn confirms(&self, props: &Effective, quorums: &Quorums, reading: bool) -> Result<u32> {
        let wanted = count(props, quorums.node_confirms, props.node_confirms)?;
        let got = self.ports.store.limits().nodes;
        if wanted > got { Err(Error::NodeConfirms { got, wanted, reading }) } else { Ok(wanted) }
    }
}

fn mode(props: &Effective) -> Mode {
    if props.write_once {
        Mode::WriteOnce
    } else if props.last_write_wins {
        Mode::LastWriteWins
    } else if props.allow_mult {
        Mode::Siblings
    } else {
        Mode::Newest
    }
}

/// The number a value stands for; greater than n_val is refused.
fn count(props: &Effective, asked: Option<Quorum>, default: Quorum) -> Result<u32> {
    let count = asked.unwrap_or(default).resolve(props.n_val);
    if count > props.n_val { Err(Error::QuorumAboveN { n_val: props.n_val }) } else { Ok(count) }
}

/// As large a part of the copies as `count` is of n_val, rounded up: n_val may have been changed since the copies were placed,
/// and reads and writes that met in n_val replicas still meet in the copies. [hole 26]
fn scaled(count: u32, n_val: u32, copies: u32) -> u32 {
    let scaled = (u64::from(count) * u64::from(copies)).div_ceil(u64::from(n_val.max(1)));
    u32::try_from(scaled).unwrap_or(copies)
}

#[cfg(test)]
mod tests;
