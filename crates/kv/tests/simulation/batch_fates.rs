//! A store that gives the next batch of a data type a fate of the test's choice.

use std::sync::Arc;
use std::time::Duration;

use larder_store::{CallOptions, Error, Kind, Result, Store, Table};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

/// Time of the engine for a batch that comes late.
const ARRIVAL: Duration = Duration::from_secs(5);

/// The fate of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchFate {
    /// It is stored after this time. A caller that does not wait so long hears that it timed out.
    Late(Duration),
    /// It is stored at once, and after this time its caller hears that it timed out.
    Unanswered(Duration),
}

/// The fate of the next batch, over all gateways.
#[derive(Debug, Default)]
pub(crate) struct BatchFates(Mutex<Option<BatchFate>>);

impl BatchFates {
    /// Sets the fate of the next batch.
    pub(crate) fn set_next(&self, fate: BatchFate) {
        *self.0.lock() = Some(fate);
    }
}

/// One gateway's connection to such a store.
pub(crate) struct FatedStore {
    inner: Arc<dyn Store>,
    fates: Arc<BatchFates>,
}

impl FatedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, fates: Arc<BatchFates>) -> Arc<Hooked<Self>> {
        Arc::new(Hooked(Arc::new(Self { inner, fates })))
    }

    fn fate_of(&self, call: StoreCall<'_>) -> Option<BatchFate> {
        let StoreCall::Apply(batch) = call else { return None };
        let is_datatype = batch.partitions.iter().any(|one| one.partition.table == Table::DataTypes);
        if is_datatype { self.fates.0.lock().take() } else { None }
    }
}

impl StoreHook for FatedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        let unanswered = || Error::new(Kind::TimedOut, "the test's choice");
        match (self.fate_of(call), call) {
            (Some(BatchFate::Late(time)), StoreCall::Apply(batch)) if Instant::now() + time > options.deadline => {
                let (inner, batch) = (Arc::clone(&self.inner), batch.clone());
                tokio::spawn(async move {
                    sleep(time).await;
                    let options = CallOptions { deadline: Instant::now() + ARRIVAL, ..options };
                    inner.apply(batch, &options).await.unwrap();
                });
                sleep_until(options.deadline).await;
                Err(unanswered())
            }
            (Some(BatchFate::Late(time)), _) => {
                sleep(time).await;
                make(options).await
            }
            (Some(BatchFate::Unanswered(time)), _) => {
                make(options).await?;
                sleep(time).await;
                Err(unanswered())
            }
            (None, _) => make(options).await,
        }
    }
}
