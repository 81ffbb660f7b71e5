//! Reads of ranges that an engine gives up.
//!
//! Cassandra fails a read that meets too many tombstones. Smaller pages do not help, since the engine never reaches the
//! first row. Half of the range holds about half of the tombstones.
//!
//! ```text
//! read a..m fails          read a..g, then g..m
//! read a..g fails          read a..d, then d..g        until a read succeeds, or no name lies between the ends
//! ```

use bytes::Bytes;

use crate::{Error, Range, ReadOrder, ReadQuery, Result, Row, RowPage, Stopped};

/// Most reads for one page before the last split: enough to reach a single name among S3's longest, with two reads for
/// each bit of a name. A page that needs more ends in an error, not in hours of reads.
const READS_MAX: usize = 20_000;

const _: () = assert!(2 * 8 * larder_rows::limits::S3_KEY_BYTES_MAX < READS_MAX);

/// Assembles one page from reads of smaller and smaller ranges.
///
/// ```text
/// let mut bisect = RangeBisect::new(query);
/// while let Some(piece) = bisect.next_piece() {
///     match read(&piece).await {
///         Ok(page) => bisect.add_page(page),
///         Err(error) if has_given_up(&error) => bisect.split(&piece, error)?,
///         Err(error) => return Err(error),
///     }
/// }
/// Ok(bisect.into_page())
/// ```
#[derive(Debug)]
pub struct RangeBisect {
    order: ReadOrder,
    limit: usize,
    rows: Vec<Row>,
    /// Ranges still to read, the next one last.
    rest: Vec<Range>,
    reads: usize,
    /// A piece reached its limit before the end of its range.
    is_full: bool,
}

impl RangeBisect {
    /// Starts the page of `query`.
    #[must_use]
    pub fn new(query: &ReadQuery) -> Self {
        let ReadQuery { range, limit, order } = query;
        Self { order: *order, limit: *limit, rows: Vec::new(), rest: vec![range.clone()], reads: 0, is_full: false }
    }

    /// The next range to read; `None` when the page is complete.
    #[must_use]
    pub fn next_piece(&mut self) -> Option<ReadQuery> {
        if self.is_full || self.rows.len() >= self.limit {
            return None;
        }
        self.reads += 1;
        Some(ReadQuery { range: self.rest.pop()?, limit: self.limit - self.rows.len(), order: self.order })
    }

    /// Adds the rows of a piece.
    pub fn add_page(&mut self, page: RowPage) {
        self.rows.extend(page.rows);
        // After a full piece nothing may follow: the rest of that piece was not read.
        self.is_full = page.stopped == Stopped::Limit;
    }

    /// The engine failed to read a piece: its two halves are read instead.
    ///
    /// # Errors
    /// `error`, when the piece cannot be divided; `error` with a note after so many reads that the page is given up.
    pub fn split(&mut self, piece: &ReadQuery, error: Error) -> Result<()> {
        let Some((low, high)) = halves(&piece.range) else { return Err(error) };
        // Bound: a range full of tombstones must end in an error, not in hours of reads [invariant 27].
        if self.reads >= READS_MAX {
            let context = format!("a page is given up after {READS_MAX} reads of smaller ranges: {error}");
            return Err(Error { context, ..error });
        }
        // `rest` is a stack: the half that comes first in the page goes on top.
        self.rest.extend(if self.order == ReadOrder::Forward { [high, low] } else { [low, high] });
        Ok(())
    }

    /// The assembled page.
    #[must_use]
    pub fn into_page(self) -> RowPage {
        let stopped = if self.is_full || !self.rest.is_empty() { Stopped::Limit } else { Stopped::End };
        RowPage { rows: self.rows, stopped }
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

/// A name between `from` and `to`, about half way in name order; `None` if there is none.
fn middle(from: &[u8], to: Option<&[u8]>) -> Option<Bytes> {
    // Names are fractions in base 256: their bytes are the digits after the point, and an open end is 1. One digit more
    // than the longer name is enough to lie between the two.
    let common = to.map_or(0, |to| from.iter().zip(to).take_while(|(a, b)| a == b).count());
    let digits = from.len().max(to.map_or(0, <[u8]>::len)).max(common) + 1;
    let digit = |name: &[u8], at: usize| u16::from(name.get(at).copied().unwrap_or(0));
    let mut sum: Vec<u16> = (0..digits).map(|at| digit(from, at) + to.map_or(0, |to| digit(to, at))).collect();
    let mut carry = 0;
    for digit in sum.iter_mut().rev() {
        *digit += carry;
        (*digit, carry) = (*digit % 256, *digit / 256);
    }
    // The digit before the point: the carry, or the 1 of an open end.
    let mut over = carry + u16::from(to.is_none());
    let mut half = Vec::with_capacity(digits);
    for digit in sum {
        half.push(((over * 256 + digit) / 2) as u8);
        over = (over * 256 + digit) % 2;
    }
    let between = |name: &[u8]| name > from && to.is_none_or(|to| name < to);
    // Takes the fewest digits that lie between: real names use few distinct bytes, so short ends split them well.
    let middle = (common..=digits).map(|length| &half[..length]).find(|name| between(name))?;
    Some(Bytes::copy_from_slice(middle))
}

#[cfg(test)]
mod tests;
