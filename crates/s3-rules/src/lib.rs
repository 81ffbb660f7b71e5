//! S3: buckets, objects, versions, uploads and users, and the rows that store them. Pure.
//!
//! ```text
//! bucket      a bucket and its configuration            user        an S3 user, and its further keys
//! version     one version of an object                  head        the head of a key: its current version
//! entry       listing entries of keys and uploads       upload      a multipart upload and its states
//! part        a part, its pages, and the manifest       checksum    the algorithms, composite and whole
//! acl policy ownership public_access   permissions      cors lifecycle tags website   the others
//! listing     pages of keys and common prefixes         action      the actions that need permission
//! encryption  what is stored of it   object_key  keys of objects and bodies
//! access      the decision whether a request is allowed   condition_keys   the condition keys of requests
//! object_lock   retention and legal hold              lock_time   the time by which they end
//! group       a group of users                          session_token   what the token of a session says, sealed
//! dates       the formats of times in headers and documents
//! ```
//! A row begins with a version byte, and an unknown version is an error. Configurations are JSON: they are few, and an operator
//! who restores a store can read them.

pub mod access;
mod access_request;
pub mod acl;
pub mod action;
pub mod bucket;
pub mod checksum;
mod condition_keys;
pub mod cors;
pub mod dates;
pub mod encryption;
pub mod entry;
pub mod group;
pub mod head;
pub mod lifecycle;
pub mod listing;
pub mod lock_time;
pub mod notification;
pub mod object_key;
pub mod object_lock;
pub mod ownership;
pub mod part;
pub mod policy;
pub mod public_access;
pub mod quota;
pub mod session_token;
pub mod tags;
pub mod upload;
pub mod user;
pub mod version;
pub mod website;

pub use acl::{Acl, Grant, Grantee, Permission};
pub use action::S3Action;
pub use bucket::{Bucket, BucketState, Versioning};
pub use checksum::{Algorithm, Checksum, ChecksumKind};
pub use entry::{ListingEntry, UploadEntry};
pub use group::UserGroup;
pub use head::{ObjectHead, Release};
pub use larder_rows::ids::{BucketId, UploadId, VersionId};
pub use object_lock::{BucketLock, DefaultRetention, ObjectLock, Retention, RetentionMode, RetentionPeriod};
pub use part::{ManifestOwner, ManifestPart, Part};
pub use quota::{Storage, StorageQuota};
pub use tags::Tag;
pub use upload::{Upload, UploadState};
pub use user::{AccessKey, KeyLimits, User};
pub use version::{Etag, Object, ObjectBody, SystemHeader, Version};
