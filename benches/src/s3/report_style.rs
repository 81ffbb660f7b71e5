//! The notes and formats of the report of `s3`.

use crate::report::ReportStyle;

const NOTES: &str = "\
- 1 KiB is 1,024 bytes; MB/s are millions of body bytes. Values are random and do not compress; keys have 16 bytes and
  come in no order. Buckets are named in the path. Every request is signed with version 2, which signs no body.
- PUT cells write new keys, as durable as the server's own setting makes them; DELETE cells delete those. GETs choose
  among the loaded keys, all in the page cache. A range is a quarter of the value, at most 1 MiB, from a random place.
- A multipart operation is initiate, 12 parts of 5 MiB and one of 4 MiB one after the other, and complete.
- The rate counts operations that ended in the window with the expected status and length; any other answer fails the cell.
- A cell writes at most 4 GiB and ends early when it has; so does a DELETE cell that has deleted what there was, and it
  has no warming up.
- The bare server sends one file with `sendfile`. The generator reads every byte, in one thread: by rate that row is bound by the
  generator, which finds the bytes of a copying server in the processor's cache and those of the other not. So the same by CPU
  stands beside it.
- A small GET is compared with one of as many bytes over Riak's HTTP of the same
  process; building and signing a request costs the generator more there, which the ratio by CPU leaves out. Sides are measured
  in turns; the ratio is of medians.
- With `--url http://HOST:PORT --key KEY --secret SECRET` the same runs against any server; what needs its process is
  left out. Its buckets are named `larder-bench-…` and are removed at the end.
";

/// The style of the report of `s3`.
pub(super) const STYLE: ReportStyle = ReportStyle { command: "s3", size, shows_moved: true, notes: NOTES };

/// The arguments without access keys and secrets, for the report.
pub(super) fn without_keys(arguments: impl Iterator<Item = String>) -> String {
    let mut shown = Vec::new();
    let mut is_key = false;
    for argument in arguments {
        let flag = argument.split('=').next().unwrap_or_default().to_owned();
        let names_key = flag == "--key" || flag == "--secret";
        match (is_key, names_key && argument.contains('=')) {
            (true, _) => shown.push("…".to_owned()),
            (false, true) => shown.push(format!("{flag}=…")),
            (false, false) => shown.push(argument.clone()),
        }
        is_key = !is_key && names_key && !argument.contains('=');
    }
    shown.join(" ")
}

/// A size in B, KiB or MiB.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
