//! The one way a key changes: a compare-and-set on its head, inside a section.
//!
//! ```text
//! lined up ─> section opened ─> head read ─> own blob not doomed ─> the caller decides ─> compare and set ─> what was replaced goes
//!    ^                                                                                        │ conflict
//!    └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A sweeper marks a blob as doomed, *touches* the head ([`Objects::touch`]), looks whether it names the blob, and only then
//! removes it. A writer reads the head first and then looks for the mark: whatever the pauses, one of the two gives way.

mod place;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod versions;

pub(super) use place::Place;
pub(super) use versions::{Next, bytes_of, id_text, shown_id};

use std::sync::Arc;

use larder_model::content::BlobId;
use larder_model::objects::{Bucket, BucketId, Entry, Head};
use larder_model::rows::{Micros, Row, Stamp};
use larder_store::{Durability, Head as HeadRow, Kind, Level, Options, Partition, Purpose, Range, ReadQuery, Swap};
use tokio::time::Instant;

use super::section::Section;
use super::{Error, Objects, Result};
use crate::contention::WriterPlace;
use crate::{Gateway, Rule};

/// How long a head without any version stays, in microseconds: its stamp orders the writes that follow.
const DELETED_HEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
/// How often a change is tried against others before it is told to come again.
const ATTEMPTS_MAX: usize = 1000;

/// The head of a key as it was read.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// What it says; nothing when there is none.
    pub(super) head: Head,
    /// Its stamp, when there is one.
    pub(super) stamp: Option<Stamp>,
}

/// A change of a key that is tried until it meets no other.
pub(super) struct Race<'a> {
    objects: &'a Objects,
    place: &'a Place,
    /// The blob the change brings.
    blob: Option<BlobId>,
    purpose: Purpose,
    attempts: usize,
    deadline: Instant,
}

/// One try: what holds until [`Turn::commit`] is refused.
pub(super) struct Turn<'a> {
    objects: &'a Objects,
    place: &'a Place,
    section: Section<'a>,
    /// Of the writers of this key in this gateway, it is this one's turn.
    writer: WriterPlace<'a>,
    /// The head's partition.
    pub(super) partition: Partition,
    /// The head as this try found it.
    pub(super) head: Head,
    /// The stamp of that head.
    expected: Option<Stamp>,
    /// The stamp of the head to be.
    pub(super) stamp: Stamp,
    /// How the store is asked.
    pub(super) options: Options,
}

impl Objects {
    /// Begins a change of the key at `place` that brings `blob`. Then, in a loop: [`Race::turn`], decide, [`Turn::commit`],
    /// until that answers `true`.
    pub(super) fn race<'a>(&'a self, place: &'a Place, blob: Option<BlobId>) -> Race<'a> {
        let deadline = Instant::now() + self.gateway.config.timeout;
        Race { objects: self, place, blob, purpose: Purpose::Data, attempts: 0, deadline }
    }

    /// How the store is asked on behalf of a request.
    pub(super) fn options(&self) -> Options {
        options_until(&self.gateway, Instant::now() + self.gateway.config.timeout)
    }

    /// Reads the head of a partition.
    ///
    /// # Errors
    /// What the store answers.
    pub(super) async fn read_head(&self, partition: &Partition, options: &Options) -> Result<Seen> {
        let row = read_row(&self.gateway, partition, options).await?;
        Ok(match row {
            Some(row) => Seen { stamp: Some(row.stamp), head: Head::decode(row.value)? },
            None => Seen { head: Head::default(), stamp: None },
        })
    }

    /// Rewrites a head as it is, with a greater stamp, whether its bucket still takes requests or not: a writer that read it
    /// before fails. A head that was not there is there then, and says so. What it listed for release is released. Answers
    /// what the head says.
    ///
    /// # Errors
    /// What the store answers; `Overloaded` when the key never rests.
    pub(super) async fn touch(&self, bucket: BucketId, key: &bytes::Bytes) -> Result<Head> {
        let partition = Partition::head(bucket, key);
        for attempt in 0..ATTEMPTS_MAX {
            let options = self.options().reclaiming();
            let writer = self.gateway.line_up(&partition, options.deadline).await?;
            let seen = self.read_head(&partition, &options).await?;
            let stamp = self.stamp_above(seen.stamp).await?;
            let drains = self.gateway.rule(Rule::DrainReleases);
            let releases = if drains { seen.head.release.clone() } else { Vec::new() };
            let head = Head { release: Vec::new(), ..seen.head };
            let row = head_row(&self.gateway, &head, bucket, key, stamp);
            match self.gateway.ports.store.apply_if(&partition, seen.stamp, row, Vec::new(), &options).await? {
                Swap::Applied => {
                    drop(writer);
                    self.drain(releases).await;
                    return Ok(head);
                }
                Swap::Conflict(_) => drop(writer),
            }
            self.gateway.give_way(attempt, options.deadline).await?;
        }
        Err(crate::Error::Overloaded { retry_after: 1 }.into())
    }

    /// A stamp for a head that replaces one with the stamp `expected`: at least two above it.
    async fn stamp_above(&self, expected: Option<Stamp>) -> Result<Stamp> {
        self.gateway.clock.pass(expected.map_or(0, |stamp| stamp + 1));
        Ok(self.gateway.issue().await?)
    }
}

impl<'a> Race<'a> {
    /// The same change, which removes something.
    pub(super) fn reclaiming(self) -> Self {
        Self { purpose: Purpose::Reclaim, ..self }
    }

    /// The next try: the bucket and the head as they are now, and the change's blob not in a sweeper's hands.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Overloaded` when others were faster too often or the blob is being swept; what the store answers.
    pub(super) async fn turn(&mut self) -> Result<Turn<'a>> {
        let Self { objects, place, .. } = *self;
        if let Some(conflicts) = self.attempts.checked_sub(1) {
            objects.gateway.give_way(conflicts, self.deadline).await?;
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX || Instant::now() >= self.deadline {
            return Err(crate::Error::Overloaded { retry_after: 1 }.into());
        }
        let options = Options { purpose: self.purpose, ..options_until(&objects.gateway, self.deadline) };
        let partition = place.partition();
        let writer = objects.gateway.line_up(&partition, self.deadline).await?;
        let section = objects.section(&place.name, place.id).await?;
        let seen = objects.read_head(&partition, &options).await?;
        if let Some(blob) = self.blob
            && objects.gateway.rule(Rule::FenceSweeper)
            && objects.gateway.has_gc_mark(blob, &options).await?
        {
            return Err(crate::Error::Overloaded { retry_after: 1 }.into());
        }
        let stamp = objects.stamp_above(seen.stamp).await?;
        Ok(Turn { objects, place, section, writer, partition, head: seen.head, expected: seen.stamp, stamp, options })
    }
}

impl Turn<'_> {
    /// The bucket as this try found it: it holds until the commit.
    pub(super) fn bucket(&self) -> &Bucket {
        &self.section.bucket
    }

    /// Writes the head and rows of the partition if the head is still the one that was read. `next.head.release` lists what
    /// this change replaces: it is removed then, as is what the replaced head still listed. `false`: somebody was faster.
    ///
    /// # Errors
    /// What the store answers; `TimedOut` when the change may or may not have happened.
    pub(super) async fn commit(self, next: Next) -> Result<bool> {
        let Self { objects, place, section, writer, partition, head, expected, stamp, options } = self;
        let gateway = &objects.gateway;
        let row = head_row(gateway, &next.head, place.id, &place.key, stamp);
        let value = row.row.value.clone();
        let swap = gateway.ports.store.apply_if(&partition, expected, row, next.changes, &options).await;
        match swap {
            Ok(Swap::Applied) => {}
            Ok(Swap::Conflict(_)) => return Ok(false),
            Err(error) if error.kind == Kind::TimedOut => {
                // The head itself says whether this change is in it; until it does, the change may still come.
                let Ok(now) = read_row(gateway, &partition, &gateway.own(Level::Quorum)).await else {
                    section.linger(Arc::clone(gateway), partition);
                    return Err(crate::Error::TimedOut.into());
                };
                if now.is_none_or(|row| (row.stamp, row.value) != (stamp, value)) {
                    return Err(crate::Error::TimedOut.into());
                }
                // It has happened: whatever else fails now must not make anybody remove the bytes it brought.
                gateway.on_disk().await.map_err(|_| crate::Error::TimedOut)?;
            }
            Err(error) => return Err(error.into()),
        }
        drop((section, writer));
        let left = if gateway.rule(Rule::DrainReleases) { head.release.as_slice() } else { &[] };
        let releases = left.iter().chain(&next.head.release).copied().collect();
        objects.drain(releases).await;
        Ok(true)
    }
}

fn options_until(gateway: &Gateway, deadline: Instant) -> Options {
    let durability = if gateway.config.durable { Durability::Disk } else { Durability::Buffered };
    Options::new(Level::Quorum, deadline, durability)
}

pub(super) async fn read_row(gateway: &Gateway, partition: &Partition, options: &Options) -> Result<Option<Row>> {
    let range = Range { from: None, to: Some(bytes::Bytes::from_static(b"\0")) };
    let query = ReadQuery { range, ..ReadQuery::all(1) };
    Ok(gateway.ports.store.read(partition, &query, options).await?.rows.into_iter().next())
}

/// A head with its shadow, the key's listing entry.
fn head_row(gateway: &Gateway, head: &Head, bucket: BucketId, key: &bytes::Bytes, stamp: Stamp) -> HeadRow {
    let row = Row { name: bytes::Bytes::new(), value: head.encode(), stamp, expires: expiry(gateway, head) };
    let shadow = place::shadow(bucket, key, Entry::of(head).map(|entry| entry.encode()));
    HeadRow { row, shadow: Some(shadow) }
}

/// A head without any version goes after a day.
fn expiry(gateway: &Gateway, head: &Head) -> Option<Micros> {
    let stays = if gateway.rule(Rule::KeepDeletedHeads) { DELETED_HEAD_MICROS } else { 0 };
    head.current.is_none().then(|| gateway.now() + stays)
}

impl Error {
    /// Whether a race was lost for good: others were faster too often.
    pub(super) fn is_contention(&self) -> bool {
        matches!(self, Self::Gateway(crate::Error::Overloaded { .. }))
    }
}
