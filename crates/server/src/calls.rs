//! Calls to the store, counted for operators whatever the engine.

use std::sync::Arc;

use larder_gateway::{EngineNode, EngineView, Gauge};
use larder_store::wrappers::metered::{Count, Metered, Verb};
use larder_store::{Blobs, Clock, Store};

/// An engine's own view, and the calls to its store.
pub(crate) struct CallFigures {
    inner: Arc<dyn EngineView>,
    store: Arc<Metered<dyn Store>>,
    blobs: Arc<Metered<dyn Blobs>>,
}

/// A family of metrics with one row for each verb.
struct Family {
    help: &'static str,
    value: fn(Count) -> f64,
}

/// The families in the order of their names in [`names`].
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
static FAMILIES: [Family; 3] = [
    Family { help: "Calls to the store begun since the start.", value: |count| count.calls as f64 },
    Family { help: "Calls to the store that were answered with an error.", value: |count| count.errors as f64 },
    Family { help: "Time that answered calls to the store took.", value: |count| count.time.as_secs_f64() },
];

macro_rules! rows {
    ($verb:literal) => {
        [
            concat!("larder_store_calls_total{verb=\"", $verb, "\"}"),
            concat!("larder_store_errors_total{verb=\"", $verb, "\"}"),
            concat!("larder_store_seconds_total{verb=\"", $verb, "\"}"),
        ]
    };
}

/// The rows of a verb, one in each family.
fn names(verb: Verb) -> [&'static str; FAMILIES.len()] {
    match verb {
        Verb::Read => rows!("read"),
        Verb::Apply => rows!("apply"),
        Verb::ApplyIf => rows!("apply_if"),
        Verb::Partitions => rows!("partitions"),
        Verb::Now => rows!("now"),
        Verb::BlobCreate => rows!("blob_create"),
        Verb::BlobOpen => rows!("blob_open"),
        Verb::BlobRemove => rows!("blob_remove"),
        Verb::BlobList => rows!("blob_list"),
    }
}

impl CallFigures {
    /// Counts the calls to a store and its blobs, timed by `clock`; shows them behind what `inner` shows.
    pub(crate) fn new(
        inner: Arc<dyn EngineView>,
        store: Arc<dyn Store>,
        blobs: Arc<dyn Blobs>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let store = Arc::new(Metered::new(store, clock.clone()));
        Self { inner, store, blobs: Arc::new(Metered::new(blobs, clock)) }
    }

    /// The store, counted.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The blobs, counted.
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        self.blobs.clone()
    }

    /// Every verb with its numbers.
    fn counts(&self) -> Vec<(Verb, Count)> {
        let (store, blobs) = (self.store.counts(), self.blobs.counts());
        let of = |verb| match verb {
            Verb::Read | Verb::Apply | Verb::ApplyIf | Verb::Partitions | Verb::Now => store.of(verb),
            Verb::BlobCreate | Verb::BlobOpen | Verb::BlobRemove | Verb::BlobList => blobs.of(verb),
        };
        Verb::ALL.into_iter().map(|verb| (verb, of(verb))).collect()
    }
}

impl EngineView for CallFigures {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn disk(&self) -> Option<(String, u64, u8)> {
        self.inner.disk()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let (mut gauges, counts) = (self.inner.gauges(), self.counts());
        for (index, family) in FAMILIES.iter().enumerate() {
            let row = |(verb, count): &(Verb, Count)| (names(*verb)[index], (family.value)(*count), family.help);
            gauges.extend(counts.iter().map(row));
        }
        gauges
    }

    fn nodes(&self) -> Vec<EngineNode> {
        self.inner.nodes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::content::BlobId;
    use larder_store::memory::MemoryStore;
    use larder_store::{Durability, Level, Options, SystemClock};

    fn figures() -> CallFigures {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        CallFigures::new(Arc::new("memory"), memory.clone(), memory, clock)
    }

    fn value(figures: &CallFigures, name: &str) -> f64 {
        figures.gauges().iter().find(|gauge| gauge.0 == name).map(|gauge| gauge.1).unwrap()
    }

    #[tokio::test]
    async fn calls_and_errors_are_shown_by_verb() {
        let figures = figures();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        let options = Options::new(Level::One, deadline, Durability::Buffered);
        figures.store().now(&options).await.unwrap();
        assert!(figures.blobs().open(BlobId([0; 24])).await.is_err());
        assert_eq!(value(&figures, "larder_store_calls_total{verb=\"now\"}"), 1.0);
        assert_eq!(value(&figures, "larder_store_errors_total{verb=\"now\"}"), 0.0);
        assert!(value(&figures, "larder_store_seconds_total{verb=\"now\"}") > 0.0);
        assert_eq!(value(&figures, "larder_store_calls_total{verb=\"blob_open\"}"), 1.0);
        assert_eq!(value(&figures, "larder_store_errors_total{verb=\"blob_open\"}"), 1.0);
        assert_eq!(figures.name(), "memory");
    }

    #[test]
    fn every_row_says_its_verb_and_the_rows_of_a_family_are_neighbours() {
        let gauges = figures().gauges();
        let mut families: Vec<&str> = gauges.iter().filter_map(|gauge| gauge.0.split('{').next()).collect();
        families.dedup();
        assert_eq!(families, ["larder_store_calls_total", "larder_store_errors_total", "larder_store_seconds_total"]);
        for (gauge, verb) in gauges.iter().zip(Verb::ALL.into_iter().cycle()) {
            assert!(gauge.0.ends_with(&format!("{{verb=\"{}\"}}", verb.name())), "{}", gauge.0);
        }
        assert_eq!(gauges.len(), 3 * Verb::ALL.len());
    }
}
