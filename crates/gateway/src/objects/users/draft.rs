//! One attempt to change the users: what is read while the head stands still, and the rows to be written.

use bytes::Bytes;
use larder_model::codec::DecodeError;
use larder_model::objects::User;
use larder_model::rows::{Change, Row, Stamp};
use larder_store::{Durability, Level, Options, Partition, ReadQuery, Swap};
use tokio::time::Instant;

use super::super::{Objects, Result};
use crate::contention::WriterPlace;
use crate::gateway::HOUSEKEEPING;

/// Version of the rows.
const VERSION: u8 = 1;
/// Marks a row with a user, named by canonical id.
pub(super) const USER: u8 = b'u';
/// Marks a row with a canonical id, named by access key id.
pub(super) const KEY: u8 = b'k';
/// Marks a row with a canonical id, named by e-mail address.
pub(super) const EMAIL: u8 = b'e';
/// Marks the one row with the canonical id of the admin who was made at the first start.
pub(super) const ADMIN: u8 = b'a';

/// Name of a row.
pub(super) fn row_name(kind: u8, of: &str) -> Bytes {
    [&[kind], of.as_bytes()].concat().into()
}

/// What a row holds behind its version.
pub(super) fn content(value: &Bytes) -> Result<Bytes> {
    match value.split_first() {
        Some((&VERSION, _)) => Ok(value.slice(1..)),
        Some((&other, _)) => Err(DecodeError::UnknownVersion(other).into()),
        None => Err(DecodeError::Truncated.into()),
    }
}

/// The user in a row.
pub(super) fn user_of(value: &Bytes) -> Result<User> {
    serde_json::from_slice(&content(value)?).map_err(|_| DecodeError::Invalid("user").into())
}

/// Longer than any name a row can have: nothing is asked for by it.
const NAME_BYTES_MAX: usize = 1024;

/// Reads and changes that hold if nobody else changed the users meanwhile.
pub(super) struct Draft<'a> {
    objects: &'a Objects,
    /// Of the writers of the users in this gateway, it is this one's turn.
    _writer: WriterPlace<'a>,
    head: Option<Stamp>,
    stamp: Stamp,
    changes: Vec<Change>,
}

impl<'a> Draft<'a> {
    /// Begins an attempt.
    pub(super) async fn begin(objects: &'a Objects) -> Result<Self> {
        let writer = objects.gateway.line_up(&Partition::users(), Instant::now() + HOUSEKEEPING).await?;
        let head = objects.user_row(Bytes::new()).await?.map(|row| row.stamp);
        let stamp = objects.gateway.now().max(head.unwrap_or(0) + 2);
        Ok(Self { objects, _writer: writer, head, stamp, changes: Vec::new() })
    }

    /// The user that a row of this kind names.
    pub(super) async fn find(&self, kind: u8, of: &str) -> Result<Option<User>> {
        self.objects.find_user(kind, of).await
    }

    /// Writes a user, and what leads to it; `before`: as it was.
    pub(super) fn write(&mut self, before: Option<&User>, user: &User) {
        for (kind, name) in [(KEY, &user.key_id), (EMAIL, &user.email)] {
            self.put(row_name(kind, name), user.id.as_bytes());
        }
        if let Some(before) = before.filter(|before| before.key_id != user.key_id) {
            self.remove(row_name(KEY, &before.key_id));
        }
        if let Some(before) = before.filter(|before| before.email != user.email) {
            self.remove(row_name(EMAIL, &before.email));
        }
        // Strings, numbers and truth values only: nothing that JSON could not hold.
        self.put(row_name(USER, &user.id), &serde_json::to_vec(user).unwrap_or_default());
    }

    /// Removes a user, and what leads to it.
    pub(super) fn erase(&mut self, user: &User) {
        for (kind, name) in [(USER, &user.id), (KEY, &user.key_id), (EMAIL, &user.email)] {
            self.remove(row_name(kind, name));
        }
    }

    /// Makes a user the admin.
    pub(super) fn name_admin(&mut self, user: &User) {
        self.put(row_name(ADMIN, ""), user.id.as_bytes());
    }

    /// Writes it all, if nobody else changed the users since the beginning: `false` means begin again.
    pub(super) async fn commit(self) -> Result<bool> {
        let head = Row { name: Bytes::new(), value: Bytes::from_static(&[VERSION]), stamp: self.stamp, expires: None };
        let options = Options { durability: Durability::Disk, ..self.objects.gateway.own(Level::Quorum) };
        let store = &self.objects.gateway.ports.store;
        let swap = store.apply_if(&Partition::users(), self.head, head.into(), self.changes, &options).await;
        // Whatever came back: it may have been written.
        self.objects.users.clear();
        Ok(swap? == Swap::Applied)
    }

    fn put(&mut self, name: Bytes, content: &[u8]) {
        let value = [&[VERSION], content].concat().into();
        self.changes.push(Change::Put(Row { name, value, stamp: self.stamp, expires: None }));
    }

    fn remove(&mut self, name: Bytes) {
        self.changes.push(Change::Remove { name, stamp: self.stamp });
    }
}

impl Objects {
    /// The user that a row of this kind names; the row and the user may be of different moments.
    pub(super) async fn find_user(&self, kind: u8, of: &str) -> Result<Option<User>> {
        if of.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        let Some(row) = self.user_row(row_name(kind, of)).await? else { return Ok(None) };
        if kind == USER {
            return user_of(&row.value).map(Some);
        }
        let name = [&[USER], &content(&row.value)?[..]].concat().into();
        self.user_row(name).await?.map(|row| user_of(&row.value)).transpose()
    }

    async fn user_row(&self, name: Bytes) -> Result<Option<Row>> {
        let options = self.gateway.own(Level::Quorum);
        let page = self.gateway.ports.store.read(&Partition::users(), &ReadQuery::one(name), &options).await?;
        Ok(page.rows.into_iter().next())
    }
}
