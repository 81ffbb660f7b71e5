//! The probes of orchestrators, at the paths of MinIO and at those of the Riak interface.
//!
//! A path such as `/health/live` is also the key `live` in the bucket `health`. A probe is a GET or HEAD of exactly this path in path
//! style, without a query and without a signature; every other request reaches the bucket. Whether such a bucket exists is not
//! asked: a probe must not touch the store.

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use larder_core::Core;

use crate::response::{self, S3Response};
use crate::target::AddressingStyle;

/// A question of an orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthProbe {
    /// Whether the process answers.
    Live,
    /// Whether it should get requests.
    Ready,
}

/// The paths of the probes.
const PATHS: &[(&str, HealthProbe)] = &[
    ("/health/live", HealthProbe::Live),
    ("/health/ready", HealthProbe::Ready),
    ("/minio/health/live", HealthProbe::Live),
    ("/minio/health/ready", HealthProbe::Ready),
    ("/minio/health/cluster", HealthProbe::Ready),
];

impl HealthProbe {
    /// The probe that a request is.
    pub(crate) fn from_request(parts: &Parts, addressing: &AddressingStyle) -> Option<Self> {
        let (_, probe) = PATHS.iter().find(|(path, _)| *path == parts.uri.path())?;
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let is_plain = parts.uri.query().is_none() && !parts.headers.contains_key(AUTHORIZATION);
        (is_read && is_plain && *addressing == AddressingStyle::PathStyle).then_some(*probe)
    }

    /// The answer.
    pub(crate) fn answer(self, gateway: &Core) -> S3Response {
        let (status, text) = match self {
            Self::Live => (StatusCode::OK, "live\n".to_owned()),
            Self::Ready => match gateway.readiness() {
                Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            },
        };
        response::typed(status, HeaderValue::from_static("text/plain"), text)
    }
}
