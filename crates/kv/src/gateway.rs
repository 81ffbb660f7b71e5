//! A gateway: key-value over a core.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use larder_core::core::Core;
use larder_core::ports::GatewayPorts;
use larder_core::{Config, Result};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::Kv;
use crate::epochs::spawn_epoch_opener;
use crate::hooks::CommitHooks;

/// How long a shutdown waits for postcommit hooks.
const POSTCOMMIT_DRAIN: Duration = Duration::from_secs(5);

/// One running gateway. Its core has the parts that both products share, and it derefs to that.
pub struct Gateway {
    shared: Arc<Core>,
    /// Key-value objects.
    pub kv: Arc<Kv>,
    /// The task that opens epochs.
    epoch_opener: Mutex<Option<JoinHandle<()>>>,
}

impl Deref for Gateway {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.shared
    }
}

impl Gateway {
    /// Starts a core, and key-value over it.
    ///
    /// # Errors
    /// As [`Core::start`].
    pub async fn start(ports: GatewayPorts, config: Config) -> Result<Arc<Self>> {
        let gateway = Arc::new(Self::over(Core::start(ports, config).await?));
        let opener = spawn_epoch_opener(gateway.members(), Arc::clone(&gateway.kv.index_growth));
        *gateway.epoch_opener.lock() = Some(opener);
        Ok(gateway)
    }

    /// The parts of key-value over a core.
    fn over(shared: Arc<Core>) -> Self {
        let hooks = Arc::new(CommitHooks::new(Arc::clone(shared.context()), Arc::clone(shared.outbox())));
        let kv = Arc::new(Kv::new(&shared, hooks));
        Self { shared, kv, epoch_opener: Mutex::default() }
    }

    /// The core, for the other products over it.
    pub fn shared(&self) -> &Arc<Core> {
        &self.shared
    }

    /// Stops as [`Core::leave`] does, after the postcommit hooks of the last writes. No write may follow.
    pub async fn shutdown(&self) {
        self.abandon();
        self.kv.hooks.drain(POSTCOMMIT_DRAIN).await;
        self.leave().await;
    }

    /// Stops at once like a killed process: the heartbeat stays until it expires.
    pub fn abandon(&self) {
        self.shared.abandon();
        if let Some(task) = self.epoch_opener.lock().take() {
            task.abort();
        }
    }
}
