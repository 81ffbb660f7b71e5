//! Calls, modules and the processes behind them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use larder_core::{ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts as _};
use serde_json::json;

use crate::support::{self, TestPool, call, children, eventually};

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn functions_are_found_by_their_paths_and_called_on_their_module() {
    let _alone = support::alone().await;
    let module =
        "var A = { factor: 2, f: function (x) { return x * this.factor; }, B: { g: function () { return 'g'; } } };
        function top(x) { return x; }
        const C = { h: () => 'h' };";
    let test = TestPool::with_modules(1, LIMIT, &[("a.js", module)]);
    assert_eq!(test.named("A.f", vec![json!(21)]).await, Ok(json!(42)));
    assert_eq!(test.named("A.B.g", vec![]).await, Ok(json!("g")));
    assert_eq!(test.named("top", vec![json!({"deep": [1.5, null, "ä"]})]).await, Ok(json!({"deep": [1.5, null, "ä"]})));
    assert_eq!(test.named("C.h", vec![]).await, Ok(json!("h")));
    assert_eq!(test.named("Riak.reduceSum", vec![json!([1, 2, 3])]).await, Ok(json!([6])));
    for missing in ["A.none", "none", "A", "", ".", "A.f.x.y", "1", "while(true){}"] {
        let result = test.named(missing, vec![]).await;
        assert_eq!(result, Err(ScriptError::NoSuchFunction(missing.into())), "{missing}");
    }
    assert_eq!(test.pool.has_function("A.B.g"), Some(true));
    assert_eq!(test.pool.has_function("Riak.mapValuesJson"), Some(true));
    assert_eq!(test.pool.has_function("A.none"), Some(false));
}

#[tokio::test]
async fn sources_see_the_modules_and_an_exception_has_its_text() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[("a.js", "function twice(x) { return 2 * x; }")]);
    let source = |text: &str| ScriptFunction::Source(text.to_owned());
    assert_eq!(call(&test.pool, source("function(x) { return twice(x); }"), vec![json!(4)]).await, Ok(json!(8)));
    assert_eq!(call(&test.pool, source("async (x) => x + 1"), vec![json!(4)]).await, Ok(json!(5)));
    let thrown = call(&test.pool, source("function() { throw new RangeError('too far'); }"), vec![]).await;
    assert_eq!(thrown, Err(ScriptError::Threw("RangeError: too far".into())));
    let large = call(&test.pool, source("x => 1"), vec![json!("x".repeat(17 << 20))]).await;
    assert_eq!(large, Err(ScriptError::TooLarge));
}

#[tokio::test]
async fn the_helpers_do_what_riaks_do() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[]);
    let object = json!({"bucket": "b", "key": "k", "values": [{"metadata": {}, "data": "{\"a\":1,\"b\":2}"}]});
    let missing = json!({"not_found": {"bucket": "b"}});
    for (name, arguments, result) in [
        ("mapValues", vec![object.clone()], json!(["{\"a\":1,\"b\":2}"])),
        ("mapValuesJson", vec![object.clone()], json!([{"a": 1, "b": 2}])),
        ("mapValuesJson", vec![missing.clone()], json!([])),
        ("mapByFields", vec![object.clone(), json!(null), json!({"a": 1})], json!([{"a": 1, "b": 2}])),
        ("mapByFields", vec![object, json!(null), json!({"a": 2})], json!([])),
        ("filterNotFound", vec![json!([1, missing, null])], json!([1, null])),
        ("reduceSum", vec![json!([])], json!([0])),
        ("reduceSum", vec![json!(["a"])], json!(["a"])),
        (
            "reduceSum",
            vec![json!([1, 2, "a", null, 3, [4, 5], true, "b", {}])],
            json!(["3anull34,5trueb[object Object]"]),
        ),
        ("reduceMin", vec![json!([3, 1, 2])], json!([1])),
        ("reduceMax", vec![json!([3, 10, 2])], json!([10])),
        ("reduceSort", vec![json!([10, 9, 1])], json!([1, 10, 9])),
        ("reduceSort", vec![json!([10, 9, 1]), json!("function(a, b) { return b - a; }")], json!([10, 9, 1])),
        ("reduceNumericSort", vec![json!([10, 9, 1])], json!([1, 9, 10])),
        ("reduceLimit", vec![json!([1, 2, 3]), json!(3)], json!([1, 2])),
        ("reduceSlice", vec![json!([1, 2, 3]), json!([1, 2])], json!([2])),
        ("reduceSlice", vec![json!([1, 2, 3]), json!([1, 9])], json!([1, 2, 3])),
    ] {
        assert_eq!(test.named(&format!("Riak.{name}"), arguments.clone()).await, Ok(result), "{name} {arguments:?}");
    }
}

#[tokio::test]
async fn a_sum_of_many_texts_does_not_take_the_square_of_their_bytes() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[]);
    // Copied for each text, the sum would be half a terabyte: the call would not end in its time.
    let source = "function() { var v = []; for (var i = 0; i < 100000; i++) v.push('x'.repeat(100)); \
                  return Riak.reduceSum(v)[0].length; }";
    assert_eq!(call(&test.pool, ScriptFunction::Source(source.into()), vec![]).await, Ok(json!(10_000_000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_are_loaded_again_and_a_broken_one_replaces_nothing() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[("a.js", "function f() { return 1; }")]);
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    std::fs::write(test.dir.path().join("b.js"), "function g() { return f() + 1; }").unwrap();
    let pool = test.pool.clone();
    assert_eq!(tokio::task::spawn_blocking(move || pool.reload()).await.unwrap(), Ok(2));
    assert_eq!(test.named("g", vec![]).await, Ok(json!(2)));
    std::fs::write(test.dir.path().join("b.js"), "function g( {").unwrap();
    let pool = test.pool.clone();
    let fault = tokio::task::spawn_blocking(move || pool.reload()).await.unwrap().unwrap_err();
    assert!(fault.starts_with("b.js: SyntaxError"), "{fault}");
    assert_eq!(test.named("g", vec![]).await, Ok(json!(2)));
    // The folder is looked at each second.
    std::fs::write(test.dir.path().join("b.js"), "function g() { return 'watched'; }").unwrap();
    for _ in 0..100 {
        if test.named("g", vec![]).await == Ok(json!("watched")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the changed file was not loaded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_old_code_after_a_reload_returned() {
    let _alone = support::alone().await;
    // The worker makes its next heap after its answer; meanwhile the next call waits for it, and modules may be replaced.
    for turns in [1e7, 4e7] {
        let old = format!("for (var i = 0; i < {turns}; i++); function f() {{ return 'old'; }}");
        let test = TestPool::with_modules(1, 2 * LIMIT, &[("a.js", &old)]);
        let source = || ScriptFunction::Source("function() { return f(); }".into());
        assert_eq!(call(&test.pool, source(), vec![]).await, Ok(json!("old")));
        let pool = test.pool.clone();
        let waiting = tokio::spawn(async move { call(&pool, source(), vec![]).await });
        std::fs::write(test.dir.path().join("a.js"), "function f() { return 'new'; }").unwrap();
        let pool = test.pool.clone();
        assert_eq!(tokio::task::spawn_blocking(move || pool.reload()).await.unwrap(), Ok(1));
        // On a machine where the reload took longer than the heap, the call came before it, and says nothing.
        if !waiting.is_finished() {
            assert_eq!(waiting.await.unwrap(), Ok(json!("new")));
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_confined_and_one_that_is_killed_is_replaced() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[("a.js", "function f() { return 1; }")]);
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    let worker = children().pop().unwrap();
    let open = std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().count();
    assert_eq!(open, 3, "standard input, output and error alone");
    assert_eq!(std::fs::read(format!("/proc/{worker}/environ")).unwrap(), b"");
    let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let is_zero = |name: &str| limit(name)[name.len()..].split_whitespace().take(2).all(|value| value == "0");
    for name in ["Max processes", "Max file size", "Max core file size"] {
        assert!(is_zero(name), "{}", limit(name));
    }
    assert_eq!(limit("Max open files").split_whitespace().nth(3), Some("3"), "no further file can be opened");
    assert!(!limit("Max address space").contains("unlimited"), "{limits}");
    assert!(!limit("Max cpu time").starts_with("Max cpu time              unlimited"), "{limits}");
    let killed = std::process::Command::new("kill").args(["-9", &worker]).status().unwrap();
    assert!(killed.success());
    // The signal takes a moment, and the first thread may end before the others; a worker that dies in a call fails that call.
    let is_running = || {
        let threads = std::fs::read_dir(format!("/proc/{worker}/task")).map_or(0, Iterator::count);
        let stat = std::fs::read_to_string(format!("/proc/{worker}/stat"));
        threads > 1 || stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    eventually("the worker ended", || !is_running()).await;
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)), "a dead worker fails no call");
    assert!(!children().contains(&worker));
}

#[tokio::test]
async fn schemas_are_checked_and_one_without_an_end_costs_its_own_call() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[]);
    let fault =
        async |schema: &str, text: &str| test.named("Larder.schemaFault", vec![json!(schema), json!(text)]).await;
    let adult = r#"{"type":"object","required":["name"],"properties":{"age":{"type":"integer","minimum":18}}}"#;
    assert_eq!(fault(adult, r#"{"name":"Ada","age":36}"#).await, Ok(json!(null)));
    let young = fault(adult, r#"{"name":"Ada","age":3}"#).await;
    assert_eq!(young, Ok(json!("the value does not match the schema at \"/age\": 3 is less than the minimum of 18")));
    for (schema, text, begin) in [
        (adult, "{", "the value is not JSON: "),
        (r#"{"type":7}"#, "{}", "the schema is not one: "),
        (r#"{"$ref":"http://127.0.0.1/other"}"#, "{}", "the schema is not one: "),
        (r#"{"$ref":"file:///etc/passwd"}"#, "{}", "the schema is not one: "),
        (r#"{"pattern":"(?=a)"}"#, r#""a""#, "the schema is not one: "),
    ] {
        let fault = fault(schema, text).await.unwrap();
        assert!(fault.as_str().is_some_and(|fault| fault.starts_with(begin)), "{schema}: {fault}");
        let error = test.named("Larder.schemaError", vec![json!(schema)]).await.unwrap();
        assert_eq!(error.is_string(), begin == "the schema is not one: ", "{schema}: {error}");
    }
    // Each of these may end in any way; the next call is not harmed by it.
    for endless in
        [r##"{"$ref":"#"}"##, r##"{"allOf":[{"$ref":"#"}]}"##, r##"{"$dynamicRef":"#"}"##, r##"{"not":{"$ref":"#"}}"##]
    {
        println!("{endless}: {:?}", fault(endless, "{}").await);
        assert_eq!(fault(adult, r#"{"name":"Ada"}"#).await, Ok(json!(null)), "after {endless}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_leaves_no_running_script() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[]);
    let pool = test.pool.clone();
    let endless = ScriptFunction::Source("function() { for (;;) {} }".into());
    let caller = tokio::spawn(async move { call(&pool, endless, vec![]).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    caller.abort();
    let next = call(&test.pool, ScriptFunction::Source("() => 1".into()), vec![]).await;
    assert_eq!(next, Ok(json!(1)), "the lane of one worker is free at once");
    drop(test);
    eventually("no process is left", || children().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_the_background_leave_a_worker_to_those_that_a_client_waits_for() {
    let _alone = support::alone().await;
    let module = "function loop() { for (;;) {} } function f() { return 1; }";
    for workers in [1, 2, 3] {
        let test = TestPool::with_modules(workers, Duration::from_secs(60), &[("a.js", module)]);
        let background = |name: &str| {
            let (pool, function) = (test.pool.clone(), ScriptFunction::Named(name.into()));
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            tokio::spawn(async move {
                pool.call_in_background(ScriptCall {
                    client: support::next_client(),
                    function,
                    arguments: ScriptArguments::new(&[]),
                    deadline,
                })
                .await
            })
        };
        assert_eq!(background("f").await.unwrap(), Ok(json!(1)));
        let loops: Vec<_> = (0..2 * workers + 1).map(|_| background("loop")).collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..3 {
            let called = tokio::time::timeout(Duration::from_secs(30), test.named("f", vec![])).await;
            assert_eq!(called, Ok(Ok(json!(1))), "{workers}");
        }
        for looping in loops {
            looping.abort();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_of_a_client_that_passed_kills_no_worker() {
    let _alone = support::alone().await;
    let module =
        "function f() { return 1; } function slow() { var n = 0; for (var i = 0; i < 1e7; i++) n += i; return 2; }";
    let test = TestPool::with_modules(1, Duration::from_secs(30), &[("a.js", module)]);
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    let workers = children();
    let with = async |name: &str, deadline: tokio::time::Instant| {
        let (function, arguments) = (ScriptFunction::Named(name.into()), ScriptArguments::new(&[]));
        test.pool.call(ScriptCall { client: support::next_client(), function, arguments, deadline }).await
    };
    let now = tokio::time::Instant::now();
    assert_eq!(with("f", now).await, Err(ScriptError::Unavailable));
    let deadline = tokio::time::Instant::now() + Duration::from_millis(50);
    assert_eq!(with("slow", deadline).await, Ok(json!(2)), "it has its own time");
    assert!(deadline.elapsed() > Duration::ZERO, "the deadline passed in the call");
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    assert_eq!(children(), workers, "the same process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_outlives_the_signals_that_end_the_service() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(1, LIMIT, &[("a.js", "function f() { return 1; }")]);
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    let workers = children();
    for signal in ["-TERM", "-INT", "-HUP"] {
        assert!(std::process::Command::new("kill").args([signal, &workers[0]]).status().unwrap().success());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
    assert_eq!(children(), workers);
    drop(test);
    eventually("it ends with its pipe", || children().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_has_no_more_processes_than_its_lane_has_workers() {
    let _alone = support::alone().await;
    for _ in 0..5 {
        // The pool starts its first worker while the first calls arrive.
        let test = TestPool::with_modules(1, LIMIT, &[("a.js", "function f() { return 1; }")]);
        for _ in 0..3 {
            assert_eq!(test.named("f", vec![]).await, Ok(json!(1)));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(children().len(), 1);
        drop(test);
        eventually("no process is left", || children().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_after_a_reload_runs_the_code_before_it() {
    let _alone = support::alone().await;
    let test = TestPool::with_modules(2, LIMIT, &[("a.js", "function f() { return 0; }")]);
    for generation in 1..10 {
        // A call that is being given a worker meanwhile, such as a new one.
        let calls: Vec<_> = (0..2)
            .map(|_| {
                let pool = test.pool.clone();
                tokio::spawn(async move { call(&pool, ScriptFunction::Named("f".into()), vec![]).await })
            })
            .collect();
        std::fs::write(test.dir.path().join("a.js"), format!("function f() {{ return {generation}; }}")).unwrap();
        let pool = test.pool.clone();
        tokio::task::spawn_blocking(move || pool.reload()).await.unwrap().unwrap();
        assert_eq!(test.named("f", vec![]).await, Ok(json!(generation)));
        for call in calls {
            assert!(call.await.unwrap().is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_calls_of_one_client_once_took_all_workers_from_the_others() {
    let _alone = support::alone().await;
    let module = "function loop() { for (;;) {} } function f() { return 1; }";
    let test = TestPool::with_modules(2, Duration::from_secs(2), &[("a.js", module)]);
    let call = |client: &'static str, name: &str| {
        let (pool, function) = (test.pool.clone(), ScriptFunction::Named(name.into()));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let call = ScriptCall { client: client.into(), function, arguments: ScriptArguments::new(&[]), deadline };
        tokio::spawn(async move { pool.call(call).await })
    };
    let loops: Vec<_> = (0..12).map(|_| call("a", "loop")).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        let called = tokio::time::timeout(Duration::from_millis(1500), call("b", "f")).await;
        assert_eq!(called.expect("a worker is left for it").unwrap(), Ok(json!(1)));
    }
    let mut ended = Vec::new();
    for looping in loops {
        ended.push(looping.await.unwrap().unwrap_err());
    }
    let of = |error: &ScriptError| ended.iter().filter(|ended| *ended == error).count();
    assert_eq!((of(&ScriptError::TimedOut), of(&ScriptError::Unavailable)), (3, 9), "the others are refused early");
    assert_eq!(call("a", "f").await.unwrap(), Err(ScriptError::Unavailable));
}
