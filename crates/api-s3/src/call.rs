//! A request on its way to its operation: decoded, its signature checked.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use larder_gateway::Admitted;
use larder_gateway::objects::{Caller, Objects};
use larder_model::rows::Micros;
use parking_lot::Mutex;

use crate::S3Settings;
use crate::auth::Scheme;
use crate::background::Background;
use crate::body::RequestBody;
use crate::operations::Operation;
use crate::query::Query;

/// What an operation gets.
pub struct Call {
    /// Who carries it out.
    pub objects: Arc<Objects>,
    /// The settings of this face.
    pub settings: Arc<S3Settings>,
    /// Its line in the table.
    pub operation: &'static Operation,
    /// The bucket; empty for the service.
    pub bucket: String,
    /// The key, UTF-8; empty for a bucket. Of the administrator's paths: what follows `/riak-cs/`.
    pub key: Bytes,
    /// Its parameters.
    pub query: Query,
    /// Its headers.
    pub headers: HeaderMap,
    /// Who asks.
    pub caller: Caller,
    /// How it was signed; `None`: not at all.
    pub scheme: Option<Scheme>,
    /// The host it came to as the client wrote it, with its port; for addresses in answers.
    pub host: String,
    /// Whether the bucket was named by the host.
    pub virtual_host: bool,
    /// Its id, in the header `x-amz-request-id` and in error documents.
    pub request_id: String,
    /// When it came.
    pub now: Micros,
    /// Its place among the requests at work; what goes on without the client keeps it.
    pub(crate) admitted: Option<Arc<Admitted>>,
    /// Where work goes on without the client.
    pub(crate) background: Background,
    pub(crate) body: Mutex<Option<RequestBody>>,
}

impl Call {
    /// The request's body, to be taken once; a second time it is empty.
    #[must_use]
    pub fn take_body(&self) -> RequestBody {
        self.body.lock().take().unwrap_or_else(RequestBody::empty)
    }

    /// The value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// All values of a header as one, joined with commas.
    #[must_use]
    pub fn joined(&self, name: &HeaderName) -> Option<Bytes> {
        joined(&self.headers, name)
    }

    /// The resource as documents name it.
    #[must_use]
    pub fn resource(&self) -> String {
        crate::path::Target { bucket: self.bucket.clone(), key: self.key.clone() }.resource()
    }

    /// The address of the object, as the answers to complete and form uploads tell it.
    #[must_use]
    pub fn location(&self) -> String {
        let key = percent_encoding::percent_encode(&self.key, crate::auth::PATH);
        if self.virtual_host {
            format!("http://{}/{key}", self.host)
        } else {
            format!("http://{}/{}/{key}", self.host, self.bucket)
        }
    }
}

/// All values of a header as one, joined with commas.
#[must_use]
pub fn joined(headers: &HeaderMap, name: impl hyper::header::AsHeaderName) -> Option<Bytes> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let mut all = first.as_bytes().to_vec();
    for value in values {
        all.push(b',');
        all.extend_from_slice(value.as_bytes());
    }
    Some(all.into())
}
