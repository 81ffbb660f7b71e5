//! Queries of secondary indexes, as the edges answer them: pages of hits as clients see them, and the continuation at the end.

use bytes::Bytes;
use larder_core::Error;
use larder_kv::rules::index::{IndexHit, IndexPosition};
use larder_kv::views::{IndexPage, IndexReader};

/// Hits of a page.
const PAGE_HITS: usize = 1000;

/// A query under way.
pub(crate) struct IndexPager {
    reader: IndexReader,
    /// The queries after it, whose hits follow, the last one first.
    later: Vec<IndexReader>,
    /// Hits that the client still wants; `None` is all.
    left: Option<usize>,
    /// Whether hits show their terms.
    pub(crate) shows_terms: bool,
}

/// Hits as a client sees them.
#[derive(Debug, Default)]
pub(crate) struct ShownHits {
    /// The term, empty where terms are not shown, and the key.
    pub(crate) hits: Vec<(Bytes, Bytes)>,
    /// Where the next page of the client begins, if it has all that it asked for.
    pub(crate) continuation: Option<String>,
    /// Whether nothing follows.
    pub(crate) is_last: bool,
}

impl IndexPager {
    /// A query that ends after `max_results` hits.
    pub(crate) fn new(reader: IndexReader, max_results: Option<usize>, return_terms: bool) -> Self {
        let shows_terms = return_terms && reader.query().has_terms();
        Self { reader, later: Vec::new(), left: max_results, shows_terms }
    }

    /// Queries one after the other, which end after `max_results` hits together; `None` without queries.
    pub(crate) fn chain(readers: Vec<IndexReader>, max_results: Option<usize>) -> Option<Self> {
        let mut later: Vec<IndexReader> = readers.into_iter().rev().collect();
        let reader = later.pop()?;
        Some(Self { reader, later, left: max_results, shows_terms: false })
    }

    /// The number of all hits.
    ///
    /// # Errors
    /// The gateway's.
    pub(crate) async fn count(mut self) -> Result<u64, Error> {
        let mut count = 0;
        loop {
            let page = self.next().await?;
            count += page.hits.len() as u64;
            if page.is_last {
                return Ok(count);
            }
        }
    }

    /// Bytes of memory that it holds between its pages.
    pub(crate) fn memory(&self) -> u64 {
        self.reader.memory()
    }

    /// The next hits; there may be none before the end.
    ///
    /// # Errors
    /// The gateway's.
    pub(crate) async fn next(&mut self) -> Result<ShownHits, Error> {
        // An engine in this process never waits: without this a count would hold its thread to the end.
        tokio::task::yield_now().await;
        if self.left == Some(0) {
            return Ok(ShownHits { is_last: true, ..ShownHits::default() });
        }
        let limit = self.left.map_or(PAGE_HITS, |left| left.min(PAGE_HITS));
        let IndexPage { hits, is_last } = self.reader.next(limit).await?;
        let mut continuation = None;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(hits.len());
            // As in Riak: also where the page happens to end with the last hit.
            let last = hits.last().filter(|_| *left == 0);
            continuation = last.map(|hit| IndexPosition::from_hit(hit).encode(self.reader.query()));
        }
        let hits = hits.into_iter().map(|hit| self.show(hit)).collect::<Result<_, _>>()?;
        let mut is_last = is_last || continuation.is_some();
        if is_last
            && continuation.is_none()
            && let Some(next) = self.later.pop()
        {
            self.reader = next;
            is_last = false;
        }
        Ok(ShownHits { hits, continuation, is_last })
    }

    fn show(&self, hit: IndexHit) -> Result<(Bytes, Bytes), Error> {
        let term = match self.shows_terms {
            true => self.reader.query().show_term(&hit).map_err(|error| Error::Damaged(error.to_string()))?,
            false => Bytes::new(),
        };
        Ok((term, hit.key))
    }
}
