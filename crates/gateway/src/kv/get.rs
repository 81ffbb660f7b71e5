//! Reading an object: one page of one partition, then the bodies that are kept elsewhere.

use std::sync::Arc;

use larder_model::address::Address;
use larder_model::causality::{Mode, Reading, Sibling, Versions, Write};
use larder_model::content::{BlobRef, Body, Content};
use larder_model::rows::Row;
use larder_store::{Kind, Level, Options, Partition, ReadQuery, Stopped};

use super::permit::{Asked, Permit};
use super::{Deleted, Found, GetObject, Quorums};
use crate::body::{Download, open};
use crate::metrics::{Op, Outcome};
use crate::{Error, Gateway, Result, Rule};

/// Rows of a key in one page. There are rarely more than a few: siblings are limited, and tombstones go.
const PAGE_ROWS: usize = 1000;
/// How often a read starts again because a blob went away between the row and its bytes.
const RETRIES_MAX: usize = 8;

/// The rows of a key, as replicas answered them.
pub(super) struct SeenRows {
    pub(super) rows: Vec<Row>,
    /// Whether fewer replicas answered than were asked for.
    stepped_down: bool,
}

impl Gateway {
    /// Reads an object. What was never written or is deleted has no siblings.
    ///
    /// # Errors
    /// [`Error`] of the address, the replica counts or the store.
    pub async fn get(&self, request: GetObject) -> Result<Found> {
        self.measured_as(Op::Get, Found::outcome, async {
            let permit = self.permit(&request.address.bucket, request.timeout).await?;
            let asked = self.ask_read(&permit, &request.quorums)?;
            let mut found = self.find(&request.address, &permit, asked, request.bodies).await?;
            if found.versions.siblings.is_empty() {
                found = self.look_again(&request, &permit, asked, found).await?;
            }
            if found.versions.siblings.is_empty() {
                return Ok(found);
            }
            let bytes = found.versions.siblings.iter().map(|one| one.content.body.length()).sum();
            self.metrics.object_read(bytes, found.versions.siblings.len(), self.monotonic());
            Ok(found)
        })
        .await
    }

    /// With `notfound_ok` false not found is no reply: it is asked again of all replicas, or all that are up; with
    /// `basic_quorum` a quorum of such replies is enough.
    async fn look_again(&self, request: &GetObject, permit: &Permit, asked: Asked, found: Found) -> Result<Found> {
        let Quorums { notfound_ok, basic_quorum, .. } = request.quorums;
        let basic = basic_quorum.unwrap_or(permit.props.basic_quorum);
        let wider = if basic { Level::Quorum } else { Level::All };
        let enough = notfound_ok.unwrap_or(permit.props.notfound_ok) || permit.props.consistent;
        if enough || asked.options.level >= wider {
            return Ok(found);
        }
        let mut again = asked.at(wider);
        if !self.rule(Rule::AllThatAreUp) {
            again = again.firm();
        }
        match self.find(&request.address, permit, again, request.bodies).await {
            // Who answered first is gone since.
            Err(Error::Unsatisfied { .. } | Error::TimedOut) if self.rule(Rule::AllThatAreUp) => Ok(found),
            other => other,
        }
    }

    /// What a read shows now, with the bodies if they are wanted.
    pub(super) async fn find(&self, address: &Address, permit: &Permit, asked: Asked, bodies: bool) -> Result<Found> {
        self.find_with(address, permit, asked, bodies, None).await
    }

    /// What a read after `written` shows, whether or not the replicas that answer have it yet.
    pub(super) async fn find_with(
        &self,
        address: &Address,
        permit: &Permit,
        asked: Asked,
        bodies: bool,
        written: Option<&Write>,
    ) -> Result<Found> {
        for _ in 0..RETRIES_MAX {
            let (versions, stepped_down) = self.versions_with(address, permit, asked, written).await?;
            let bodies = if bodies { self.open_bodies(&versions).await? } else { Some(Vec::new()) };
            if let Some(bodies) = bodies {
                let context = (!versions.context.is_empty()).then(|| versions.context.encode(address));
                return Ok(Found { versions, bodies, context, stepped_down });
            }
        }
        Err(Error::Damaged("a value's bytes are missing".into()))
    }

    /// The rows of a key as siblings and context.
    pub(super) async fn versions(&self, address: &Address, permit: &Permit, asked: Asked) -> Result<Versions> {
        Ok(self.versions_with(address, permit, asked, None).await?.0)
    }

    /// As [`Self::versions`], made to show `written`; and whether fewer replicas answered than were asked for.
    async fn versions_with(
        &self,
        address: &Address,
        permit: &Permit,
        asked: Asked,
        written: Option<&Write>,
    ) -> Result<(Versions, bool)> {
        let SeenRows { mut rows, stepped_down } = self.rows_of(address, permit, asked).await?;
        if let (Some(written), true) = (written, self.ports.store.limits().replicated && self.rule(Rule::MergeOwnRow)) {
            merge(&mut rows, written);
        }
        Ok((self.shown(permit, rows)?, stepped_down))
    }

    /// The rows of a key, for a client.
    pub(super) async fn rows_of(&self, address: &Address, permit: &Permit, asked: Asked) -> Result<SeenRows> {
        let partition = Partition::object(address, permit.props.consistent, permit.props.copies);
        // A head is what it is at a quorum, or it is not known.
        let asked = if permit.props.consistent { asked.never_below(Level::Quorum).firm() } else { asked };
        self.rows_at(asked, &partition).await
    }

    /// Rows as siblings and context.
    pub(super) fn shown(&self, permit: &Permit, rows: Vec<Row>) -> Result<Versions> {
        let reading = Reading {
            mode: if permit.props.consistent { Mode::Newest } else { permit.mode },
            merge_retries: self.rule(Rule::MergeRetries),
            name_hidden: self.rule(Rule::NameHidden),
            hide_covered: self.rule(Rule::HideCovered),
        };
        let versions = Versions::of(rows, reading).map_err(|error| Error::Damaged(error.to_string()))?;
        if self.rule(Rule::PassWhatIsSeen) {
            self.clock.pass(versions.latest());
        }
        Ok(versions)
    }

    /// All rows of a partition of a key, for a client.
    async fn rows_at(&self, asked: Asked, partition: &Partition) -> Result<SeenRows> {
        let mut steps = asked.reading();
        let first = steps.options.level;
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
            let page = self.read_at(asked, &mut steps, partition, &query).await?;
            rows.extend(page.rows);
            if page.stopped == Stopped::End {
                return Ok(SeenRows { rows, stepped_down: steps.options.level < first });
            }
        }
    }

    /// All rows of a partition of a key, at one level.
    pub(crate) async fn read_rows(&self, partition: &Partition, options: &Options) -> larder_store::Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let query = ReadQuery::after(rows.last().map(|row| &row.name), PAGE_ROWS);
            let page = self.ports.store.read(partition, &query, options).await?;
            rows.extend(page.rows);
            if page.stopped == Stopped::End {
                return Ok(rows);
            }
        }
    }

    /// The bodies; `None` when the only one was removed since its row was read. Of several, large ones are opened when
    /// their turn comes, so that a read of siblings holds one of them at a time.
    async fn open_bodies(&self, versions: &Versions) -> Result<Option<Vec<Download>>> {
        if let [Sibling { content: Content { body: Body::Blob(blob), .. }, .. }] = versions.siblings.as_slice() {
            return self.open_body(blob).await.map(|body| body.map(|body| vec![body]));
        }
        let body = |sibling: &Sibling| match &sibling.content.body {
            Body::Inline(bytes) => Download::Bytes(bytes.clone()),
            Body::Blob(blob) => Download::Later(Arc::clone(&self.ports.blobs), *blob),
        };
        Ok(Some(versions.siblings.iter().map(body).collect()))
    }

    async fn open_body(&self, blob: &BlobRef) -> Result<Option<Download>> {
        match open(self.ports.blobs.as_ref(), blob).await {
            Ok(reader) => Ok(Some(Download::Blob(reader))),
            Err(error) if error.kind == Kind::NoSuchBlob => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes rows that replicas answered show a write that not all of them have: what it removed goes, its own row is there. Has
/// somebody replaced it meanwhile, the rows that were read say so.
fn merge(rows: &mut Vec<Row>, written: &Write) {
    let gone = |row: &Row| written.removed.iter().any(|gone| gone.name == row.name && row.stamp <= gone.clock);
    rows.retain(|row| !gone(row));
    let Some(own) = &written.row else { return };
    match rows.iter_mut().find(|row| row.name == own.name) {
        Some(row) if own.supersedes(row) => *row = own.clone(),
        Some(_) => {}
        None => rows.push(own.clone()),
    }
}

impl Deleted {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Done => Outcome::Ok,
            Self::NotFound(_) => Outcome::NotFound,
        }
    }
}

impl Found {
    /// How the metrics count it.
    fn outcome(&self) -> Outcome {
        if self.versions.siblings.is_empty() { Outcome::NotFound } else { Outcome::Ok }
    }
}
