//! The notes and formats of the report of `query`.

use crate::report::{ReportStyle, thousands};

const NOTES: &str = "\
- The column `value` has the results of a range, the terms of a put, or the objects of a job. Objects are 100 B of JSON: five members, all
  numbers. Keys have 16 bytes and come in no order. Everything goes over HTTP to one server with the embedded engine.
- Cells of one section are measured in turns, each once a round, and a row has all its turns. Figures of targets are of medians. CPU and
  memory are those of the server alone, without the processes of its scripts.
- Ranges are of one field, from 1 connection, always the same range. The whole answer is compared with the expected one, each time. The
  largest is a bounded number of queries a turn. Results are checked where the bucket keeps the newest version alone
  (`allow_mult=false`): each result is compared with its object.
- Puts with terms are durable, from 64 connections, into buckets with `allow_mult=false`, without a context. Each term has a field of its
  own. An overwritten key gets other terms each time; at the end each key must be found once by each field, and the first new key by
  each of its terms. Time is the inverse of the rate.
- Puts with hooks are of new keys with `dw=0`: with a sync its time would hide that of the hook. The added time is the difference of the
  medians of the latencies at 1 connection. Before, each kind of hook has refused a put, so both run. The server has its two
  script processes.
- Jobs read each object: a native count is `map_object_value` and `reduce_count_inputs`, a native sum `Riak.mapValuesJson` and
  `reduce_plist_sum`, which sums all five members. In JavaScript a named function maps an object to 1, or to one parsed member, and another
  one adds them up. A turn is one job; its time goes from the request to the end of the answer. Count and sums are checked.
- Hostile scripts come from 4 connections that put them into a bucket whose precommit hook runs the value, and from 4 that send them as
  map functions, without a pause. Values have 1 KB; puts are of new keys. A calm turn begins when all workers are quiet. The p99 of a side is
  the median of those of its turns.
";

/// The style of the report of `query`.
pub(super) const STYLE: ReportStyle =
    ReportStyle { command: "query", size: |count| thousands(count as f64), shows_moved: false, notes: NOTES };
