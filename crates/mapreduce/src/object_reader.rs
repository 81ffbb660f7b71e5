//! Reads the objects of map and link phases.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::body::GetBody;
use larder_core::{Error, Result};
use larder_kv::rules::causality::Sibling;
use larder_kv::{FetchedObject, Kv, KvGet, Quorums};
use larder_rows::limits::JOB_HELD_BYTES_MAX;
use tokio::time::Instant;

use super::error::JobError;
use crate::rules::{JobInput, MapObject};

/// Objects that are read at a time.
pub(super) const READS_AT_ONCE: usize = 16;
/// Time between two tries while the gateway is full.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bytes of a body that are read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// An object whose values may not be in memory yet.
pub(super) struct StoredInput {
    pub(super) input: JobInput,
    context: Bytes,
    pub(super) siblings: Vec<Sibling>,
    bodies: Vec<GetBody>,
}

/// Waits if the gateway refused a call because it is full, and says whether to repeat it: a job makes many calls, and has a
/// deadline.
pub(super) async fn should_repeat<T>(result: &Result<T>) -> bool {
    let is_full = matches!(result, Err(Error::Overloaded { .. }));
    if is_full {
        tokio::time::sleep(PATIENCE).await;
    }
    is_full
}

/// Reads the object of an input; its siblings are none if it does not exist.
pub(super) async fn read(kv: &Kv, input: JobInput, bodies: bool, deadline: Instant) -> Result<StoredInput> {
    let timeout = Some(deadline.saturating_duration_since(Instant::now()));
    let request = KvGet { address: input.address.clone(), quorums: Quorums::default(), bodies, timeout };
    // Most objects are one value, which takes no wait.
    if let Some(object) = kv.try_get(&request, usize::MAX) {
        let (siblings, bodies) = (vec![object.sibling], vec![GetBody::Bytes(object.value)]);
        return Ok(StoredInput { input, context: object.encoded_context, siblings, bodies });
    }
    let mut fetched = kv.get(request.clone()).await;
    while should_repeat(&fetched).await {
        fetched = kv.get(request.clone()).await;
    }
    let FetchedObject { versions, bodies, context, .. } = fetched?;
    Ok(StoredInput { input, context: context.unwrap_or_default(), siblings: versions.siblings, bodies })
}

impl StoredInput {
    /// Bytes of its values.
    pub(super) fn length(&self) -> u64 {
        self.bodies.iter().map(GetBody::length).sum()
    }

    /// The object with its values in memory.
    ///
    /// # Errors
    /// [`JobError::TooLarge`], and damage of a value.
    pub(super) async fn load(self) -> std::result::Result<MapObject, JobError> {
        if self.length() > JOB_HELD_BYTES_MAX as u64 {
            return Err(JobError::TooLarge);
        }
        let mut values = Vec::with_capacity(self.siblings.len());
        for (sibling, body) in self.siblings.into_iter().zip(self.bodies) {
            values.push((sibling, read_body(body).await?));
        }
        Ok(MapObject { input: self.input, context: self.context, values })
    }
}

async fn read_body(mut body: GetBody) -> Result<Bytes> {
    if let GetBody::Bytes(bytes) = body {
        return Ok(bytes);
    }
    let length = body.length();
    let mut all = BytesMut::new();
    while (all.len() as u64) < length {
        let piece = body.piece(all.len() as u64, PIECE_BYTES).await?;
        if piece.is_empty() {
            return Err(Error::Damaged("a value is shorter than its object says".into()));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}
