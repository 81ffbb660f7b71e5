//! Work that goes on when its client has gone, and ends before the server does.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use larder_gateway::Gateway;
use larder_gateway::metrics::Event;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::errors::{Code, Fault};

/// What runs beside the connections. Clones are the same.
#[derive(Clone)]
pub(crate) struct Background {
    gateway: Arc<Gateway>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Background {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, tasks: Arc::default() }
    }

    /// Runs `work` of the request `id` to its end, whether its outcome is waited for or not.
    pub(crate) fn run<T, W>(&self, id: &str, work: W) -> impl Future<Output = W::Output> + Send + Unpin + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let (gateway, id) = (Arc::clone(&self.gateway), id.to_owned());
        let task = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            // Who waited may be gone.
            let _ = tell.send(outcome.unwrap_or_else(|panic| Err(panicked(&gateway, &id, &*panic))));
        };
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {} // What has ended is forgotten.
        tasks.spawn(task);
        told.map(|outcome| outcome.unwrap_or_else(|_| Err(Code::InternalError.into())))
    }

    /// Waits until all has ended; what has not after this time is broken off.
    pub(crate) async fn drain(&self, deadline: Duration) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline, drained).await.is_err() {
            tracing::warn!(count = tasks.len(), "work was broken off at the end of its time");
        }
    }
}

/// Counts a panic and tells of it; answers what the client is told.
pub(crate) fn panicked(gateway: &Gateway, id: &str, panic: &(dyn Any + Send)) -> Fault {
    let reason = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(|text| &**text));
    tracing::error!(reason = reason.unwrap_or("unknown"), id, "a request panicked: this is a bug");
    gateway.event(Event::Panicked);
    Code::InternalError.into()
}

#[cfg(test)]
mod tests {
    use larder_gateway::{Config, Ports, Rules};
    use larder_store::SystemClock;
    use larder_store::memory::MemoryStore;

    use super::*;

    async fn background() -> Background {
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let ports = Ports {
            random: |bytes| bytes.fill(7),
            store: store.clone(),
            blobs: store,
            clock,
            actor: 7,
            engine: Arc::new("memory"),
            rules: Rules::default(),
        };
        Background::new(Gateway::start(ports, Config::default()).await.unwrap())
    }

    #[tokio::test]
    async fn work_goes_on_without_who_asked_for_it() {
        let background = background().await;
        let (tell, told) = oneshot::channel();
        let (let_go, wait) = oneshot::channel::<()>();
        drop(background.run("r", async move {
            let _ = wait.await;
            let _ = tell.send(7);
            Ok(())
        }));
        tokio::task::yield_now().await;
        let_go.send(()).unwrap();
        background.drain(Duration::from_secs(20)).await;
        assert_eq!(told.await, Ok(7));
        assert_eq!(background.run("r", async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn work_that_never_ends_is_broken_off() {
        let background = background().await;
        let outcome = background.run("r", std::future::pending::<Result<(), Fault>>());
        background.drain(Duration::from_millis(10)).await;
        assert_eq!(outcome.await.unwrap_err().code, Code::InternalError);
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_counted() {
        let background = background().await;
        let outcome = background.run("r", async { if true { panic!("of this test") } else { Ok(()) } }).await;
        assert_eq!(outcome.unwrap_err().code, Code::InternalError);
        assert!(background.gateway.metrics_text().contains("\nlarder_panicked_total 1\n"));
    }
}
