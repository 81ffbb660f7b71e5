//! A gateway: key-value over a core.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use larder_core::core::Core;
use larder_core::ports::GatewayPorts;
use larder_core::{Config, Result};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::Kv;
use crate::epochs::spawn_epoch_opener;
use crate::hooks::CommitHooks;
use crate::outbox::{Outbox, WebhookBacklog, WebhookChoice, deliver_notices, take_over_once, watch_for_orphans};

/// How long a shutdown waits for postcommit hooks.
const POSTCOMMIT_DRAIN: Duration = Duration::from_secs(5);

/// One running gateway. Its core has the parts that both products share, and it derefs to that.
pub struct Gateway {
    shared: Arc<Core>,
    /// Key-value objects.
    pub kv: Arc<Kv>,
    outbox: Arc<Outbox>,
    /// The task that opens epochs.
    epoch_opener: Mutex<Option<JoinHandle<()>>>,
    /// The delivery of notices.
    deliveries: Mutex<JoinSet<()>>,
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
        gateway.start_deliveries().await;
        Ok(gateway)
    }

    /// The parts of key-value over a core.
    fn over(shared: Arc<Core>) -> Self {
        let (context, issuer, catalogue) = (shared.context(), shared.issuer(), shared.catalogue());
        let outbox = Outbox::new(Arc::clone(context), Arc::clone(issuer), Arc::clone(catalogue));
        let hooks = Arc::new(CommitHooks::new(Arc::clone(context), Arc::clone(&outbox)));
        let kv = Arc::new(Kv::new(&shared, hooks));
        let waiting = Arc::downgrade(&outbox);
        context.count_notices_by(Box::new(move || waiting.upgrade().map_or(0, |outbox| outbox.waiting())));
        Self { shared, kv, outbox, epoch_opener: Mutex::default(), deliveries: Mutex::default() }
    }

    async fn start_deliveries(&self) {
        let (members, outbox) = (self.members(), &self.outbox);
        if self.context().config.single_process {
            // Bound: writes are served after the notices of earlier runs count [invariant 139].
            take_over_once(outbox, members).await;
        }
        let mut deliveries = self.deliveries.lock();
        deliveries.spawn(deliver_notices(Arc::clone(outbox)));
        deliveries.spawn(watch_for_orphans(Arc::clone(outbox), Arc::clone(members)));
    }

    /// The core, for the other products over it.
    pub fn shared(&self) -> &Arc<Core> {
        &self.shared
    }

    /// The notices for webhooks that wait on this gateway, by bucket and webhook.
    #[must_use]
    pub fn webhook_backlogs(&self) -> Vec<WebhookBacklog> {
        self.outbox.backlogs()
    }

    /// Drops notices for webhooks on this gateway, and returns their number. One that is under way is sent once more at most.
    pub fn drop_webhook_notices(&self, choice: &WebhookChoice) -> usize {
        self.outbox.drop_notices(choice)
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
        self.deliveries.lock().abort_all();
    }
}
