//! Operations of the clients of a random schedule, and the violations they find.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use larder_s3::Error;
use larder_s3::complete::ListedPart;
use larder_s3_rules::Versioning;
use larder_testkit::SplitMix64;
use tokio::time::Instant;

use super::client::SimClient;
use super::history::{KeyHistory, ReadValue, WriteEffect};
use super::random::KEYS;

/// An upload: its key, its id, the acknowledged parts with their texts.
#[derive(Debug, Clone)]
pub(super) struct OpenUpload {
    pub(super) key: &'static str,
    pub(super) id: String,
    pub(super) parts: BTreeMap<u16, Vec<(ListedPart, String)>>,
}

/// State shared by all clients of a schedule.
#[derive(Clone, Default)]
pub(super) struct ScheduleState {
    pub(super) history: KeyHistory,
    pub(super) uploads: Rc<RefCell<Vec<OpenUpload>>>,
    /// Versions that must stay.
    pub(super) versions: Rc<RefCell<KeptVersions>>,
    /// The time from which versioning is acknowledged as enabled.
    pub(super) kept_since: Rc<Cell<Option<Instant>>>,
    pub(super) wrong: Rc<RefCell<Option<String>>>,
    /// Whether there is only one gateway: then no bytes go under a reader.
    pub(super) single_process: bool,
    /// Whether versions are removed one by one: older ones then become current again.
    pub(super) prunes: bool,
    /// Whether the bucket is deleted and recreated when it is empty.
    pub(super) drops: bool,
}

/// Acknowledged versions: key, id, text.
type KeptVersions = Vec<(&'static str, String, String)>;

impl ScheduleState {
    fn report(&self, wrong: String) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }

    /// Records an acknowledged version that must stay, by the start of its write.
    fn stored(&self, key: &'static str, id: Option<String>, text: &str, begun: Instant) {
        let kept = self.kept_since.get().is_some_and(|since| since <= begun);
        let id = id.filter(|id| kept && id != "null");
        self.versions.borrow_mut().extend(id.map(|id| (key, id, text.to_owned())));
    }

    /// Whether a read of a key in this time may see this value.
    pub(super) fn allows(&self, key: &str, value: &ReadValue, (begun, ended): (Instant, Instant)) -> bool {
        if !self.prunes {
            return self.history.allows(key, value, (begun, ended));
        }
        value.as_ref().is_none_or(|text| self.history.has_value(text))
    }
}

/// One operation of a client.
#[derive(Debug, Clone)]
pub(super) enum ClientOperation {
    Put(&'static str, String),
    Delete(&'static str),
    Get(&'static str),
    List,
    Copy(&'static str, &'static str),
    Begin(&'static str),
    Part(OpenUpload, u16, String),
    Complete(OpenUpload, Vec<(ListedPart, String)>),
    Abort(OpenUpload),
    /// Removes the newest version of a key, or the oldest.
    Prune(&'static str, bool),
    Switch,
    Drop,
    Sweep,
    Age,
}

pub(super) fn draw(dice: &mut SplitMix64, shared: &ScheduleState, text: String) -> ClientOperation {
    let key = KEYS[dice.below(2)];
    let uploads = shared.uploads.borrow();
    let upload = if uploads.is_empty() { None } else { Some(uploads[dice.below(uploads.len())].clone()) };
    if shared.drops && dice.below(4) == 0 {
        return if dice.below(2) == 0 { ClientOperation::Drop } else { ClientOperation::Delete(key) };
    }
    match (dice.below(100), upload) {
        (0..18, _) => ClientOperation::Put(key, text),
        (18..26, _) => ClientOperation::Delete(key),
        (26..40, _) => ClientOperation::Get(key),
        (40..46, _) => ClientOperation::List,
        (46..52, _) => ClientOperation::Copy(key, key),
        (52..58, _) => ClientOperation::Copy(KEYS[0], KEYS[1]),
        (58..63, _) => ClientOperation::Sweep,
        (63..65, _) => ClientOperation::Age,
        (65..67, _) if !shared.drops => ClientOperation::Switch,
        (67..70, _) if shared.prunes => ClientOperation::Prune(key, dice.below(2) == 0),
        (65..79, Some(upload)) => ClientOperation::Part(upload, 1 + dice.below(2) as u16, text),
        (79..94, Some(upload)) => {
            let pick =
                |found: &Vec<(ListedPart, String)>, dice: &mut SplitMix64| found[dice.below(found.len())].clone();
            let parts = upload.parts.values().map(|found| pick(found, dice)).collect::<Vec<_>>();
            if parts.is_empty() {
                ClientOperation::Part(upload, 1, text)
            } else {
                ClientOperation::Complete(upload, parts)
            }
        }
        (94..96, Some(upload)) => ClientOperation::Abort(upload),
        _ => ClientOperation::Begin(key),
    }
}

pub(super) async fn run_operation(client: SimClient, shared: ScheduleState, operation: ClientOperation) {
    let (history, begun) = (&shared.history, Instant::now());
    match operation {
        ClientOperation::Put(key, text) => {
            let write = history.begin(key, WriteEffect::Put(text.clone()));
            if let Ok(stored) = client.put(key, &text).await {
                write.acknowledge();
                shared.stored(key, stored.version_id, &text, begun);
            }
        }
        ClientOperation::Delete(key) => {
            let write = history.begin(key, WriteEffect::Delete);
            if client.delete(key).await.is_ok() {
                write.acknowledge();
            }
        }
        ClientOperation::Copy(from, to) => {
            let write = history.begin(to, WriteEffect::Copy(from.into()));
            if client.copy(from, to).await.is_ok() {
                write.acknowledge();
            }
        }
        ClientOperation::Get(key) => {
            match client.get(key).await {
                Ok(found) => {
                    let value = found.map(|texts| texts.join(" "));
                    if !shared.allows(key, &value, (begun, Instant::now())) {
                        shared.report(format!("a read of {key} saw {value:?}"));
                    }
                }
                // Another gateway may remove bytes under a reader: the reader then gets an error and no wrong bytes.
                Err(Error::Gateway(larder_core::Error::Damaged(why))) if shared.single_process => {
                    shared.report(format!("a read of {key}: {why}"));
                }
                Err(_) => {}
            }
        }
        ClientOperation::List => {
            if let Ok(listed) = client.list().await {
                let gone = KEYS.iter().filter(|key| !listed.contains_key(**key));
                for key in gone {
                    if !shared.allows(key, &None, (begun, Instant::now())) {
                        shared.report(format!("{key} is not listed: {listed:?}"));
                    }
                }
            }
        }
        ClientOperation::Begin(key) => {
            if let Ok(id) = client.begin(key).await {
                shared.uploads.borrow_mut().push(OpenUpload { key, id, parts: BTreeMap::new() });
            }
        }
        ClientOperation::Part(upload, number, text) => {
            if let Ok(part) = client.part(upload.key, &upload.id, number, &text).await {
                let mut uploads = shared.uploads.borrow_mut();
                let found = uploads.iter_mut().find(|found| found.id == upload.id);
                found.expect("no upload is forgotten").parts.entry(number).or_default().push((part, text));
            }
        }
        ClientOperation::Complete(upload, parts) => complete(&client, &shared, &upload, parts).await,
        ClientOperation::Abort(upload) => {
            let _ = client.abort(upload.key, &upload.id).await;
        }
        ClientOperation::Prune(key, newest) => {
            let _write = history.begin(key, WriteEffect::Delete);
            if let Ok(versions) = client.all_versions().await {
                let mut own = versions.into_iter().filter(|(found, _)| found == key);
                let id = if newest { own.next() } else { own.next_back() };
                if let Some((_, id)) = id {
                    let _ = client.delete_version(key, &id).await;
                }
            }
        }
        ClientOperation::Switch => {
            if client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok() {
                shared.kept_since.set(shared.kept_since.get().or_else(|| Some(Instant::now())));
            }
        }
        ClientOperation::Drop => {
            let _ = client.delete_bucket().await;
            let _ = client.create_bucket().await;
        }
        ClientOperation::Sweep => {
            let _ = client.objects.sweeper.sweep().await;
        }
        ClientOperation::Age => {
            let _write = history.begin(KEYS[1], WriteEffect::Delete);
            let _ = client.objects.lifecycle.run().await;
        }
    }
}

async fn complete(client: &SimClient, shared: &ScheduleState, upload: &OpenUpload, parts: Vec<(ListedPart, String)>) {
    let (listed, texts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let text = texts.join(" ");
    let begun = Instant::now();
    let write = shared.history.begin_again(upload.key, WriteEffect::Put(text.clone()));
    if let Ok(completed) = client.complete(upload.key, &upload.id, &listed).await {
        write.acknowledge();
        shared.stored(upload.key, completed.version_id, &text, begun);
    }
}
