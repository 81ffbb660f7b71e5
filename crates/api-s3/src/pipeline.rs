//! The steps of a request: host and path, operation, signature, body, operation. No byte of the body is read before the
//! signature is verified and the length is accepted.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Once};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RANGE, SERVER};
use hyper::{Method, Request, Version};
use larder_admission::MemorySpent;
use larder_core::{AdmissionGuard, AuditEvent, AuditOutcome};
use larder_net::{ArrivingBody, Requester};
use larder_s3::users::KeyHolder;
use larder_s3::{Caller, Error, Objects, TrackedRequest};
use larder_s3_rules::S3Action;
use larder_s3_rules::access::AccessContext;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::admin::ChangedUser;
use crate::auth::{self, Payload, SignedService, SigningKeys};
use crate::background::{self, BackgroundTasks};
use crate::body::{DOCUMENT_TIME_MAX, RequestBody};
use crate::call::{self, Identity, S3Call};
use crate::errors::{Code, S3Error, gateway};
use crate::health::HealthProbe;
use crate::operations::{OperationScope, OperationSpec, RequestBodyKind, S3Operation, Support};
use crate::ops;
use crate::request_head::{RequestHead, check_lines, forwarded_host, request_host};
use crate::response::{self, RequestAccounting, S3Response};
use crate::target::{AddressingStyle, PublicUrl, ResourcePath, S3Query, check_key, is_unknown_host};
use crate::unsupported_config::{self, not_offered};
use crate::website::{self, PageRequest};
use crate::{S3Settings, cors, route, scraped_metrics, write_terms};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const ID_2: HeaderName = HeaderName::from_static("x-amz-id-2");
const NAME: HeaderValue = HeaderValue::from_static("Larder");
/// Longest body of a request to STS, in bytes: a policy of a session, with each character escaped, and ARNs.
const TOKEN_REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Metrics name of a CORS preflight request.
const PREFLIGHT: &str = "Preflight";
/// Metrics name of a health probe.
const PROBE: &str = "HealthProbe";
/// Metrics name of a request for a page of a website.
const WEBSITE: &str = "Website";
/// Metrics name of a scrape of metrics.
const SCRAPE: &str = "Metrics";
/// Metrics name of a request that matches no operation.
const UNKNOWN: &str = "Unknown";

/// Serves S3 requests over the objects of one gateway.
#[derive(Clone)]
pub struct S3Service {
    objects: Arc<Objects>,
    settings: Arc<S3Settings>,
    keys: Arc<SigningKeys>,
    background: BackgroundTasks,
}

/// A body that was received before the signature was verified, or arrives after.
enum SignedBody<'a> {
    Received(Bytes),
    Arriving(ArrivingBody<'a>),
}

/// Facts about a request that metrics and usage reports need besides the response.
#[derive(Default)]
struct RequestTrace {
    tracked: Option<TrackedRequest>,
    operation: Option<&'static OperationSpec>,
    signer: Option<KeyHolder>,
    received: Arc<AtomicU64>,
}

impl S3Service {
    /// A service over `objects`.
    #[must_use]
    pub fn new(objects: Arc<Objects>, settings: S3Settings) -> Self {
        let background = BackgroundTasks::new(Arc::clone(&objects.gateway));
        Self { objects, settings: Arc::new(settings), keys: Arc::default(), background }
    }

    pub(crate) fn settings(&self) -> &S3Settings {
        &self.settings
    }

    /// Tasks that outlive their connection.
    pub(crate) fn background(&self) -> &BackgroundTasks {
        &self.background
    }

    /// The 503 `SlowDown` response of an overloaded server.
    pub(crate) fn busy(&self) -> S3Response {
        let id = self.objects.gateway.context().new_request_id();
        let mut response = S3Error::from(Code::SlowDown).into_response("", &id, false);
        insert_common_headers(&mut response, &id);
        response
    }

    /// Serves one request. A panic becomes a 500 response.
    pub async fn handle(&self, requester: &Requester<'_>, request: Request<Incoming>) -> S3Response {
        let gateway = &self.objects.gateway;
        let begun = tracing::enabled!(tracing::Level::DEBUG).then(|| gateway.context().monotonic());
        let (mut parts, body) = request.into_parts();
        let host = request_host(&parts);
        let forwarded_host = requester.is_forwarded.then(|| forwarded_host(&parts.headers)).flatten();
        let asked_host = forwarded_host.as_deref().unwrap_or(&host);
        let query = S3Query::parse(parts.uri.query());
        let website = website::website_bucket(asked_host, &self.settings.websites, &self.settings.roots);
        let is_website = website.is_some();
        // A website takes no links: their parameters stay in the query.
        let restored = if is_website { Ok(()) } else { auth::restore_headers(&query, &mut parts.headers) };
        let by_host = || AddressingStyle::from_host(Some(asked_host), &self.settings.roots);
        let head = RequestHead {
            id: gateway.context().new_request_id(),
            now: gateway.context().now(),
            source: requester.source,
            addressing: website.map_or_else(by_host, AddressingStyle::VirtualHosted),
            is_website,
            query: if is_website { S3Query::default() } else { query },
            host,
            forwarded_host,
            parts,
        };
        let mut trace = RequestTrace::default();
        let probe = HealthProbe::from_request(&head.parts, &head.addressing);
        let target = match probe {
            // No bucket is looked up for a probe, not even its rules of CORS.
            Some(_) => restored.map(|()| ResourcePath::default()),
            None => restored.and_then(|()| ResourcePath::parse(&head.addressing, head.parts.uri.path())),
        };
        let body = ArrivingBody::new(body, requester);
        // The connection survives a panic: its client gets a 500 and can go on.
        let executed =
            AssertUnwindSafe(self.execute(&head, target.clone(), probe, body, &mut trace)).catch_unwind().await;
        let outcome = executed.unwrap_or_else(|panic| Err(background::report_panic(gateway, &head.id, &*panic)));
        let (target, operation) = (target.unwrap_or_default(), trace.operation);
        let response = self.finish(&head, &target, outcome, trace).await;
        let elapsed = requester.elapsed();
        if self.settings.connection.slow_after.is_some_and(|limit| elapsed > limit) {
            head.log_slow(&target, operation, response.status(), elapsed);
        }
        tracing::debug!(
            id = head.id,
            from = %head.source.address,
            method = %head.parts.method,
            host = head.host,
            path = head.parts.uri.path(),
            status = response.status().as_u16(),
            micros = begun.map(|begun| gateway.context().monotonic().saturating_sub(begun).as_micros()),
            "answered"
        );
        response
    }

    async fn execute(
        &self,
        head: &RequestHead,
        target: Result<ResourcePath, S3Error>,
        probe: Option<HealthProbe>,
        body: ArrivingBody<'_>,
        trace: &mut RequestTrace,
    ) -> Result<S3Response, S3Error> {
        let parts = &head.parts;
        // HTTP/1.1 requires the header; without it a virtual-hosted bucket would be read as path style.
        if head.host.is_empty() && parts.version == Version::HTTP_11 {
            return Err(S3Error::new(Code::BadRequest, "A request needs a Host header."));
        }
        check_lines(&parts.headers)?;
        if head.is_website {
            trace.tracked = Some(self.objects.track(WEBSITE));
            let _admitted = self.admit()?;
            return Ok(self.page(head, target).boxed().await);
        }
        let target = target?;
        if scraped_metrics::is_scrape(parts, &head.addressing) {
            trace.tracked = Some(self.objects.track(SCRAPE));
            let _admitted = self.admit()?;
            return scraped_metrics::answer(&self.objects, &self.settings, &parts.headers, head.now).await;
        }
        if let Some(probe) = probe {
            trace.tracked = Some(self.objects.track(PROBE));
            return Ok(probe.answer(&self.objects.gateway));
        }
        if parts.method == Method::OPTIONS {
            trace.tracked = Some(self.objects.track(PREFLIGHT));
            // Preflights read the bucket's rules, so they count against the limit of concurrent requests too.
            let _admitted = self.admit()?;
            return cors::preflight(&self.objects, &target, &parts.headers).await;
        }
        let operation = route::route(&parts.method, &target, &head.query, &parts.headers)?;
        trace.tracked = Some(self.objects.track(operation.name));
        trace.operation = Some(operation);
        check_key(&target.key)?;
        let admitted = match operation.support {
            Support::NotImplemented => return Err(not_offered(operation)),
            // Health checks must succeed while the server is saturated.
            Support::Implemented(S3Operation::AdminPing | S3Operation::AdminHeadPing) => None,
            _ => Some(self.admit()?),
        };
        // The admission slot is taken before the user is looked up, so that lookups are bounded under load.
        let (identity, body) = match operation.support {
            Support::Implemented(S3Operation::AssumeRole) => {
                let (identity, document) = self.token_request(head, operation, body).await?;
                (identity, SignedBody::Received(document))
            }
            _ => {
                let request = self.auth_request(head);
                (call::authenticate(&self.objects, &self.keys, &request).await?, SignedBody::Arriving(body))
            }
        };
        trace.signer = identity.holder.clone();
        write_terms::check(operation, &parts.headers, &head.query)?;
        if self.settings.is_on_loopback && identity.signature.is_none() {
            self.check_page(head, operation, &target).await?;
        }
        // The documents of users show the first secret, which has no limits.
        let is_limited = identity.holder.as_ref().is_some_and(|holder| !holder.is_first_key());
        if matches!(operation.scope, OperationScope::Admin(_)) && is_limited {
            return Err(S3Error::new(Code::AccessDenied, "Only the first key of a user administers it."));
        }
        if let Some(response) = self.read_at_once(head, operation, &target, &identity) {
            return Ok(response);
        }
        // Memory is reserved after the signature is verified: forged requests cannot exhaust it.
        let body = match body {
            SignedBody::Received(document) => RequestBody::received(document),
            SignedBody::Arriving(body) => self.body(operation, body, &parts.headers, &identity).await?,
        };
        trace.received = body.byte_counter();
        let call = S3Call { admitted: admitted.map(Arc::new), ..self.call(head, operation, target, &identity, body) };
        match operation.support {
            Support::NotImplemented => Err(not_offered(operation)),
            Support::ConfigStub(stub) => unsupported_config::respond(&call, stub).await,
            // Boxed, so that the small futures of most requests do not reserve the size of the largest one.
            Support::Implemented(op) => ops::run(op, &call).boxed().await,
        }
    }

    /// Refuses an unsigned request that a browser sends for a foreign page.
    async fn check_page(
        &self,
        head: &RequestHead,
        operation: &OperationSpec,
        target: &ResourcePath,
    ) -> Result<(), S3Error> {
        // The signature of a form is in its body, and forms are made for pages of other origins.
        if matches!(operation.support, Support::Implemented(S3Operation::PostObject)) {
            return Ok(());
        }
        let (host, roots) = (&*head.host, &*self.settings.roots);
        cors::check_unsigned(&self.objects, host, roots, target, &head.parts.method, &head.parts.headers).await
    }

    /// The answer to a read of an object in its row, which needs neither a wait nor a call of its own; `None`: the operation
    /// runs as every other.
    fn read_at_once(
        &self,
        head: &RequestHead,
        operation: &'static OperationSpec,
        target: &ResourcePath,
        identity: &Identity,
    ) -> Option<S3Response> {
        let Support::Implemented(S3Operation::GetObject | S3Operation::HeadObject) = operation.support else {
            return None;
        };
        // A body is refused by its headers, or stays unread.
        if !matches!(Payload::from_headers(&head.parts.headers), Ok(Payload::Unsigned | Payload::Sha256(_))) {
            return None;
        }
        let (user, policies) = (identity.user().cloned(), identity.policies());
        let caller = Caller { user, policies, action: operation.action, ..Caller::default() };
        ops::at_once(&self.objects, &head.parts, target, &head.query, caller, || access_context(head, identity))
    }

    /// The answer of the website of a bucket.
    async fn page(&self, head: &RequestHead, target: Result<ResourcePath, S3Error>) -> S3Response {
        let parts = &head.parts;
        let target = match target {
            Ok(target) => target,
            Err(error) => return website::error_page(error, &head.id, parts.method == Method::HEAD),
        };
        let action = Some(S3Action::GetObject);
        let access_context = head.access_context(None);
        PageRequest {
            objects: &self.objects,
            target: &target,
            method: &parts.method,
            headers: &parts.headers,
            query: parts.uri.query(),
            host: head.asked_host(),
            caller: Caller { action, access_context, learns_absence: true, ..Caller::default() },
            id: &head.id,
        }
        .answer()
        .await
    }

    fn admit(&self) -> Result<AdmissionGuard, S3Error> {
        Ok(self.objects.gateway.context().admit().map_err(Error::from)?)
    }

    /// The parts of the request that its signature covers.
    fn auth_request<'a>(&'a self, head: &'a RequestHead) -> auth::AuthRequest<'a> {
        auth::AuthRequest {
            method: head.parts.method.as_str(),
            path: head.parts.uri.path(),
            raw_query: head.parts.uri.query(),
            query: &head.query,
            headers: &head.parts.headers,
            host: Some(&head.host),
            other_hosts: [head.forwarded_host.as_deref(), self.settings.public_url.as_ref().map(PublicUrl::authority)],
            host_bucket: match &head.addressing {
                AddressingStyle::VirtualHosted(bucket) => Some(bucket),
                AddressingStyle::PathStyle => None,
            },
            now: head.now,
            region: self.settings.region.as_deref(),
            service: SignedService::S3,
        }
    }

    /// The signer and the body of a request to STS: the signature covers the body, so that is received before.
    async fn token_request(
        &self,
        head: &RequestHead,
        operation: &OperationSpec,
        body: ArrivingBody<'_>,
    ) -> Result<(Identity, Bytes), S3Error> {
        let body = self.body(operation, body, &head.parts.headers, &Identity::default()).await?;
        // Bound: its sender is unknown, and may be nobody.
        let received = tokio::time::timeout(DOCUMENT_TIME_MAX, body.collect(TOKEN_REQUEST_BYTES_MAX));
        let document = received.await.map_err(|_| Code::RequestTimeout)??;
        let service = SignedService::Sts { digest: Sha256::digest(&document).into() };
        let request = auth::AuthRequest { service, ..self.auth_request(head) };
        Ok((call::authenticate(&self.objects, &self.keys, &request).await?, document))
    }

    /// Opens the body: checks its headers and length, then reserves memory for it.
    async fn body(
        &self,
        operation: &OperationSpec,
        body: ArrivingBody<'_>,
        headers: &HeaderMap,
        identity: &Identity,
    ) -> Result<RequestBody, S3Error> {
        if matches!(Payload::from_headers(headers)?, Payload::Chunked { .. })
            && operation.body != RequestBodyKind::Stream
        {
            return Err(S3Error::invalid("Only objects and parts can be sent in chunks."));
        }
        let (incoming, requester) = body.into_parts();
        let body = RequestBody::new(incoming, headers, identity.signature.as_ref())?;
        if operation.body == RequestBodyKind::Stream {
            let max = self.objects.config.put_bytes_max;
            match body.length() {
                None => return Err(Code::MissingContentLength.into()),
                Some(length) if length > max => return Err(gateway::too_large(length, max)),
                Some(_) => {}
            }
        }
        requester.hold(operation.body.memory(body.length())).await.map_err(|MemorySpent| Code::SlowDown)?;
        Ok(body)
    }

    fn call(
        &self,
        head: &RequestHead,
        operation: &'static OperationSpec,
        target: ResourcePath,
        identity: &Identity,
        body: RequestBody,
    ) -> S3Call {
        let scheme = identity.scheme();
        let access_context = access_context(head, identity);
        let (user, policies) = (identity.user().cloned(), identity.policies());
        S3Call {
            objects: Arc::clone(&self.objects),
            settings: Arc::clone(&self.settings),
            operation,
            bucket: target.bucket,
            key: target.key,
            query: head.query.clone(),
            headers: head.parts.headers.clone(),
            caller: Caller {
                user,
                policies,
                action: operation.action,
                access_context,
                request_id: head.id.as_str().into(),
                ..Caller::default()
            },
            signer: identity.holder.clone(),
            scheme,
            host: head.forwarded_host.as_ref().unwrap_or(&head.host).clone(),
            virtual_host: matches!(head.addressing, AddressingStyle::VirtualHosted(_)),
            request_id: head.id.clone(),
            now: head.now,
            admitted: None,
            background: self.background.clone(),
            body: Mutex::new(Some(body)),
        }
    }

    /// Says what to set where a bucket in front of an unknown host looks like no bucket, and its key like one.
    fn with_host_hint(&self, head: &RequestHead, error: S3Error) -> S3Error {
        static LOGGED: Once = Once::new();
        let host = head.asked_host();
        let is_telling = matches!(error.code, Code::NoSuchBucket | Code::NotImplemented);
        if !is_telling || !is_unknown_host(host, &self.settings.roots) {
            return error;
        }
        let hint = "The host is none of --s3-host, so the path names the bucket. If the host begins with a bucket, set --s3-host to the rest.";
        // Each request may have the host of its choice: once is enough.
        LOGGED.call_once(|| tracing::warn!(%host, status = %error.code.status(), "S3 request refused: {hint}"));
        error.with("Hint", hint)
    }

    /// Completes the response: error document, CORS and common headers, and accounting of its bytes.
    async fn finish(
        &self,
        head: &RequestHead,
        target: &ResourcePath,
        outcome: Result<S3Response, S3Error>,
        trace: RequestTrace,
    ) -> S3Response {
        let is_head = head.parts.method == Method::HEAD;
        let is_token_request =
            trace.operation.is_some_and(|operation| operation.support == Support::Implemented(S3Operation::AssumeRole));
        let mut response = outcome.unwrap_or_else(|error| {
            if is_token_request {
                return ops::token_error(&error, &head.id);
            }
            let range = head.parts.headers.get(RANGE).and_then(|range| range.to_str().ok());
            let error = self.with_host_hint(head, error);
            error.with_request(target, &head.query, range).into_response(&target.resource(), &head.id, is_head)
        });
        let (method, headers) = (head.parts.method.as_str(), &head.parts.headers);
        cors::add_headers(&self.objects, target, method, headers, &mut response).await;
        insert_common_headers(&mut response, &head.id);
        self.audit(head, target, &trace, &response);
        let tracked = trace.tracked.unwrap_or_else(|| self.objects.track(UNKNOWN));
        tracked.record_answer(response::status_outcome(response.status()));
        // Reports of usage name a user by the first key, whichever signed.
        let signer = trace.signer.map(|signer| signer.user.key_id.clone());
        let is_empty = is_head || response.body().length() == Some(0);
        let accounting = RequestAccounting {
            objects: Arc::clone(&self.objects),
            tracked,
            user: signer.zip(trace.operation.map(|operation| operation.usage_report_name)),
            received: trace.received,
            status: response.status(),
            sent: 0,
            is_complete: is_empty,
        };
        response.map(|body| body.with_accounting(accounting))
    }
}

impl S3Service {
    /// Reports refused requests, and changes of users, buckets and permissions.
    fn audit(&self, head: &RequestHead, target: &ResourcePath, trace: &RequestTrace, response: &S3Response) {
        let Some(log) = self.objects.gateway.context().audit() else { return };
        let status = response.status().as_u16();
        let outcome = AuditOutcome::from_status(status);
        if outcome == AuditOutcome::Refused || trace.operation.is_some_and(|operation| operation.is_audited) {
            let created = response.extensions().get::<ChangedUser>();
            log.record(&AuditEvent {
                face: "s3",
                who: trace.signer.as_ref().map(KeyHolder::key_id),
                from: Some(head.source.address),
                action: trace.operation.map_or(head.parts.method.as_str(), |operation| operation.name),
                target: &created.map_or_else(|| target.resource(), |user| format!("{}/{}", target.resource(), user.0)),
                outcome,
                status: Some(status),
                request: Some(&head.id),
            });
        }
    }
}

/// What policies test of a request by this identity.
fn access_context(head: &RequestHead, identity: &Identity) -> AccessContext {
    AccessContext { is_session: identity.is_session(), ..head.access_context(identity.scheme()) }
}

/// Sets the headers that every response has.
fn insert_common_headers(response: &mut S3Response, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id.clone());
        response.headers_mut().insert(ID_2, id);
    }
    response.headers_mut().insert(SERVER, NAME);
}
