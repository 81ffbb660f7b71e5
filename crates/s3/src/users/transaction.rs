//! One optimistic transaction on the users: reads, and rows to write if the head is unchanged.

use bytes::Bytes;
use larder_core::contention::WriterTurn;
use larder_core::node_context::{INTERNAL_CALL_TIMEOUT, internal_options};
use larder_rows::codec::DecodeError;
use larder_rows::{Change, Row, Timestamp};
use larder_store::{
    CallOptions, CasResult, ConsistencyLevel, Durability, Partition, Range, ReadOrder, ReadQuery, RowPage,
};
use tokio::time::Instant;

use super::super::Result;
use super::Users;
use crate::rules::User;

/// Version byte of the rows.
const VERSION: u8 = 1;
/// Version byte of a user with policies or groups: a server that does not know them must not ignore what they forbid.
const ATTACHED: u8 = 2;
/// Prefix of rows with a user, named by canonical id.
pub(super) const USER: u8 = b'u';
/// Prefix of rows with a canonical id, named by access key id.
pub(super) const KEY: u8 = b'k';
/// Prefix of rows with a canonical id, named by e-mail address.
pub(super) const EMAIL: u8 = b'e';
/// Name of the row with the canonical id of the admin created at the first start.
pub(super) const ADMIN: u8 = b'a';

/// Prefix of rows with a policy for users and groups, named by it.
pub(super) const POLICY: u8 = b'p';
/// Prefix of rows with a group, named by it.
pub(super) const GROUP: u8 = b'g';
/// Name of the row with the key that seals the tokens of sessions.
pub(super) const TOKEN_KEY: u8 = b't';

/// Name of a row.
pub(super) fn row_name(kind: u8, of: &str) -> Bytes {
    [&[kind], of.as_bytes()].concat().into()
}

/// The names of the rows by which a user is found: its keys and its address.
fn index_rows(user: &User) -> impl Iterator<Item = Bytes> {
    user.key_ids().map(|key| row_name(KEY, key)).chain([row_name(EMAIL, &user.email)])
}

/// The content of a row after its version byte.
pub(super) fn content(value: &Bytes) -> Result<Bytes> {
    match value.split_first() {
        Some((&VERSION, _)) => Ok(value.slice(1..)),
        Some((&other, _)) => Err(DecodeError::UnknownVersion(other).into()),
        None => Err(DecodeError::Truncated.into()),
    }
}

/// The user in a row.
pub(super) fn decode_user(value: &Bytes) -> Result<User> {
    let json = if value.first() == Some(&ATTACHED) { value.slice(1..) } else { content(value)? };
    serde_json::from_slice(&json).map_err(|_| DecodeError::Invalid("user").into())
}

/// The JSON in a row of this kind, whose name errors show.
pub(super) fn decode_json<T: serde::de::DeserializeOwned>(value: &Bytes, kind: &'static str) -> Result<T> {
    serde_json::from_slice(&content(value)?).map_err(|_| DecodeError::Invalid(kind).into())
}

/// Longer than any row name: no lookup reads beyond it.
const NAME_BYTES_MAX: usize = 1024;

/// Reads and changes that commit if no other writer changed the users.
pub(super) struct UsersTransaction<'a> {
    users: &'a Users,
    /// The place of this writer in the queue of the users' writers in this gateway.
    _writer: WriterTurn<'a>,
    head: Option<Timestamp>,
    stamp: Timestamp,
    changes: Vec<Change>,
}

impl<'a> UsersTransaction<'a> {
    /// Begins an attempt.
    pub(super) async fn begin(users: &'a Users) -> Result<Self> {
        let writer = users
            .context
            .writer_queues
            .wait_for_turn(&Partition::users(), Instant::now() + INTERNAL_CALL_TIMEOUT)
            .await?;
        // Race: the head is read first, so a change after any later read fails the compare-and-set.
        let head = users.row(Bytes::new()).await?.map(|row| row.stamp);
        let stamp = users.context.now().max(head.unwrap_or(Timestamp::ZERO) + 2);
        Ok(Self { users, _writer: writer, head, stamp, changes: Vec::new() })
    }

    /// Writes a user and its index rows; `before`: the old version.
    pub(super) fn put_user(&mut self, before: Option<&User>, user: &User) {
        for row in index_rows(user) {
            self.put(row, user.id.as_bytes());
        }
        let rows: Vec<Bytes> = index_rows(user).collect();
        for gone in before.into_iter().flat_map(index_rows).filter(|row| !rows.contains(row)) {
            self.remove(gone);
        }
        // JSON can represent every field.
        let json = serde_json::to_vec(user).unwrap_or_default();
        let version = if user.has_attachments() { ATTACHED } else { VERSION };
        self.put_version(version, row_name(USER, &user.id), &json);
    }

    /// Writes a row of this kind, name and content.
    pub(super) fn put_row(&mut self, kind: u8, name: &str, content: &[u8]) {
        self.put(row_name(kind, name), content);
    }

    /// Removes a row of this kind and name.
    pub(super) fn remove_row(&mut self, kind: u8, name: &str) {
        self.remove(row_name(kind, name));
    }

    /// Removes a user and its index rows.
    pub(super) fn remove_user(&mut self, user: &User) {
        index_rows(user).chain([row_name(USER, &user.id)]).for_each(|row| self.remove(row));
    }

    /// Makes a user the admin.
    pub(super) fn set_admin(&mut self, user: &User) {
        self.put(row_name(ADMIN, ""), user.id.as_bytes());
    }

    /// Commits if no other writer changed the users since the beginning; `false`: begin again.
    pub(super) async fn commit(self) -> Result<bool> {
        let head = Row { name: Bytes::new(), value: Bytes::from_static(&[VERSION]), stamp: self.stamp, expires: None };
        // Crash: a power cut must not bring back a deleted user or an old secret.
        let options = CallOptions { durability: Durability::Disk, ..internal_options(ConsistencyLevel::Quorum) };
        let store = &self.users.context.ports.store;
        let swap = store.apply_if(&Partition::users(), self.head, head.into(), self.changes, &options).await;
        // Race: after any outcome the rows may have been written, so cached users are stale.
        self.users.cache.clear();
        Ok(swap? == CasResult::Applied)
    }

    fn put(&mut self, name: Bytes, content: &[u8]) {
        self.put_version(VERSION, name, content);
    }

    fn put_version(&mut self, version: u8, name: Bytes, content: &[u8]) {
        let value = [&[version], content].concat().into();
        self.changes.push(Change::Put(Row { name, value, stamp: self.stamp, expires: None }));
    }

    fn remove(&mut self, name: Bytes) {
        self.changes.push(Change::Remove { name, stamp: self.stamp });
    }
}

impl Users {
    /// The user that a row of this kind names. The two rows are read one after the other, without a snapshot.
    pub(super) async fn find(&self, kind: u8, of: &str) -> Result<Option<User>> {
        if of.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        let Some(row) = self.row(row_name(kind, of)).await? else { return Ok(None) };
        if kind == USER {
            return decode_user(&row.value).map(Some);
        }
        let name = [&[USER], &content(&row.value)?[..]].concat().into();
        self.row(name).await?.map(|row| decode_user(&row.value)).transpose()
    }

    /// A page of the rows of this kind after this name.
    pub(super) async fn page(&self, kind: u8, after: &str, limit: usize) -> Result<RowPage> {
        let from = if after.is_empty() { row_name(kind, "") } else { row_name(kind, &format!("{after}\0")) };
        let range = Range { from: Some(from), to: Some(Bytes::copy_from_slice(&[kind + 1])) };
        let query = ReadQuery { range, limit, order: ReadOrder::Forward };
        Ok(self.context.read_at_quorum(&Partition::users(), &query).await?)
    }

    /// The row of this kind and name.
    pub(super) async fn named_row(&self, kind: u8, name: &str) -> Result<Option<Row>> {
        self.row(row_name(kind, name)).await
    }

    async fn row(&self, name: Bytes) -> Result<Option<Row>> {
        let page = self.context.read_at_quorum(&Partition::users(), &ReadQuery::one(name)).await?;
        Ok(page.rows.into_iter().next())
    }
}
