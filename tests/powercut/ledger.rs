//! The changes that clients sent, the times of their answers, and the values that a key may have after a cut.
//!
//! Each key has one writer, which waits for each answer. So after a cut a key has the value of its last durable change that was
//! answered before the cut, or of a later one that was sent before it.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::str::FromStr;

use crate::harness::SplitMix64;

/// Microseconds of the wall clock.
pub type WallMicros = u64;

/// The interface a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CutApi {
    /// The key-value interface.
    Kv,
    /// The S3 interface.
    S3,
    /// A counter: its value is the seed of its body.
    Counter,
    /// An element of a set, `key?element=…`: it has a body while it is there.
    Element,
    /// A map whose counter and register have the same value, the seed of its body.
    Map,
}

/// Names of the interfaces in a record.
const API_NAMES: &[(CutApi, &str)] = &[
    (CutApi::Kv, "kv"),
    (CutApi::S3, "s3"),
    (CutApi::Counter, "counter"),
    (CutApi::Element, "element"),
    (CutApi::Map, "map"),
];

/// A key of one of the interfaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutKey {
    /// The interface.
    pub api: CutApi,
    /// The path of its bucket.
    pub bucket: String,
    /// Its name there.
    pub name: String,
}

/// A body by its seed and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutBody {
    /// The seed of its bytes.
    pub seed: u64,
    /// Its length in bytes.
    pub size: usize,
}

/// A change that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentChange {
    /// The key.
    pub key: CutKey,
    /// Its new value; `None` for a delete.
    pub to: Option<CutBody>,
    /// The time when the client began to send.
    pub sent: WallMicros,
    /// The time of a successful answer.
    pub answered: Option<WallMicros>,
    /// Whether that answer promises durability.
    pub durable: bool,
}

/// All changes that clients sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CutLedger {
    /// The changes; those of one key are in their order.
    pub changes: Vec<SentChange>,
    /// The time when buckets and types existed.
    pub ready: Option<WallMicros>,
    /// The times of orderly stops: every earlier answer is durable then.
    pub stops: Vec<WallMicros>,
}

/// The values that a key may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PossibleAfterCut {
    /// Whether a durable change was answered; its value is the first then.
    pub durable: bool,
    /// The values; without a durable change the first is `None`.
    pub values: Vec<Option<CutBody>>,
}

impl CutKey {
    /// The path of its value.
    pub fn path(&self) -> String {
        let between = match self.api {
            CutApi::Kv => "/keys/",
            CutApi::S3 => "/",
            CutApi::Counter | CutApi::Element | CutApi::Map => "/datatypes/",
        };
        format!("{}{between}{}", self.bucket, self.name)
    }

    /// Its name in a listing: elements of one set have one.
    pub fn listed_name(&self) -> &str {
        self.name.split_once('?').map_or(&self.name, |(name, _)| name)
    }
}

impl CutBody {
    /// The body of a value that is a number.
    pub fn number(value: u64) -> Self {
        Self { seed: value, size: 0 }
    }

    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        SplitMix64::new(self.seed).bytes(self.size)
    }
}

impl CutLedger {
    /// The values of each key after a power cut at this time.
    pub fn possible(&self, cut: WallMicros) -> BTreeMap<&CutKey, PossibleAfterCut> {
        let mut keys: BTreeMap<&CutKey, PossibleAfterCut> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.sent <= cut) {
            let is_durable = self.is_durable(change, cut);
            let possible =
                keys.entry(&change.key).or_insert_with(|| PossibleAfterCut { durable: false, values: vec![None] });
            if is_durable {
                *possible = PossibleAfterCut { durable: true, values: Vec::new() };
            }
            possible.values.push(change.to);
        }
        keys
    }

    /// The ledger for the server after a power cut at this time. Later changes are dropped; earlier ones that were not durable
    /// count as unanswered.
    pub fn cut(&self, cut: WallMicros) -> Self {
        let before = |at: &WallMicros| *at < cut;
        let changes = self.changes.iter().filter(|change| change.sent <= cut);
        let answered = |change: &SentChange| change.answered.filter(|_| self.is_durable(change, cut));
        Self {
            changes: changes.map(|change| SentChange { answered: answered(change), ..change.clone() }).collect(),
            ready: self.ready.filter(before),
            stops: self.stops.iter().copied().filter(before).collect(),
        }
    }

    fn is_durable(&self, change: &SentChange, cut: WallMicros) -> bool {
        let stopped = |at| self.stops.iter().any(|stop| at < *stop && *stop < cut);
        change.answered.is_some_and(|at| (change.durable && at < cut) || stopped(at))
    }
}

impl Display for CutKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = API_NAMES.iter().find(|(api, _)| *api == self.api).map_or("", |(_, name)| name);
        write!(f, "{api} {} {}", self.bucket, self.name)
    }
}

impl Display for CutBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.size)
    }
}

/// One line for each change, so that a record can be read again.
impl Display for CutLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for SentChange { key, to, sent, answered, durable } in &self.changes {
            writeln!(f, "asked {key} {} {sent} {} {durable}", word(to.as_ref()), word(answered.as_ref()))?;
        }
        self.ready.map_or(Ok(()), |at| writeln!(f, "ready {at}"))?;
        self.stops.iter().try_for_each(|at| writeln!(f, "stop {at}"))
    }
}

fn word<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

impl FromStr for CutLedger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ledger = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let read = match words[..] {
                ["asked", api, bucket, name, to, sent, answered, durable] => {
                    let made = |(seed, size): (&str, &str)| {
                        Some(CutBody { seed: seed.parse().ok()?, size: size.parse().ok()? })
                    };
                    let api = API_NAMES.iter().find(|(_, name)| *name == api).map(|(api, _)| *api);
                    api.zip(sent.parse().ok()).map(|(api, sent)| {
                        let key = CutKey { api, bucket: bucket.to_owned(), name: name.to_owned() };
                        let to = to.split_once(':').and_then(made);
                        let change =
                            SentChange { key, to, sent, answered: answered.parse().ok(), durable: durable == "true" };
                        ledger.changes.push(change);
                    })
                }
                ["ready", at] => at.parse().ok().map(|at| ledger.ready = Some(at)),
                ["stop", at] => at.parse().ok().map(|at| ledger.stops.push(at)),
                _ => None,
            };
            read.ok_or_else(|| format!("not a line of a ledger: {line}"))?;
        }
        Ok(ledger)
    }
}

/// The beginning of a text.
pub fn shortened(text: &str, max: usize) -> String {
    let mut short: String = text.chars().take(max).collect();
    if short.len() < text.len() {
        let _ = write!(short, "… ({} bytes)", text.len());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> CutLedger {
        let change = |seed: u64, sent, answered, durable| SentChange {
            key: CutKey { api: CutApi::Kv, bucket: "/b".to_owned(), name: "k".to_owned() },
            to: (seed > 0).then_some(CutBody { seed, size: 1 }),
            sent,
            answered,
            durable,
        };
        let changes = vec![
            change(1, 10, Some(11), true),
            change(2, 20, Some(21), false),
            change(0, 30, None, true),
            change(3, 40, Some(41), true),
        ];
        CutLedger { changes, ready: Some(5), stops: vec![25] }
    }

    fn at(ledger: &CutLedger, cut: WallMicros) -> (bool, Vec<u64>) {
        let possible = ledger.possible(cut).into_values().next().unwrap_or_default();
        (possible.durable, possible.values.iter().map(|made| made.map_or(0, |made| made.seed)).collect())
    }

    #[test]
    fn a_key_has_its_last_durable_value_or_a_later_one() {
        let ledger = CutLedger { stops: Vec::new(), ..ledger() };
        assert_eq!(at(&ledger, 9), (false, vec![]));
        assert_eq!(at(&ledger, 11), (false, vec![0, 1]));
        assert_eq!(at(&ledger, 12), (true, vec![1]));
        assert_eq!(at(&ledger, 35), (true, vec![1, 2, 0]));
        assert_eq!(at(&ledger, 41), (true, vec![1, 2, 0, 3]));
        assert_eq!(at(&ledger, 42), (true, vec![3]));
    }

    #[test]
    fn an_orderly_stop_makes_every_answered_change_durable() {
        assert_eq!(at(&ledger(), 25), (true, vec![1, 2]));
        assert_eq!(at(&ledger(), 26), (true, vec![2]));
        assert_eq!(at(&ledger(), 35), (true, vec![2, 0]));
    }

    #[test]
    fn a_ledger_is_written_read_and_cut() {
        let ledger = ledger();
        assert_eq!(ledger.to_string().parse(), Ok(ledger.clone()));
        let cut = ledger.cut(24);
        let answered: Vec<_> = cut.changes.iter().map(|change| change.answered).collect();
        assert_eq!((answered, cut.stops.len(), cut.ready), (vec![Some(11), None], 0, Some(5)));
    }
}
