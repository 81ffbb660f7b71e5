use proptest::prelude::*;

use super::*;

#[test]
fn times_have_the_formats_of_the_protocol() {
    let at = 1_289_422_114_123_999;
    assert_eq!(iso(Timestamp(at)), "2010-11-10T20:48:34.123Z");
    assert_eq!(basic(Timestamp(at)), "20101110T204834Z");
    assert_eq!(http(Timestamp(at)), "Wed, 10 Nov 2010 20:48:34 GMT");
    assert_eq!(iso(Timestamp::ZERO), "1970-01-01T00:00:00.000Z");
    assert_eq!(iso(Timestamp::MAX), "9999-12-31T23:59:59.999Z");
    assert!(http(Timestamp::MAX).ends_with("9999 23:59:59 GMT"));
}

#[test]
fn known_formats_are_parsed() {
    let at = 1_289_422_114_000_000;
    assert_eq!(parse_http("Wed, 10 Nov 2010 20:48:34 GMT"), Some(Timestamp(at)));
    assert_eq!(parse_http("yesterday"), None);
    for text in ["2010-11-10T20:48:34.000Z", "2010-11-10T21:48:34+01:00", " 2010-11-10T20:48:34Z\n"] {
        assert_eq!(parse_document_date(text), Some(Timestamp(at)), "{text}");
    }
    assert_eq!(parse_iso("2010-11-10T21:48:34+01:00"), Some(Timestamp(at)));
    for text in ["2010-11-10 20:48:34Z", "2010-11-10", "2010-11-10T20:48:34", " 2010-11-10T20:48:34Z"] {
        assert_eq!(parse_iso(text), None, "{text}");
    }
    assert_eq!(parse_document_date("1970-01-02"), Some(Timestamp(86_400_000_000)));
    for text in ["", "1969-12-31", "2010-13-01", "2010-02-30", "2010-01-01-01", "2010", "now"] {
        assert_eq!(parse_document_date(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_time_or_none(text: String) {
        let _ = (parse_document_date(&text), parse_http(&text));
    }

    #[test]
    fn written_times_are_parsed_back(at in 0..253_402_300_800_000_000_u64) {
        prop_assert_eq!(parse_document_date(&iso(Timestamp(at))), Some(Timestamp(at / 1_000 * 1_000)));
        prop_assert_eq!(parse_http(&http(Timestamp(at))), Some(Timestamp(at / 1_000_000 * 1_000_000)));
    }
}

#[test]
fn every_format_that_clients_send_is_parsed() {
    let same = 1_136_214_245_000_000; // Monday, 2 January 2006, 15:04:05
    for text in [
        "Mon, 02 Jan 2006 15:04:05 GMT",
        "Mon, 02 Jan 2006 15:04:05 UTC",
        "Mon, 02 Jan 2006 15:04:05 +0000",
        "Mon, 02 Jan 2006 15:04:05 Z",
        "Mon, 2 Jan 2006 15:04:05 GMT",
        "2 Jan 2006 15:04:05 GMT",
        "02 jan 06 15:04:05 UT",
        "Mon, 02 Jan 2006 16:34:05 +0130",
        "Mon, 02 Jan 2006 10:04:05 -05:00",
        "Monday, 02-Jan-06 15:04:05 GMT",
        "Mon Jan  2 15:04:05 2006",
        "20060102T150405Z",
        "2006-01-02T15:04:05Z",
        "2006-01-02T15:04:05.678Z",
        "2006-01-02T17:04:05+02:00",
        "  Mon, 02 Jan 2006 15:04:05 GMT ",
        "Mon, 02 Jan 2006 15:04:05",
    ] {
        assert_eq!(parse_any(text), Some(Timestamp(same)), "{text}");
    }
    assert_eq!(parse_any("Mon, 1 Nov 2010 20:34:56 GMT"), Some(Timestamp(1_288_643_696_000_000)));
}

#[test]
fn text_that_is_no_time_is_refused() {
    for text in [
        "",
        "now",
        "Mon",
        "1136214245",
        "Mon, 32 Jan 2006 15:04:05 GMT",
        "Mon, 02 Foo 2006 15:04:05 GMT",
        "Mon, 02 Jan 2006 25:04:05 GMT",
        "Mon, 02 Jan 2006 15:04:05 CEST",
        "Mon, 02 Jan 2006 15:04:05 +99:00",
        "20060102T150405",
        "20061302T150405Z",
        "2006-01-02T15:04:05",
        "Xyz, 02 Jan 2006 15:04:05 GMT",
        "Mon, 02 Jan 1901 15:04:05 GMT",
        "Mon, 02 Jan 2006 15:04:61 GMT",
        "é",
        "20060102Té50405Z",
        "+1-2-3T4:5:6Z",
    ] {
        assert_eq!(parse_any(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}", digits in "[0-9A-Za-z:,+ \\-TZ.]{0,40}") {
        let _ = (parse_any(&text), parse_any(&digits), parse_basic(&text), parse_basic(&digits));
    }

    #[test]
    fn times_in_responses_can_be_parsed(seconds in 0u64..253_402_300_799) {
        let at = seconds * 1_000_000;
        prop_assert_eq!(parse_any(&http(Timestamp(at))), Some(Timestamp(at)));
        prop_assert_eq!(parse_any(&basic(Timestamp(at))), Some(Timestamp(at)));
        prop_assert_eq!(parse_any(&iso(Timestamp(at))), Some(Timestamp(at)));
    }
}
