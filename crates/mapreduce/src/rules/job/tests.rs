use serde_json::json;

use super::super::phase::PhaseFunction;
use super::*;

const MAP: &str = r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}"#;
fn parsed(inputs: &str, query: &str) -> Result<Job, JobRefusal> {
    Job::parse(format!(r#"{{"inputs":{inputs},"query":{query}}}"#).as_bytes())
}

#[track_caller]
fn refused(document: &str, expected: &str) {
    assert_eq!(Job::parse(document.as_bytes()).unwrap_err().http_text(), expected, "{document}");
}

#[track_caller]
fn refused_query(query: &str, expected: &str) {
    let text = parsed("\"b\"", query).unwrap_err().http_text();
    assert_eq!(text, format!("An error occurred parsing the \"query\" field.\n{expected}"), "{query}");
}

#[track_caller]
fn refused_inputs(inputs: &str) {
    let text = parsed(inputs, "[]").unwrap_err().http_text();
    let begin = "An error occurred parsing the \"inputs\" field.\nUnrecognized format of \"inputs\" field: ";
    assert!(text.starts_with(&format!("{begin}{inputs}\nValid formats are:\n  \"BUCKET\"")), "{inputs}: {text}");
}

#[test]
fn inputs_have_their_forms() {
    let shown = |inputs: &str| format!("{:?}", parsed(inputs, "[]").unwrap().inputs);
    assert!(shown(r#""b""#).starts_with("Bucket(BucketAddress { bucket_type: b\"default\", bucket: b\"b\""));
    assert!(shown(r#"["t","b"]"#).starts_with("Bucket(BucketAddress { bucket_type: b\"t\", bucket: b\"b\""));
    assert!(shown(r#"[["b","k"],["b","k",{"d":1}],["b","k",null,"t"]]"#).starts_with("Keys(["));
    assert!(shown(r#"{"bucket":"b","key_filters":[["eq","k"]]}"#).starts_with("Filtered("));
    let JobInputs::Index(index) =
        parsed(r#"{"bucket":["t","b"],"index":"N_int","start":"007","end":9}"#, "[]").unwrap().inputs
    else {
        panic!("no index");
    };
    assert_eq!((&index.field[..], &index.start[..], &index.end[..]), (&b"n_int"[..], &b"7"[..], &b"9"[..]));
}

#[test]
fn documents_that_are_no_job_are_refused() {
    refused("[]", "The POST body was not a JSON object.\n");
    refused(r#"{"inputs":"mr"}"#, "The post body was missing the \"inputs\" or \"query\" field.\n");
    refused(r#"{"query":[]}"#, "The post body was missing the \"inputs\" or \"query\" field.\n");
    let text = Job::parse(b"{").unwrap_err().http_text();
    assert!(text.starts_with("The POST body was not valid JSON.\nThe error from the parser was:\nEOF"), "{text}");
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    assert!(matches!(parsed(&deep, "[]"), Err(JobRefusal::NotJson(_))));
}

#[test]
fn inputs_that_are_none_get_the_list_of_forms() {
    let text = parsed("[]", "[]").unwrap_err().http_text();
    assert_eq!(text, "An error occurred parsing the \"inputs\" field.\nNo inputs were given.\n");
    for inputs in ["5", r#"{"x":1}"#, r#"{"bucket":["t"]}"#] {
        refused_inputs(inputs);
    }
    let of_list = parsed(r#"[["b","k"],["a"]]"#, "[]").unwrap_err().http_text();
    assert!(of_list.contains("field: [\"a\"]\n"), "{of_list}");
    let long = parsed(&format!("[[\"{}\"]]", "x".repeat(10_000)), "[]").unwrap_err().http_text();
    assert!(long.contains("field: (10004 bytes)\n") && long.len() < 1_000, "{long}");
    let term = parsed(r#"{"bucket":"b","index":"n_int","key":"x"}"#, "[]").unwrap_err().http_text();
    assert!(term.contains("[{field_parsing_failed,{<<\"n_int\">>,<<\"x\">>}}]"), "{term}");
    assert_eq!(parsed(r#"{"bucket":"b","query":"x"}"#, "[]").unwrap_err(), JobRefusal::Search);
}

#[test]
fn queries_that_are_none_are_refused() {
    refused_query(r#""x""#, "The value of the \"query\" field was not a list:\n   \"x\"\n");
    refused_query(r#"[{"map":{}}]"#, "No \"language\" was specified for the phase:\n   {}\n");
    refused_query(
        r#"[{"map":{"language":"cobol"}}]"#,
        "Unknown language \"cobol\" in phase:\n   {\"language\":\"cobol\"}\n",
    );
    for query in [
        r#"[{"map":{"language":"erlang"}}]"#,
        r#"[{"map":{"language":"erlang","module":"m"}}]"#,
        r#"[{"map":{"language":"javascript"}}]"#,
        r#"[{"map":{"language":"javascript","bucket":"b"}}]"#,
        r#"[{"map":{"language":"javascript","source":1}}]"#,
        r#"[{"map":{"language":"javascript","source":"x","keep":1}}]"#,
        r#"[{"link":{"tag":1}}]"#,
        r#"[{"link":{},"map":{}}]"#,
        r#"[{"fold":{}}]"#,
        "[1]",
    ] {
        assert!(matches!(parsed("\"b\"", query), Err(JobRefusal::Query(_))), "{query}");
    }
    let long = format!("[{}]", vec![MAP; 65].join(","));
    assert!(matches!(parsed("\"b\"", &long), Err(JobRefusal::Query(_))));
}

#[test]
fn functions_that_do_not_exist_are_named_with_their_phase() {
    #[track_caller]
    fn check(step: &str, expected: &str) {
        let query = format!("[{MAP},{step}]");
        let JobRefusal::Phase(refusal) = parsed("\"b\"", &query).unwrap_err() else { panic!("{step}") };
        assert_eq!((refusal.phase, refusal.error.as_str()), (1, expected));
    }
    check(
        r#"{"map":{"language":"erlang","module":"nosuch","function":"x"}}"#,
        "invalid module named in PhaseSpec function:\n must be a valid module name (failed to load nosuch: nofile)",
    );
    check(
        r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"nosuch"}}"#,
        "PhaseSpec specifies riak_kv_mapreduce:nosuch/3, which is not exported",
    );
    check(
        r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_identity"}}"#,
        "arg specifies riak_kv_mapreduce:map_identity/2, which is not exported",
    );
    check(
        r#"{"map":{"language":"erlang","source":"fun(_,_,_) -> [] end."}}"#,
        "Erlang source is not allowed: worker_startup_failed, {strfun,not_allowed}",
    );
}

#[test]
fn the_last_phase_keeps_its_results_and_one_always_does() {
    let kept = |query: &str| {
        let phases = parsed("\"b\"", query).unwrap().phases;
        phases.iter().map(|phase| phase.keep).collect::<Vec<_>>()
    };
    let map = |keep: &str| MAP.replace("}}", &format!("{keep}}}}}"));
    assert_eq!(kept(&format!("[{MAP},{MAP}]")), [false, true]);
    let (keep, drop) = (map(",\"keep\":true"), map(",\"keep\":false"));
    assert_eq!(kept(&format!("[{keep},{drop}]")), [true, false]);
    assert_eq!(kept(&format!("[{drop},{drop}]")), [false, true]);
    assert_eq!(kept("[]"), [false; 0]);
}

#[test]
fn a_time_that_is_none_counts_as_a_minute() {
    let timeout = |given: serde_json::Value| {
        let document = json!({ "inputs": "b", "query": [], "timeout": given }).to_string();
        Job::parse(document.as_bytes()).unwrap().timeout.as_millis()
    };
    assert_eq!(timeout(json!(5000)), 5000);
    assert_eq!(timeout(json!(0.5)), 1);
    for none in [json!(0), json!(-1), json!(null)] {
        assert_eq!(timeout(none), 60_000);
    }
    assert_eq!(timeout(json!(1e300)), 86_400_000);
}

#[test]
fn a_time_that_is_no_number_was_once_dropped() {
    for given in [r#""5000""#, "true", "[1]", "{}"] {
        let text =
            format!("An error occurred parsing the \"timeout\" field.\nThe time of a job is a number: {given}\n");
        refused(&format!(r#"{{"inputs":"b","query":[],"timeout":{given}}}"#), &text);
    }
}

#[test]
fn a_member_of_the_inputs_was_once_dropped() {
    for (members, form, name) in [
        (r#""key_filters":[["eq","k"]],"index":"n_int","key":1"#, "bucket, key_filters", "index"),
        (r#""key_filters":[["eq","k"]],"index":"n_int""#, "bucket, key_filters", "index"),
        (r#""index":"n_int","key":1,"start":1,"end":9"#, "bucket, index, key", "start"),
        (r#""index":"n_int","key":1,"end":9"#, "bucket, index, key", "end"),
        (r#""index":"n_int","start":1,"end":9,"max_results":5"#, "bucket, index, start, end", "max_results"),
        (r#""key_filters":[["eq","k"]],"keys":["k"]"#, "bucket, key_filters", "keys"),
    ] {
        let text = parsed(&format!(r#"{{"bucket":"b",{members}}}"#), "[]").unwrap_err().http_text();
        let begin = "An error occurred parsing the \"inputs\" field.\n";
        assert_eq!(text, format!("{begin}Inputs with {form} take no member \"{name}\".\n"), "{members}");
    }
}

#[test]
fn of_two_equal_members_only_the_last_once_counted() {
    for document in [
        r#"{"inputs":{"bucket":"b","bucket":"c","index":"n_int","key":1},"query":[]}"#,
        r#"{"inputs":"b","query":[{"map":{"language":"javascript","source":"x","bucket":"b","bucket":"c"}}]}"#,
    ] {
        let parser = "The POST body was not valid JSON.\nThe error from the parser was:\n";
        refused(document, &format!("{parser}an object has the member \"bucket\" twice\n"));
    }
}

#[test]
fn links_are_filtered_by_bucket_and_tag() {
    let filter =
        |spec: &str| match parsed("\"b\"", &format!(r#"[{{"link":{spec}}}]"#)).unwrap().phases.remove(0).function {
            PhaseFunction::Link(filter) => filter,
            other => panic!("{other:?}"),
        };
    assert_eq!(
        filter(r#"{"bucket":"_","tag":"t"}"#),
        larder_kv::rules::links::LinkFilter { bucket: None, tag: Some("t".into()) }
    );
    assert_eq!(filter("{}"), larder_kv::rules::links::LinkFilter::default());
}
