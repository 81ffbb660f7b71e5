//! A server of the same process.

#![allow(clippy::expect_used, reason = "a harness fails a test by panicking")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The longest time from the request to stop until the end.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Resolves when the test stops the server.
pub type StopRequest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A server on a free port and on a thread of its own, so that tests use blocking clients.
#[derive(Debug)]
pub struct BackgroundServer {
    /// Its address.
    pub address: SocketAddr,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl BackgroundServer {
    /// Starts a server; `start` makes the parts that the test uses, and the work of the server.
    ///
    /// # Panics
    /// When the machine has no thread or port left.
    pub fn start<T, F>(start: impl AsyncFnOnce(TcpListener, StopRequest) -> (T, F)) -> (Self, T)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread");
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, parts, task) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("a bound listener has an address");
            let (parts, work) = start(listener, Box::pin(async { drop(stopped.await) })).await;
            (address, parts, tokio::spawn(work))
        });
        (Self { address, runtime, stop: Some(stop), task }, parts)
    }

    /// Runs other work on the server's runtime, such as a change of its gateway.
    pub fn run<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// Asks the server to stop; [`stop`](Self::stop) waits for it.
    pub fn request_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Stops the server, and waits until it has ended and `after`, which depends on that, is done.
    ///
    /// # Panics
    /// When the server does not end.
    pub fn stop(mut self, after: impl Future<Output = ()>) {
        self.request_stop();
        self.runtime.block_on(async {
            timeout(STOP_MAX, self.task).await.expect("the server ends").expect("the server does not panic");
            after.await;
        });
    }
}
