//! The notes of the report of `pb`.

use crate::report::{ReportStyle, size};

const NOTES: &str = "\
- 1 KB is 1,024 bytes. Values are random and do not compress; keys have 16 bytes and come in no order. Reads choose among
  10,000 keys that were loaded just before: they are in memory. Durable is answered after a sync. The cells are over protocol
  buffers; read-modify-write counts its get and its put as one operation.
- A ratio is of medians of turns; the sides alternate and begin rounds in turn. By CPU is the CPU time of the servers alone (user
  and kernel, from `/proc`): above 1 Larder needs less. Generator and servers share the cores, so a rate also contains the
  generator, whose CPU time per 1,000 is given.
- Every program but Redis has the same compiler, flags and allocator. Bare frames answer every get with the frame that Larder
  gave for a key, from one task a connection, and write once for all requests that have arrived. Bare hyper does so for HTTP.
- The bare group commit is one thread over `fjall` with one keyspace: it takes the queue, commits it as one batch with one
  `fdatasync`, and answers. fjall is the trees that Larder's engine uses with their authors' own journal, flushes and compaction, so
  it does the same kind of work in the background. It writes 1,024 + 100 bytes a put; no contexts, listings or checksums of rows.
- Redis is Debian's package with its defaults but `appendonly yes`, `appendfsync always` and no snapshots: one thread, values in
  memory, no contexts, no buckets. Its rewrite of the log runs as it does by default.
- In process, 64 tasks call `gateway.put` of the code that the generator was built from, over the engine with 64 MiB of cache.
  Existing keys are 10,000 that were written before.
- S3 requests are signed with version 2; building one costs the generator more than a plain GET, which the ratio by CPU leaves
  out. The bare server of large bodies sends the file with `sendfile`. The generator reads every byte, in one thread: by rate that
  row is bound by the generator, which finds the bytes of a copying server in the processor's cache and those of the other not.
  So the same by CPU stands beside it.
- Latency while tables are compacted is that of a closed loop: a pause holds up 64 requests, no more. So the longest answer counts
  beside p99. Tables that vanish from the data directory are those that compactions merged.
- Bytes on disk are the blocks of all files of the data directory: journals, tables and the output of merges that run. Bytes
  written are those that the server sent towards the device, journal included. Each bounds the other: see decision 34.
- Memory is the server's `VmRSS` without the cache in use that `/metrics` shows.
";

/// The style of the report of `pb`.
pub(super) const STYLE: ReportStyle = ReportStyle { command: "pb", size, shows_moved: false, notes: NOTES };
