//! S3: what buckets, objects, versions, uploads and users are, and what their rows hold. Pure.
//!
//! ```text
//! ids         bucket, version and upload ids, and how clients spell them
//! bucket      a bucket and its configuration            user        who signs
//! version     one version of an object                  head        the head of a key: its current version
//! entry       what listings show of a key               upload      a multipart upload and its states
//! part        a part, and the manifest of many          checksum    the five algorithms, composite and whole
//! acl policy public_access   who may                    cors lifecycle tags   the other configurations
//! listing     pages of keys and common prefixes         access      the verdict over all of these
//! ```
//! Rows are encoded as everywhere: a version byte first, an unknown one is an error. Configurations are JSON: they are few,
//! and a person restoring a store can read them.

pub mod access;
pub mod acl;
pub mod bucket;
pub mod checksum;
pub mod cors;
pub mod entry;
pub mod head;
pub mod ids;
pub mod lifecycle;
pub mod listing;
pub mod part;
pub mod policy;
pub mod public_access;
pub mod tags;
pub mod upload;
pub mod user;
pub mod version;

pub use acl::{Acl, Grant, Grantee, Permission};
pub use bucket::{Bucket, BucketState, Versioning};
pub use checksum::{Algorithm, Checksum, Kind as ChecksumKind};
pub use entry::{Entry, UploadEntry};
pub use head::{Head, Release};
pub use ids::{BucketId, UploadId, VersionId};
pub use part::{ManifestOwner, ManifestPart, Part};
pub use tags::Tag;
pub use upload::{Upload, UploadState};
pub use user::User;
pub use version::{Etag, Object, ObjectBody, SystemHeader, Version};
