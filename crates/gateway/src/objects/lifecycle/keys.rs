//! What is old among the versions of one key.

use bytes::Bytes;
use larder_model::objects::lifecycle::Lifecycle;
use larder_model::objects::{Version, VersionId};
use larder_model::rows::Micros;
use larder_store::ReadQuery;

use super::{LifecyclePass, Round};
use crate::objects::commit::{Place, Turn, id_text};
use crate::objects::get::VersionSpec;
use crate::objects::{Error, Objects, Result};

/// Versions read at once: each may hold a body of its own.
const PAGE_ROWS: usize = 32;

impl Objects {
    /// Removes what is old of a key: its current version first, then others, then a delete marker that is left alone.
    pub(super) async fn age_key(&self, round: &Round<'_>, place: &Place, pass: &mut LifecyclePass) {
        let aged = async {
            pass.expired += u64::from(self.expire(round, place).await?);
            pass.removed += self.age_versions(round, place).await?;
            pass.removed += u64::from(self.remove_marker_left(round, place).await?);
            Result::Ok(())
        };
        match aged.await {
            // The bucket is being deleted: so is what is in it.
            Ok(()) | Err(Error::NoSuchBucket(_)) => {}
            Err(error) => pass.fails("an object", round.bucket, &error),
        }
    }

    /// Removes the current version, or hides it behind a delete marker, if its time has come.
    async fn expire(&self, round: &Round<'_>, place: &Place) -> Result<bool> {
        let options = self.options();
        let seen = self.read_head(&place.partition(), &options).await?;
        let old = |rules: &Lifecycle, version: &Version| round.is_due(rules.expires(&place.key, version));
        if !seen.head.current.as_ref().is_some_and(|current| old(round.rules, current)) {
            return Ok(false);
        }
        let deleted = self.delete_if(place, &VersionSpec::Current, &round.bucket.owner, |turn, found| {
            let rules = turn.bucket().lifecycle.as_ref();
            Ok(found.zip(rules).is_some_and(|(found, rules)| old(rules, found)))
        });
        Ok(deleted.await?.is_some())
    }

    /// Removes versions that have not been current for too long.
    async fn age_versions(&self, round: &Round<'_>, place: &Place) -> Result<u64> {
        if round.rules.rules.iter().all(|rule| !rule.enabled || rule.noncurrent.is_none()) {
            return Ok(0);
        }
        let seen = self.read_head(&place.partition(), &self.options()).await?;
        let Some(current) = seen.head.current.filter(|_| seen.head.older) else { return Ok(0) };
        let (mut ceased, mut newer, mut removed) = (current.modified, 0, 0);
        let mut left = Some(ReadQuery::after(Some(&Bytes::new()), PAGE_ROWS));
        while let Some(rows) = self.page(&place.partition(), &mut left).await? {
            for row in rows {
                let version = Version::decode(row.value)?;
                let due = round.is_due(round.rules.noncurrent(&place.key, &version, ceased, newer));
                if due && self.remove_version(round, place, &version, (ceased, newer)).await? {
                    removed += 1;
                }
                ceased = version.modified;
                newer += 1;
            }
        }
        Ok(removed)
    }

    async fn remove_version(
        &self,
        round: &Round<'_>,
        place: &Place,
        version: &Version,
        (ceased, newer): (Micros, u64),
    ) -> Result<bool> {
        let spec = VersionSpec::Id(id_text(version));
        let deleted = self.delete_if(place, &spec, &round.bucket.owner, |turn, found| {
            let rules = turn.bucket().lifecycle.as_ref();
            let due = rules.is_some_and(|rules| round.is_due(rules.noncurrent(&place.key, version, ceased, newer)));
            Ok(due && is_still(found, version.id) && !is_current(turn, version.id))
        });
        Ok(deleted.await?.is_some())
    }

    /// Removes a delete marker behind which nothing is left.
    async fn remove_marker_left(&self, round: &Round<'_>, place: &Place) -> Result<bool> {
        let seen = self.read_head(&place.partition(), &self.options()).await?;
        let marker = seen.head.current.filter(|current| current.object.is_none() && !seen.head.older);
        let Some(marker) = marker else { return Ok(false) };
        let old = |rules: &Lifecycle| round.is_due(rules.marker_left(&place.key, marker.modified));
        if !old(round.rules) {
            return Ok(false);
        }
        let spec = VersionSpec::Id(id_text(&marker));
        let deleted = self.delete_if(place, &spec, &round.bucket.owner, |turn, found| {
            let alone = is_current(turn, marker.id) && !turn.head.older;
            Ok(alone && is_still(found, marker.id) && turn.bucket().lifecycle.as_ref().is_some_and(old))
        });
        Ok(deleted.await?.is_some())
    }
}

fn is_still(found: Option<&Version>, id: VersionId) -> bool {
    found.is_some_and(|found| found.id == id)
}

fn is_current(turn: &Turn<'_>, id: VersionId) -> bool {
    turn.head.current.as_ref().is_some_and(|current| current.id == id)
}
