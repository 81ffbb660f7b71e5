//! Notices for the tests of the outbox.

use bytes::Bytes;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{KvWrite, NoticeContent, NoticeEvent, NoticeRow, Timestamp};

use super::{AddressedNotice, DeliveryStep, ReceiverEndpoint, WaitingNotice};
use crate::rules::props::WebhookUrl;

/// A notice of a put.
pub(super) fn notice_at(url: &str, bucket: &str, key: &str, time: u64) -> NoticeRow {
    let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: bucket.to_owned().into() };
    NoticeRow {
        id: String::new(),
        receiver: url.to_owned(),
        address: Address { bucket, key: key.to_owned().into() },
        time: Timestamp(time),
        content: NoticeContent::Kv(KvWrite { event: NoticeEvent::Put, content_type: None, bytes: 0 }),
    }
}

/// It waits at the place of its time.
pub(super) fn waiting_at(notice: NoticeRow) -> WaitingNotice {
    let (place, stamp) = (u32::try_from(notice.time.0).unwrap(), notice.time);
    let AddressedNotice { row, endpoint } = addressed(notice);
    let step = DeliveryStep::Send;
    WaitingNotice { place, stamp, notice: row, endpoint, step, is_withdrawn: false, failures: 0, due: None }
}

/// It goes to the URL that names its receiver.
pub(super) fn addressed(row: NoticeRow) -> AddressedNotice {
    let endpoint = WebhookUrl::parse(&row.receiver).ok().map(|url| ReceiverEndpoint { url, authorization: None });
    AddressedNotice { row, endpoint }
}
