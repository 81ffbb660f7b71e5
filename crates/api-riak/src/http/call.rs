//! A request without its body. Names are decoded on demand.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderMap;
use larder_core::Error;
use larder_kv::Gateway;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};

use super::path::{self, QueryParams, Segments};
use super::routes::{PathPart, Route};

/// A request without its body.
pub(super) struct RiakCall<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The matched route.
    pub route: &'static Route,
    /// Its method.
    pub method: &'a Method,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The segments of its path.
    pub segments: Segments<'a>,
    /// Its parameters.
    pub query: QueryParams<'a>,
    /// Its user; `None`: security is off, or the route is for everybody.
    pub user: Option<Arc<str>>,
}

impl RiakCall<'_> {
    /// Whether the request is a HEAD, whose answer has no body.
    #[must_use]
    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// The raw segment at the position of `part` in the route; empty when the route has none.
    #[must_use]
    pub(super) fn raw(&self, part: PathPart) -> &str {
        self.route.place(part).map(|place| self.segments.raw(place)).unwrap_or_default()
    }

    /// The bucket type, `default` when the path names none.
    #[must_use]
    pub(super) fn bucket_type(&self) -> Bytes {
        match self.route.place(PathPart::Type) {
            Some(place) => path::name(self.segments.raw(place)),
            None => Bytes::from_static(DEFAULT_TYPE),
        }
    }

    /// The bucket.
    ///
    /// # Errors
    /// A name is too long.
    pub(super) fn bucket(&self) -> Result<BucketAddress, Error> {
        Ok(BucketAddress::new(self.bucket_type(), path::name(self.raw(PathPart::Bucket)))?)
    }

    /// The object.
    ///
    /// # Errors
    /// A name is too long.
    pub(super) fn address(&self) -> Result<Address, Error> {
        Ok(Address::new(self.bucket()?, path::name(self.raw(PathPart::Key)))?)
    }
}
