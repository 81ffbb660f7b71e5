//! Delivers notices, and tries again what failed.

use std::sync::Arc;
use std::time::Duration;

use larder_rows::text::beginning;
use larder_store::RateLimitedLog;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::receivers::is_wanted;
use super::{DeliveryStep, Outbox, WaitingNotice};
use crate::metrics::Event;
use crate::ports::WebhookRequest;

/// Time for one request to a receiver, its answer included.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the first failure; each further failure doubles it.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Time from the write until a notice is given up, in microseconds.
const GIVE_UP_MICROS: u64 = 24 * 3600 * 1_000_000;
/// Longest wait of the deliverer when nothing is due.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Most bytes of a name in the log.
const LOGGED_BYTES_MAX: usize = 200;

static DELIVERY_FAILED: RateLimitedLog = RateLimitedLog::new();
static REMOVAL_FAILED: RateLimitedLog = RateLimitedLog::new();

/// Delivers until it is aborted.
pub(crate) async fn deliver_notices(outbox: Arc<Outbox>) {
    let mut under_way = JoinSet::new();
    loop {
        let now = Instant::now();
        let (due, next) = outbox.state.lock().queue.begin_due(now);
        for waiting in due {
            let outbox = Arc::clone(&outbox);
            under_way.spawn(async move { outbox.take_step(waiting).await });
        }
        tokio::select! {
            () = outbox.wake.notified() => {}
            () = sleep_until(next.unwrap_or(now + IDLE_MAX)) => {}
            Some(_) = under_way.join_next(), if !under_way.is_empty() => {}
        }
    }
}

impl Outbox {
    /// Sends a notice, or removes the row of one that is done with.
    async fn take_step(self: &Arc<Self>, waiting: WaitingNotice) {
        let mut waiting = waiting;
        if waiting.step == DeliveryStep::Send {
            if let Err(failure) = self.send(&waiting).await {
                self.note_failure(&waiting.notice, &failure);
                let Some(why) = self.given_up(&waiting) else {
                    self.context.metrics.count_event(Event::WebhookRetried);
                    self.log_failure(&waiting, &failure);
                    return self.put_off(waiting);
                };
                self.context.metrics.count_event(Event::WebhookGivenUp);
                log_given_up(&waiting, &failure, why);
            } else {
                self.context.metrics.count_event(Event::WebhookDelivered);
            }
            // Crash: the row goes after the answer; a crash in between sends the notice again [invariant 137].
            waiting = waiting.into_removal();
        }
        match self.remove_row(&waiting).await {
            Ok(()) => {
                let mut state = self.state.lock();
                state.queue.end(&waiting, Instant::now());
                state.places.free(waiting.place);
            }
            Err(error) => {
                if let Some(line) = REMOVAL_FAILED.admit(self.context.monotonic()) {
                    let left_out = line.left_out;
                    tracing::warn!(%error, left_out, "removal of a webhook notice failed: it is tried again");
                }
                self.put_off(waiting);
            }
        }
    }

    /// Sends a notice once.
    ///
    /// # Errors
    /// The reason for the log.
    async fn send(&self, waiting: &WaitingNotice) -> Result<(), String> {
        let endpoint = waiting.endpoint.as_ref().ok_or("its receiver is not one that this server sends to")?;
        self.check_allowed(&waiting.notice, endpoint)?;
        let port = self.context.ports.webhooks.as_ref().ok_or("this server sends no webhooks")?;
        let (id, body) = (&*waiting.notice.id, waiting.notice.to_json().to_string().into());
        let request = WebhookRequest { url: &endpoint.url, id, authorization: endpoint.authorization.as_deref(), body };
        let sent = timeout(DELIVERY_TIMEOUT, port.post(request)).await;
        sent.unwrap_or_else(|_| Err(format!("no answer within {} s", DELIVERY_TIMEOUT.as_secs())))
    }

    /// Why a notice that was not received is not sent again; `None`: it is.
    fn given_up(&self, waiting: &WaitingNotice) -> Option<&'static str> {
        if self.context.now().since(waiting.notice.time) >= GIVE_UP_MICROS {
            Some("not received in 24 hours")
        } else if self.state.lock().places.is_dropped(waiting.place) {
            Some("an operator dropped it")
        } else if self
            .catalogue
            .peek(self.context.monotonic())
            .is_some_and(|catalogue| !is_wanted(&catalogue, &waiting.notice))
        {
            Some("its bucket has the receiver no more")
        } else {
            None
        }
    }

    /// Puts the step of a notice off for a pause that grows with its failures.
    fn put_off(&self, waiting: WaitingNotice) {
        let mut random = [0; 2];
        (self.context.ports.random)(&mut random);
        let pause = retry_pause(waiting.failures, u16::from_be_bytes(random));
        let waiting = WaitingNotice { failures: waiting.failures.saturating_add(1), ..waiting };
        self.state.lock().queue.try_again(waiting.after(pause), Instant::now());
    }

    fn log_failure(&self, waiting: &WaitingNotice, failure: &str) {
        if let Some(line) = DELIVERY_FAILED.admit(self.context.monotonic()) {
            let (receiver, id, left_out) = (&waiting.notice.receiver, &waiting.notice.id, line.left_out);
            tracing::warn!(receiver, id, failure, left_out, "webhook delivery failed: it is tried again for 24 hours");
        }
    }
}

/// The log line of each notice that is given up: it is the last trace of it.
fn log_given_up(waiting: &WaitingNotice, failure: &str, why: &str) {
    let notice = &waiting.notice;
    let shown = |name: &[u8]| beginning(&String::from_utf8_lossy(name), LOGGED_BYTES_MAX).to_owned();
    let (receiver, id, event) = (&notice.receiver, &notice.id, notice.event_name());
    let bucket_type = shown(&notice.address.bucket.bucket_type);
    let (bucket, key) = (shown(&notice.address.bucket.bucket), shown(&notice.address.key));
    tracing::warn!(receiver, id, event, ?bucket_type, ?bucket, ?key, failure, "webhook notice given up: {why}");
}

/// The pause after so many earlier failures: doubled each time, of which a random half is waited in any case.
fn retry_pause(failures: u32, random: u16) -> Duration {
    let whole = RETRY_PAUSE_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_PAUSE_MAX);
    whole / 2 + whole.mul_f64(f64::from(random) / f64::from(u16::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_five_minutes_and_half_of_each_is_random() {
        for (failures, least, most) in [(0, 500, 1000), (1, 1000, 2000), (8, 128_000, 256_000), (9, 150_000, 300_000)] {
            assert_eq!(retry_pause(failures, 0).as_millis(), least);
            assert_eq!(retry_pause(failures, u16::MAX).as_millis(), most);
        }
        assert_eq!(retry_pause(u32::MAX, u16::MAX), RETRY_PAUSE_MAX);
    }
}
