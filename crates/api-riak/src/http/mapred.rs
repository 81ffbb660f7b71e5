//! MapReduce: `/mapred`.
//!
//! ```text
//! whole    ["a","b",…]                  one kept phase; several are arrays in an array
//! chunked  --B                          a part for the results of each step
//!          {"phase":0,"data":["a"]}
//! ```
//! A whole answer is collected up to a bound, so that an error has a status of its own. A longer one of a single phase streams:
//! an error breaks it off then.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use larder_admission::client_key;
use larder_kv::Gateway;
use larder_mapreduce::rules::Job;
use larder_mapreduce::rules::refusal::JobRefusal;
use larder_mapreduce::{JobError, JobRun, KeptValues};
use larder_net::{ArrivingBody, GrowingMemory, Requester, break_off};
use larder_rows::limits::{JOB_BYTES_MAX, JOB_HELD_BYTES_MAX};

use super::body::{RiakBody, busy, collect_admitted};
use super::call::RiakCall;
use super::errors::RiakFault;
use super::headers::insert;
use super::props::is_json;
use super::reply::{JSON, RiakResponse, typed, with_body};
use super::{accept, access};
use crate::mapred::{DOCUMENT_DECODED_PER_BYTE, item, write_items};

/// Bytes of a whole answer that are collected before it begins.
const COLLECTED_BYTES: usize = 4 * 1024 * 1024;

/// GET, HEAD and POST of `/mapred`.
///
/// # Errors
/// The document is no job, or the job has no result.
pub(super) async fn answer(
    call: &RiakCall<'_>,
    gateway: &Arc<Gateway>,
    body: ArrivingBody<'_>,
) -> Result<RiakResponse, RiakFault> {
    if *call.method != Method::POST {
        return Err(RiakFault::bad(USAGE));
    }
    let (incoming, requester) = body.into_parts();
    let memory = |length: u64| length.saturating_mul(DOCUMENT_DECODED_PER_BYTE);
    let document = collect_admitted(incoming, requester, JOB_BYTES_MAX as u64, memory).await?;
    super::body::check_md5(call.headers, &document)?;
    let job = Job::parse(&document).map_err(|refusal| refused(&refusal))?;
    // Riak looks at the document first, and takes JSON under this name, too.
    if !is_json(call.headers) && !is_erlang(call.headers) {
        return Err(RiakFault::page(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    access::authorize_job(call, &job).await?;
    let chunked = call.query.is("chunked", "true");
    let media: &[&str] = if chunked { &["application/json", "multipart/mixed"] } else { &["application/json"] };
    accept::require(call.headers, media)?;
    let kept = job.kept();
    let client = call.user.clone().unwrap_or_else(|| client_key(requester.source.address).to_string().into());
    let run = JobRun::start(gateway, job, client).await.map_err(failed)?;
    if chunked {
        let run = StreamedJob { memory: requester.growing_memory(), run };
        return Ok(stream_parts(run, &gateway.context().new_request_id()));
    }
    respond_whole(run, &kept, requester).await
}

fn is_erlang(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"application/x-erlang-binary"))
}

const USAGE: &str = "This resource accepts POSTs with bodies containing JSON of the form:\n{\n \"inputs\":[...list of \
                     inputs...],\n \"query\":[...list of map/reduce phases...]\n}\n";

/// The answer to a document that is no job.
fn refused(refusal: &JobRefusal) -> RiakFault {
    match refusal {
        JobRefusal::Phase(phase) => typed(StatusCode::BAD_REQUEST, JSON, phase.json().to_string()).into(),
        JobRefusal::BadFilter(bad) => typed(StatusCode::INTERNAL_SERVER_ERROR, JSON, bad.json().to_string()).into(),
        JobRefusal::Search => larder_core::Error::NotBuilt(larder_core::Feature::Search).into(),
        JobRefusal::NotJson(_)
        | JobRefusal::NotTerm(_)
        | JobRefusal::NotObject
        | JobRefusal::MissingField
        | JobRefusal::Inputs(_)
        | JobRefusal::Query(_)
        | JobRefusal::Timeout(_) => RiakFault::bad(refusal.http_text()),
    }
}

/// The answer to a job without a result.
fn failed(error: JobError) -> RiakFault {
    let status = match &error {
        JobError::Gateway(error) => return error.clone().into(),
        JobError::TooMany => return larder_core::Error::Overloaded { retry_after: 1 }.into(),
        JobError::Phase(_) => StatusCode::BAD_REQUEST,
        JobError::Failed { .. } | JobError::TimedOut | JobError::Cancelled | JobError::TooLarge => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    typed(status, JSON, error.json().to_string()).into()
}

/// A whole answer that is being collected: the items of each kept phase.
struct WholeAnswer {
    phases: Vec<(usize, Vec<u8>)>,
    bytes: usize,
}

impl WholeAnswer {
    /// The answer of a job that keeps these phases: each has its place, also one without results.
    fn new(kept: &[usize]) -> Self {
        Self { phases: kept.iter().map(|phase| (*phase, Vec::new())).collect(), bytes: 0 }
    }

    fn add(&mut self, kept: Vec<KeptValues>) {
        for KeptValues { phase, values } in kept {
            let at = self.phases.iter().position(|(number, _)| *number == phase).unwrap_or_else(|| {
                self.phases.push((phase, Vec::new()));
                self.phases.len() - 1
            });
            let items = &mut self.phases[at].1;
            let before = items.len();
            if before > 0 && !values.is_empty() {
                items.push(b',');
            }
            write_items(values, items);
            self.bytes += items.len() - before;
        }
    }

    /// The array of the results; with several kept phases the array of theirs.
    fn finish(mut self) -> Vec<u8> {
        self.phases.sort_by_key(|(phase, _)| *phase);
        let mut out = vec![b'['];
        for (at, (_, items)) in self.phases.iter().enumerate() {
            if self.phases.len() < 2 {
                out.extend_from_slice(items);
                continue;
            }
            if at > 0 {
                out.push(b',');
            }
            out.push(b'[');
            out.extend_from_slice(items);
            out.push(b']');
        }
        out.push(b']');
        out
    }
}

async fn respond_whole(mut run: JobRun, kept: &[usize], requester: &Requester<'_>) -> Result<RiakResponse, RiakFault> {
    let mut answer = WholeAnswer::new(kept);
    loop {
        // The answer counts twice: as its phases, and as the whole.
        requester.hold(run.memory() + 2 * answer.bytes as u64).await.map_err(busy)?;
        match run.step().await.map_err(failed)? {
            Some(results) => answer.add(results),
            None => return Ok(typed(StatusCode::OK, JSON, answer.finish())),
        }
        if kept.len() < 2 && answer.bytes > COLLECTED_BYTES {
            return Ok(stream_whole(StreamedJob { memory: requester.growing_memory(), run }, answer));
        }
        if answer.bytes > JOB_HELD_BYTES_MAX {
            return Err(failed(JobError::TooLarge));
        }
    }
}

/// A job whose answer is sent while it runs.
struct StreamedJob {
    run: JobRun,
    memory: GrowingMemory,
}

impl StreamedJob {
    /// Holds the memory of the next step, and runs it.
    async fn step(&mut self) -> Result<Option<Vec<KeptValues>>, JobError> {
        let held = self.memory.hold(self.run.memory() + 2 * COLLECTED_BYTES as u64).await;
        held.map_err(|spent| JobError::Gateway(busy(spent)))?;
        self.run.step().await
    }
}

/// Sends the collected items, and the others as they come.
fn stream_whole(run: StreamedJob, answer: WholeAnswer) -> RiakResponse {
    let mut begin = vec![b'['];
    answer.phases.into_iter().for_each(|(_, items)| begin.extend(items));
    let later_items = stream::unfold(Some(run), |state| async move {
        let mut run = state?;
        match run.step().await {
            Ok(Some(results)) => {
                let mut piece = Vec::new();
                for KeptValues { values, .. } in results.into_iter().filter(|kept| !kept.values.is_empty()) {
                    piece.push(b',');
                    write_items(values, &mut piece);
                }
                Some((Ok(Bytes::from(piece)), Some(run)))
            }
            Ok(None) => Some((Ok(Bytes::from_static(b"]")), None)),
            Err(error) => Some((Err(break_off("step of a MapReduce job", error.to_string())), None)),
        }
    });
    let begin = stream::once(async { Ok(Bytes::from(begin)) });
    let body = RiakBody::pieces(Box::pin(begin.chain(later_items)), None);
    let mut reply = with_body(StatusCode::OK, body);
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply
}

/// Sends a part for the results of each step. An error is the last text, without a part.
fn stream_parts(run: StreamedJob, boundary: &str) -> RiakResponse {
    let media = format!("multipart/mixed;boundary={boundary}");
    let head = format!("\r\n--{boundary}\r\nContent-Type: application/json\r\n\r\n");
    let end = format!("\r\n--{boundary}--\r\n");
    let parts = stream::unfold(Some((run, head, end)), |state| async move {
        let (mut run, head, end) = state?;
        match run.step().await {
            Ok(Some(results)) => {
                let parts = results.into_iter().map(|kept| [head.as_bytes(), &item(kept)].concat().into()).collect();
                Some((parts, Some((run, head, end))))
            }
            Ok(None) => Some((vec![Bytes::from(end)], None)),
            Err(error) => Some((vec![Bytes::from(error.json().to_string())], None)),
        }
    });
    let mut reply = with_body(StatusCode::OK, RiakBody::documents(parts));
    insert(reply.headers_mut(), CONTENT_TYPE, media);
    reply
}
