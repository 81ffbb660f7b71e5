//! Conditions of deletes, which see the data type that a read shows as an object.

use larder_core::Error;
use larder_kv::KvDelete;
use larder_kv::rules::causality::{Conditions, EtagMatcher, FailedCondition};
use larder_kv::rules::datatypes::DatatypeUpdate;

use super::client::{add_types, change_of};
use crate::simulation::world::{SimWorld, delete_of, get_of, run};

#[test]
fn a_conditional_delete_takes_no_increment_that_its_tag_did_not_see() {
    run(async {
        let world = SimWorld::alone(1).await;
        add_types(&world).await;
        let kv = &world.nodes[0].gateway.kv;
        let increment = |by| kv.update_datatype(change_of("counter", "k", DatatypeUpdate::Counter(by)));
        let (mut deleted, mut refused) = (0, 0);
        for round in 0..20 {
            increment(5).await.unwrap();
            let tag = kv.get(get_of("counter", "k")).await.unwrap().versions.etag().unwrap();
            let conditions = Conditions { if_match: Some(EtagMatcher::Tags(vec![tag])), ..Conditions::default() };
            let delete = kv.delete(KvDelete { conditions, ..delete_of("counter", "k", None) });
            let answer = if round % 2 == 0 {
                let (answer, added) = tokio::join!(delete, increment(1));
                added.unwrap();
                answer
            } else {
                let (added, answer) = tokio::join!(increment(1), delete);
                added.unwrap();
                answer
            };
            let left = world.total(0, "counter", "k").await.unwrap();
            match answer {
                Ok(_) => {
                    assert_eq!(left, Some(1), "the increment came after the delete");
                    deleted += 1;
                }
                Err(Error::Condition(FailedCondition::Precondition)) => {
                    assert_eq!(left, Some(6), "the increment came before the delete");
                    refused += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
            assert!(world.delete(0, "counter", "k", None).await.unwrap());
        }
        assert!(deleted > 0 && refused > 0, "{deleted} deletes, {refused} refusals");
    });
}
