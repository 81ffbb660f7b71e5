//! What a request may do, decided before it does anything: the bucket's properties, its replica counts, its deadline.

use std::time::Duration;

use larder_model::address::BucketAddress;
use larder_model::causality::Mode;
use larder_model::props::{Effective, Quorum, SyncOnWrite};
use larder_store::{Durability, Level, Options};
use tokio::time::{Instant, timeout_at};

use super::Quorums;
use crate::{Error, Feature, Gateway, Result, Which};

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

/// A level, and the words to refuse it with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Options of the store calls.
    pub(super) options: Options,
    /// The value that may be stepped down.
    sloppy: Which,
    /// The value that may not, if there is one.
    strict: Option<Which>,
}

impl Asked {
    /// The same request at another level.
    pub(super) fn at(self, level: Level) -> Self {
        Self { options: Options { level, ..self.options }, ..self }
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

    /// The store's answer in the words of this request.
    pub(super) fn refuse(self, error: larder_store::Error) -> Error {
        Error::of_store(error, self.sloppy, self.strict)
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
        let props = catalogue.effective(bucket).ok_or_else(|| Error::UnknownType(bucket.bucket_type.clone()))?;
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
        self.confirm(props, quorums, true)?;
        let options = Options {
            level: level(r.max(pr), props.n_val),
            deadline: permit.deadline,
            durability: Durability::Buffered,
        };
        Ok(Asked { options, sloppy: Which::R, strict: (pr > 0).then_some(Which::Pr) })
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
        self.confirm(props, quorums, false)?;
        let durability = if dw > 0 && self.config.durable { Durability::Disk } else { Durability::Buffered };
        let level = level(w.max(pw).max(dw), props.n_val);
        let options = Options { level, deadline: permit.deadline, durability };
        Ok(Asked { options, sloppy: Which::W, strict: (pw > 0).then_some(Which::Pw) })
    }

    fn confirm(&self, props: &Effective, quorums: &Quorums, reading: bool) -> Result<()> {
        let wanted = count(props, quorums.node_confirms, props.node_confirms)?;
        let got = self.ports.store.limits().nodes;
        if wanted > got { Err(Error::NodeConfirms { got, wanted, reading }) } else { Ok(()) }
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

/// The weakest level that meets `count` of `n_val` replicas.
fn level(count: u32, n_val: u32) -> Level {
    match count {
        0 | 1 => Level::One,
        all if all >= n_val => Level::All,
        more if more > n_val / 2 => Level::Quorum,
        2 => Level::Two,
        _ => Level::Three,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_meet_the_count_they_stand_for() {
        assert_eq!(level(0, 3), Level::One);
        assert_eq!(level(1, 1), Level::One);
        assert_eq!(level(2, 3), Level::Quorum);
        assert_eq!(level(3, 3), Level::All);
        assert_eq!(level(2, 5), Level::Two);
        assert_eq!(level(3, 5), Level::Quorum);
        assert_eq!(level(3, 7), Level::Three);
        assert_eq!(level(4, 7), Level::Quorum);
    }
}
