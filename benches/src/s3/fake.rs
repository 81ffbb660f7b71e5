//! A small S3 server in memory, for the tests of the generator: it refuses wrong requests.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::bucket::S3Subject;
use super::driver::BucketLocation;
use crate::endpoint::Endpoint;
use crate::keys::ValuePool;
use crate::limits::CELL_OPERATIONS_MAX;
use crate::server::S3Account;

/// The buckets, their keys, and the parts of uploads.
#[derive(Default)]
struct FakeState {
    buckets: HashMap<String, BTreeMap<String, Bytes>>,
    uploads: HashMap<String, BTreeMap<u64, Bytes>>,
    started: u64,
}

/// Status, ETag and body of an answer.
type FakeAnswer = (u16, &'static str, Bytes);

/// The ETag of every answer.
const ETAG: &str = "\"etag\"";

/// A subject over an endpoint, with the account that [`serve`] accepts.
pub(super) fn subject(endpoint: Endpoint) -> S3Subject {
    let account = S3Account { key: "key".to_owned(), secret: "secret".to_owned() };
    S3Subject {
        place: BucketLocation { endpoint, account, bucket: "bench".to_owned() },
        kv: None,
        values: Arc::new(ValuePool::new(100_000)),
        pid: Some(std::process::id()),
        new_keys: Arc::new(AtomicU64::new(CELL_OPERATIONS_MAX)),
    }
}

/// Serves on a free port while the test's runtime lives.
pub(super) async fn start() -> S3Subject {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::at(listener.local_addr().unwrap());
    let state = Arc::new(Mutex::new(FakeState::default()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let state = state.clone();
            let service = service_fn(move |request| serve(state.clone(), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    subject(endpoint)
}

async fn serve(state: Arc<Mutex<FakeState>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap());
    let is_signed = header("authorization").starts_with("AWS key:") && header("date").ends_with(" GMT");
    let range = header("range").strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let range = range.map(|(from, to)| (from.parse().unwrap(), to.parse::<usize>().unwrap() + 1));
    let (status, etag, body) = match is_signed {
        true => state.lock().unwrap().answer(head.method.as_str(), &head.uri, range, body),
        false => no(403, "AccessDenied"),
    };
    let answer = Response::builder().status(status).header("ETag", etag).body(Full::new(body)).unwrap();
    Ok(answer)
}

fn no(status: u16, code: &str) -> FakeAnswer {
    (status, "", format!("<Error><Code>{code}</Code><Message>no</Message></Error>").into())
}

fn ok(body: impl Into<Bytes>) -> FakeAnswer {
    (200, ETAG, body.into())
}

impl FakeState {
    fn answer(&mut self, method: &str, uri: &hyper::Uri, range: Option<(usize, usize)>, body: Bytes) -> FakeAnswer {
        let query: HashMap<&str, &str> =
            uri.query().unwrap_or("").split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
        let (bucket, key) = uri.path()[1..].split_once('/').unwrap_or((&uri.path()[1..], ""));
        if method == "PUT" && key.is_empty() {
            self.buckets.entry(bucket.to_owned()).or_default();
            return ok("");
        }
        let Some(keys) = self.buckets.get_mut(bucket) else {
            return no(404, "NoSuchBucket");
        };
        if query.contains_key("uploads") {
            self.started += 1;
            let id = format!("id+{}", self.started);
            self.uploads.insert(id.clone(), BTreeMap::new());
            return ok(format!("<R><UploadId>{id}</UploadId></R>"));
        }
        if let Some(id) = query.get("uploadId") {
            let id = id.replace("%2B", "+");
            return Self::upload(&mut self.uploads, keys, (method, key, &id), &query, body);
        }
        match (method, key) {
            ("GET", "") => list(keys, &query),
            ("DELETE", "") if !keys.is_empty() => no(409, "BucketNotEmpty"),
            ("DELETE", "") => {
                self.buckets.remove(bucket);
                (204, "", Bytes::new())
            }
            ("PUT", key) => {
                keys.insert(key.to_owned(), body);
                ok("")
            }
            ("DELETE", key) => keys.remove(key).map_or_else(|| no(404, "NoSuchKey"), |_| (204, "", Bytes::new())),
            (_, key) => match (keys.get(key), range) {
                (None, _) => no(404, "NoSuchKey"),
                (Some(value), None) => ok(value.clone()),
                (Some(value), Some((from, to))) => (206, ETAG, value.slice(from..to)),
            },
        }
    }

    fn upload(
        uploads: &mut HashMap<String, BTreeMap<u64, Bytes>>,
        keys: &mut BTreeMap<String, Bytes>,
        (method, key, id): (&str, &str, &str),
        query: &HashMap<&str, &str>,
        body: Bytes,
    ) -> FakeAnswer {
        let Some(parts) = uploads.get_mut(id) else {
            return no(404, "NoSuchUpload");
        };
        match method {
            "PUT" => {
                parts.insert(query["partNumber"].parse().unwrap(), body);
                ok("")
            }
            "GET" => {
                let (after, max) = (query["part-number-marker"].parse().unwrap(), query["max-parts"].parse().unwrap());
                let page = parts.keys().filter(|number| **number > after).take(max);
                ok(page.map(|number| format!("<PartNumber>{number}</PartNumber>")).collect::<String>())
            }
            "DELETE" => {
                uploads.remove(id);
                (204, "", Bytes::new())
            }
            _ if body.windows(8).filter(|tag| tag == b"\"etag\"</").count() == parts.len() => {
                keys.insert(key.to_owned(), parts.values().flatten().copied().collect());
                uploads.remove(id);
                ok("<CompleteMultipartUploadResult/>")
            }
            _ => no(400, "InvalidPart"),
        }
    }
}

fn list(keys: &BTreeMap<String, Bytes>, query: &HashMap<&str, &str>) -> FakeAnswer {
    let after = query.get("continuation-token").or(query.get("start-after")).copied().unwrap_or("");
    let max: usize = query["max-keys"].parse().unwrap();
    let mut rest = keys.keys().filter(|key| key.as_str() > after);
    let page: Vec<&String> = rest.by_ref().take(max).collect();
    let mut text: String = page.iter().map(|key| format!("<Key>{key}</Key>")).collect();
    if rest.next().is_some() {
        text +=
            &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>", page[max - 1]);
    }
    ok(text)
}
