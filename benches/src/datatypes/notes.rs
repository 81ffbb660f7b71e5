//! The notes and formats of the report of `datatypes`.

use crate::report::{ReportStyle, thousands};

const NOTES: &str = "\
- The column `value` has the elements of the set, or the fields of the map, before the cell. Elements and names have 16 bytes and
  come in no order. MB/s are millions of body bytes. Updates are as durable as the server makes them: after a sync.
- Cells of one operation are measured in turns, each size once a round, and a row has all its turns. Target ratios are of medians
  of turns. CPU is that of the server alone.
- Adds are of new elements, removals of loaded ones with the context of a read before. Both change a tenth of a set at most. So
  there are as many sets of a size as that takes, and each size has about as many elements in all; of each size but the largest
  there are 16 sets at least, so that each connection updates a key of its own. Of the largest there is one, which all connections
  update: its row has the contention of one key, too. Membership asks for random elements of random sets among the same. All begins
  when the data folder keeps its size after the loads.
- Adds and removals are a bounded number a turn and have no warming up. Each set has its first size again at the end, which is
  checked.
- Increments are of one counter from 64 connections; plain puts are of 100 B, each connection to a key of its own that it
  overwrites. The counter is read at the end: it has every increment that was answered.
- A third of a map's fields are registers, a third counters, a third sets with one element. Updates are of random fields that
  exist; adds to a set in a map are of new elements.
- The error of estimates is that of fixed elements, so it is the same in each run. Sketches of the same number share no element.
- The fetch runs on a server that was restarted with the set: memory is the peak of `VmRSS` during all fetches, caches
  included, above `VmRSS` before the first. The size on disk is that of all blocks in the data folder.
";

/// The style of the report of `datatypes`.
pub(super) const STYLE: ReportStyle =
    ReportStyle { command: "datatypes", size: |count| thousands(count as f64), shows_moved: true, notes: NOTES };
