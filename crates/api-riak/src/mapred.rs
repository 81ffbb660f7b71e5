//! Results of MapReduce jobs as JSON, in every protocol.

use larder_mapreduce::KeptValues;
use larder_mapreduce::rules::JobValue;
use serde_json::Value;

/// Bytes of memory that a byte of a job's document may take once it is parsed.
pub(crate) const DOCUMENT_DECODED_PER_BYTE: u64 = 32;

/// The results of a phase as the items of a JSON array, without its brackets.
pub(crate) fn write_items(values: Vec<JobValue>, out: &mut Vec<u8>) {
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(&value.into_json(), out);
    }
}

/// The results of a phase as a JSON array.
pub(crate) fn array(values: Vec<JobValue>) -> Vec<u8> {
    let mut out = vec![b'['];
    write_items(values, &mut out);
    out.push(b']');
    out
}

/// The results of a phase as an item of a streamed answer.
pub(crate) fn item(kept: KeptValues) -> Vec<u8> {
    let mut out = format!("{{\"phase\":{},\"data\":", kept.phase).into_bytes();
    out.extend(array(kept.values));
    out.push(b'}');
    out
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    // Written to memory, which does not fail.
    let _ = serde_json::to_writer(out, value);
}
