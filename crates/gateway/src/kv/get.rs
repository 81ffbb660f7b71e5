//! Reading an object: one page of one partition, then the bodies that are kept elsewhere.

use bytes::Bytes;
use larder_model::address::Address;
use larder_model::causality::{Mode, Reading, Versions};
use larder_model::content::Body;
use larder_store::{Kind, Level, Options, Page, Partition, ReadQuery};

use super::permit::{Asked, Permit};
use super::{Found, GetObject};
use crate::body::Download;
use crate::metrics::{Op, Outcome};
use crate::{Error, Gateway, Result, Rule};

/// Rows read of one key: the siblings it may have, and tombstones on their way out.
const ROWS_MAX: usize = 1000;
/// How often a read starts again because a blob went away between the row and its bytes.
const RETRIES_MAX: usize = 8;

impl Gateway {
    /// Reads an object. What was never written or is deleted has no siblings.
    ///
    /// # Errors
    /// [`Error`] of the address, the replica counts or the store.
    pub async fn get(&self, request: GetObject) -> Result<Found> {
        self.measured(Op::Get, async {
            let permit = self.permit(&request.address.bucket, request.timeout).await?;
            let asked = self.ask_read(&permit, &request.quorums)?;
            let notfound_ok = request.quorums.notfound_ok.unwrap_or(permit.props.notfound_ok);
            let mut found = self.find(&request.address, &permit, asked, request.bodies).await?;
            if found.versions.siblings.is_empty() && !notfound_ok && asked.options.level != Level::All {
                let all = asked.at(Level::All);
                found = match self.find(&request.address, &permit, all, request.bodies).await {
                    Err(Error::Unsatisfied { .. }) => found,
                    other => other?,
                };
            }
            let bytes = found.versions.siblings.iter().map(|one| one.content.body.length()).sum();
            self.metrics.object_read(bytes, found.versions.siblings.len(), self.monotonic());
            Ok(found)
        })
        .await
    }

    /// What a read shows now, with the bodies if they are wanted.
    pub(super) async fn find(&self, address: &Address, permit: &Permit, asked: Asked, bodies: bool) -> Result<Found> {
        for _ in 0..RETRIES_MAX {
            let versions = self.versions(address, permit, asked).await?;
            let bodies = if bodies { self.open_bodies(&versions).await? } else { Some(Vec::new()) };
            if let Some(bodies) = bodies {
                let context = (!versions.context.is_empty()).then(|| versions.context.encode(address));
                return Ok(Found { versions, bodies, context });
            }
        }
        Err(Error::Damaged("a value's bytes are missing".into()))
    }

    /// The rows of a key as siblings and context.
    pub(super) async fn versions(&self, address: &Address, permit: &Permit, asked: Asked) -> Result<Versions> {
        let partition = Partition::object(address, permit.props.consistent);
        let options = Options {
            level: if permit.props.consistent { asked.options.level.max(Level::Quorum) } else { asked.options.level },
            ..asked.options
        };
        let page = self.read_rows(&partition, &options).await.map_err(|error| asked.refuse(error))?;
        let reading = Reading {
            mode: if permit.props.consistent { Mode::Newest } else { permit.mode },
            merge_retries: self.rule(Rule::MergeRetries),
            name_hidden: self.rule(Rule::NameHidden),
        };
        let versions = Versions::of(page.rows, reading).map_err(|error| Error::Damaged(error.to_string()))?;
        if self.rule(Rule::PassWhatIsSeen) {
            self.clock.pass(versions.latest());
        }
        Ok(versions)
    }

    async fn read_rows(&self, partition: &Partition, options: &Options) -> larder_store::Result<Page> {
        self.ports.store.read(partition, &ReadQuery::all(ROWS_MAX), options).await
    }

    /// Opens the bodies; `None` when one was removed since its row was read.
    async fn open_bodies(&self, versions: &Versions) -> Result<Option<Vec<Download>>> {
        let mut bodies = Vec::with_capacity(versions.siblings.len());
        for sibling in &versions.siblings {
            bodies.push(match &sibling.content.body {
                Body::Inline(bytes) => Download::Bytes(Bytes::clone(bytes)),
                Body::Blob(blob) => match self.ports.blobs.open(blob.id).await {
                    Ok(reader) => Download::Blob(reader),
                    Err(error) if error.kind == Kind::NoSuchBlob => return Ok(None),
                    Err(error) => return Err(error.into()),
                },
            });
        }
        Ok(Some(bodies))
    }
}

impl Found {
    /// How the metrics count it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.versions.siblings.is_empty() { Outcome::NotFound } else { Outcome::Ok }
    }
}
