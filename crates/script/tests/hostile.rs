//! Scripts that attack: each ends in its own error in time, and nothing else notices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use larder_core::{ScriptError, ScriptFunction};
use larder_testkit::hostile_scripts::{HOSTILE, HostileEnd};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{self, TestPool, children, descriptors};

const LIMIT: Duration = Duration::from_secs(1);
/// Beyond the limit: the wait for a worker of the lane, the kill, and a machine with other work.
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls of a script that ends by itself: other work of the machine may take the time of one.
const TRIES: usize = 8;

fn check(name: &str, ends: HostileEnd, result: &Result<serde_json::Value, ScriptError>) {
    let fits = match (ends, result) {
        (HostileEnd::InValue(text), Ok(value)) => value == &serde_json::from_str::<serde_json::Value>(text).unwrap(),
        (HostileEnd::InThrow, Err(ScriptError::Threw(_))) | (HostileEnd::TooLarge, Err(ScriptError::TooLarge)) => true,
        (HostileEnd::ByKill, Err(ScriptError::TimedOut | ScriptError::Crashed)) => true,
        (HostileEnd::Unharmed, Ok(_) | Err(ScriptError::TimedOut)) => true,
        // Memory may end before time does, and the other way round.
        (HostileEnd::InError, Err(error)) => {
            !matches!(error, ScriptError::Unavailable | ScriptError::NoSuchFunction(_))
        }
        _ => false,
    };
    assert!(fits, "{name}: expected {ends:?}, but it was {result:?}");
}

#[test]
fn the_corpus_is_large_enough() {
    assert!(HOSTILE.len() >= 40, "{}", HOSTILE.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hostile_script_ends_in_its_own_error_and_harms_no_other_call() {
    let _alone = support::alone().await;
    let before = descriptors();
    let test =
        TestPool::with_modules(3, LIMIT, &[("good.js", "var Good = { add: function (a, b) { return a + b; } };")]);
    let pool = Arc::clone(&test.pool);
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (stop, count) = (Arc::clone(&done), Arc::clone(&answered));
    let others = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let sum = test.named("Good.add", vec![json!(1), json!(2)]).await;
            assert_eq!(sum, Ok(json!(3)), "an innocent call was harmed");
            count.fetch_add(1, Ordering::Relaxed);
            // A busy server would let the slow scripts wait beyond their limit.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        test
    });
    let mut running = tokio::task::JoinSet::new();
    for (name, source, ends) in HOSTILE {
        let pool = Arc::clone(&pool);
        running.spawn(async move {
            let ends_by_itself = matches!(ends, HostileEnd::InValue(_) | HostileEnd::InThrow | HostileEnd::TooLarge);
            for attempt in 1..=TRIES {
                let began = Instant::now();
                let function = ScriptFunction::Source((*source).to_owned());
                let result = support::call(&pool, function, vec![json!({"a": 1})]).await;
                assert!(began.elapsed() < LIMIT + PATIENCE, "{name}: the call outlived its deadline");
                if ends_by_itself && result == Err(ScriptError::TimedOut) && attempt < TRIES {
                    continue;
                }
                return check(name, *ends, &result);
            }
        });
        while running.len() >= 3 {
            running.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    // The lane of the attackers still works, and knows nothing of them.
    let clean = "function() { return [({}).polluted, typeof JSON.parse, typeof leaked, [].concat([1])]; }";
    let result = support::call(&pool, ScriptFunction::Source(clean.into()), vec![]).await;
    assert_eq!(result, Ok(json!([null, "function", "undefined", [1]])));
    done.store(true, Ordering::Relaxed);
    let test = others.await.unwrap();
    assert!(answered.load(Ordering::Relaxed) > 20, "{answered:?} calls beside {} attacks", HOSTILE.len());
    drop((pool, test));
    support::eventually("no process is left", || children().is_empty()).await;
    support::eventually("no descriptor is left", || descriptors() <= before + 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_module_does_to_intrinsics_in_a_call_is_gone_or_refused() {
    let _alone = support::alone().await;
    let module = r#"
        function poison() {
            try { Object.prototype.polluted = 1; } catch (error) {}
            try { Array.prototype.concat = function () { return "evil"; }; } catch (error) {}
            try { JSON.stringify = null; JSON.parse = null; } catch (error) {}
            try { Riak.reduceSum = null; ejsLog = null; Date = null; Object = null; } catch (error) {}
            return 1;
        }
        function look() { return [({}).polluted, [1].concat([2]), typeof JSON.parse, Riak.reduceSum([1, 2]), typeof ejsLog]; }
        function ordinary() {
            var error = new Error("a"); error.message = "b";
            function Point() {}
            Point.prototype.toString = function () { return "point"; };
            undeclared = 5;
            return [error.message, String(new Point()), undeclared];
        }
    "#;
    let test = TestPool::with_modules(1, Duration::from_secs(5), &[("a.js", module)]);
    assert_eq!(test.named("poison", vec![]).await, Ok(json!(1)));
    assert_eq!(test.named("look", vec![]).await, Ok(json!([null, [1, 2], "function", [3], "function"])));
    assert_eq!(test.named("ordinary", vec![]).await, Ok(json!(["b", "point", 5])));
}
