//! The lists, compared with the output of a Riak node.

use super::*;
use crate::rules::props::effective::body_props;
use crate::rules::props::validate;

const NODE: &str = "larder@127.0.0.1";
const DEFAULT: &str = r#"{"allow_mult":false,"basic_quorum":false,"big_vclock":50,"chash_keyfun":{"mod":"riak_core_util","fun":"chash_std_keyfun"},"dvv_enabled":false,"dw":"quorum","last_write_wins":false,"linkfun":{"mod":"riak_kv_wm_link_walker","fun":"mapreduce_linkfun"},"n_val":3,"node_confirms":0,"notfound_ok":true,"old_vclock":86400,"postcommit":[],"pr":0,"precommit":[],"pw":0,"r":"quorum","repl":true,"rw":"quorum","small_vclock":50,"sync_on_write":"backend","w":"quorum","write_once":false,"young_vclock":20}"#;
const TYPED: &str = r#"{"name":"pr","young_vclock":20,"w":"quorum","sync_on_write":"backend","small_vclock":50,"rw":"quorum","r":"quorum","pw":0,"precommit":[],"pr":0,"postcommit":[],"old_vclock":86400,"notfound_ok":true,"node_confirms":0,"n_val":3,"linkfun":{"mod":"riak_kv_wm_link_walker","fun":"mapreduce_linkfun"},"last_write_wins":false,"dw":"quorum","dvv_enabled":true,"chash_keyfun":{"mod":"riak_core_util","fun":"chash_std_keyfun"},"big_vclock":50,"basic_quorum":false,"allow_mult":true,"datatype":"map","active":true,"claimant":"larder@127.0.0.1"}"#;
const UPDATED_HLL: &str = r#"{"name":"pr","active":true,"allow_mult":true,"basic_quorum":false,"big_vclock":50,"chash_keyfun":{"mod":"riak_core_util","fun":"chash_std_keyfun"},"claimant":"larder@127.0.0.1","datatype":"hll","dvv_enabled":true,"dw":"quorum","hll_precision":12,"last_write_wins":false,"linkfun":{"mod":"riak_kv_wm_link_walker","fun":"mapreduce_linkfun"},"n_val":3,"node_confirms":0,"notfound_ok":true,"old_vclock":86400,"postcommit":[],"pr":0,"precommit":[],"pw":0,"r":"quorum","rw":"quorum","small_vclock":50,"sync_on_write":"backend","w":"quorum","young_vclock":20}"#;
const CUSTOMISED: &str = r#"{"active":true,"allow_mult":true,"basic_quorum":false,"big_vclock":50,"chash_keyfun":{"mod":"riak_core_util","fun":"chash_std_keyfun"},"claimant":"larder@127.0.0.1","dvv_enabled":true,"dw":"quorum","last_write_wins":false,"linkfun":{"mod":"riak_kv_wm_link_walker","fun":"mapreduce_linkfun"},"n_val":2,"name":"pr","node_confirms":0,"notfound_ok":true,"old_vclock":86400,"postcommit":[],"pr":0,"precommit":[],"pw":0,"r":"quorum","rw":"quorum","small_vclock":50,"sync_on_write":"backend","w":"quorum","young_vclock":20}"#;
const STATUS: [&str; 26] = [
    "young_vclock: 20",
    "w: quorum",
    "sync_on_write: backend",
    "small_vclock: 50",
    "rw: quorum",
    "r: quorum",
    "pw: 0",
    "precommit: []",
    "pr: 0",
    "postcommit: []",
    "old_vclock: 86400",
    "notfound_ok: true",
    "node_confirms: 0",
    "n_val: 3",
    "linkfun: {modfun,riak_kv_wm_link_walker,mapreduce_linkfun}",
    "last_write_wins: false",
    "dw: quorum",
    "dvv_enabled: true",
    "chash_keyfun: {riak_core_util,chash_std_keyfun}",
    "big_vclock: 50",
    "basic_quorum: false",
    "hll_precision: 14",
    "allow_mult: true",
    "datatype: hll",
    "active: false",
    "claimant: 'larder@127.0.0.1'",
];

fn props(props: &str) -> Map<String, Json> {
    body_props(format!("{{\"props\":{props}}}").as_bytes()).unwrap()
}

fn created(set: &str) -> TypeRecord {
    TypeRecord::create(b"t", None, NODE, &props(set)).unwrap()
}

fn updated(first: &str, then: &str) -> TypeRecord {
    TypeRecord::update(b"t", Some(&created(first).activate()), &props(then)).unwrap()
}

fn bucket_json(record: Option<&TypeRecord>, json: &str) -> String {
    let overrides = validate::update_bucket(record, &Overrides::EMPTY, &props(json)).unwrap();
    Json::Object(to_json(&bucket_props("pr", record, &overrides))).to_string()
}

#[test]
fn a_new_type_is_printed_in_table_order() {
    assert_eq!(console_lines(&type_props(Some(&created(r#"{"datatype":"hll"}"#)))), STATUS);
    let plain: Vec<_> =
        STATUS.into_iter().filter(|line| !line.starts_with("hll_") && !line.starts_with("datat")).collect();
    assert_eq!(console_lines(&type_props(Some(&created("{}")))), plain);
}

#[test]
fn properties_fixed_at_creation_follow_allow_mult() {
    for (set, line) in [(r#"{"consistent":true}"#, "consistent: true"), (r#"{"write_once":true}"#, "write_once: true")]
    {
        let lines = console_lines(&type_props(Some(&created(set))));
        assert_eq!(lines[21..24], ["allow_mult: true", line, "active: false"]);
    }
}

#[test]
fn an_updated_type_is_printed_by_name() {
    let record = updated(r#"{"datatype":"hll"}"#, r#"{"hll_precision":12}"#);
    let lines = console_lines(&type_props(Some(&record)));
    assert!(lines.is_sorted_by_key(|line| line.split(':').next()) && lines[0] == "active: true");
    assert_eq!(bucket_json(Some(&record), "{}"), UPDATED_HLL);
}

#[test]
fn the_default_type_is_printed_by_name() {
    assert_eq!(Json::Object(to_json(&type_props(None))).to_string(), DEFAULT);
    assert_eq!(bucket_json(None, "{}"), DEFAULT.replacen('{', r#"{"name":"pr","#, 1));
    let customised = DEFAULT.replace(r#""n_val":3,"#, r#""n_val":2,"name":"pr","#);
    assert_eq!(bucket_json(None, r#"{"n_val":2}"#), customised);
}

#[test]
fn a_bucket_without_overrides_shows_its_type() {
    let maps = created(r#"{"datatype":"map"}"#).activate();
    assert_eq!(bucket_json(Some(&maps), "{}"), TYPED);
    assert_eq!(bucket_json(Some(&created("{}").activate()), r#"{"n_val":2}"#), CUSTOMISED);
}

#[test]
fn a_displayed_list_can_be_set_again() {
    let hll = updated(r#"{"datatype":"hll"}"#, r#"{"hll_precision":12}"#);
    let consistent = created(r#"{"consistent":true,"n_val":5}"#).activate();
    let once =
        created(r#"{"write_once":true,"precommit":["b",{"mod":"larder","fun":"json"}],"repl":"realtime"}"#).activate();
    for record in [&hll, &consistent, &once, &created("{}").activate()] {
        let before = bucket_props("pr", Some(record), &Overrides::EMPTY);
        let overrides = validate::update_bucket(Some(record), &Overrides::EMPTY, &to_json(&before)).unwrap();
        let mut after = bucket_props("pr", Some(record), &overrides);
        let mut expected = before.clone();
        sort_by_name(&mut after);
        sort_by_name(&mut expected);
        assert_eq!(after, expected);
        assert!(TypeRecord::update(b"t", Some(record), &to_json(&type_props(Some(record)))).is_ok());
    }
    let plain = to_json(&bucket_props("pr", None, &Overrides::EMPTY));
    assert!(validate::update_bucket(None, &Overrides::EMPTY, &plain).is_ok());
}
