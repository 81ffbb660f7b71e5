//! Object lock: the retention and the legal hold of a version, and the default retention of a bucket.
//!
//! A retention ends by itself. One in `GOVERNANCE` mode can be lifted by a caller with the permission to bypass it, one in
//! `COMPLIANCE` mode by no caller. A legal hold stays until it is released, and no bypass lifts it.

use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};
use serde::{Deserialize, Serialize};
use time::{Date, Month, OffsetDateTime};

const DAY_MICROS: u64 = 86_400_000_000;

/// Most days of a default retention.
pub const RETENTION_DAYS_MAX: u32 = 36_500;
/// Most years of a default retention.
pub const RETENTION_YEARS_MAX: u32 = 100;

/// Bits of the first byte of the stored form: the mode, whether there is a legal hold, and whether it is on.
const MODE: u8 = 3;
const HOLD: u8 = 4;
const HOLD_ON: u8 = 8;

coded! {
    /// Who may lift a retention before it ends.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub enum RetentionMode {
        /// A caller with the permission to bypass it.
        Governance = 1, "GOVERNANCE";
        /// No caller.
        Compliance = 2, "COMPLIANCE";
    }
}

/// The retention of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Who may lift it.
    pub mode: RetentionMode,
    /// Its end, by the lock clock.
    pub until: Timestamp,
}

/// The lock of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectLock {
    /// Its retention, which may have ended.
    pub retention: Option<Retention>,
    /// Whether its legal hold is on; `None` when there never was one.
    pub legal_hold: Option<bool>,
}

/// The object lock of a bucket that has it: no request takes it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BucketLock {
    /// The retention of new versions whose request names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_retention: Option<DefaultRetention>,
}

/// The default retention of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultRetention {
    /// Who may lift it.
    pub mode: RetentionMode,
    /// How long it lasts, from the creation of the version.
    pub period: RetentionPeriod,
}

/// The length of a default retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionPeriod {
    /// Days of 24 hours.
    Days(u32),
    /// Calendar years: from 29 February to 28 February.
    Years(u32),
}

impl RetentionMode {
    /// The mode of this name, whose case counts.
    #[must_use]
    pub fn from_exact_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl Retention {
    /// A retention until then, or until the next whole millisecond: clients see no more, and may put back what they saw.
    #[must_use]
    pub fn new(mode: RetentionMode, until: Timestamp) -> Self {
        Self { mode, until: Timestamp(until.0.checked_next_multiple_of(1_000).unwrap_or(until.0)) }
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_active(self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether another retention, or none, may replace it. `bypass`: the caller may bypass a governance retention, and asks to.
    #[must_use]
    pub fn may_become(self, next: Option<Self>, now: Timestamp, bypass: bool) -> bool {
        let is_extended = next.is_some_and(|next| next.mode == self.mode && next.until >= self.until);
        is_extended || !self.is_active(now) || (bypass && self.mode == RetentionMode::Governance)
    }
}

impl ObjectLock {
    /// Whether there is neither a retention nor a legal hold.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the version may be removed for good. `bypass`: the caller may bypass a governance retention, and asks to.
    #[must_use]
    pub fn permits_removal(&self, now: Timestamp, bypass: bool) -> bool {
        self.legal_hold != Some(true) && self.retention.is_none_or(|retention| retention.may_become(None, now, bypass))
    }

    /// Appends the stored form.
    pub(super) fn put(&self, out: &mut FieldEncoder) {
        let mode = self.retention.map_or(0, |retention| retention.mode.code());
        let (hold, on) = (self.legal_hold.is_some(), self.legal_hold == Some(true));
        out.u8(mode + u8::from(hold) * HOLD + u8::from(on) * HOLD_ON);
        if let Some(retention) = self.retention {
            out.u64(retention.until.0);
        }
    }

    /// Reads the stored form.
    pub(super) fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let flags = rest.u8()?;
        let (hold, on) = (flags & HOLD != 0, flags & HOLD_ON != 0);
        if flags & !(MODE | HOLD | HOLD_ON) != 0 || (on && !hold) {
            return Err(DecodeError::Invalid("lock flags"));
        }
        let retention = match flags & MODE {
            0 => None,
            code => {
                let mode = RetentionMode::from_code(code).ok_or(DecodeError::Invalid("retention mode"))?;
                Some(Retention { mode, until: Timestamp(rest.u64()?) })
            }
        };
        Ok(Self { retention, legal_hold: hold.then_some(on) })
    }
}

impl BucketLock {
    /// The lock of a version that is created at this moment, where its request asks for `requested`.
    #[must_use]
    pub fn for_new_version(&self, requested: ObjectLock, created: Timestamp) -> ObjectLock {
        let default = || {
            let DefaultRetention { mode, period } = self.default_retention?;
            Some(Retention::new(mode, period.end(created)))
        };
        ObjectLock { retention: requested.retention.or_else(default), ..requested }
    }
}

impl RetentionPeriod {
    /// The end of a period that begins then.
    #[must_use]
    pub fn end(self, begin: Timestamp) -> Timestamp {
        match self {
            Self::Days(days) => begin.saturating_add(u64::from(days).saturating_mul(DAY_MICROS)),
            // A date that no calendar has is far enough away to never come.
            Self::Years(years) => years_later(begin, years).unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether it is one that a bucket may have.
    #[must_use]
    pub fn is_in_range(self) -> bool {
        match self {
            Self::Days(days) => (1..=RETENTION_DAYS_MAX).contains(&days),
            Self::Years(years) => (1..=RETENTION_YEARS_MAX).contains(&years),
        }
    }
}

fn years_later(begin: Timestamp, years: u32) -> Option<Timestamp> {
    let from = OffsetDateTime::from_unix_timestamp_nanos(i128::from(begin.0) * 1_000).ok()?;
    let (year, month, day) = from.to_calendar_date();
    let year = year.checked_add(i32::try_from(years).ok()?)?;
    let date = Date::from_calendar_date(year, month, day)
        .or_else(|_| Date::from_calendar_date(year, Month::February, 28))
        .ok()?;
    let micros = from.replace_date(date).unix_timestamp_nanos() / 1_000;
    u64::try_from(micros).ok().map(Timestamp)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// Any lock.
    pub(crate) fn object_lock() -> impl Strategy<Value = ObjectLock> {
        let mode = prop_oneof![Just(RetentionMode::Governance), Just(RetentionMode::Compliance)];
        let retention = (mode, any::<u64>()).prop_map(|(mode, until)| Retention { mode, until: Timestamp(until) });
        (option::of(retention), option::of(any::<bool>()))
            .prop_map(|(retention, legal_hold)| ObjectLock { retention, legal_hold })
    }

    fn encoded(lock: &ObjectLock) -> bytes::Bytes {
        let mut out = FieldEncoder::with_capacity(16);
        lock.put(&mut out);
        out.finish()
    }

    const NOW: Timestamp = Timestamp(1_000_000);
    const GOVERNANCE: RetentionMode = RetentionMode::Governance;
    const COMPLIANCE: RetentionMode = RetentionMode::Compliance;

    fn retention(mode: RetentionMode, until: u64) -> Retention {
        Retention { mode, until: Timestamp(until) }
    }

    proptest! {
        #[test]
        fn locks_decode_to_themselves(lock in object_lock()) {
            let mut rest = FieldDecoder::new(encoded(&lock));
            prop_assert_eq!(ObjectLock::take(&mut rest), Ok(lock));
            prop_assert_eq!(rest.remaining(), 0);
        }

        #[test]
        fn random_bytes_are_a_lock_or_an_error(bytes: Vec<u8>) {
            let _ = ObjectLock::take(&mut FieldDecoder::new(bytes.into()));
        }

        #[test]
        fn no_change_shortens_a_compliance_retention(until: u64, next: Option<u64>, mode: bool, now: u64, bypass: bool) {
            let next_mode = if mode { COMPLIANCE } else { GOVERNANCE };
            let next = next.map(|until| retention(next_mode, until));
            let (from, now) = (retention(COMPLIANCE, until), Timestamp(now));
            if from.may_become(next, now, bypass) && from.is_active(now) {
                let next = next.unwrap();
                prop_assert!(next.mode == COMPLIANCE && next.until.0 >= until);
            }
        }

        #[test]
        fn a_period_ends_after_it_begins(begin in 0..4_000_000_000_000_000_u64, days in 1..=RETENTION_DAYS_MAX) {
            let begin = Timestamp(begin);
            prop_assert_eq!(RetentionPeriod::Days(days).end(begin).since(begin), u64::from(days) * DAY_MICROS);
            let years = 1 + days % RETENTION_YEARS_MAX;
            let length = RetentionPeriod::Years(years).end(begin).since(begin) / DAY_MICROS;
            prop_assert!((365 * u64::from(years)..=366 * u64::from(years)).contains(&length), "{length}");
        }
    }

    /// The stored form, byte for byte: a change here is a change of format.
    #[test]
    fn the_golden_locks_still_decode() {
        for (lock, bytes) in [
            (ObjectLock::default(), &b"\0"[..]),
            (ObjectLock { retention: None, legal_hold: Some(false) }, b"\x04"),
            (ObjectLock { retention: None, legal_hold: Some(true) }, b"\x0c"),
            (ObjectLock { retention: Some(retention(GOVERNANCE, 258)), legal_hold: None }, b"\x01\0\0\0\0\0\0\x01\x02"),
            (
                ObjectLock { retention: Some(retention(COMPLIANCE, 258)), legal_hold: Some(true) },
                b"\x0e\0\0\0\0\0\0\x01\x02",
            ),
        ] {
            assert_eq!(encoded(&lock).as_ref(), bytes);
            assert_eq!(ObjectLock::take(&mut FieldDecoder::new(bytes.into())), Ok(lock));
        }
        for bad in [&b"\x03\0\0\0\0\0\0\x01\x02"[..], b"\x08", b"\x10", b"\x01\0", b""] {
            assert!(ObjectLock::take(&mut FieldDecoder::new(bad.into())).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_retention_is_extended_by_all_and_lifted_by_few() {
        let (soon, late) = (2_000_000, 3_000_000);
        for (from, next, plain, bypassed) in [
            (retention(GOVERNANCE, soon), Some(retention(GOVERNANCE, late)), true, true),
            (retention(GOVERNANCE, soon), Some(retention(GOVERNANCE, soon)), true, true),
            (retention(GOVERNANCE, late), Some(retention(GOVERNANCE, soon)), false, true),
            (retention(GOVERNANCE, soon), Some(retention(COMPLIANCE, soon)), false, true),
            (retention(GOVERNANCE, soon), Some(retention(COMPLIANCE, late)), false, true),
            (retention(GOVERNANCE, soon), None, false, true),
            (retention(COMPLIANCE, soon), Some(retention(COMPLIANCE, late)), true, true),
            (retention(COMPLIANCE, late), Some(retention(COMPLIANCE, soon)), false, false),
            (retention(COMPLIANCE, soon), Some(retention(GOVERNANCE, late)), false, false),
            (retention(COMPLIANCE, soon), None, false, false),
            (retention(COMPLIANCE, NOW.0), None, true, true),
            (retention(GOVERNANCE, NOW.0), Some(retention(COMPLIANCE, soon)), true, true),
        ] {
            assert_eq!(from.may_become(next, NOW, false), plain, "{from:?} {next:?}");
            assert_eq!(from.may_become(next, NOW, true), bypassed, "{from:?} {next:?}");
        }
    }

    #[test]
    fn a_legal_hold_outlasts_every_retention_and_bypass() {
        let lock = |retention, legal_hold| ObjectLock { retention, legal_hold };
        let active = Some(retention(GOVERNANCE, NOW.0 + 1));
        for (lock, plain, bypassed) in [
            (lock(None, None), true, true),
            (lock(None, Some(false)), true, true),
            (lock(None, Some(true)), false, false),
            (lock(active, None), false, true),
            (lock(active, Some(true)), false, false),
            (lock(Some(retention(COMPLIANCE, NOW.0 + 1)), None), false, false),
            (lock(Some(retention(COMPLIANCE, NOW.0)), None), true, true),
        ] {
            assert_eq!(lock.permits_removal(NOW, false), plain, "{lock:?}");
            assert_eq!(lock.permits_removal(NOW, true), bypassed, "{lock:?}");
        }
    }

    #[test]
    fn a_default_counts_unless_the_request_names_a_retention() {
        let default = DefaultRetention { mode: GOVERNANCE, period: RetentionPeriod::Days(1) };
        let bucket = BucketLock { default_retention: Some(default) };
        let defaulted = retention(GOVERNANCE, NOW.0 + DAY_MICROS);
        let held = ObjectLock { retention: None, legal_hold: Some(true) };
        assert_eq!(bucket.for_new_version(held, NOW), ObjectLock { retention: Some(defaulted), ..held });
        let own = ObjectLock { retention: Some(retention(COMPLIANCE, 5)), legal_hold: None };
        assert_eq!(bucket.for_new_version(own, NOW), own);
        assert_eq!(BucketLock::default().for_new_version(held, NOW), held);
    }

    #[test]
    fn a_year_from_a_leap_day_ends_a_day_earlier() {
        let leap = Timestamp(1_709_208_000_000_000);
        assert_eq!(RetentionPeriod::Years(1).end(leap).since(leap), 365 * DAY_MICROS);
        assert_eq!(RetentionPeriod::Years(4).end(leap).since(leap), 1461 * DAY_MICROS);
        assert_eq!(RetentionPeriod::Years(9_000).end(leap), Timestamp::MAX);
        assert!(!RetentionPeriod::Days(0).is_in_range() && !RetentionPeriod::Years(101).is_in_range());
    }
}
