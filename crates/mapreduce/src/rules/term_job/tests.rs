use super::*;
use crate::rules::phase::PhaseFunction;
use crate::rules::{MapFunction, ReduceFunction};

/// Terms in the external format, for tests alone.
fn atom(name: &str) -> Vec<u8> {
    [&[119, name.len() as u8][..], name.as_bytes()].concat()
}

fn binary(text: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = text.as_ref();
    [&[109][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn tuple_term(parts: &[Vec<u8>]) -> Vec<u8> {
    [&[104, parts.len() as u8][..], &parts.concat()].concat()
}

fn list(parts: &[Vec<u8>]) -> Vec<u8> {
    [&[108][..], &(parts.len() as u32).to_be_bytes(), &parts.concat(), &[106]].concat()
}

fn pair(name: &str, value: Vec<u8>) -> Vec<u8> {
    tuple_term(&[atom(name), value])
}

fn phase(kind: &str, function: Vec<u8>, arg: Vec<u8>, keep: &str) -> Vec<u8> {
    tuple_term(&[atom(kind), function, arg, atom(keep)])
}

fn modfun(function: &str) -> Vec<u8> {
    tuple_term(&[atom("modfun"), atom("riak_kv_mapreduce"), atom(function)])
}

fn parse(inputs: Vec<u8>, phases: &[Vec<u8>]) -> Result<Job, String> {
    let document = [&[131][..], &list(&[pair("inputs", inputs), pair("query", list(phases))])].concat();
    Job::parse_term(&document).map_err(|refusal| refusal.pb_text())
}

#[test]
fn a_job_of_the_erlang_client_is_the_job_of_its_json() {
    let key = |bucket, key: &str| tuple_term(&[bucket, binary(key)]);
    let typed = tuple_term(&[binary("t"), binary("b")]);
    let inputs = list(&[
        key(binary("b"), "k"),
        tuple_term(&[key(binary("b"), "\u{e9}"), binary("d")]),
        tuple_term(&[key(typed, "k"), atom("undefined")]),
    ]);
    let phases = [
        phase("map", modfun("map_object_value"), binary("filter_notfound"), "false"),
        phase("reduce", modfun("reduce_sum"), atom("none"), "true"),
        phase("reduce", tuple_term(&[atom("jsfun"), binary("Riak.reduceSort")]), atom("undefined"), "false"),
    ];
    let job = parse(inputs, &phases).unwrap();
    assert_eq!(job.kept(), [1]);
    let functions: Vec<_> = job.phases.iter().map(|phase| phase.function.clone()).collect();
    assert_eq!(
        functions,
        [
            PhaseFunction::Map(MapFunction::ObjectValue),
            PhaseFunction::Reduce(ReduceFunction::Sum),
            PhaseFunction::Reduce(ReduceFunction::JsSort)
        ]
    );
    assert_eq!((job.phases[0].arg.clone(), job.phases[1].arg.clone()), (Some("filter_notfound".into()), None));
    let JobInputs::Keys(keys) = job.inputs else { panic!("{:?}", job.inputs) };
    let shown: Vec<String> =
        keys.into_iter().map(|key| super::super::JobValue::Key(key).into_json().to_string()).collect();
    assert_eq!(shown, [r#"["b","k"]"#, r#"["b","é","d"]"#, r#"["b","k",null,"t"]"#]);
    assert_eq!(job.timeout, std::time::Duration::from_millis(60_000));
}

#[test]
fn inputs_have_every_form_of_riak() {
    let typed = || tuple_term(&[binary("t"), binary("b")]);
    assert!(matches!(parse(binary("b"), &[]).unwrap().inputs, JobInputs::Bucket(_)));
    let JobInputs::Bucket(bucket) = parse(typed(), &[]).unwrap().inputs else { panic!() };
    assert_eq!((&bucket.bucket_type[..], &bucket.bucket[..]), (&b"t"[..], &b"b"[..]));
    let filters = list(&[list(&[binary("starts_with"), binary("a")])]);
    assert!(matches!(parse(tuple_term(&[binary("b"), filters]), &[]).unwrap().inputs, JobInputs::Filtered(..)));
    let index = tuple_term(&[atom("index"), typed(), binary("F_int"), vec![97, 5], vec![97, 9]]);
    let JobInputs::Index(index) = parse(index, &[]).unwrap().inputs else { panic!() };
    assert_eq!((&index.field[..], &index.start[..], &index.end[..]), (&b"f_int"[..], &b"5"[..], &b"9"[..]));
    let refused = |inputs| parse(inputs, &[]).unwrap_err();
    assert_eq!(refused(vec![97, 5]), format!("{{inputs,\"{INPUTS} 5\\n\"}}"));
    assert!(refused(list(&[binary("b")])).contains("Inputs target tuples must be"));
    assert!(refused(tuple_term(&[atom("modfun"), atom("m"), atom("f"), atom("a")])).contains("an Erlang function"));
    assert!(refused(tuple_term(&[atom("index"), binary("b"), binary("f_int"), binary("x")])).contains("f_int"));
    assert_eq!(refused(tuple_term(&[atom("search"), binary("b"), binary("q")])), "Not available yet: search");
}

#[test]
fn arguments_are_the_values_of_their_json() {
    let arg = |term: Vec<u8>| {
        let job = parse(binary("b"), &[phase("reduce", modfun("reduce_sort"), term, "true")]).unwrap();
        job.phases[0].arg.clone().unwrap_or_default().to_string()
    };
    let batch = pair("reduce_phase_batch_size", vec![97, 9]);
    assert_eq!(arg(list(std::slice::from_ref(&batch))), r#"{"reduce_phase_batch_size":9}"#);
    assert_eq!(arg(pair("struct", list(&[tuple_term(&[binary("a"), atom("true")])]))), r#"{"a":true}"#);
    assert_eq!(arg(vec![107, 0, 2, 1, 2]), "[1,2]");
    assert_eq!(arg(list(&[atom("do_prereduce"), vec![106]])), r#"["do_prereduce",[]]"#);
}

#[test]
fn functions_without_code_here_and_bytes_that_are_no_job_are_refused() {
    let refused = |function| parse(binary("b"), &[phase("map", function, atom("none"), "true")]).unwrap_err();
    let fun = [&[112][..], &6u32.to_be_bytes(), &[0, 0]].concat();
    assert_eq!(refused(tuple_term(&[atom("qfun"), fun])), "Phase 0: Erlang funs are not available: {qfun,not_allowed}");
    let source = "Phase 0: Erlang source is not allowed: worker_startup_failed, {strfun,not_allowed}";
    assert_eq!(refused(tuple_term(&[atom("strfun"), binary("fun")])), source);
    assert!(refused(tuple_term(&[atom("modfun"), atom("lists"), atom("sort")])).starts_with("Phase 0: invalid module"));
    assert!(refused(atom("none")).starts_with("{query"));
    let text = |document: &[u8]| Job::parse_term(document).unwrap_err().pb_text();
    assert_eq!((text(b"{}"), text(&[131, 97, 1])), ("badarg".to_owned(), "function_clause".to_owned()));
    assert!(text(&[131, 106]).contains("undefined"));
    let many = list(&vec![binary("x"); 1000]);
    assert!(parse(many, &[]).unwrap_err().len() < 1000);
}

#[test]
fn a_map_as_the_name_in_a_map_does_not_double_with_each_level() {
    let depth = 40;
    // A map of one member whose name is a map of one member, and so on.
    let map = [[116, 0, 0, 0, 1].repeat(depth), vec![116, 0, 0, 0, 0], [106].repeat(depth)].concat();
    let job = parse(binary("b"), &[phase("map", modfun("map_object_value"), map, "true")]).unwrap();
    let shown = format!("{:?}", job.phases);
    assert!(shown.len() < 4096, "{} bytes", shown.len());
}
