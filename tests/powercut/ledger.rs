//! The changes clients asked for, when each was answered, and the values a key may have after a cut.
//!
//! Each key has one writer, which waits for an answer before it goes on. So the value of a key after a cut is that of its
//! last durable change that was answered before, or of a later one that was sent before.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::str::FromStr;

use larder_tests::Random;

/// Microseconds of the wall clock.
pub type Micros = u64;

/// The interface a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// Riak's.
    Kv,
    /// S3.
    S3,
}

/// A key of either interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The interface.
    pub api: Api,
    /// The path of its bucket.
    pub bucket: String,
    /// Its name there.
    pub name: String,
}

/// A body, by what it is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Made {
    /// The seed of its bytes.
    pub seed: u64,
    /// How many.
    pub size: usize,
}

/// A change that a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The key.
    pub key: Key,
    /// Its new value; none for a delete.
    pub to: Option<Made>,
    /// When the client began to send.
    pub sent: Micros,
    /// When the client had a good answer.
    pub answered: Option<Micros>,
    /// Whether that answer promises that a power cut takes nothing.
    pub durable: bool,
}

/// Everything that clients asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The changes; those of one key in their order.
    pub asked: Vec<Asked>,
    /// When buckets and types were there.
    pub ready: Option<Micros>,
    /// When the server had stopped in order: by then all that was answered is durable.
    pub stops: Vec<Micros>,
}

/// The values that a key may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Possible {
    /// Whether a durable change was answered. Its value is the first one then.
    pub durable: bool,
    /// The values; of a key without durable change the first one is none.
    pub values: Vec<Option<Made>>,
}

impl Made {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        Random::seeded(self.seed).bytes(self.size)
    }
}

impl Ledger {
    /// The values of each key that was written by then, after a power cut at this moment.
    pub fn possible(&self, cut: Micros) -> BTreeMap<&Key, Possible> {
        let mut keys: BTreeMap<&Key, Possible> = BTreeMap::new();
        for asked in self.asked.iter().filter(|asked| asked.sent <= cut) {
            let is_durable = self.is_durable(asked, cut);
            let possible = keys.entry(&asked.key).or_insert_with(|| Possible { durable: false, values: vec![None] });
            if is_durable {
                *possible = Possible { durable: true, values: Vec::new() };
            }
            possible.values.push(asked.to);
        }
        keys
    }

    /// The ledger of a server that goes on after a power cut at this moment: later changes never were. Earlier ones that were
    /// not durable may be there or not, whatever was answered.
    pub fn cut(&self, cut: Micros) -> Self {
        let before = |at: &Micros| *at < cut;
        let asked = self.asked.iter().filter(|asked| asked.sent <= cut);
        let answered = |asked: &Asked| asked.answered.filter(|_| self.is_durable(asked, cut));
        Self {
            asked: asked.map(|asked| Asked { answered: answered(asked), ..asked.clone() }).collect(),
            ready: self.ready.filter(before),
            stops: self.stops.iter().copied().filter(before).collect(),
        }
    }

    fn is_durable(&self, asked: &Asked, cut: Micros) -> bool {
        let stopped = |at| self.stops.iter().any(|stop| at < *stop && *stop < cut);
        asked.answered.is_some_and(|at| (asked.durable && at < cut) || stopped(at))
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = match self.api {
            Api::Kv => "kv",
            Api::S3 => "s3",
        };
        write!(f, "{api} {} {}", self.bucket, self.name)
    }
}

impl Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.size)
    }
}

/// One line each, so that a record can be read again.
impl Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Asked { key, to, sent, answered, durable } in &self.asked {
            writeln!(f, "asked {key} {} {sent} {} {durable}", word(to.as_ref()), word(answered.as_ref()))?;
        }
        self.ready.map_or(Ok(()), |at| writeln!(f, "ready {at}"))?;
        self.stops.iter().try_for_each(|at| writeln!(f, "stop {at}"))
    }
}

fn word<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

impl FromStr for Ledger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ledger = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let read = match words[..] {
                ["asked", api, bucket, name, to, sent, answered, durable] => {
                    let made =
                        |(seed, size): (&str, &str)| Some(Made { seed: seed.parse().ok()?, size: size.parse().ok()? });
                    let api = if api == "kv" { Api::Kv } else { Api::S3 };
                    sent.parse().ok().map(|sent| {
                        let key = Key { api, bucket: bucket.to_owned(), name: name.to_owned() };
                        let to = to.split_once(':').and_then(made);
                        let asked =
                            Asked { key, to, sent, answered: answered.parse().ok(), durable: durable == "true" };
                        ledger.asked.push(asked);
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

    fn ledger() -> Ledger {
        let asked = |seed: u64, sent, answered, durable| Asked {
            key: Key { api: Api::Kv, bucket: "/b".to_owned(), name: "k".to_owned() },
            to: (seed > 0).then_some(Made { seed, size: 1 }),
            sent,
            answered,
            durable,
        };
        let asked = vec![
            asked(1, 10, Some(11), true),
            asked(2, 20, Some(21), false),
            asked(0, 30, None, true),
            asked(3, 40, Some(41), true),
        ];
        Ledger { asked, ready: Some(5), stops: vec![25] }
    }

    fn at(ledger: &Ledger, cut: Micros) -> (bool, Vec<u64>) {
        let possible = ledger.possible(cut).into_values().next().unwrap_or_default();
        (possible.durable, possible.values.iter().map(|made| made.map_or(0, |made| made.seed)).collect())
    }

    #[test]
    fn a_key_has_its_last_durable_value_or_a_later_one() {
        let ledger = Ledger { stops: Vec::new(), ..ledger() };
        assert_eq!(at(&ledger, 9), (false, vec![]));
        assert_eq!(at(&ledger, 11), (false, vec![0, 1]));
        assert_eq!(at(&ledger, 12), (true, vec![1]));
        assert_eq!(at(&ledger, 35), (true, vec![1, 2, 0]));
        assert_eq!(at(&ledger, 41), (true, vec![1, 2, 0, 3]));
        assert_eq!(at(&ledger, 42), (true, vec![3]));
    }

    #[test]
    fn a_stop_in_order_makes_durable_what_was_answered() {
        assert_eq!(at(&ledger(), 25), (true, vec![1, 2]));
        assert_eq!(at(&ledger(), 26), (true, vec![2]));
        assert_eq!(at(&ledger(), 35), (true, vec![2, 0]));
    }

    #[test]
    fn a_ledger_is_written_read_and_cut() {
        let ledger = ledger();
        assert_eq!(ledger.to_string().parse(), Ok(ledger.clone()));
        let cut = ledger.cut(24);
        let answered: Vec<_> = cut.asked.iter().map(|asked| asked.answered).collect();
        assert_eq!((answered, cut.stops.len(), cut.ready), (vec![Some(11), None], 0, Some(5)));
    }
}
