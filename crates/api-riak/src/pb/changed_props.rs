//! Requests that change the properties of buckets and types: each has a line in the audit log.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv::Gateway;

use super::fault::{PbFault, decode};
use super::fields::type_of;
use super::messages::{RpbBucketReq, RpbSetBucketReq, RpbSetBucketTypeReq};
use super::operations::PbOperation;
use super::props;
use super::session::PbSession;

/// Carries out `SetBucket`, `ResetBucket` or `SetBucketType`, and reports it.
///
/// # Errors
/// The request was not carried out.
pub(super) async fn change(
    gateway: &Arc<Gateway>,
    session: &PbSession,
    (operation, message): (PbOperation, Bytes),
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let (target, done) = match operation {
        PbOperation::SetBucket => {
            let request: RpbSetBucketReq = decode(message)?;
            let target = bucket_path(request.r#type.clone(), request.bucket.as_ref());
            (target, props::set_bucket(gateway, request, output).await)
        }
        PbOperation::ResetBucket => {
            let request: RpbBucketReq = decode(message)?;
            let target = bucket_path(request.r#type.clone(), request.bucket.as_ref());
            (target, props::reset_bucket(gateway, request, output).await)
        }
        _ => {
            let request: RpbSetBucketTypeReq = decode(message)?;
            let target = format!("/types/{}", String::from_utf8_lossy(&type_of(request.r#type.clone())));
            (target, props::set_type(gateway, request, output).await)
        }
    };
    if let Some(log) = gateway.core.audit() {
        log.record(&AuditEvent {
            face: "pb",
            who: session.user.as_ref().map(|login| &*login.user),
            from: Some(session.source.address),
            action: &format!("{operation:?}"),
            target: &target,
            outcome: if done.is_ok() { AuditOutcome::Done } else { AuditOutcome::Failed },
            status: None,
            request: None,
        });
    }
    done
}

fn bucket_path(bucket_type: Option<Bytes>, bucket: Option<&Bytes>) -> String {
    let (bucket_type, bucket) = (type_of(bucket_type), bucket.map(|bucket| &bucket[..]).unwrap_or_default());
    format!("/types/{}/buckets/{}", String::from_utf8_lossy(&bucket_type), String::from_utf8_lossy(bucket))
}
