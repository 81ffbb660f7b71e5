//! MapReduce jobs over a gateway in memory: their steps, their bounds, their ends, and their calls of scripts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::{Config, Error, GatewayPorts, ScriptCall, ScriptError, ScriptFunction, Scripts};
use larder_kv::rules::causality::Conditions;
use larder_kv::rules::index::{IndexCondition, IndexScope, for_every_combination};
use larder_kv::{Gateway, KvPut, Quorums};
use larder_mapreduce::rules::Job;
use larder_mapreduce::{JobError, JobRun};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::{KvContent, Term};
use larder_rows::limits::{JOB_BYTES_MAX, JOBS_MAX};
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Store, SystemClock};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use serde_json::{Value, json};

use crate::ports::ports_over;

const VALUE: &str = r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}"#;
const COUNT: &str = r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}"#;
const SORT: &str = r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_sort"}}"#;

async fn gateway(scripts: Option<Arc<dyn Scripts>>) -> Arc<Gateway> {
    let clock = Arc::new(SystemClock::default());
    let ports = ports_over(Arc::new(MemoryStore::new(clock.clone())), clock);
    let ports = GatewayPorts { scripts, ..ports };
    Gateway::start(ports, Config { durable: false, ..Config::default() }).await.unwrap()
}

async fn put(gateway: &Gateway, bucket: &str, key: &str, value: impl Into<Bytes>) {
    put_with(gateway, bucket, key, KvContent::default(), value).await;
}

async fn put_with(gateway: &Gateway, bucket: &str, key: &str, content: KvContent, value: impl Into<Bytes>) {
    let bucket = BucketAddress::new(Bytes::from_static(b"default"), Bytes::copy_from_slice(bucket.as_bytes())).unwrap();
    let put = KvPut {
        address: Address::new(bucket, Bytes::copy_from_slice(key.as_bytes())).unwrap(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content,
        upload: PutBody::Bytes(value.into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    gateway.kv.put(put).await.unwrap();
}

async fn fill(gateway: &Gateway, bucket: &str, count: usize) {
    for number in 0..count {
        put(gateway, bucket, &format!("k{number:05}"), number.to_string()).await;
    }
}

fn job(inputs: &str, phases: &[&str]) -> Job {
    Job::parse(format!(r#"{{"inputs":{inputs},"query":[{}]}}"#, phases.join(",")).as_bytes()).unwrap()
}

/// The results of all kept phases, and the most bytes that the job held between two steps.
async fn finish(mut run: JobRun) -> Result<(Value, u64), JobError> {
    let (mut results, mut memory) = (Vec::new(), 0);
    while let Some(kept) = run.step().await? {
        memory = memory.max(run.memory());
        results.extend(kept.into_iter().flat_map(|kept| kept.values).map(|value| value.into_json()));
    }
    Ok((results.into(), memory))
}

async fn results(gateway: &Arc<Gateway>, job: Job) -> Result<Value, JobError> {
    finish(JobRun::start(gateway, job, "client".into()).await?).await.map(|(results, _)| results)
}

#[tokio::test]
async fn a_bucket_of_any_size_is_counted_in_little_memory() {
    let gateway = gateway(None).await;
    fill(&gateway, "b", 5000).await;
    let run = JobRun::start(&gateway, job("\"b\"", &[VALUE, COUNT]), "client".into()).await.unwrap();
    let (found, memory) = finish(run).await.unwrap();
    assert_eq!(found, json!([5000]));
    assert!(memory < 1024 * 1024, "{memory}");
    let all = results(&gateway, job("\"b\"", &[VALUE])).await.unwrap();
    let expected: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    assert_eq!(all, json!(expected), "in the order of keys");
}

#[tokio::test]
async fn a_job_past_its_time_ends() {
    let gateway = gateway(None).await;
    fill(&gateway, "b", 1).await;
    let job = Job { timeout: Duration::from_millis(1), ..job("\"b\"", &[VALUE]) };
    let mut run = JobRun::start(&gateway, job, "client".into()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(matches!(run.step().await, Err(JobError::TimedOut)));
}

#[tokio::test]
async fn an_operator_sees_and_cancels_a_job() {
    let gateway = gateway(None).await;
    fill(&gateway, "b", 10).await;
    let mut run = JobRun::start(&gateway, job("\"b\"", &[VALUE, COUNT]), "client".into()).await.unwrap();
    run.step().await.unwrap();
    let listed = gateway.jobs().list();
    assert_eq!((listed.len(), listed[0].inputs, listed[0].summary.as_str()), (1, 10, "default/b map reduce"));
    assert!(gateway.jobs().cancel(listed[0].id));
    assert!(matches!(run.step().await, Err(JobError::Cancelled)));
    drop(run);
    assert_eq!(gateway.jobs().list(), [], "a job whose client is gone is no more");
}

#[tokio::test]
async fn jobs_are_bounded_and_a_dropped_one_makes_room() {
    let gateway = gateway(None).await;
    let start = || JobRun::start(&gateway, job("\"b\"", &[COUNT]), "client".into());
    let mut runs = Vec::new();
    for _ in 0..JOBS_MAX / 2 {
        runs.push(start().await.unwrap());
    }
    assert!(matches!(start().await, Err(JobError::TooMany)));
    runs.pop();
    assert!(start().await.is_ok());
}

#[tokio::test]
async fn values_beyond_the_bound_end_a_job() {
    let gateway = gateway(None).await;
    for number in 0..70 {
        put(&gateway, "large", &format!("{number}"), Bytes::from(vec![b'x'; 1024 * 1024])).await;
    }
    assert!(matches!(results(&gateway, job("\"large\"", &[VALUE, SORT])).await, Err(JobError::TooLarge)));
    assert_eq!(results(&gateway, job("\"large\"", &[VALUE, COUNT])).await.unwrap(), json!([70]), "counted one by one");
}

#[tokio::test]
async fn a_large_object_is_read_once_its_job_holds_its_memory() {
    const LARGE: usize = 8 * 1024 * 1024;
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    put(&gateway, "b", "a", "small").await;
    put(&gateway, "b", "l", vec![b'x'; LARGE]).await;
    put(&gateway, "b", "m", vec![b'x'; LARGE]).await;
    for phase in [VALUE, &script("map", "source", "TEXTS")] {
        let mut run = JobRun::start(&gateway, job("\"b\"", &[phase]), "client".into()).await.unwrap();
        let (mut before, mut lengths) = (run.memory(), Vec::new());
        while let Some(kept) = run.step().await.unwrap() {
            let values = kept.into_iter().flat_map(|kept| kept.values);
            let found: Vec<usize> = values.map(|value| value.into_json().as_str().unwrap().len()).collect();
            let large = found.iter().filter(|length| **length == LARGE).count();
            assert!(large == 0 || large == 1 && before >= 3 * LARGE as u64, "{large} with {before}: {phase}");
            lengths.extend(found);
            before = run.memory();
        }
        assert_eq!((lengths, run.memory()), (vec![5, LARGE, LARGE], 0));
    }
}

#[tokio::test]
async fn the_inputs_of_a_document_count_until_they_are_taken() {
    let gateway = gateway(None).await;
    let keys: Vec<String> = (0..3000).map(|number| format!(r#"["b","k{number}"]"#)).collect();
    let mut run =
        JobRun::start(&gateway, job(&format!("[{}]", keys.join(",")), &[COUNT]), "client".into()).await.unwrap();
    assert!(run.memory() > 3000 * 192, "{}", run.memory());
    while run.step().await.unwrap().is_some() {}
    assert_eq!(run.memory(), 0);
}

#[tokio::test]
async fn a_stored_function_longer_than_a_document_is_not_read() {
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    put(&gateway, "code", "keys", vec![b' '; JOB_BYTES_MAX + 1]).await;
    let stored = r#"{"map":{"language":"javascript","bucket":"code","key":"keys"}}"#;
    let refused = results(&gateway, job("\"b\"", &[stored])).await.unwrap_err();
    assert!(
        matches!(&refused, JobError::Phase(refusal) if refusal.error.ends_with("has more than 2097152 bytes")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_full_gateway_delays_a_job_and_does_not_fail_it() {
    let gateway = gateway(None).await;
    fill(&gateway, "b", 50).await;
    let run = JobRun::start(&gateway, job("\"b\"", &[VALUE, COUNT]), "client".into()).await.unwrap();
    let mut held = Vec::new();
    while let Ok(admitted) = gateway.context().admit() {
        held.push(admitted);
    }
    let running = tokio::spawn(finish(run));
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(!running.is_finished());
    drop(held);
    assert_eq!(running.await.unwrap().unwrap().0, json!([50]));
}

/// A store in memory whose reads of one bucket never end; of objects that are read at a time, it keeps the most.
struct SlowStore {
    inner: MemoryStore,
    stuck: &'static str,
    reads: AtomicUsize,
    most_reads: AtomicUsize,
}

impl StoreHook for SlowStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> larder_store::Result<T> {
        let StoreCall::Read(partition) = call else { return make(options).await };
        let Some(address) = partition.object_address() else { return make(options).await };
        if address.bucket.bucket == self.stuck {
            std::future::pending::<()>().await;
        }
        let reads = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_reads.fetch_max(reads, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let made = make(options).await;
        self.reads.fetch_sub(1, Ordering::SeqCst);
        made
    }
}

async fn slow_gateway(stuck: &'static str, scripts: Option<Arc<dyn Scripts>>) -> (Arc<SlowStore>, Arc<Gateway>) {
    let clock = Arc::new(SystemClock::default());
    let (inner, reads, most_reads) = (MemoryStore::new(clock.clone()), AtomicUsize::new(0), AtomicUsize::new(0));
    let store = Arc::new(SlowStore { inner, stuck, reads, most_reads });
    let ports = GatewayPorts { scripts, ..ports_over(Arc::new(Hooked(Arc::clone(&store))), clock) };
    (store, Gateway::start(ports, Config { durable: false, ..Config::default() }).await.unwrap())
}

#[tokio::test]
async fn a_job_whose_stored_function_does_not_come_ends_in_its_time() {
    let (_, gateway) = slow_gateway("code", Some(Arc::new(FewFunctions::default()))).await;
    let stored = r#"{"map":{"language":"javascript","bucket":"code","key":"keys"}}"#;
    let job = Job { timeout: Duration::from_millis(50), ..job("\"b\"", &[stored]) };
    let started = tokio::time::timeout(Duration::from_secs(20), JobRun::start(&gateway, job, "client".into())).await;
    assert!(matches!(started, Ok(Err(JobError::TimedOut))));
    assert_eq!(gateway.jobs().list(), [], "its place is free again");
}

#[tokio::test]
async fn a_filtered_query_reads_thirty_two_objects_at_a_time() {
    let (store, gateway) = slow_gateway("", None).await;
    for number in 0..200 {
        let terms = [("f_int", number.to_string()), ("g_bin", "x".into())];
        let terms = terms.map(|(field, value)| Term { field: field.into(), value: value.into() }).into();
        put_with(&gateway, "b", &format!("k{number:05}"), KvContent { terms, ..KvContent::default() }, "v").await;
    }
    store.most_reads.store(0, Ordering::SeqCst);
    let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
    let condition = |field: &'static str, from: &'static str, to: &'static str| {
        let scope = IndexScope::range(&field.into(), &from.into(), &to.into()).unwrap();
        IndexCondition { scope, is_equality: false }
    };
    let query =
        for_every_combination(&bucket, vec![condition("f_int", "0", "1000"), condition("g_bin", "x", "x")]).remove(0);
    let mut reader = gateway.kv.query_index(query, None, None);
    let (mut hits, mut is_last) = (0, false);
    while !is_last {
        let page = reader.next(1000).await.unwrap();
        (hits, is_last) = (hits + page.hits.len(), page.is_last);
    }
    assert_eq!((hits, store.most_reads.load(Ordering::SeqCst)), (200, 32));
}

/// An engine that knows three functions by their sources.
#[derive(Default)]
struct FewFunctions {
    calls: AtomicUsize,
}

#[async_trait]
impl Scripts for FewFunctions {
    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let ScriptFunction::Source(source) = call.function else { panic!("{:?}", call.function) };
        let arguments: Vec<Value> = serde_json::from_slice(call.arguments.json()).unwrap();
        let first = arguments[0].as_array().unwrap();
        if source.contains("(KEYS\n)") || source.contains("Mod.keys.apply(Mod, arguments)") {
            let of = |one: &Value| json!([one[0]["key"]]);
            return Ok(first.iter().map(of).collect());
        }
        if source.contains("(BUSY\n)") {
            return Err(ScriptError::Unavailable);
        }
        if source.contains("(THROWS\n)") {
            return Ok(json!({ "failed": 1, "error": "Error: no" }));
        }
        if source.contains("(COUNTS\n)") {
            let counted: u64 = first.iter().map(|one| one.as_u64().unwrap_or(1)).sum();
            return Ok(json!([counted]));
        }
        if source.contains("(TEXTS\n)") {
            return Ok(first.iter().map(|one| json!([one[0]["values"][0]["data"]])).collect());
        }
        if source.contains("(TEXT\n)") {
            return Ok(first.iter().map(|_| json!("text")).collect());
        }
        Err(ScriptError::Threw(source))
    }

    fn reload(&self) -> Result<usize, String> {
        Ok(0)
    }

    fn has_function(&self, name: &str) -> Option<bool> {
        Some(name == "Mod.keys")
    }
}

fn script(phase: &str, member: &str, value: &str) -> String {
    format!(r#"{{"{phase}":{{"language":"javascript","{member}":"{value}"}}}}"#)
}

#[tokio::test]
async fn calls_of_a_map_script_are_few() {
    let scripts = Arc::new(FewFunctions::default());
    let gateway = gateway(Some(scripts.clone())).await;
    fill(&gateway, "b", 1000).await;
    let keys = script("map", "source", "KEYS");
    let found = results(&gateway, job("\"b\"", &[&keys])).await.unwrap();
    assert_eq!((found.as_array().unwrap().len(), &found[999]), (1000, &json!("k00999")));
    assert!(scripts.calls.load(Ordering::Relaxed) <= 5);
    let counts = script("reduce", "source", "COUNTS");
    assert_eq!(results(&gateway, job("\"b\"", &[&keys, &counts])).await.unwrap(), json!([1000]));
    assert_eq!(results(&gateway, job("\"none\"", &[&counts])).await.unwrap(), json!([0]), "it runs once for nothing");
}

#[tokio::test]
async fn a_script_is_named_given_or_stored() {
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    fill(&gateway, "b", 2).await;
    put(&gateway, "code", "keys", "KEYS").await;
    let stored = r#"{"map":{"language":"javascript","bucket":"code","key":"keys"}}"#;
    for phase in [&*script("map", "name", "Mod.keys"), stored] {
        assert_eq!(results(&gateway, job("\"b\"", &[phase])).await.unwrap(), json!(["k00000", "k00001"]));
    }
    let missing = stored.replace("\"keys\"", "\"none\"");
    for phase in [&*script("map", "name", "Mod.none"), &missing, &script("map", "name", "Mod.keys;")] {
        let refused = results(&gateway, job("\"b\"", &[VALUE, phase])).await.unwrap_err();
        assert!(matches!(&refused, JobError::Phase(refusal) if refusal.phase == 1), "{refused:?}");
    }
}

#[tokio::test]
async fn a_failed_script_names_its_phase_and_input() {
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    fill(&gateway, "b", 2).await;
    let failed = async |source: &str| {
        let failed = results(&gateway, job("\"b\"", &[&script("map", "source", source)])).await.unwrap_err();
        let JobError::Failed { phase: 0, failure } = failed else { panic!("{failed:?}") };
        (failure.error, failure.input)
    };
    assert_eq!(failed("THROWS").await, ("Error: no".to_owned(), Some("\"k00001\"".to_owned())));
    assert!(failed("TEXT").await.0.starts_with("non_list_result"));
    assert!(failed("OTHER").await.0.starts_with("the script failed"));
}

#[tokio::test]
async fn a_job_without_a_free_worker_once_looked_like_one_whose_function_failed() {
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    fill(&gateway, "b", 2).await;
    let busy = results(&gateway, job("\"b\"", &[&script("map", "source", "BUSY")])).await.unwrap_err();
    assert!(matches!(busy, JobError::Gateway(Error::Overloaded { .. })), "{busy:?}");
}

#[tokio::test]
async fn an_object_that_does_not_exist_passes_a_script_by() {
    let gateway = gateway(Some(Arc::new(FewFunctions::default()))).await;
    let found = results(&gateway, job(r#"[["b","none"]]"#, &[&script("map", "source", "THROWS")])).await.unwrap();
    assert_eq!(found, json!([{"not_found": {"bucket": "b", "key": "none", "keydata": "undefined"}}]));
}

#[tokio::test]
async fn siblings_are_one_object_and_the_newest_is_its_value() {
    let gateway = gateway(None).await;
    let bucket = BucketAddress::new("default".into(), "s".into()).unwrap();
    let props = serde_json::from_value(json!({"allow_mult": true})).unwrap();
    gateway.types().set_bucket_props(&bucket, &props).await.unwrap();
    put(&gateway, "s", "k", "one").await;
    put(&gateway, "s", "k", "two").await;
    assert_eq!(results(&gateway, job("\"s\"", &[VALUE])).await.unwrap(), json!(["two"]));
    let identity = VALUE.replace("map_object_value", "map_identity");
    let object = results(&gateway, job("\"s\"", &[&identity])).await.unwrap();
    let data: Vec<&str> =
        object[0]["values"].as_array().unwrap().iter().map(|value| value["data"].as_str().unwrap()).collect();
    assert_eq!(data, ["two", "one"]);
}
