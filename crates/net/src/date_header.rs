//! The header `Date` of an answer.
//!
//! hyper would write one, too: it stays at the latest time that it saw when the clock is set back, and panics before 1970.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use hyper::header::HeaderValue;
use rustix::time::{ClockId, clock_gettime};

/// The last second that has a date: 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;

thread_local! {
    /// The date of the last answer of this thread, and its second.
    static LAST: RefCell<(u64, HeaderValue)> = RefCell::new((0, header_at(0)));
}

/// The date now. A time before 1970 counts as the first second of that year.
pub(crate) fn now() -> HeaderValue {
    let second = u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0);
    LAST.with_borrow_mut(|last| {
        // Also after a jump back of the clock.
        if last.0 != second {
            *last = (second, header_at(second));
        }
        last.1.clone()
    })
}

fn header_at(second: u64) -> HeaderValue {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(LAST_SECOND)));
    HeaderValue::try_from(date).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_has_a_date() {
        assert_eq!(header_at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(header_at(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        LAST.with_borrow_mut(|last| *last = (u64::MAX, header_at(u64::MAX)));
        assert_ne!(now(), header_at(u64::MAX), "a clock that was set back shows");
    }
}
