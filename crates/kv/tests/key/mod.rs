//! The rows of one key in a map: the smallest store that can apply writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kv::rules::causality::{ConflictPolicy, Context, KeyVersions, KeyWrite, Slot, SupersededRow, VersionVector};
use larder_kv::rules::object_row::ObjectRow;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvBody, KvContent};
use larder_rows::{ActorId, Change, Row, Timestamp};

/// The rows of one key.
#[derive(Default, Clone)]
pub(crate) struct KeyRows {
    rows: BTreeMap<Bytes, Row>,
}

impl KeyRows {
    /// Applies the changes of one write.
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(row) => {
                    if self.rows.get(&row.name).is_none_or(|old| row.supersedes(old)) {
                        self.rows.insert(row.name.clone(), row.clone());
                    }
                }
                Change::Remove { name, stamp } => {
                    if self.rows.get(name).is_some_and(|row| row.stamp <= *stamp) {
                        self.rows.remove(name);
                    }
                }
                Change::Clear { stamp } => self.rows.retain(|_, row| row.stamp > *stamp),
            }
        }
    }

    /// Resolves the rows as a read does.
    pub(crate) fn read(&self, policy: ConflictPolicy) -> KeyVersions {
        KeyVersions::from_rows(self.rows.values().cloned().collect(), policy).unwrap()
    }
}

/// Encodes and decodes a context, as on its way to a client and back.
pub(crate) fn via_client(context: &Context) -> Context {
    let bucket = BucketAddress::new(Bytes::from_static(b"t"), Bytes::from_static(b"b")).unwrap();
    let address = Address::new(bucket, Bytes::from_static(b"k")).unwrap();
    Context::decode(&context.encode(&address), &address, Timestamp(u64::MAX - 1)).unwrap()
}

/// A put of `text` that replaces the rows named by `context`.
pub(crate) fn put(policy: ConflictPolicy, actor: u64, clock: u64, text: &str, context: &Context) -> KeyWrite {
    let body = KvBody::Inline(Bytes::copy_from_slice(text.as_bytes()));
    let content = KvContent { body, ..KvContent::default() };
    let row =
        ObjectRow { tombstone: false, context_hash: context.dots_hash(), vector: VersionVector::default(), content };
    KeyWrite::put(
        policy,
        Slot { actor: ActorId(actor), birth: Timestamp(clock) },
        Timestamp(clock),
        &row,
        SupersededRow::named_by(context),
    )
}

/// A delete of the rows named by `context`.
pub(crate) fn delete(policy: ConflictPolicy, actor: u64, clock: u64, context: &Context) -> KeyWrite {
    let slot = Slot { actor: ActorId(actor), birth: Timestamp(clock) };
    let vector = VersionVector::default();
    KeyWrite::delete(policy, slot, Timestamp(clock), Some(Timestamp::MAX), vector, SupersededRow::named_by(context))
}

/// The values of the siblings, as text.
pub(crate) fn texts(versions: &KeyVersions) -> Vec<String> {
    let text = |content: &KvContent| match &content.body {
        KvBody::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        KvBody::Blob(_) => "a blob".into(),
    };
    versions.siblings.iter().map(|sibling| text(&sibling.content)).collect()
}
