//! One key held in a plain map: the smallest thing that writes can be applied to.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_model::address::{Address, BucketAddress};
use larder_model::causality::{Context, Mode, Reading, Removed, Slot, Versions, Write};
use larder_model::content::{Body, Content};
use larder_model::rows::{Change, ObjectRow, Row};

/// The rows of one key.
#[derive(Default, Clone)]
pub(crate) struct Key {
    rows: BTreeMap<Bytes, Row>,
}

impl Key {
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

    /// What a read shows.
    pub(crate) fn read(&self, mode: Mode) -> Versions {
        Versions::of(self.rows.values().cloned().collect(), Reading::of(mode)).unwrap()
    }
}

/// Takes a context through the client and back, as the edges do.
pub(crate) fn carried(context: &Context) -> Context {
    let bucket = BucketAddress::new(Bytes::from_static(b"t"), Bytes::from_static(b"b")).unwrap();
    let address = Address::new(bucket, Bytes::from_static(b"k")).unwrap();
    Context::decode(&context.encode(&address), &address, u64::MAX - 1).unwrap()
}

/// A put of `text` that replaces what `context` names.
pub(crate) fn put(mode: Mode, actor: u64, clock: u64, text: &str, context: &Context) -> Write {
    let body = Body::Inline(Bytes::copy_from_slice(text.as_bytes()));
    let content = Content { body, ..Content::default() };
    let row = ObjectRow { tombstone: false, replaced: context.dots_hash(), covers: Vec::new(), content };
    Write::put(mode, Slot { actor, birth: clock }, clock, &row, Removed::named_by(context))
}

/// A deletion of what `context` names.
pub(crate) fn delete(mode: Mode, actor: u64, clock: u64, context: &Context) -> Write {
    let slot = Slot { actor, birth: clock };
    Write::delete(mode, slot, clock, Some(u64::MAX), Vec::new(), Removed::named_by(context))
}

/// The values shown, as text.
pub(crate) fn texts(versions: &Versions) -> Vec<String> {
    let text = |content: &Content| match &content.body {
        Body::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::Blob(_) => "a blob".into(),
    };
    versions.siblings.iter().map(|sibling| text(&sibling.content)).collect()
}
