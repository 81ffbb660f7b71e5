//! Reads a data type in pages: the head first, so that the context names nothing that the pages may lack.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use larder_core::body::GetBody;
use larder_core::metrics::{KvOp, RequestOutcome};
use larder_core::node_context::{MeasuredRequest, NodeContext, yield_after};
use larder_core::{Error, Result};
use larder_rows::address::Address;
use larder_rows::content::{KvBody, KvContent};
use larder_rows::limits::{DATATYPE_MAP_PAGE_ROWS, DATATYPE_PAGE_ROWS};
use larder_rows::{ActorId, Row, Timestamp, hash};
use larder_store::{CallOptions, ConsistencyLevel, Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::riak_body::FORM_BYTES_MAX;
use super::{DatatypeBegin, DatatypeFetch, DatatypeKey, may_hold_counter};
use crate::request_plan::{ReplicaPlan, RequestPlan};
use crate::rules::causality::{Context, Dot, DotFlags, KeyVersions, Sibling, Slot};
use crate::rules::datatypes::{
    Datatype, DatatypeContext, DatatypeError, DatatypeHead, DatatypePath, DatatypeRowName, DatatypeValue, RiakForm,
    ValueBuilder, ValueDecoder, ValuePiece,
};
use crate::{FetchedObject, Kv, KvGet};

/// A value as it is read. Its pages are not isolated from each other: each is a state of the key after the one before.
pub struct DatatypeReader {
    context: Arc<NodeContext>,
    key: DatatypeKey,
    options: CallOptions,
    datatype: Datatype,
    decoder: ValueDecoder,
    include_context: bool,
    /// Rows that came with the head.
    first: VecDeque<Row>,
    /// The rest of the rows; `None` at the end.
    query: Option<ReadQuery>,
    ended: bool,
}

/// The head of a key, with the first rows behind it.
struct FoundHead {
    head: DatatypeHead,
    first: VecDeque<Row>,
    query: Option<ReadQuery>,
}

impl Kv {
    /// Reads a data type; `None` when the key does not exist. An empty set exists.
    ///
    /// # Errors
    /// Those of [`Kv::datatype_of`] and of the store.
    pub async fn fetch_datatype(&self, fetch: DatatypeFetch) -> Result<Option<DatatypeReader>> {
        let range = (fetch.begin != DatatypeBegin::First).then(|| fetch.begin.range());
        self.read_opened(fetch, range, async |reader| Ok(reader)).await
    }

    /// Whether a set has this element; `None` when the key does not exist.
    ///
    /// # Errors
    /// As [`Self::fetch_datatype`].
    pub async fn has_element(&self, fetch: DatatypeFetch, element: &Bytes) -> Result<Option<bool>> {
        let range = ReadQuery::prefix(DatatypePath::root().element_prefix(element), 1).range;
        self.read_opened(fetch, Some(range), async |reader| reader.has_element(element).await).await
    }

    /// The number of elements of a set, or of fields of a map; `None` when the key does not exist.
    ///
    /// # Errors
    /// As [`Self::fetch_datatype`].
    pub async fn datatype_size(&self, fetch: DatatypeFetch) -> Result<Option<u64>> {
        // Bound: it is admitted until all rows are counted, since it reads the whole value.
        self.read_opened(fetch, None, async |reader| reader.size().await).await
    }

    /// Opens a value and reads it so, as one admitted request.
    async fn read_opened<T>(
        &self,
        fetch: DatatypeFetch,
        range: Option<Range>,
        read: impl AsyncFnOnce(DatatypeReader) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut measured = self.context.begin(KvOp::DatatypeGet)?;
        let result = match self.open_datatype(fetch, range, &mut measured).await {
            Ok(Some(reader)) => read(reader).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        measured.end(result, |value| if value.is_some() { RequestOutcome::Ok } else { RequestOutcome::NotFound })
    }

    /// Opens a value; with a range only its rows there.
    async fn open_datatype(
        &self,
        fetch: DatatypeFetch,
        range: Option<Range>,
        measured: &mut MeasuredRequest<'_>,
    ) -> Result<Option<DatatypeReader>> {
        let planned = self.plan_datatype(&fetch.address.bucket, fetch.timeout).await?;
        measured.becomes(KvOp::get_operation(planned.datatype));
        let replicas = self.plan_read(&planned.plan, &fetch.quorums)?;
        let replicas = match fetch.include_context {
            // Race: a context names only what a quorum has; a lagging replica would let removals miss rows [invariant 109].
            true => replicas.never_below(ConsistencyLevel::Quorum),
            false => replicas,
        };
        let key = self.datatype_key(&fetch.address, &planned.plan);
        let (limit, order) = (page_rows(planned.datatype), ReadOrder::Forward);
        let to = if range.is_some() { Some(DatatypeRowName::DATA) } else { data_end(planned.datatype) };
        let first = ReadQuery { range: Range { from: None, to }, limit, order };
        let found_head = read_found_head(&self.context, &key.partition, first, &replicas.options).await?;
        if !found_head.head.exists() {
            return Ok(None);
        }
        // Race: through a slow clock an update based on this read would be older than it [invariant 5].
        self.issuer.clock.observe(found_head.head.latest());
        if !found_head.head.markers.is_empty() {
            self.datatype_writers.wake(key.clone());
        }
        let FoundHead { head, first, query } = found_head;
        let query = range.map(|range| ReadQuery { range, limit, order }).or(query);
        Ok(Some(DatatypeReader {
            context: Arc::clone(&self.context),
            key,
            options: replicas.options,
            datatype: planned.datatype,
            decoder: ValueDecoder::new(planned.datatype, head),
            include_context: fetch.include_context,
            first,
            query,
            ended: false,
        }))
    }
}

/// Rows of a page, so that a page stays small whatever its rows hold.
fn page_rows(datatype: Datatype) -> usize {
    match datatype {
        Datatype::Map => DATATYPE_MAP_PAGE_ROWS,
        Datatype::Counter | Datatype::Set | Datatype::Gset | Datatype::Hll => DATATYPE_PAGE_ROWS,
    }
}

/// The end of the rows that show a value.
fn data_end(datatype: Datatype) -> Option<Bytes> {
    // A day of counted increments may have left any number of ids, of which a read needs none.
    (datatype == Datatype::Counter).then(|| DatatypePath::root().requests_prefix())
}

/// Reads the clocks and markers of a key alone.
pub(super) async fn read_head(
    context: &NodeContext,
    partition: &Partition,
    options: &CallOptions,
) -> Result<DatatypeHead> {
    let range = Range { from: None, to: Some(DatatypeRowName::DATA) };
    let query = ReadQuery { range, limit: DATATYPE_PAGE_ROWS, order: ReadOrder::Forward };
    Ok(read_found_head(context, partition, query, options).await?.head)
}

/// Reads the head, and the begin of the data if the query goes that far.
async fn read_found_head(
    context: &NodeContext,
    partition: &Partition,
    mut query: ReadQuery,
    options: &CallOptions,
) -> Result<FoundHead> {
    let is_replicated = context.ports.store.limits().replicated;
    let mut found_head = FoundHead { head: DatatypeHead::default(), first: VecDeque::new(), query: None };
    loop {
        let page = context.ports.store.read(partition, &query, options).await?;
        yield_after(page.stopped).await;
        let last = page.rows.last().map(|row| row.name.clone());
        for row in page.rows {
            match row.name < DatatypeRowName::DATA {
                true => found_head.head.add(&row).map_err(DatatypeError::from)?,
                false => found_head.first.push_back(row),
            }
        }
        match (page.stopped, last) {
            (Stopped::Limit, Some(last)) => query.continue_after(&last),
            _ => break,
        }
        if !found_head.first.is_empty() {
            found_head.query = Some(query);
            break;
        }
    }
    if !is_replicated {
        found_head.head = found_head.head.all_confirmed();
    }
    Ok(found_head)
}

impl DatatypeReader {
    /// The data type.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The next pieces, those of a page of rows, perhaps none; `None` after the last.
    ///
    /// # Errors
    /// The store's, and [`Error::Damaged`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<ValuePiece>>> {
        if self.ended {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        for row in self.next_rows().await? {
            self.decoder.add(row, &mut pieces)?;
        }
        if self.first.is_empty() && self.query.is_none() {
            self.decoder.finish(&mut pieces);
            self.ended = true;
        }
        Ok(Some(pieces))
    }

    async fn next_rows(&mut self) -> Result<Vec<Row>> {
        if !self.first.is_empty() {
            return Ok(std::mem::take(&mut self.first).into());
        }
        let Some(mut query) = self.query.take() else { return Ok(Vec::new()) };
        // Bound: a client may take long for a value, and each page has its own time.
        let options =
            CallOptions { deadline: tokio::time::Instant::now() + self.context.config.timeout, ..self.options };
        let page = self.context.ports.store.read(&self.key.partition, &query, &options).await?;
        yield_after(page.stopped).await;
        if let (Stopped::Limit, Some(last)) = (page.stopped, page.rows.last()) {
            query.continue_after(&last.name);
            self.query = Some(query);
        }
        Ok(page.rows)
    }

    /// The context to send back with removals: of everything that was shown until now. `None` for types without contexts, or if
    /// it was not wanted.
    #[must_use]
    pub fn context(&self) -> Option<Bytes> {
        let has_context = matches!(self.datatype, Datatype::Set | Datatype::Map) && self.include_context;
        has_context.then(|| self.decoder.context().encode(&self.key.address, self.context.now()))
    }

    /// The whole value in at most `bytes_max` bytes of memory, and its context.
    ///
    /// # Errors
    /// [`DatatypeError::ValueTooLarge`], and those of [`Self::next_page`].
    pub async fn whole(mut self, bytes_max: usize) -> Result<(DatatypeValue, Option<Bytes>)> {
        let mut builder = ValueBuilder::new(self.datatype, bytes_max);
        while let Some(pieces) = self.next_page().await? {
            pieces.into_iter().try_for_each(|piece| builder.add(piece))?;
        }
        let context = self.context();
        Ok((builder.finish(), context))
    }

    /// Whether the set has this element, whose rows are all that it reads.
    async fn has_element(mut self, element: &Bytes) -> Result<bool> {
        if !matches!(self.datatype, Datatype::Set | Datatype::Gset) {
            return Err(Error::NotDatatype);
        }
        while let Some(pieces) = self.next_page().await? {
            if pieces.contains(&ValuePiece::Element(element.clone())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of elements, or of fields of the outermost map.
    async fn size(mut self) -> Result<u64> {
        let (mut size, mut depth) = (0, 0_usize);
        while let Some(pieces) = self.next_page().await? {
            for piece in pieces {
                size += u64::from(depth == 0 && matches!(piece, ValuePiece::Element(_) | ValuePiece::Field(_)));
                match piece {
                    ValuePiece::Field(_) => depth += 1,
                    ValuePiece::EndField => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
        Ok(size)
    }
}

impl Kv {
    /// The data type at a key without an object, as an object; `None` if there is none. Its bytes are those of Riak, unless it is
    /// large, and its tag changes with every update.
    pub(crate) async fn datatype_as_object(
        &self,
        request: &KvGet,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<FetchedObject>> {
        let address = &request.address;
        let Some(head) = self.datatype_head(address, plan, replicas).await? else { return Ok(None) };
        let token = DatatypeContext::new(head.clocks.clone()).encode(address, self.context.now());
        let datatype = plan.props.datatype.unwrap_or(Datatype::Counter);
        let body = match request.bodies {
            true => {
                let form = RiakForm::new(datatype, &head, FORM_BYTES_MAX);
                self.riak_body(&self.datatype_key(address, plan), form, &replicas.options).await?
            }
            false => None,
        };
        let body = body.unwrap_or_else(|| token.clone());
        Ok(Some(FetchedObject {
            versions: datatype_versions(plan.props.datatype, &head, body.clone()),
            bodies: if request.bodies { vec![GetBody::Bytes(body)] } else { Vec::new() },
            context: Some(token),
            downgraded: false,
        }))
    }

    /// The data type at a key without an object, as its source takes it back; `None` if there is none.
    ///
    /// # Errors
    /// The store's; [`DatatypeError::ValueTooLarge`]; [`Error::Overloaded`] while a removal is under way.
    pub(crate) async fn datatype_in_riaks_form(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<(Sibling, Bytes)>> {
        let Some(head) = self.datatype_head(address, plan, replicas).await? else { return Ok(None) };
        if !head.markers.is_empty() {
            // Counters below a marker are not reset yet, so their sums are not known.
            self.datatype_writers.wake(self.datatype_key(address, plan));
            return Err(Error::Overloaded { retry_after: 1 });
        }
        let datatype = plan.props.datatype.unwrap_or(Datatype::Counter);
        let form = RiakForm::new(datatype, &head, FORM_BYTES_MAX).for_source();
        let body = self.riak_body(&self.datatype_key(address, plan), form, &replicas.options).await?;
        let body = body.ok_or(DatatypeError::ValueTooLarge { max: FORM_BYTES_MAX })?;
        let shown = datatype_versions(plan.props.datatype, &head, Bytes::new()).siblings.into_iter().next();
        Ok(shown.map(|sibling| (sibling, body)))
    }

    /// The legacy counter that a read shows where the object has no value, as versions of the object: conditions of a write are
    /// checked against these. A counter is made or updated beside the check, as it is beside an object.
    pub(crate) async fn counter_shown_for(
        &self,
        object: &KeyVersions,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<KeyVersions>> {
        if !object.siblings.is_empty() {
            return Ok(None);
        }
        let head = self.datatype_head(address, plan, replicas).await?;
        Ok(head.map(|head| datatype_versions(plan.props.datatype, &head, Bytes::new())))
    }

    /// The head of the data type that may stand at a key without an object; `None` if there is none.
    pub(crate) async fn datatype_head(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<DatatypeHead>> {
        // Over replicas each miss would cost a second request: there a bucket that takes counters is one with `allow_mult` now.
        let takes_counters = plan.props.allow_mult || !self.datatype_writers.is_replicated();
        let may_hold = takes_counters && may_hold_counter(&address.bucket, &plan.props);
        let is_possible = plan.props.datatype.is_some() || may_hold;
        if !is_possible {
            return Ok(None);
        }
        let partition = Partition::datatype(address, plan.props.copies);
        let head = read_head(&self.context, &partition, &replicas.options).await?;
        Ok(head.exists().then_some(head))
    }
}

/// The versions of a data type as an object: one value, named by its clocks.
pub(super) fn datatype_versions(datatype: Option<Datatype>, head: &DatatypeHead, body: Bytes) -> KeyVersions {
    let context = object_context(&DatatypeContext::new(head.clocks.clone()));
    // Without a data type the bucket is of the type `default`, and the value a counter of Riak 1.4.
    let datatype = datatype.unwrap_or(Datatype::Counter);
    let content = KvContent {
        content_type: Some(format!("application/riak_{}", datatype.name()).into()),
        body: KvBody::Inline(body),
        ..KvContent::default()
    };
    let siblings = context.dots.iter().map(|dot| Sibling::from_write(*dot, content.clone())).collect();
    KeyVersions { siblings, context, deleted: false }
}

/// The context of a data type as one of an object that consists of one write, so that conditions can compare the two.
pub(crate) fn object_context(context: &DatatypeContext) -> Context {
    // All clocks name the write: concurrent updates through two gateways may have stamps in any order.
    let clocks: Vec<u8> = context
        .clocks
        .iter()
        .flat_map(|(actor, clock)| [actor.0.to_be_bytes(), clock.0.to_be_bytes()])
        .flatten()
        .collect();
    let slot = Slot { actor: ActorId(hash::id64(&[&clocks])), birth: Timestamp::ZERO };
    let dot = Dot { slot, clock: context.latest(), flags: DotFlags::default() };
    Context { dots: vec![dot], ..Context::default() }
}
