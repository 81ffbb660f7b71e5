//! Giving an upload up.

use bytes::Bytes;

use super::{Caller, Objects, Result};

impl Objects {
    /// Gives an upload up and removes its parts. `initiated`: when it must have been begun, in whole seconds since 1970.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload` (also when it was given up before), `PreconditionFailed`.
    pub async fn abort(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        upload: &str,
        initiated: Option<u64>,
    ) -> Result<()> {
        unimplemented!()
    }
}
