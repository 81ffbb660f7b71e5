//! Batches that come late, and answers that are lost.

use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::datatypes::DatatypeUpdate;

use super::client::{add_types, adds, change_of, removes};
use crate::simulation::batch_fates::BatchFate;
use crate::simulation::world::{SimWorld, run};

const SECOND: Duration = Duration::from_secs(1);

fn increment(id: &'static str, by: i64, timeout: Option<Duration>) -> DatatypeChange {
    let request_id = Some(Bytes::from_static(id.as_bytes()));
    DatatypeChange { request_id, timeout, ..change_of("counter", "k", DatatypeUpdate::Counter(by)) }
}

#[test]
fn an_increment_whose_batch_comes_late_is_not_written_over_by_the_next_one() {
    run(async {
        let (world, fates) = SimWorld::alone(1).await.with_fates().await;
        add_types(&world).await;
        let kv = &world.nodes[0].gateway.kv;
        // A row of totals, which the next increments write again.
        kv.update_datatype(increment("first", 1, None)).await.unwrap();
        fates.set_next(BatchFate::Late(5 * SECOND));
        let late = kv.update_datatype(increment("a", 5, Some(SECOND))).await;
        assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
        kv.update_datatype(increment("b", 7, None)).await.unwrap();
        world.advance(60_000).await;
        // Its id is stored by now: the retry is acknowledged and adds nothing.
        kv.update_datatype(increment("a", 5, None)).await.unwrap();
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(13));
    });
}

#[test]
fn an_add_whose_answer_is_lost_does_not_bring_its_element_back() {
    run(async {
        let (world, fates) = SimWorld::new(1, 2).await.with_fates().await;
        add_types(&world).await;
        fates.set_next(BatchFate::Unanswered(10 * SECOND));
        let remove = async {
            world.advance(5000).await;
            let (elements, seen) = world.elements(1, "k").await.unwrap();
            assert_eq!(elements, ["a"]);
            world.update(1, "set", "k", removes(&["a"]), seen.as_ref()).await.unwrap();
        };
        let (added, ()) = tokio::join!(world.update(0, "set", "k", adds(&["a"]), None), remove);
        assert!(matches!(added, Err(Error::TimedOut)), "{added:?}");
        world.advance(60_000).await;
        assert!(world.elements(0, "k").await.unwrap().0.is_empty(), "its removal was acknowledged");
    });
}
