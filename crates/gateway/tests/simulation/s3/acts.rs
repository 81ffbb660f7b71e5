//! What the clients of a random schedule do, and what they find wrong.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use larder_gateway::objects::Error;
use larder_gateway::objects::complete::ListedPart;
use larder_model::objects::Versioning;
use tokio::time::Instant;

use super::client::Client;
use super::history::{Deed, History, Value};
use super::random::KEYS;
use crate::random::Dice;

/// An upload somebody began: its key, its id, the parts that were acknowledged with their texts.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) key: &'static str,
    pub(super) id: String,
    pub(super) parts: BTreeMap<u16, Vec<(ListedPart, String)>>,
}

/// What all clients of a schedule share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) history: History,
    pub(super) uploads: Rc<RefCell<Vec<Begun>>>,
    /// Versions that have to stay.
    pub(super) versions: Rc<RefCell<Versions>>,
    /// Since when every version is kept: that was answered then.
    pub(super) kept_since: Rc<Cell<Option<Instant>>>,
    pub(super) wrong: Rc<RefCell<Option<String>>>,
    /// Whether there is but one gateway: then nothing goes away under a reader.
    pub(super) alone: bool,
    /// Whether versions are removed one by one: then older ones become current again.
    pub(super) prunes: bool,
    /// Whether the bucket is deleted, and made again, whenever it is found empty.
    pub(super) drops: bool,
}

/// Versions that were acknowledged: key, id, text.
type Versions = Vec<(&'static str, String, String)>;

impl Shared {
    fn finds(&self, wrong: String) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }

    /// Notes a version whose write began at this moment and was acknowledged, if it has to stay.
    fn stored(&self, key: &'static str, id: Option<String>, text: &str, begun: Instant) {
        let kept = self.kept_since.get().is_some_and(|since| since <= begun);
        let id = id.filter(|id| kept && id != "null");
        self.versions.borrow_mut().extend(id.map(|id| (key, id, text.to_owned())));
    }

    /// Whether who read a key in this time may have seen this.
    pub(super) fn allows(&self, key: &str, value: &Value, (begun, ended): (Instant, Instant)) -> bool {
        if !self.prunes {
            return self.history.allows(key, value, (begun, ended));
        }
        value.as_ref().is_none_or(|text| self.history.knows(text))
    }
}

/// What one client does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Put(&'static str, String),
    Delete(&'static str),
    Get(&'static str),
    List,
    Copy(&'static str, &'static str),
    Begin(&'static str),
    Part(Begun, u16, String),
    Complete(Begun, Vec<(ListedPart, String)>),
    Abort(Begun),
    /// The newest version of a key, or the oldest.
    Prune(&'static str, bool),
    Switch,
    Drop,
    Sweep,
    Age,
}

pub(super) fn draw(dice: &mut Dice, shared: &Shared, text: String) -> Act {
    let key = KEYS[dice.below(2)];
    let uploads = shared.uploads.borrow();
    let upload = if uploads.is_empty() { None } else { Some(uploads[dice.below(uploads.len())].clone()) };
    if shared.drops && dice.below(4) == 0 {
        return if dice.below(2) == 0 { Act::Drop } else { Act::Delete(key) };
    }
    match (dice.below(100), upload) {
        (0..18, _) => Act::Put(key, text),
        (18..26, _) => Act::Delete(key),
        (26..40, _) => Act::Get(key),
        (40..46, _) => Act::List,
        (46..52, _) => Act::Copy(key, key),
        (52..58, _) => Act::Copy(KEYS[0], KEYS[1]),
        (58..63, _) => Act::Sweep,
        (63..65, _) => Act::Age,
        (65..67, _) if !shared.drops => Act::Switch,
        (67..70, _) if shared.prunes => Act::Prune(key, dice.below(2) == 0),
        (65..79, Some(upload)) => Act::Part(upload, 1 + dice.below(2) as u16, text),
        (79..94, Some(upload)) => {
            let pick = |found: &Vec<(ListedPart, String)>, dice: &mut Dice| found[dice.below(found.len())].clone();
            let parts = upload.parts.values().map(|found| pick(found, dice)).collect::<Vec<_>>();
            if parts.is_empty() { Act::Part(upload, 1, text) } else { Act::Complete(upload, parts) }
        }
        (94..96, Some(upload)) => Act::Abort(upload),
        _ => Act::Begin(key),
    }
}

pub(super) async fn act(client: Client, shared: Shared, act: Act) {
    let (history, begun) = (&shared.history, Instant::now());
    match act {
        Act::Put(key, text) => {
            let write = history.begin(key, Deed::Put(text.clone()));
            if let Ok(stored) = client.put(key, &text).await {
                write.acknowledge();
                shared.stored(key, stored.version_id, &text, begun);
            }
        }
        Act::Delete(key) => {
            let write = history.begin(key, Deed::Delete);
            if client.delete(key).await.is_ok() {
                write.acknowledge();
            }
        }
        Act::Copy(from, to) => {
            let write = history.begin(to, Deed::Copy(from.into()));
            if client.copy(from, to).await.is_ok() {
                write.acknowledge();
            }
        }
        Act::Get(key) => {
            match client.get(key).await {
                Ok(found) => {
                    let value = found.map(|texts| texts.join(" "));
                    if !shared.allows(key, &value, (begun, Instant::now())) {
                        shared.finds(format!("a read of {key} saw {value:?}"));
                    }
                }
                // Another gateway may take bytes away under a reader: then it is told so, and sees none that are wrong.
                Err(Error::Gateway(larder_gateway::Error::Damaged(why))) if shared.alone => {
                    shared.finds(format!("a read of {key}: {why}"));
                }
                Err(_) => {}
            }
        }
        Act::List => {
            if let Ok(listed) = client.list().await {
                let gone = KEYS.iter().filter(|key| !listed.contains_key(**key));
                for key in gone {
                    if !shared.allows(key, &None, (begun, Instant::now())) {
                        shared.finds(format!("{key} is not listed: {listed:?}"));
                    }
                }
            }
        }
        Act::Begin(key) => {
            if let Ok(id) = client.begin(key).await {
                shared.uploads.borrow_mut().push(Begun { key, id, parts: BTreeMap::new() });
            }
        }
        Act::Part(upload, number, text) => {
            if let Ok(part) = client.part(upload.key, &upload.id, number, &text).await {
                let mut uploads = shared.uploads.borrow_mut();
                let found = uploads.iter_mut().find(|found| found.id == upload.id);
                found.expect("no upload is forgotten").parts.entry(number).or_default().push((part, text));
            }
        }
        Act::Complete(upload, parts) => complete(&client, &shared, &upload, parts).await,
        Act::Abort(upload) => {
            let _ = client.abort(upload.key, &upload.id).await;
        }
        Act::Prune(key, newest) => {
            let _write = history.begin(key, Deed::Delete);
            if let Ok(versions) = client.all_versions().await {
                let mut own = versions.into_iter().filter(|(found, _)| found == key);
                let id = if newest { own.next() } else { own.next_back() };
                if let Some((_, id)) = id {
                    let _ = client.delete_version(key, &id).await;
                }
            }
        }
        Act::Switch => {
            if client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok() {
                shared.kept_since.set(shared.kept_since.get().or_else(|| Some(Instant::now())));
            }
        }
        Act::Drop => {
            let _ = client.delete_bucket().await;
            let _ = client.create_bucket().await;
        }
        Act::Sweep => {
            let _ = client.objects.sweep().await;
        }
        Act::Age => {
            let _write = history.begin(KEYS[1], Deed::Delete);
            let _ = client.objects.run_lifecycle().await;
        }
    }
}

async fn complete(client: &Client, shared: &Shared, upload: &Begun, parts: Vec<(ListedPart, String)>) {
    let (listed, texts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let text = texts.join(" ");
    let begun = Instant::now();
    let write = shared.history.begin_again(upload.key, Deed::Put(text.clone()));
    if let Ok(completed) = client.complete(upload.key, &upload.id, &listed).await {
        write.acknowledge();
        shared.stored(upload.key, completed.version_id, &text, begun);
    }
}
