use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        map.append(name, value);
    }
    map
}

#[track_caller]
fn media_type(header: &str, media: &str, charset: Option<&str>) {
    let (found_media, found_charset) = content_type(&headers(&[("content-type", header)])).unwrap();
    assert_eq!(
        (found_media.as_ref(), found_charset.as_deref()),
        (media.as_bytes(), charset.map(str::as_bytes)),
        "{header}"
    );
}

#[track_caller]
fn header_terms(name: &str, value: &str, values: &[&str]) {
    let terms = terms(&headers(&[(name, value)])).unwrap();
    let term_values: Vec<_> = terms.iter().map(|term| String::from_utf8_lossy(&term.value)).collect();
    assert_eq!(term_values, values, "{name}: {value}");
}

#[track_caller]
fn refused(pairs: &[(&str, &str)], text: &str) {
    assert_eq!(terms(&headers(pairs)).unwrap_err().text(), text);
}

#[test]
fn a_content_type_keeps_its_charset_alone() {
    media_type("text/plain", "text/plain", None);
    media_type("text/plain; charset=utf-8", "text/plain", Some("utf-8"));
    media_type("text/plain;  Charset=UTF-8", "text/plain", None);
    media_type("application/json;odata=verbose; charset=\"latin1\"", "application/json", Some("\"latin1\""));
    media_type("garbage", "garbage", None);
    media_type("", "", None);
    assert_eq!(content_type(&HeaderMap::new()).unwrap_err().text(), "Missing Content-Type request header");
    let text = check_media(b"garbage").unwrap_err().text();
    assert_eq!(text, "\"garbage\" is not a valid media type for the Content-type header.\n");
}

#[test]
fn metadata_names_are_capitalised_and_values_joined() {
    let pairs = meta(&headers(&[("X-Riak-Meta-Dup", "a"), ("x-riak-meta-two-words", "2"), ("x-riak-meta-dup", "b")]));
    let pair = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    assert_eq!(pairs, [pair("X-Riak-Meta-Dup", "a, b"), pair("X-Riak-Meta-Two-Words", "2")]);
}

#[test]
fn a_comma_and_a_blank_separate_terms() {
    header_terms("x-riak-index-a_bin", "a, b,c", &["a", "b,c"]);
    header_terms("X-Riak-Index-A_BIN", "\"q,r\", s", &["\"q,r\"", "s"]);
    header_terms("x-riak-index-a_bin", "", &[""]);
    header_terms("x-riak-index-$bucket", "x", &["x"]);
    header_terms(
        "x-riak-index-a_int",
        "+5, -007, 99999999999999999999999, -0",
        &["-7", "0", "5", "99999999999999999999999"],
    );
}

#[test]
fn an_invalid_term_is_named() {
    refused(&[("x-riak-index-age", "1")], "Unknown field type for field: 'age'.\n");
    refused(&[("x-riak-index-", "x")], "Unknown field type for field: ''.\n");
    refused(&[("x-riak-index-_bin", "x")], "Unknown field type for field: '_bin'.\n");
    refused(&[("x-riak-index-_int", "1")], "Unknown field type for field: '_int'.\n");
    refused(&[("x-riak-index-a_int", "")], "Could not parse field 'a_int', value ''.\n");
    refused(
        &[("x-riak-index-a_int", "1, 2,3"), ("x-riak-index-b", "y")],
        "Could not parse field 'a_int', value '2,3'.\nUnknown field type for field: 'b'.\n",
    );
}

#[test]
fn metadata_of_other_protocols_cannot_break_an_answer() {
    let pair = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    let meta =
        vec![pair("Content-Length", "9"), pair("bad name", "x"), pair("X-Split", "a\r\nb: c"), pair("bare", "ok")];
    let mut headers = HeaderMap::new();
    add_content_headers(&KvContent { meta, ..KvContent::default() }, &mut headers);
    assert_eq!(headers.len(), 2, "{headers:?}");
    assert_eq!(headers["bare"], "ok");
    assert_eq!(headers["content-type"], OCTETS);
}

fn header_conditions(name: HeaderName, value: &[u8]) -> Conditions {
    conditions(&HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())]))
}

#[test]
fn entity_tags_lose_their_quotes() {
    let tags = |tags: &[&str]| Some(EtagMatcher::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()));
    assert_eq!(header_conditions(IF_MATCH, b"\"a\", W/\"b\",c").if_match, tags(&["a", "b", "c"]));
    assert_eq!(header_conditions(IF_NONE_MATCH, b" * ").if_none_match, Some(EtagMatcher::Any));
    assert!(conditions(&HeaderMap::new()).is_empty());
}

#[test]
fn dates_decode_to_seconds() {
    let date = b"Thu, 01 Jan 1970 00:01:40 GMT";
    assert_eq!(header_conditions(IF_MODIFIED_SINCE, date).if_modified_since, Some(100));
    assert_eq!(header_conditions(IF_UNMODIFIED_SINCE, date).if_unmodified_since, Some(100));
    assert_eq!(header_conditions(IF_MODIFIED_SINCE, b"garbage").if_modified_since, None);
}

#[test]
fn contexts_are_base64() {
    let headers = |value| HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static(value))]);
    assert_eq!(context(&headers("AQI="), "if-match").unwrap(), Some(Bytes::from_static(&[1, 2])));
    assert!(context(&headers("!!!"), "if-match").is_err());
    assert_eq!(context(&headers(""), "x-none").unwrap(), None);
}

proptest! {
    #[test]
    fn arbitrary_conditions_decode_without_a_panic(value in proptest::collection::vec(b' '..=b'~', 0..40)) {
        for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
            let _ = header_conditions(name, &value);
        }
    }

    #[test]
    fn arbitrary_headers_parse_without_a_panic(name in "[a-z_$-]{0,8}", value in proptest::collection::vec(b' '..=b'~', 0..40)) {
        let value = String::from_utf8(value).unwrap();
        for prefix in [META, INDEX, "content-type"] {
            let map = headers(&[(&format!("{prefix}{name}"), value.trim())]);
            let _ = terms(&map);
            let _ = meta(&map);
            let _ = content_type(&map);
        }
    }

    #[test]
    fn rendered_terms_parse_to_themselves(values in proptest::collection::vec("[a-z,]{1,8}[a-z]", 1..5)) {
        let map = headers(&[("x-riak-index-f_bin", &values.join(", "))]);
        let content = KvContent { terms: terms(&map).unwrap(), ..KvContent::default() };
        let mut out = HeaderMap::new();
        add_content_headers(&content, &mut out);
        prop_assert_eq!(terms(&out).unwrap(), content.terms);
    }
}

#[test]
fn every_time_has_a_date() {
    assert_eq!(http_date(Timestamp::ZERO), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(http_date(Timestamp::MAX), "Fri, 31 Dec 9999 23:59:59 GMT", "a stored time may be any number");
}
