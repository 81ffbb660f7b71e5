//! The figures of the overview, second by second.
//!
//! ```text
//! sample (one task) ──every second──> history (two minutes) ──> the overview, and its lines as SVG
//!                                         └──> watch ──> pages/live: server-sent events, a bounded number of clients
//! ```
//! The server makes every text: the script of the page only puts them in their places.

mod feed;
mod figures;

pub(crate) use feed::LiveFeed;
pub(crate) use figures::{LINE_HEIGHT, LINE_WIDTH, LiveFigures};
