//! Tasks that continue after their client disconnects. Shutdown waits for them.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use larder_core::Core;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::errors::{Code, S3Error};

/// The set of such tasks. Clones share it.
#[derive(Clone)]
pub(crate) struct BackgroundTasks {
    gateway: Arc<Core>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl BackgroundTasks {
    pub(crate) fn new(gateway: Arc<Core>) -> Self {
        Self { gateway, tasks: Arc::default() }
    }

    /// Runs `work` of the request `id` to completion, even if the returned future is dropped.
    pub(crate) fn spawn<T, W>(&self, id: &str, work: W) -> impl Future<Output = W::Output> + Send + Unpin + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, S3Error>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let (gateway, id) = (Arc::clone(&self.gateway), id.to_owned());
        let task = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            // The receiver is gone if the client disconnected.
            let _ = sender.send(outcome.unwrap_or_else(|panic| Err(report_panic(&gateway, &id, &*panic))));
        };
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {} // Frees finished tasks.
        tasks.spawn(task);
        receiver.map(|outcome| outcome.unwrap_or_else(|_| Err(Code::InternalError.into())))
    }

    /// Waits for all tasks; cancels those that still run at the deadline.
    pub(crate) async fn drain(&self, deadline: Duration) {
        // The listener drains its connections first, so no request can add a task from here on.
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline, drained).await.is_err() {
            tracing::warn!(count = tasks.len(), "shutdown deadline reached; unfinished S3 tasks were cancelled");
        }
    }
}

/// Logs and counts a panic; returns the error for the client.
pub(crate) fn report_panic(gateway: &Core, id: &str, panic: &(dyn Any + Send)) -> S3Error {
    gateway.context().report_panic(id, panic);
    Code::InternalError.into()
}

#[cfg(test)]
mod tests {
    use larder_core::{Config, GatewayPorts};
    use larder_rows::ActorId;
    use larder_store::SystemClock;
    use larder_store::memory::MemoryStore;

    use super::*;

    async fn background() -> BackgroundTasks {
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: store.clone(),
            blobs: store,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        BackgroundTasks::new(Core::start(ports, Config::default()).await.unwrap())
    }

    #[tokio::test]
    async fn a_task_completes_after_its_caller_is_gone() {
        let background = background().await;
        let (sender, receiver) = oneshot::channel();
        let (let_go, wait) = oneshot::channel::<()>();
        drop(background.spawn("r", async move {
            let _ = wait.await;
            let _ = sender.send(7);
            Ok(())
        }));
        tokio::task::yield_now().await;
        let_go.send(()).unwrap();
        background.drain(Duration::from_secs(20)).await;
        assert_eq!(receiver.await, Ok(7));
        assert_eq!(background.spawn("r", async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_task_that_never_ends_is_cancelled() {
        let background = background().await;
        let outcome = background.spawn("r", std::future::pending::<Result<(), S3Error>>());
        background.drain(Duration::from_millis(10)).await;
        assert_eq!(outcome.await.unwrap_err().code, Code::InternalError);
    }

    #[tokio::test]
    async fn a_panic_is_answered_500_and_counted() {
        let background = background().await;
        let outcome = background.spawn("r", async { if true { panic!("of this test") } else { Ok(()) } }).await;
        assert_eq!(outcome.unwrap_err().code, Code::InternalError);
        assert!(background.gateway.metrics_text().contains("\nlarder_panicked_total 1\n"));
    }
}
