//! One data type of a move: what its source has is merged into what is here.

use larder_kv::datatypes::DatatypeImport;
use larder_kv::rules::datatypes::SourceDatatype;
use larder_kv::{ImportComparison, ImportOutcome};
use larder_rows::address::Address;
use larder_rows::{MoveWish, MovedRow};

use crate::move_run::{KeyFailure, KeyOutcome, MoveRun, SweepKind};
use crate::moved_key::{ImportPauses, Settled, has_more_to_do, shown};
use crate::progress::MoveCount;
use crate::rules::{RiakDatatype, SourceObject, SourceOrder, SourceValue, VectorClock};
use crate::source::Source;

impl MoveRun<Source> {
    /// Whether a state of the source is that of a data type: its values say so, and of a deleted key its bucket.
    pub(crate) async fn is_datatype(&self, address: &Address, object: &SourceObject) -> Result<bool, KeyFailure> {
        if !object.values.is_empty() {
            return Ok(object.values.iter().any(SourceValue::is_datatype));
        }
        match self.gateway.kv.bucket_datatype(&address.bucket, None).await {
            Ok(_) if address.bucket.is_default_type() => Ok(self.gateway.kv.has_imported_datatype(address).await?),
            Ok(_) => Ok(true),
            Err(larder_core::Error::NotDatatype) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Merges one state of a data type, as it was fetched, into what is here.
    pub(crate) async fn settle_datatype(
        &self,
        address: &Address,
        before: Option<MovedRow>,
        settled: Settled,
        kind: SweepKind,
    ) -> Result<KeyOutcome, KeyFailure> {
        let Settled { order, object } = settled;
        let bytes = object.values.iter().map(|value| value.content.body.length()).sum();
        // Bound: the parts of a value take many times the memory of its bytes.
        let _decoding = self.source.reserve_decoding(bytes).await;
        let state = self.merged_state(address, &object)?;
        let has_work = has_more_to_do(before.as_ref(), state.is_none());
        let import = DatatypeImport {
            address: address.clone(),
            state,
            // A Larder reads one store, so its answer is the newest there is; what a node of Riak answers may be older than others.
            is_whole: VectorClock::from_deflated(&object.clock).is_err(),
            is_doubted: before.as_ref().is_some_and(|row| row.concurrent) && order == SourceOrder::Newer,
            is_repair: false,
            concurrent: order == SourceOrder::Concurrent,
            clock: object.clock,
        };
        let changed = match order {
            SourceOrder::Older => return self.doubt(address, before.as_ref()).await,
            SourceOrder::Same if !has_work => false,
            SourceOrder::Same | SourceOrder::Newer | SourceOrder::Concurrent => {
                let is_new = import.state.is_some() || before.is_some();
                is_new && self.import_datatype(import.clone(), bytes).await? && order != SourceOrder::Same
            }
        };
        let comparison = match kind {
            SweepKind::Verify => Some(self.compare_datatype(import, bytes).await?),
            SweepKind::Seed | SweepKind::Follow => None,
        };
        Ok(KeyOutcome { changed, comparison, is_doubted: false })
    }

    /// The state of all values: a key has several while its nodes have not merged them. `None`: it has no value.
    pub(crate) fn merged_state(
        &self,
        address: &Address,
        object: &SourceObject,
    ) -> Result<Option<SourceDatatype>, KeyFailure> {
        let mut merged: Option<SourceDatatype> = None;
        for value in &object.values {
            let Some(body) = value.datatype_body() else {
                self.tell(format!("{}: an object beside its data type does not move", shown(address)));
                continue;
            };
            let aside = |why: String| KeyFailure::Aside(format!("its data type cannot be read: {why}"));
            let decoded = RiakDatatype::decode(body).map_err(|error| aside(error.to_string()))?;
            let state = decoded.into_state().map_err(|error| KeyFailure::Aside(error.to_string()))?;
            match &mut merged {
                Some(merged) if merged.datatype() == state.datatype() => merged.merge(state),
                Some(_) => return Err(aside("it has values of several data types".to_owned())),
                None => merged = Some(state),
            }
        }
        Ok(merged)
    }

    async fn import_datatype(&self, import: DatatypeImport, bytes: u64) -> Result<bool, KeyFailure> {
        let mut pauses = ImportPauses::default();
        let outcome = loop {
            match self.gateway.kv.import_datatype(import.clone()).await {
                Ok(outcome) => break outcome,
                Err(error) => pauses.wait_after(error).await?,
            }
        };
        match outcome {
            ImportOutcome::Imported | ImportOutcome::Kept => {
                self.count(MoveCount::Copied, 1);
                self.count(MoveCount::Bytes, bytes);
            }
            ImportOutcome::Deleted => self.count(MoveCount::Deleted, 1),
        }
        Ok(true)
    }

    async fn compare_datatype(&self, import: DatatypeImport, bytes: u64) -> Result<ImportComparison, KeyFailure> {
        let found = self.gateway.kv.compare_datatype(&import).await?;
        if found != ImportComparison::Differs || self.order.wish != MoveWish::Repair {
            return Ok(found);
        }
        self.import_datatype(DatatypeImport { is_repair: true, ..import.clone() }, bytes).await?;
        Ok(self.gateway.kv.compare_datatype(&import).await?)
    }
}
