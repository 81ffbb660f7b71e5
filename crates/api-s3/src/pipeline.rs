//! A request's way: host and path, operation, signature, body, and then the operation. Nothing of the body is read before the
//! signature holds and the length is one that may be.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, RANGE, REFERER, SERVER, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, Request, Version};
use larder_admission::MemorySpent;
use larder_gateway::Admitted;
use larder_gateway::objects::{Caller, Error, Objects, Tracked};
use larder_http_edge::{ArrivingBody, PacedIncoming, Requester};
use larder_model::objects::Tag;
use larder_model::objects::access::Circumstances;
use larder_model::rows::Micros;
use parking_lot::Mutex;

use crate::auth::{self, Payload, Scheme};
use crate::background::Background;
use crate::body::RequestBody;
use crate::call::{Call, joined};
use crate::errors::{Code, Fault, gateway};
use crate::forwarded::Origin;
use crate::host::Place;
use crate::identity::{self, Identity};
use crate::operations::{Answer, Op, Operation, Takes};
use crate::path::Target;
use crate::query::Query;
use crate::reply::Reply;
use crate::tally::{self, Tally};
use crate::{S3Settings, background, cors, ops, probe, route};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const ID_2: HeaderName = HeaderName::from_static("x-amz-id-2");
const NAME: HeaderValue = HeaderValue::from_static("Larder");
/// What the metrics call a browser's question.
const PREFLIGHT: &str = "Preflight";
/// What the metrics call what is no operation.
const UNKNOWN: &str = "Unknown";

/// Answers requests over one S3 side of a gateway.
#[derive(Clone)]
pub struct S3Service {
    objects: Arc<Objects>,
    settings: Arc<S3Settings>,
    background: Background,
}

/// What is known of a request from its line and headers.
struct Seen {
    parts: Parts,
    id: String,
    now: Micros,
    origin: Origin,
    host: String,
    place: Place,
    query: Query,
}

/// What became of a request, beside its answer.
#[derive(Default)]
struct Trace {
    tracked: Option<Tracked>,
    operation: Option<&'static Operation>,
    caller: Option<String>,
    received: Arc<AtomicU64>,
}

impl S3Service {
    /// The S3 face of `objects`.
    #[must_use]
    pub fn new(objects: Arc<Objects>, settings: S3Settings) -> Self {
        let background = Background::new(Arc::clone(objects.gateway()));
        Self { objects, settings: Arc::new(settings), background }
    }

    pub(crate) fn settings(&self) -> &S3Settings {
        &self.settings
    }

    /// What runs beside its connections.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// The answer that the server is busy.
    pub(crate) fn busy(&self) -> Reply {
        let id = self.objects.gateway().new_key();
        let mut reply = Fault::from(Code::SlowDown).into_reply("", &id, false);
        insert_id(&mut reply, &id);
        reply
    }

    /// Answers one request, whatever happens in it.
    pub async fn answer(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Reply {
        let gateway = self.objects.gateway();
        let begun = gateway.monotonic();
        let (mut parts, body) = request.into_parts();
        let host = host_of(&parts);
        let query = Query::of(parts.uri.query());
        let moved = auth::move_headers(&query, &mut parts.headers);
        let seen = Seen {
            id: gateway.new_key(),
            now: gateway.now(),
            origin: Origin::of(requester.address, &parts.headers, &self.settings.proxies),
            place: Place::of(Some(&host), &self.settings.roots),
            query,
            host,
            parts,
        };
        let mut trace = Trace::default();
        let target = moved.and_then(|()| Target::of(&seen.place, seen.parts.uri.path()));
        let body = ArrivingBody::new(PacedIncoming::new(body), requester);
        let carried_out =
            AssertUnwindSafe(self.carry_out(&seen, target.clone(), body, &mut trace)).catch_unwind().await;
        let outcome = carried_out.unwrap_or_else(|panic| Err(background::panicked(gateway, &seen.id, &*panic)));
        let reply = self.finish(&seen, target.unwrap_or_default(), outcome, trace).await;
        tracing::debug!(
            id = seen.id,
            from = %seen.origin.source,
            method = %seen.parts.method,
            host = seen.host,
            path = seen.parts.uri.path(),
            status = reply.status().as_u16(),
            micros = gateway.monotonic().saturating_sub(begun).as_micros(),
            "answered"
        );
        reply
    }

    async fn carry_out(
        &self,
        seen: &Seen,
        target: Result<Target, Fault>,
        body: ArrivingBody<'_>,
        trace: &mut Trace,
    ) -> Result<Reply, Fault> {
        let (target, parts) = (target?, &seen.parts);
        if seen.host.is_empty() && parts.version == Version::HTTP_11 {
            return Err(Fault::new(Code::BadRequest, "A request needs a Host header."));
        }
        if parts.method == Method::OPTIONS {
            trace.tracked = Some(self.objects.track(PREFLIGHT));
            let _admitted = self.admit()?;
            return cors::preflight(&self.objects, &target, &parts.headers).await;
        }
        let operation = route::route(&parts.method, &target, &seen.query, &parts.headers)?;
        trace.tracked = Some(self.objects.track(operation.name));
        trace.operation = Some(operation);
        if operation.answer == Answer::NotBuilt {
            let refused = Fault::new(Code::NotImplemented, format!("{} is not offered", operation.name));
            return Err(operation.keys.iter().fold(refused, |refused, key| refused.with("QueryParameter", *key)));
        }
        let admitted = match operation.op {
            // Whether the server lives is asked when it has most to do.
            Op::AdminPing | Op::AdminHeadPing => None,
            _ => Some(Arc::new(self.admit()?)),
        };
        let identity = identity::of(&self.objects, &self.signed(seen)).await?;
        trace.caller = identity.user.as_ref().map(|user| user.key_id.clone());
        let body = self.body(operation, body, &parts.headers, &identity).await?;
        trace.received = body.counter();
        let call = Call { admitted, ..self.call(seen, operation, target, identity, body) };
        match operation.answer {
            Answer::Probe(answer) => probe::answer(&call, answer).await,
            // Boxed: operations differ much in what they hold, and most requests are not the largest.
            Answer::Built | Answer::NotBuilt => ops::run(&call).boxed().await,
        }
    }

    fn admit(&self) -> Result<Admitted, Fault> {
        Ok(self.objects.gateway().admit().map_err(Error::from)?)
    }

    /// What of a request is signed.
    fn signed<'a>(&'a self, seen: &'a Seen) -> auth::Request<'a> {
        auth::Request {
            method: seen.parts.method.as_str(),
            path: seen.parts.uri.path(),
            raw_query: seen.parts.uri.query(),
            query: &seen.query,
            headers: &seen.parts.headers,
            host: Some(&seen.host),
            host_bucket: match &seen.place {
                Place::Bucket(bucket) => Some(bucket),
                Place::Service => None,
            },
            now: seen.now,
            region: self.settings.region.as_deref(),
        }
    }

    /// The body, once its headers say that it may be read, and there is memory for it.
    async fn body(
        &self,
        operation: &Operation,
        body: ArrivingBody<'_>,
        headers: &HeaderMap,
        identity: &Identity,
    ) -> Result<RequestBody, Fault> {
        if matches!(Payload::of(headers)?, Payload::Chunked { .. }) && operation.takes != Takes::Stream {
            return Err(Fault::invalid("Only objects and parts can be sent in chunks."));
        }
        let (incoming, requester) = body.into_parts();
        let body = RequestBody::of(incoming, headers, identity.checked.as_ref())?;
        if operation.takes == Takes::Stream {
            let max = self.objects.config().put_bytes_max;
            match body.length() {
                None => return Err(Code::MissingContentLength.into()),
                Some(length) if length > max => return Err(gateway::too_large(length, max)),
                Some(_) => {}
            }
        }
        requester.hold(operation.takes.memory(body.length())).await.map_err(|MemorySpent| Code::SlowDown)?;
        Ok(body)
    }

    fn call(
        &self,
        seen: &Seen,
        operation: &'static Operation,
        target: Target,
        identity: Identity,
        body: RequestBody,
    ) -> Call {
        let scheme = identity.scheme();
        let circumstances = circumstances(seen, scheme);
        Call {
            objects: Arc::clone(&self.objects),
            settings: Arc::clone(&self.settings),
            operation,
            bucket: target.bucket,
            key: target.key,
            query: seen.query.clone(),
            headers: seen.parts.headers.clone(),
            caller: Caller { user: identity.user, circumstances },
            scheme,
            host: seen.host.clone(),
            virtual_host: matches!(seen.place, Place::Bucket(_)),
            request_id: seen.id.clone(),
            now: seen.now,
            admitted: None,
            background: self.background.clone(),
            body: Mutex::new(Some(body)),
        }
    }

    /// The answer with what every answer has, counted.
    async fn finish(&self, seen: &Seen, target: Target, outcome: Result<Reply, Fault>, trace: Trace) -> Reply {
        let head = seen.parts.method == Method::HEAD;
        let mut reply = outcome.unwrap_or_else(|fault| {
            let range = seen.parts.headers.get(RANGE).and_then(|range| range.to_str().ok());
            fault.about(&target, &seen.query, range).into_reply(&target.resource(), &seen.id, head)
        });
        cors::simple(&self.objects, &target, (seen.parts.method.as_str(), &seen.parts.headers), &mut reply).await;
        insert_id(&mut reply, &seen.id);
        let tracked = trace.tracked.unwrap_or_else(|| self.objects.track(UNKNOWN));
        tracked.answered(tally::outcome(reply.status()));
        let nothing_to_send = head || reply.body().length() == Some(0);
        let tally = Tally {
            objects: Arc::clone(&self.objects),
            tracked,
            user: trace.caller.zip(trace.operation.map(|operation| operation.usage)),
            received: trace.received,
            status: reply.status(),
            sent: 0,
            whole: nothing_to_send,
        };
        reply.map(|body| body.counted(tally))
    }
}

/// The headers that every answer has.
fn insert_id(reply: &mut Reply, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        reply.headers_mut().insert(REQUEST_ID, id.clone());
        reply.headers_mut().insert(ID_2, id);
    }
    reply.headers_mut().insert(SERVER, NAME);
}

/// The host as the client wrote it. A target in absolute form has one too; `Host` wins, as classic proxies leave it.
fn host_of(parts: &Parts) -> String {
    let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| parts.uri.authority().map(|authority| authority.as_str())).unwrap_or_default().to_owned()
}

/// What policies may look at: whatever an operation reads, also what is not plain text.
fn circumstances(seen: &Seen, scheme: Option<Scheme>) -> Circumstances {
    let headers = &seen.parts.headers;
    let header = |name: &HeaderName| Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()));
    let amz = |name: &'static str| header(&HeaderName::from_static(name));
    let grants = |name: &'static str| Some(String::from_utf8_lossy(&joined(headers, name)?).into_owned().into());
    let asked = |name: &str| seen.query.get(name).map(Cow::Borrowed);
    let (auth_type, version) = match scheme {
        Some(Scheme::V2Header) => (Some("REST-HEADER"), Some("AWS")),
        Some(Scheme::V2Query) => (Some("REST-QUERY-STRING"), Some("AWS")),
        Some(Scheme::V4Header) => (Some("REST-HEADER"), Some("AWS4-HMAC-SHA256")),
        Some(Scheme::V4Query) => (Some("REST-QUERY-STRING"), Some("AWS4-HMAC-SHA256")),
        Some(Scheme::Form) => (Some("POST"), None),
        None => (None, None),
    };
    let known = [
        ("aws:Referer", header(&REFERER)),
        ("aws:UserAgent", header(&USER_AGENT)),
        ("s3:prefix", asked("prefix")),
        ("s3:delimiter", asked("delimiter")),
        ("s3:max-keys", asked("max-keys")),
        ("s3:VersionId", asked("versionId")),
        ("s3:x-amz-acl", amz("x-amz-acl")),
        ("s3:x-amz-grant-read", grants("x-amz-grant-read")),
        ("s3:x-amz-grant-write", grants("x-amz-grant-write")),
        ("s3:x-amz-grant-read-acp", grants("x-amz-grant-read-acp")),
        ("s3:x-amz-grant-write-acp", grants("x-amz-grant-write-acp")),
        ("s3:x-amz-grant-full-control", grants("x-amz-grant-full-control")),
        ("s3:x-amz-copy-source", amz("x-amz-copy-source")),
        ("s3:x-amz-metadata-directive", amz("x-amz-metadata-directive")),
        ("s3:x-amz-storage-class", amz("x-amz-storage-class")),
        ("s3:x-amz-content-sha256", amz("x-amz-content-sha256")),
        ("s3:authType", auth_type.map(Cow::Borrowed)),
        ("s3:signatureversion", version.map(Cow::Borrowed)),
    ];
    let keys = known.into_iter().filter_map(|(name, value)| Some((name, value?.into_owned()))).collect();
    let request_tags = Query::of(amz("x-amz-tagging").as_deref())
        .iter()
        .map(|(key, value)| Tag { key: key.to_owned(), value: value.to_owned() })
        .collect();
    let Origin { source, secure } = seen.origin;
    Circumstances { source: Some(source), secure, now: seen.now, keys, request_tags }
}
