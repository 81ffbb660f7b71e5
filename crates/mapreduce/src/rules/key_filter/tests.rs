use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(filters: &str, passing: &[&str], others: &[&str]) {
    let filters: Vec<Value> = serde_json::from_str(filters).unwrap();
    let filter = KeyFilter::compile(&filters).unwrap();
    for key in passing {
        assert!(filter.passes(key.as_bytes()), "{filters:?} {key}");
    }
    for key in others {
        assert!(!filter.passes(key.as_bytes()), "{filters:?} {key}");
    }
}

#[test]
fn predicates_choose_keys() {
    check(r#"[["eq","a"]]"#, &["a"], &["b", ""]);
    check(r#"[["neq","a"]]"#, &["b", ""], &["a"]);
    check(r#"[["greater_than","b"]]"#, &["c", "ba"], &["b", "a"]);
    check(r#"[["greater_than_eq","b"]]"#, &["c", "b"], &["a"]);
    check(r#"[["less_than","b"]]"#, &["a"], &["b"]);
    check(r#"[["less_than_eq","b"]]"#, &["b"], &["c"]);
    check(r#"[["between","b","d"]]"#, &["b", "c", "d"], &["a", "e"]);
    check(r#"[["between","b","d",false]]"#, &["c"], &["b", "d"]);
    check(r#"[["matches","^jo.n$"]]"#, &["john", "joan"], &["johnny"]);
    check(r#"[["set_member","a","1"]]"#, &["a", "1"], &["2"]);
    check(r#"[["similar_to","basho",1]]"#, &["baysho", "basho", "bsho"], &["baysho!", "x"]);
    check(r#"[["starts_with","ab"]]"#, &["abc"], &["a", "bab"]);
    check(r#"[["ends_with","bc"]]"#, &["abc"], &["bcd"]);
}

#[test]
fn transforms_come_before_predicates() {
    check(r#"[["string_to_int"],["greater_than",9]]"#, &["10", "100"], &["9", "x", "1.5", ""]);
    check(r#"[["string_to_float"],["less_than",1]]"#, &["0.5", "-1.0"], &["1.5", "0", ".5", "nan"]);
    check(r#"[["string_to_int"],["int_to_string"],["eq","7"]]"#, &["7", "007"], &["x"]);
    check(r#"[["string_to_float"],["float_to_string"],["starts_with","1.5"]]"#, &["1.5"], &["2.5"]);
    check(r#"[["to_upper"],["eq","BASHO"]]"#, &["basho"], &["bashO!"]);
    check(r#"[["to_lower"],["similar_to","basho",3]]"#, &["BAYSHO"], &["lolcaTS"]);
    check(r#"[["tokenize","-",3],["string_to_int"],["between",2009,2010]]"#, &["12-20-2009", "a--b-2010"], &["12-20"]);
    check(r#"[["urldecode"],["eq","a b/c"]]"#, &["a+b%2Fc", "a b/c&d"], &["a%2b"]);
}

#[test]
fn lists_of_filters_are_joined() {
    check(r#"[["or",[["ends_with","2"]],[["eq","k3"]]]]"#, &["k2", "k3"], &["k1"]);
    check(r#"[["and",[["to_lower"],["starts_with","hello"]],[["ends_with","dolly"]]]]"#, &["Hello dolly"], &["dolly"]);
    check(r#"[["not",[["ends_with","2010"]]]]"#, &["2011"], &["12-2010"]);
    check(r#"[["tokenize","-",2],["or",[["eq","a"]],[["not",[["matches","."]]]]]]"#, &["x-a"], &["x-b", "x"]);
    check("[[\"to_upper\"]]", &[], &["a"]);
}

#[test]
fn keys_of_any_bytes_are_filtered() {
    let filter = KeyFilter::compile(&[serde_json::json!(["matches", "^.{3}$"])]).unwrap();
    assert!(filter.passes(&[0xff, 0, 0xfe]));
    assert!(!filter.passes(&[0xff, 0]));
}

#[test]
fn a_filter_that_is_not_valid_is_named() {
    #[track_caller]
    fn check(filters: &str, expected: &str) {
        let filters: Vec<Value> = serde_json::from_str(filters).unwrap();
        assert_eq!(KeyFilter::compile(&filters).unwrap_err().json().to_string(), expected);
    }
    check(r#"[["nosuch","2"]]"#, r#"{"bad_filter":"nosuch"}"#);
    check(r#"[["or",[["sounds_like","2"]]]]"#, r#"{"bad_filter":"sounds_like"}"#);
    check(r#"[["between","2"]]"#, r#"{"bad_filter":"between","reason":"its arguments are not valid"}"#);
    check(r#"[["tokenize","-",0]]"#, r#"{"bad_filter":"tokenize","reason":"its arguments are not valid"}"#);
    check(r#"[["and",1]]"#, r#"{"bad_filter":"and","reason":"its arguments are not valid"}"#);
    check("[1]", r#"{"bad_filter":"1","reason":"a filter is a list"}"#);
    for pattern in ["(?=a)", "(a)\\\\1", "("] {
        let filters: Vec<Value> = serde_json::from_str(&format!(r#"[["matches","{pattern}"]]"#)).unwrap();
        assert!(KeyFilter::compile(&filters).unwrap_err().reason.is_some(), "{pattern}");
    }
}

#[test]
fn deep_and_numerous_filters_are_refused() {
    let deep = (0..40).fold(serde_json::json!(["eq", "a"]), |inner, _| serde_json::json!(["not", [inner]]));
    assert!(KeyFilter::compile(&[deep]).is_err());
    assert!(KeyFilter::compile(&vec![serde_json::json!(["to_upper"]); KEY_FILTERS_MAX + 1]).is_err());
    for pattern in ["(a{1000}){1000}".to_owned(), "a".repeat(REGEX_TEXT_MAX + 1)] {
        assert!(KeyFilter::compile(&[serde_json::json!(["matches", pattern])]).is_err());
    }
    assert!(KeyFilter::compile(&vec![serde_json::json!(["matches", "a"]); KEY_REGEXES_MAX + 1]).is_err());
}

/// The distance by its definition.
fn distance(a: &[u8], b: &[u8]) -> usize {
    match (a.split_first(), b.split_first()) {
        (None, _) => b.len(),
        (_, None) => a.len(),
        (Some((x, a_rest)), Some((y, b_rest))) => {
            (distance(a_rest, b_rest) + usize::from(x != y)).min(distance(a_rest, b) + 1).min(distance(a, b_rest) + 1)
        }
    }
}

proptest! {
    #[test]
    fn similar_texts_are_those_of_the_definition(a in "[ab]{0,4}", b in "[ab]{0,4}", edits in 0..6usize) {
        let is = is_similar(a.as_bytes(), b.as_bytes(), edits);
        prop_assert_eq!(is, distance(a.as_bytes(), b.as_bytes()) <= edits);
    }

    #[test]
    fn arbitrary_filters_and_keys_end_without_a_panic(name in "[a-z_]{1,12}", args: Vec<String>, key: Vec<u8>) {
        let mut filter = vec![Value::from(name)];
        filter.extend(args.into_iter().map(Value::from));
        if let Ok(filter) = KeyFilter::compile(&[filter.into()]) {
            let _ = filter.passes(&key);
        }
    }
}
