//! Reads of ranges that an engine gives up: over too many tombstones, as Cassandra does, and then paging does not help, since the
//! page it would begin with is not reached. Half of the range holds half of them.
//!
//! ```text
//! read a..m fails          read a..g, then g..m
//! read a..g fails          read a..d, then d..g        until it is answered, or there is nothing between the ends
//! ```

use bytes::Bytes;

use crate::{Error, Order, Page, Range, ReadQuery, Result, Row, Stopped};

/// Most reads of one page: a range of the longest names is halved down to one of them with less.
const READS_MAX: usize = 200_000;

/// A page that is read in smaller and smaller pieces where the engine gives up.
///
/// ```no_run
/// # use larder_store::halving::Halving;
/// # use larder_store::{Error, Page, ReadQuery, Result};
/// # async fn read(piece: &ReadQuery) -> Result<Page> { Err(Error::new(larder_store::Kind::Io, "")) }
/// # fn has_given_up(error: &Error) -> bool { true }
/// # async fn page(query: &ReadQuery) -> Result<Page> {
/// let mut halving = Halving::of(query);
/// while let Some(piece) = halving.next() {
///     match read(&piece).await {
///         Ok(page) => halving.answered(page),
///         Err(error) if has_given_up(&error) => halving.gave_up(&piece, error)?,
///         Err(error) => return Err(error),
///     }
/// }
/// Ok(halving.page())
/// # }
/// ```
#[derive(Debug)]
pub struct Halving {
    order: Order,
    limit: usize,
    rows: Vec<Row>,
    /// What is to be read, the next one last.
    rest: Vec<Range>,
    reads: usize,
    /// A piece ended before its range did.
    is_full: bool,
}

impl Halving {
    /// The page of `query`.
    #[must_use]
    pub fn of(query: &ReadQuery) -> Self {
        let ReadQuery { range, limit, order } = query;
        Self { order: *order, limit: *limit, rows: Vec::new(), rest: vec![range.clone()], reads: 0, is_full: false }
    }

    /// What to read next; `None` when the page is whole.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "each is asked for only when the one before was answered")]
    pub fn next(&mut self) -> Option<ReadQuery> {
        if self.is_full || self.rows.len() >= self.limit {
            return None;
        }
        self.reads += 1;
        Some(ReadQuery { range: self.rest.pop()?, limit: self.limit - self.rows.len(), order: self.order })
    }

    /// A piece was read.
    pub fn answered(&mut self, page: Page) {
        self.rows.extend(page.rows);
        self.is_full = page.stopped == Stopped::Limit;
    }

    /// The engine gave a piece up: its halves are read instead.
    ///
    /// # Errors
    /// `error`, when the piece cannot be halved any more.
    pub fn gave_up(&mut self, piece: &ReadQuery, error: Error) -> Result<()> {
        let Some((low, high)) = halves(&piece.range).filter(|_| self.reads < READS_MAX) else { return Err(error) };
        // The half that comes first is read first.
        self.rest.extend(if self.order == Order::Forward { [high, low] } else { [low, high] });
        Ok(())
    }

    /// The page.
    #[must_use]
    pub fn page(self) -> Page {
        let stopped = if self.is_full || !self.rest.is_empty() { Stopped::Limit } else { Stopped::End };
        Page { rows: self.rows, stopped }
    }
}

/// The two halves of a range; `None` if no name lies between its ends.
#[must_use]
pub fn halves(range: &Range) -> Option<(Range, Range)> {
    let from = range.from.clone().unwrap_or_default();
    let middle = middle(&from, range.to.as_deref())?;
    let low = Range { from: range.from.clone(), to: Some(middle.clone()) };
    Some((low, Range { from: Some(middle), to: range.to.clone() }))
}

/// A name behind `from` and before `to`, about half way as names are ordered; `None` if there is none.
fn middle(from: &[u8], to: Option<&[u8]>) -> Option<Bytes> {
    // Names as fractions: their bytes are digits of base 256 behind the point, and no end is one. Two digits more than they
    // have in common with the end are enough to lie between.
    let common = to.map_or(0, |to| from.iter().zip(to).take_while(|(a, b)| a == b).count());
    let digits = from.len().max(to.map_or(0, <[u8]>::len)).max(common) + 1;
    let digit = |name: &[u8], at: usize| u16::from(name.get(at).copied().unwrap_or(0));
    let mut sum: Vec<u16> = (0..digits).map(|at| digit(from, at) + to.map_or(0, |to| digit(to, at))).collect();
    let mut carry = 0;
    for digit in sum.iter_mut().rev() {
        *digit += carry;
        (*digit, carry) = (*digit % 256, *digit / 256);
    }
    // What is carried over the point, or the one that no end is.
    let mut over = carry + u16::from(to.is_none());
    let mut half = Vec::with_capacity(digits);
    for digit in sum {
        half.push(((over * 256 + digit) / 2) as u8);
        over = (over * 256 + digit) % 2;
    }
    let between = |name: &[u8]| name > from && to.is_none_or(|to| name < to);
    // The fewest digits that are enough: names are made of few bytes, and so are good ends.
    let middle = (common..=digits).map(|length| &half[..length]).find(|name| between(name))?;
    Some(Bytes::copy_from_slice(middle))
}

#[cfg(test)]
mod tests;
