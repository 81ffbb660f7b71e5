//! The notices of a write that is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_rows::address::Address;
use larder_rows::{Change, KvWrite, NoticeContent, NoticeEvent, NoticeRow, PartitionChanges, Timestamp};

use super::{AddressedNotice, Outbox, WaitingNotice, notice_row};
use crate::rules::props::WebhookUrl;
use crate::{Error, Result};

/// The write that notices are about.
#[derive(Debug, Clone, Copy)]
pub struct NoticeSubject<'a> {
    /// Its kind.
    pub event: NoticeEvent,
    /// The object.
    pub address: &'a Address,
    /// Of a put: the content type, if there is one.
    pub content_type: Option<&'a Bytes>,
    /// Of a put: the length of the value.
    pub bytes: u64,
}

impl NoticeSubject<'_> {
    /// The notice for one receiver. Its names are copies: those of a request may be views of a larger buffer.
    pub(super) fn notice(&self, id: String, url: &WebhookUrl) -> NoticeRow {
        let copy = |name: &Bytes| Bytes::copy_from_slice(name);
        let mut address = self.address.clone();
        for name in [&mut address.bucket.bucket_type, &mut address.bucket.bucket, &mut address.key] {
            *name = copy(name);
        }
        let content_type = self.content_type.map(copy);
        let content = NoticeContent::Kv(KvWrite { event: self.event, content_type, bytes: self.bytes });
        NoticeRow { id, receiver: url.as_str().to_owned(), address, time: Timestamp::ZERO, content }
    }
}

/// Reserved notices of one write. Dropped, they go to the deliverer if the store has or may have them, as it does when the
/// client of the write is gone; otherwise their places are free again.
pub struct PendingNotices {
    outbox: Arc<Outbox>,
    notices: Vec<(u32, AddressedNotice)>,
    /// The clock of the write that carries them; 0 before there is one.
    stamp: AtomicU64,
    /// Whether the write was refused although their rows are stored.
    is_withdrawn: AtomicBool,
    /// Whether the write succeeded or was refused; otherwise it may take effect later.
    is_settled: AtomicBool,
}

/// How long the notices of a write of unknown outcome wait: a store has carried it out by then, or does not.
const UNSETTLED_PAUSE: Duration = Duration::from_secs(60);

impl PendingNotices {
    pub(super) fn new(outbox: Arc<Outbox>, notices: Vec<(u32, AddressedNotice)>) -> Self {
        Self {
            outbox,
            notices,
            stamp: AtomicU64::new(0),
            is_withdrawn: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
        }
    }

    /// The rows, for the batch of a write with this clock; `None` where the bucket has no webhook. From here on they count as
    /// stored, until [`Self::note_result`] says that they are not.
    pub fn changes(&self, clock: Timestamp) -> Option<PartitionChanges> {
        if self.notices.is_empty() {
            return None;
        }
        self.stamp.store(clock.0, Ordering::Release);
        let put = |(place, notice): &(u32, AddressedNotice)| {
            Change::Put(notice_row(*place, clock, &timed(notice.row.clone(), clock)))
        };
        Some(PartitionChanges::new(self.outbox.partition(), self.notices.iter().map(put).collect()))
    }

    /// Notes the result of the batch that had the rows.
    pub fn note_result<T>(&self, written: &Result<T>) {
        self.is_settled.store(written.is_ok(), Ordering::Release);
        if written.as_ref().is_err_and(Error::has_written_nothing) {
            self.stamp.store(0, Ordering::Release);
        }
    }

    /// Notes that the write is made, and its rows are stored.
    pub fn confirm(&self) {
        self.is_settled.store(true, Ordering::Release);
    }

    /// Notes that the write is not made, whether or not the rows are stored.
    pub fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Release);
        self.is_settled.store(true, Ordering::Release);
    }

    /// Notes the result of a write whose notices are stored: of a refused or undone one nothing is sent.
    pub fn withdraw_if_refused<T>(&self, written: &Result<T>) {
        let is_refused = written.as_ref().is_err_and(Error::has_written_nothing);
        self.is_withdrawn.store(is_refused, Ordering::Release);
        self.is_settled.store(is_refused || written.is_ok(), Ordering::Release);
    }
}

impl Drop for PendingNotices {
    fn drop(&mut self) {
        let notices = std::mem::take(&mut self.notices);
        let stamp = Timestamp(self.stamp.load(Ordering::Acquire));
        if stamp == Timestamp::ZERO {
            return self.outbox.free(&notices);
        }
        let is_withdrawn = self.is_withdrawn.load(Ordering::Acquire);
        let is_settled = self.is_settled.load(Ordering::Acquire);
        let waiting = notices.into_iter().map(|(place, notice)| {
            let notice = AddressedNotice { row: timed(notice.row, stamp), ..notice };
            let waiting = WaitingNotice::new(place, stamp, notice);
            match is_settled {
                true if is_withdrawn => WaitingNotice { is_withdrawn, ..waiting.into_removal() },
                true => waiting,
                false => waiting.after(UNSETTLED_PAUSE),
            }
        });
        self.outbox.enqueue(waiting.collect());
    }
}

/// A notice with the clock of its write: that of its row, unless it has another one already.
fn timed(notice: NoticeRow, clock: Timestamp) -> NoticeRow {
    let time = Some(notice.time).filter(|time| *time != Timestamp::ZERO).unwrap_or(clock);
    NoticeRow { time, ..notice }
}
