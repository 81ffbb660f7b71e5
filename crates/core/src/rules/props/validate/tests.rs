//! Every refusal, as tables of the stored properties, the request and the output of the console.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::rules::props::reason::PropsError;
use crate::rules::props::table::PROPS;

const NODE: &str = "larder@127.0.0.1";

fn object(props: &str) -> Map<String, Json> {
    serde_json::from_str(props).unwrap()
}

fn active(props: &str) -> TypeRecord {
    TypeRecord::create(b"t", None, NODE, &object(props)).unwrap().activate()
}

/// The stored overrides, or the lines of the console.
fn outcome(result: Result<Overrides, Vec<InvalidProp>>) -> String {
    match result {
        Ok(set) => Json::Object(set.to_json()).to_string(),
        Err(invalid) => PropsError::from(invalid).to_string(),
    }
}

#[track_caller]
fn check_create(props: &str, expected: &str) {
    assert_eq!(outcome(create_type(NODE, &object(props)).map(|(_, set)| set)), expected, "create {props}");
}

#[track_caller]
fn check_update(stored: &str, props: &str, expected: &str) {
    let record = active(stored);
    let got = outcome(update_type(&record, &object(props)));
    assert_eq!(got, expected, "update {stored} with {props}");
    if got.starts_with('{') {
        return;
    }
    let on_bucket = outcome(update_bucket(Some(&record), &Overrides::EMPTY, &object(props)));
    assert_eq!(on_bucket, expected, "a bucket of the type has the same rules");
}

#[track_caller]
fn check_bucket(stored: &str, props: &str, expected: &str) {
    let stored = update_bucket(None, &Overrides::EMPTY, &object(stored)).unwrap();
    assert_eq!(outcome(update_bucket(None, &stored, &object(props))), expected, "bucket {props}");
}

#[test]
fn a_new_type_takes_or_refuses_its_properties() {
    for (props, expected) in [
        ("{}", "{}"),
        (r#"{"n_val":2,"allow_mult":"false"}"#, r#"{"allow_mult":false,"n_val":2}"#),
        (r#"{"write_once":true,"allow_mult":true}"#, r#"{"allow_mult":true,"write_once":true}"#),
        (r#"{"datatype":"counter","allow_mult":true}"#, r#"{"allow_mult":true,"datatype":"counter"}"#),
        (r#"{"consistent":true,"n_val":5}"#, r#"{"consistent":true,"n_val":5}"#),
        (r#"{"hll_precision":99}"#, "{}"),
        (r#"{"datatype":"hll","hll_precision":16}"#, r#"{"datatype":"hll","hll_precision":16}"#),
        (r#"{"name":"x","active":false,"claimant":"larder@127.0.0.1"}"#, "{}"),
        (r#"{"n_val":0}"#, "n_val must be an integer"),
        (r#"{"n_val":"three"}"#, "n_val must be an integer"),
        (r#"{"datatype":"map","allow_mult":false}"#, "Data Type buckets must be allow_mult=true"),
        (r#"{"datatype":"bag"}"#, "bag not supported for bucket datatype property"),
        (r#"{"allow_mult":"maybe"}"#, r#"allow_mult should be "true" or "false""#),
        (r#"{"write_once":"yes"}"#, "cannot update write_once property"),
        (r#"{"write_once":true,"datatype":"map"}"#, "Write once buckets must not have datatype defined"),
        (r#"{"write_once":true,"consistent":true}"#, "Write once buckets must be not be consistent=true"),
        (r#"{"consistent":"x"}"#, r#"x is not a valid value for consistent. Use "true" or "false""#),
        (r#"{"r":9,"w":"foo"}"#, "w must be an integer or (one|quorum|all)"),
        (r#"{"last_write_wins":true}"#, "If last_write_wins is true, dvv_enabled must be false"),
        (
            r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#,
            r#"{"allow_mult":false,"dvv_enabled":false,"last_write_wins":true}"#,
        ),
        (r#"{"active":true}"#, "Cannot modify active property"),
        (r#"{"claimant":"x@y"}"#, "Cannot update claimant property"),
        (r#"{"nope":1,"":2}"#, " is not a bucket property\nnope is not a bucket property"),
    ] {
        check_create(props, expected);
    }
}

#[test]
fn a_plain_type_keeps_what_its_creation_fixed() {
    for (props, expected) in [
        (r#"{"r":"one"}"#, r#"{"n_val":2,"r":"one"}"#),
        (r#"{"write_once":false,"consistent":"false"}"#, r#"{"n_val":2}"#),
        (r#"{"active":true,"claimant":"larder@127.0.0.1"}"#, r#"{"n_val":2}"#),
        (r#"{"datatype":"set"}"#, "`datatype` must not be defined."),
        (r#"{"consistent":true}"#, "Write once buckets must not be consistent=true"),
        (r#"{"consistent":"x"}"#, "cannot update consistent property"),
        (r#"{"write_once":true}"#, "Cannot set existing bucket type to `write_once`"),
        (r#"{"write_once":"yes"}"#, "cannot update write_once property"),
        (r#"{"active":false}"#, "Cannot modify active property"),
        (r#"{"claimant":"x@y"}"#, "Cannot update claimant property"),
        (r#"{"last_write_wins":true}"#, "If last_write_wins is true, dvv_enabled must be false"),
        (r#"{"n_val":0,"r":"x"}"#, "r must be an integer or (one|quorum|all)\nn_val must be an integer"),
    ] {
        check_update(r#"{"n_val":2}"#, props, expected);
    }
}

#[test]
fn a_data_type_keeps_its_datatype_and_siblings() {
    let sets = r#"{"datatype":"set"}"#;
    for (props, expected) in [
        (r#"{"datatype":"set","allow_mult":true}"#, r#"{"allow_mult":true,"datatype":"set"}"#),
        (r#"{"datatype":"map"}"#, "map not supported for bucket datatype property"),
        (r#"{"datatype":null}"#, "null not supported for bucket datatype property"),
        (r#"{"allow_mult":false}"#, "Data Type buckets must be allow_mult=true"),
        (r#"{"last_write_wins":true}"#, "If last_write_wins is true, dvv_enabled must be false"),
        (r#"{"consistent":true}"#, "cannot update consistent property"),
        (r#"{"write_once":true}"#, "cannot update write_once property"),
        (r#"{"hll_precision":4}"#, sets),
    ] {
        check_update(sets, props, expected);
    }
    let hll = |precision| format!(r#"{{"datatype":"hll","hll_precision":{precision}}}"#);
    check_update(r#"{"datatype":"hll"}"#, r#"{"hll_precision":12}"#, &hll(12));
    check_update(&hll(12), r#"{"hll_precision":12}"#, &hll(12));
    for bad in ["15", "13", "3", "99"] {
        let props = format!(r#"{{"hll_precision":{bad}}}"#);
        let text = InvalidReason::HllPrecision(bad.into());
        check_update(&hll(12), &props, &text.text());
    }
}

#[test]
fn write_once_and_consistent_types_keep_their_kind() {
    let once = r#"{"write_once":true}"#;
    check_update(once, once, once);
    for (props, expected) in [
        (r#"{"write_once":false}"#, "Cannot modify write_once property once set to true"),
        (r#"{"consistent":true}"#, "Write once buckets must not be consistent=true"),
        (r#"{"datatype":"set"}"#, "Write once buckets must not have datatype defined"),
    ] {
        check_update(once, props, expected);
    }
    let strong = r#"{"consistent":true,"n_val":5}"#;
    check_update(strong, strong, strong);
    for (props, expected) in [
        (r#"{"consistent":false}"#, "cannot update consistent property"),
        (r#"{"n_val":3}"#, "n_val cannot be modified for existing consistent type"),
        (r#"{"n_val":0}"#, "n_val must be an integer"),
        (r#"{"write_once":true}"#, "cannot update write_once property"),
        (r#"{"datatype":"set"}"#, "`datatype` must not be defined."),
    ] {
        check_update(strong, props, expected);
    }
}

#[test]
fn buckets_of_the_default_type_refuse_properties_of_types() {
    for (props, expected) in [
        (r#"{"n_val":100,"r":99,"allow_mult":1}"#, r#"{"allow_mult":true,"n_val":100,"r":99}"#),
        (r#"{"name":"other","datatype":"set","hll_precision":1,"write_once":false}"#, "{}"),
        (r#"{"last_write_wins":true}"#, r#"{"last_write_wins":true}"#),
        (r#"{"precommit":"x"}"#, r#"{"precommit":["x"]}"#),
        (r#"{"backend":"other","node_confirms":9}"#, r#"{"backend":"other","node_confirms":9}"#),
        (r#"{"consistent":true}"#, "cannot update consistent property"),
        (r#"{"write_once":true}"#, "cannot update write_once property"),
        (r#"{"r":0}"#, "r must be an integer or (one|quorum|all)"),
        (r#"{"young_vclock":-1}"#, "young_vclock must be an integer"),
        (r#"{"":1}"#, " is not a bucket property"),
    ] {
        check_bucket("{}", props, expected);
    }
    let clash = "If last_write_wins is true, dvv_enabled must be false";
    check_bucket(r#"{"last_write_wins":true}"#, r#"{"dvv_enabled":true}"#, clash);
    check_bucket(r#"{"last_write_wins":true}"#, r#"{"n_val":2}"#, r#"{"last_write_wins":true,"n_val":2}"#);
}

#[test]
fn errors_stand_in_the_order_riak_lists_them() {
    let invalid = update_bucket(Some(&active("{}")), &Overrides::EMPTY, &object(r#"{"n_val":0,"r":"x"}"#)).unwrap_err();
    let refused = PropsError::from(invalid);
    assert_eq!(refused.http_json().to_string(), r#"{"r":"not_valid_quorum","n_val":"not_integer"}"#);
}

/// Any JSON of small depth.
fn any_json() -> impl Strategy<Value = Json> {
    let words = ["true", "one", "quorum", "all", "none", "set", "hll", "both", "backend", "mod", NODE];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(|flag| json!(flag)),
        any::<i64>().prop_map(|number| json!(number)),
        (-2_i64..20).prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        proptest::sample::select(words.to_vec()).prop_map(|word| json!(word)),
        ".{0,4}".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let member = proptest::sample::select(vec!["mod", "fun", "name", "jsfun", "jsanon", "bucket", "key"]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::Array),
            proptest::collection::vec((member.prop_map(str::to_owned), inner), 0..3)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// Some properties, mostly known ones, with any values.
pub(in crate::rules::props) fn props() -> impl Strategy<Value = Map<String, Json>> {
    let names: Vec<_> = PROPS.iter().map(|prop| prop.name.to_owned()).collect();
    let name = prop_oneof![20 => proptest::sample::select(names), 1 => ".{0,4}"];
    proptest::collection::vec((name, any_json()), 0..5).prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn any_json_is_accepted_or_refused_without_panic(stored in props(), requested in props()) {
        let stored = match TypeRecord::create(b"t", None, NODE, &stored) {
            Ok(record) => record.activate(),
            Err(refused) => {
                let _ = (refused.http_json(), refused.console(), refused.erlang());
                active("{}")
            }
        };
        for of_type in [None, Some(&stored)] {
            if let Ok(overrides) = update_bucket(of_type, &Overrides::EMPTY, &requested) {
                for frozen in ["name", "active", "claimant", "consistent", "write_once", "datatype"] {
                    prop_assert!(overrides.get(frozen).is_none());
                }
                let effective = TypeRecord::effective(of_type, &overrides);
                prop_assert!(!(effective.last_write_wins && effective.dvv_enabled));
            }
        }
        if let Ok(after) = TypeRecord::update(b"t", Some(&stored), &requested) {
            let (before, after) =
                [&stored, &after].map(|record| TypeRecord::effective(Some(record), &Overrides::EMPTY)).into();
            prop_assert_eq!(
                (before.consistent, before.write_once, before.datatype),
                (after.consistent, after.write_once, after.datatype)
            );
        }
    }

    #[test]
    fn values_decode_to_themselves(index in 0..PROPS.len(), json in any_json()) {
        let kind = PROPS[index].kind;
        if let Ok(value) = kind.decode(&json) {
            let _ = value.console();
            prop_assert_eq!(kind.decode(&value.to_json()), Ok(value));
        }
    }
}
