//! The job of a move, and the orders of its operator.
//!
//! ```text
//! start ──> check ──> types ──> seed ──> follow ⇄ verify          pause, resume      finish or cancel ──> done
//! ```
//! The order is a row, so it reaches the gateway that carries it out, also after a restart: the leader of the gateways. A run
//! of the job goes on where the last one was.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_core::{Error, Result};
use larder_kv::Gateway;
use larder_rows::{ActorId, MoveOrder, MoveWish, S3MoveTerms, Timestamp};
use larder_s3::Objects;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::back_queue::BackQueue;
use crate::move_run::{MoveRun, MoveSource, MoveSteps, MoveStopped, SweepKind};
use crate::move_store::{KeyList, MoveStore};
use crate::progress::{MovePhase, MoveProgress, MoveVerification};
use crate::queue_progress::QueueProgress;
use crate::rules::SourceAddress;
use crate::s3::BroughtKeys;
use crate::source::Source;
use crate::source_http::SourceHttp;

/// How often the order is read again.
const ORDER_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time between two passes.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failure; each further one doubles it.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause after a failure.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// What an operator has to know on the way back.
const WAY_BACK_NOTE: &str =
    "the Riak fetches what changes here from /queuename/back: verify once it has all, then finish";
/// Requests to the source in a second, if its operator says nothing.
pub const MOVE_RATE_DEFAULT: u32 = 1000;

/// Why an order is refused.
#[derive(Debug, thiserror::Error)]
pub enum MoveRefusal {
    /// It does not fit the state of the move.
    #[error("{0}")]
    Refused(String),
    /// The store does not answer.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The move of a gateway, as `status` shows it.
#[derive(Debug, Clone)]
pub struct MoveStatus {
    /// The order.
    pub order: MoveOrder,
    /// The progress.
    pub progress: MoveProgress,
    /// Keys that could not be copied, each with the reason; the first ones of many.
    pub asides: Vec<String>,
    /// Keys that differed at the last verification.
    pub differences: Vec<String>,
}

impl MoveStatus {
    /// Whether its order is carried out and the move has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.progress.phase == MovePhase::Done
    }
}

/// The order of a new move.
#[derive(Debug, Clone)]
pub struct NewMove {
    /// The source.
    pub source: SourceAddress,
    /// The bucket types that move from a Riak.
    pub types: Vec<Bytes>,
    /// Most requests to the source in a second.
    pub rate: u32,
    /// The replication queue that a Riak fills for this move; empty for an S3 store.
    pub queue: String,
    /// The terms of a move from an S3 store; `None`: it comes from a Riak.
    pub s3: Option<S3MoveTerms>,
}

/// The moves of a gateway: one at a time.
pub struct Mover {
    pub(crate) store: MoveStore,
    http: Arc<dyn SourceHttp>,
    /// What a Riak fetches on the way back.
    pub(crate) back: Arc<BackQueue>,
    /// The keys that requests of this gateway ask for.
    brought: Arc<BroughtKeys>,
    /// Notified when the order changes here.
    changed: Notify,
}

impl Mover {
    /// The moves of this gateway, read through this client.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, objects: Arc<Objects>, http: Arc<dyn SourceHttp>) -> Arc<Self> {
        let store = MoveStore { gateway };
        let brought = Arc::new(BroughtKeys::new(store.clone(), Arc::clone(&objects), Arc::clone(&http)));
        let source: Weak<BroughtKeys> = Arc::downgrade(&brought);
        objects.read_through(source);
        let back = Arc::new(BackQueue::default());
        let mover = Arc::new(Self { store, http, back, brought, changed: Notify::new() });
        let queue: Weak<Self> = Arc::downgrade(&mover);
        mover.store.gateway.kv.serve_queue(queue);
        mover
    }

    /// Orders a move. One that was cancelled goes on if it comes from the same source.
    ///
    /// # Errors
    /// [`MoveRefusal`]: another move is under way, or the address is none.
    pub async fn start(&self, new: NewMove) -> std::result::Result<MoveOrder, MoveRefusal> {
        let NewMove { source, types, rate, queue, s3 } = new;
        let address = source.to_text();
        let before = self.status().await?;
        if let Some(before) = before.as_ref().filter(|before| !before.has_ended()) {
            let text = format!("a move from {} is under way: finish or cancel it first", before.order.source);
            return Err(MoveRefusal::Refused(text));
        }
        let context = self.store.gateway.context();
        let same = before.filter(|before| before.order.source == address && before.order.wish == MoveWish::Cancel);
        let actor = match &same {
            Some(before) => before.order.actor,
            None => {
                // Keys that another move brought are no business of this one.
                self.store.clear().await?;
                let mut random = [0; 8];
                (context.ports.random)(&mut random);
                ActorId(u64::from_be_bytes(random).max(1))
            }
        };
        let id = context.new_unique_name();
        let order = MoveOrder { id, source: address, types, rate, actor, wish: MoveWish::Run, number: 1, queue, s3 };
        self.store.write_order(&order).await?;
        self.changed.notify_waiters();
        Ok(order)
    }

    /// Gives the move a new wish. `force` finishes it whatever the last verification found.
    ///
    /// # Errors
    /// [`MoveRefusal`]: there is no move, or it may not finish.
    pub async fn wish(&self, wish: MoveWish, force: bool) -> std::result::Result<MoveStatus, MoveRefusal> {
        let Some(status) = self.status().await?.filter(|status| !status.has_ended()) else {
            return Err(MoveRefusal::Refused("no move is under way".to_owned()));
        };
        if matches!(wish, MoveWish::Finish | MoveWish::Back)
            && let Some(objection) = objection(&status).filter(|_| !force)
        {
            let forced = if wish == MoveWish::Back { "turns back" } else { "finishes it" };
            return Err(MoveRefusal::Refused(format!("{objection}; --force {forced} anyway")));
        }
        if wish == MoveWish::Repair && status.progress.phase == MovePhase::Back {
            let text = "on the way back a key that the Riak lacks is handed out again by itself";
            return Err(MoveRefusal::Refused(text.to_owned()));
        }
        if wish == MoveWish::Back {
            self.check_way_back(&status).await?;
        }
        let mut order = MoveOrder { wish, number: status.order.number + 1, ..status.order.clone() };
        if let Some(terms) = order.s3.as_mut().filter(|_| matches!(wish, MoveWish::Finish | MoveWish::Cancel)) {
            // A move that ends reads its source no more.
            terms.secret.clear();
        }
        self.store.write_order(&order).await?;
        self.changed.notify_waiters();
        Ok(MoveStatus { order, ..status })
    }

    /// Refuses a way back that there is not.
    async fn check_way_back(&self, status: &MoveStatus) -> std::result::Result<(), MoveRefusal> {
        let why = match status.progress.phase {
            _ if status.order.s3.is_some() => "only a Riak takes changes back",
            // Attack: whoever fetches an element has it, and a Riak fetches without a user.
            _ if !self.store.gateway.security().is_surely_off() => {
                "a Riak fetches without a user: switch security off for the way back"
            }
            MovePhase::Follow if self.store.is_from_larder().await? => {
                "only a Riak takes changes back: to bring them to a Larder, start a move there from here"
            }
            MovePhase::Follow => return Ok(()),
            MovePhase::Back => "the way back is open already",
            _ => "the move has not reached the phase follow",
        };
        Err(MoveRefusal::Refused(why.to_owned()))
    }

    /// The move that is under way, or the last one.
    ///
    /// # Errors
    /// The store's.
    pub async fn status(&self) -> Result<Option<MoveStatus>> {
        let Some(order) = self.store.order().await? else { return Ok(None) };
        let now = self.store.gateway.context().now();
        let progress = self.store.progress(&order.id).await?;
        let progress = progress.unwrap_or_else(|| MoveProgress::new(order.id.clone(), now));
        let asides = self.store.key_list(KeyList::Asides).await?;
        let differences = self.store.key_list(KeyList::Differences).await?;
        Ok(Some(MoveStatus { order, progress, asides, differences }))
    }

    /// Carries out orders until it is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            match self.next_order().await {
                Ok(Some(order)) => {
                    if let Err(error) = self.carry_out(order).await {
                        tracing::warn!(%error, "move from another store failed: it is tried again");
                        sleep(ORDER_INTERVAL).await;
                    }
                }
                Ok(None) => drop(timeout(ORDER_INTERVAL, changed).await),
                Err(error) => {
                    tracing::debug!(%error, "the order of a move was not read");
                    sleep(ORDER_INTERVAL).await;
                }
            }
        }
    }

    /// The order that this gateway has to carry out.
    async fn next_order(&self) -> Result<Option<MoveOrder>> {
        let Some(order) = self.store.order().await? else { return Ok(None) };
        let progress = self.store.progress(&order.id).await?;
        if progress.is_some_and(|progress| progress.phase == MovePhase::Done) {
            return Ok(None);
        }
        // Two gateways that both think so write the same rows.
        let is_leader = self.store.gateway.members().is_leader().await?;
        Ok(Some(order).filter(|_| is_leader))
    }

    /// Works on an order until it is carried out, or another one comes.
    async fn carry_out(&self, order: MoveOrder) -> Result<()> {
        // An order is checked before it is written, so its address parses.
        let address = SourceAddress::parse(&order.source).map_err(Error::Internal)?;
        let (http, rate) = (Arc::clone(&self.http), order.rate);
        match (address, order.s3.is_some()) {
            (SourceAddress::S3(address), true) => {
                let run = self.brought.load(address, order).await?;
                self.brought.adopt(&run);
                self.work_on(run).await
            }
            (SourceAddress::Riak(address), _) => {
                let source = Source::new(http, address, order.queue.clone(), rate, Arc::clone(&self.back));
                self.work_on(MoveRun::load(&self.store, source, order).await?).await
            }
            (SourceAddress::S3(_), false) => Err(Error::Internal("the order of a move has no terms".to_owned())),
        }
    }

    async fn work_on<S: MoveSource>(&self, run: Arc<MoveRun<S>>) -> Result<()>
    where
        MoveRun<S>: MoveSteps,
    {
        let number = run.order.number;
        tokio::select! {
            biased;
            () = self.another_order(number) => {}
            () = run.keep_saving() => {}
            () = Arc::clone(&run).follow_beside() => {}
            ended = work(&run) => ended?,
        }
        let saved = run.save().await;
        // Another gateway may go on with it, and an ended move has no metrics.
        self.store.gateway.context().metrics.show_move(Vec::new());
        saved
    }

    /// Waits until there is another order, or another gateway has to carry it out.
    async fn another_order(&self, number: u64) {
        loop {
            let changed = self.changed.notified();
            let _ = timeout(ORDER_INTERVAL, changed).await;
            match self.next_order().await {
                Ok(Some(order)) if order.number == number => {}
                Ok(_) => return,
                // The store may be away for a moment.
                Err(_) => {}
            }
        }
    }
}

/// Why a move may not finish; `None`: it may.
fn objection(status: &MoveStatus) -> Option<String> {
    let Some(verified) = &status.progress.verified else {
        return Some("the move was not verified: `kv-admin move verify` compares all keys".to_owned());
    };
    let asides = status.progress.asides;
    let kept_out =
        (asides > 0).then(|| format!("{asides} keys could not be copied; `kv-admin move status` lists them"));
    // On the way back clients write at the Riak again.
    let is_back = status.progress.phase == MovePhase::Back;
    let verified = if is_back { &MoveVerification { changed_there: 0, ..verified.clone() } } else { verified };
    verified.objection().or(kept_out)
}

/// The steps of a move, from the one that it is in.
async fn work<S: MoveSource>(run: &Arc<MoveRun<S>>) -> Result<()>
where
    MoveRun<S>: MoveSteps,
{
    match run.order.wish {
        MoveWish::Run | MoveWish::Verify | MoveWish::Repair | MoveWish::Back => {}
        MoveWish::Pause => {
            run.note(|progress| progress.handled = run.order.number);
            run.save().await?;
            std::future::pending::<()>().await;
        }
        MoveWish::Finish | MoveWish::Cancel => {
            run.close().await.map_err(|MoveStopped(why)| Error::Internal(why))?;
            if run.order.wish == MoveWish::Finish {
                run.store.clear().await?;
            }
            return end(run).await;
        }
    }
    let mut pause = FAILURE_PAUSE;
    loop {
        let Err(MoveStopped(error)) = advance(run).await else {
            run.note(|progress| progress.error.clear());
            pause = FAILURE_PAUSE;
            continue;
        };
        tracing::warn!(phase = run.phase().name(), error, "move from another store waits");
        run.note(|progress| progress.error = error);
        sleep(pause).await;
        pause = (pause * 2).min(FAILURE_PAUSE_MAX);
    }
}

async fn end<S: MoveSource>(run: &MoveRun<S>) -> Result<()> {
    run.note(|progress| {
        progress.handled = run.order.number;
        progress.error.clear();
    });
    run.enter(MovePhase::Done).await
}

/// One step of a move.
async fn advance<S: MoveSource>(run: &Arc<MoveRun<S>>) -> std::result::Result<(), MoveStopped>
where
    MoveRun<S>: MoveSteps,
{
    let scope = run.check().await?;
    match run.phase() {
        MovePhase::Check => run.enter(MovePhase::Types).await?,
        MovePhase::Types => {
            run.prepare(&scope).await?;
            run.enter(MovePhase::Seed).await?;
        }
        MovePhase::Seed => {
            Arc::clone(run).pass(&scope, SweepKind::Seed).await?;
            run.enter(MovePhase::Follow).await?;
        }
        MovePhase::Follow if run.order.wish == MoveWish::Back => {
            // What was verified before says nothing about the way back.
            run.note(|progress| {
                progress.handled = run.order.number;
                progress.verified = None;
                progress.complete_until = Timestamp::ZERO;
                progress.queue = QueueProgress::default();
                progress.notes = vec![WAY_BACK_NOTE.to_owned()];
            });
            run.enter(MovePhase::Back).await?;
        }
        MovePhase::Follow if run.order.wish != MoveWish::Run && !run.is_handled() => {
            run.enter(MovePhase::Verify).await?;
        }
        MovePhase::Back => {
            let is_asked = matches!(run.order.wish, MoveWish::Verify | MoveWish::Repair) && !run.is_handled();
            let kind = if is_asked { SweepKind::Verify } else { SweepKind::Follow };
            let found = Arc::clone(run).pass(&scope, kind).await?;
            if is_asked {
                run.note(|progress| {
                    progress.verified = Some(found);
                    progress.handled = run.order.number;
                });
            }
            sleep(SWEEP_PAUSE).await;
        }
        MovePhase::Follow => {
            run.await_pass().await;
            Arc::clone(run).pass(&scope, SweepKind::Follow).await?;
            sleep(SWEEP_PAUSE).await;
        }
        MovePhase::Verify => {
            let found = Arc::clone(run).pass(&scope, SweepKind::Verify).await?;
            run.note(|progress| {
                progress.verified = Some(found);
                progress.handled = run.order.number;
            });
            run.enter(MovePhase::Follow).await?;
        }
        MovePhase::Done => std::future::pending().await,
    }
    Ok(())
}
