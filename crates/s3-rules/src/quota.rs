//! Limits on what is stored in an S3 bucket, or in all buckets of a user.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Storage {
    /// One object of so many bytes.
    #[must_use]
    pub fn object(bytes: u64) -> Self {
        Self { objects: 1, bytes }
    }

    /// So many bytes of no object yet: of a part.
    #[must_use]
    pub fn part(bytes: u64) -> Self {
        Self { objects: 0, bytes }
    }

    /// Without `less`, at least nothing.
    #[must_use]
    pub fn less(self, less: Self) -> Self {
        let Self { objects, bytes } = self;
        Self { objects: objects.saturating_sub(less.objects), bytes: bytes.saturating_sub(less.bytes) }
    }
}

impl AddAssign for Storage {
    fn add_assign(&mut self, more: Self) {
        self.objects = self.objects.saturating_add(more.objects);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Most that may be stored; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageQuota {
    /// Objects: every version counts, a delete marker does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Bytes of all versions, and of the parts of open uploads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl StorageQuota {
    /// Whether this much may be stored.
    #[must_use]
    pub fn holds(self, stored: Storage) -> bool {
        self.objects.is_none_or(|most| stored.objects <= most) && self.bytes.is_none_or(|most| stored.bytes <= most)
    }

    /// The stored form.
    #[must_use]
    pub fn to_json(self) -> Json {
        // This cannot fail: there are only numbers.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl fmt::Display for StorageQuota {
    /// Such as `1000 objects, 1048576 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits =
            [self.objects.map(|most| format!("{most} objects")), self.bytes.map(|most| format!("{most} bytes"))];
        f.write_str(&limits.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_holds_up_to_each_of_its_limits() {
        let quota = StorageQuota { objects: Some(2), bytes: Some(10) };
        let stored = |objects, bytes| Storage { objects, bytes };
        assert!(quota.holds(stored(2, 10)) && StorageQuota::default().holds(stored(u64::MAX, u64::MAX)));
        assert!(!quota.holds(stored(3, 0)) && !quota.holds(stored(0, 11)));
        let mut most = stored(u64::MAX, 1);
        most += stored(1, 1);
        assert_eq!((most, most.less(stored(1, 5))), (stored(u64::MAX, 2), stored(u64::MAX - 1, 0)));
    }

    #[test]
    fn quotas_decode_to_themselves_and_other_fields_are_refused() {
        for (quota, json, text) in [
            (StorageQuota::default(), "{}", ""),
            (StorageQuota { objects: Some(7), bytes: None }, r#"{"objects":7}"#, "7 objects"),
            (StorageQuota { objects: Some(7), bytes: Some(9) }, r#"{"bytes":9,"objects":7}"#, "7 objects, 9 bytes"),
        ] {
            assert_eq!((quota.to_json(), quota.to_string().as_str()), (serde_json::from_str(json).unwrap(), text));
            assert_eq!(serde_json::from_str::<StorageQuota>(json).unwrap(), quota);
        }
        assert!(serde_json::from_str::<StorageQuota>(r#"{"parts":7}"#).is_err());
    }
}
