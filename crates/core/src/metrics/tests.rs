//! Tests of metrics through what operators see.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::table::{StatDistribution, StatSource};
use super::*;
use crate::StoredBytes;
use crate::rules::props::Datatype;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The disk that the engine writes to.
static DISK: LazyLock<(String, u64, u8)> = LazyLock::new(|| ("/".to_owned(), 1000, 8));

fn node_info(members: &[String]) -> NodeInfo<'_> {
    NodeInfo {
        node: "larder@a",
        version: "0.1.0",
        members,
        engine: "local",
        disk: Some(&DISK),
        stored: StoredBytes { live: 4000, dead: 300 },
        fault: None,
        ready: true,
        catalogue: 7,
        webhooks_waiting: 0,
        webhooks_waiting_most: 0,
        process: ProcessStats {
            host: HostStats { load: [0.5, 1.0, 2.0], ..HostStats::default() },
            threads: 9,
            ..ProcessStats::default()
        },
        engine_samples: &[
            ("larder_engine_cache_bytes{of=\"entries\"}", 1.5),
            ("larder_engine_cache_bytes{of=\"blocks\"}", f64::INFINITY),
            ("larder_engine_syncs_total", 3.0),
        ],
    }
}

fn stats(metrics: &Metrics, now: Duration) -> BTreeMap<&'static str, Value> {
    metrics.stats(&node_info(&[]), now).into_iter().collect()
}

/// Whether a stat is measured; otherwise it is always 0.
fn is_measured(stat: &Stat) -> bool {
    !matches!(stat.source, StatSource::NotBuilt | StatSource::Statistic(StatDistribution::NotBuilt, _))
}

#[track_caller]
fn check(metrics: &Metrics, now: Duration, expected: &[(&str, u64)]) {
    let stats = stats(metrics, now);
    let seen: Vec<_> = expected.iter().map(|(name, _)| (*name, stats[name].as_u64().expect(name))).collect();
    assert_eq!(seen, expected);
}

/// Samples by their full name with labels; panics at any line that is not of the format.
#[track_caller]
fn parse(text: &str) -> HashMap<String, f64> {
    let (mut samples, mut families, mut family) = (HashMap::new(), HashSet::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().expect("name").into();
            assert!(families.insert(family.clone()), "{family} twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("kind");
            assert!(name == family && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("value");
            let bare = name.split('{').next().expect("name");
            assert!(bare.starts_with(&family) && bare.starts_with("larder_"), "{line}");
            assert!(
                bare.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{line}"
            );
            check_labels(&name[bare.len()..]);
            let value = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(samples.insert(name.to_owned(), value).is_none(), "{name} twice");
        }
    }
    samples
}

#[track_caller]
fn check_labels(labels: &str) {
    let inner = labels.strip_prefix('{').map_or("", |labels| labels.strip_suffix('}').expect("closed"));
    for label in inner.split(',').filter(|label| !label.is_empty()) {
        let (name, value) = label.split_once("=\"").expect("label");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()) && value.ends_with('"'), "{label}");
    }
}

#[test]
fn counts_expire_to_the_second_and_totals_never() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::Get, micros(100), RequestOutcome::Ok, at(1000));
    metrics.record_request(KvOp::Get, micros(100), RequestOutcome::NotFound, at(1030));
    metrics.record_request(KvOp::Get, micros(100), RequestOutcome::Failed, at(1030));
    check(&metrics, at(1059), &[("node_gets", 3), ("node_get_fsm_errors", 1), ("vnode_gets", 3)]);
    check(&metrics, at(1060), &[("node_gets", 2), ("node_gets_total", 3), ("node_get_fsm_errors_total", 1)]);
    check(&metrics, at(1090), &[("node_gets", 0), ("node_gets_total", 3), ("node_get_fsm_errors", 0)]);
    metrics.record_request(KvOp::Get, micros(100), RequestOutcome::Ok, at(1000 + 64 * 5));
    check(&metrics, at(1000 + 64 * 5), &[("node_gets", 1), ("node_gets_total", 4)]);
}

#[test]
fn distributions_expire_after_sixty_to_seventy_seconds() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::Put, micros(900), RequestOutcome::Ok, at(1009));
    check(&metrics, at(1069), &[("node_put_fsm_time_100", 900), ("node_put_fsm_time_mean", 900)]);
    check(&metrics, at(1070), &[("node_put_fsm_time_100", 0), ("node_put_fsm_time_mean", 0)]);
    metrics.record_request(KvOp::Put, micros(10), RequestOutcome::Ok, at(1079));
    check(&metrics, at(1079), &[("node_put_fsm_time_100", 10), ("node_put_fsm_time_median", 10)]);
}

#[test]
fn a_value_recorded_late_is_not_lost() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::Get, micros(10), RequestOutcome::Ok, at(1070));
    metrics.record_request(KvOp::Get, micros(30), RequestOutcome::Ok, at(1006));
    check(&metrics, at(1069), &[("node_gets", 2), ("node_get_fsm_time_mean", 20), ("node_get_fsm_time_100", 30)]);
}

#[test]
fn percentiles_are_within_one_percent() {
    let metrics = Metrics::default();
    (1..=1000)
        .for_each(|value| metrics.record_request(KvOp::Get, micros(value * 10), RequestOutcome::Ok, at(value % 50)));
    let stats = stats(&metrics, at(50));
    for (name, expected) in [("median", 5000.0), ("95", 9500.0), ("99", 9900.0)] {
        let seen = stats[format!("node_get_fsm_time_{name}").as_str()].as_f64().expect(name);
        assert!((seen - expected).abs() <= expected / 100.0, "{name}: {seen}");
    }
    check(
        &metrics,
        at(50),
        &[("node_get_fsm_time_mean", 5005), ("node_get_fsm_time_100", 10_000), ("node_gets", 1000)],
    );
    check(&metrics, at(50), &[("node_get_fsm_in_rate", 17)]);
}

#[test]
fn objects_have_sizes_and_siblings() {
    let metrics = Metrics::default();
    metrics.record_read(100, 1, at(5));
    metrics.record_read(u64::MAX, 3, at(5));
    metrics.record_written(70, 0, at(5));
    check(&metrics, at(5), &[("node_get_fsm_siblings_mean", 2), ("node_get_fsm_siblings_100", 3)]);
    check(&metrics, at(5), &[("node_get_fsm_objsize_median", 100), ("node_get_fsm_objsize_100", 1 << 42)]);
    let samples = parse(&metrics.text(&node_info(&[]), at(5)));
    assert_eq!(samples["larder_object_bytes_sum{way=\"write\"}"], 70.0);
    assert_eq!(samples["larder_object_siblings_bucket{way=\"write\",le=\"1\"}"], 1.0);
    assert_eq!(samples["larder_object_bytes_bucket{way=\"read\",le=\"+Inf\"}"], 2.0);
}

#[test]
fn deletes_are_puts_and_refusals_take_no_time() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::Put, micros(100), RequestOutcome::Ok, at(1));
    metrics.record_request(KvOp::Put, micros(1), RequestOutcome::Refused, at(1));
    metrics.record_request(KvOp::Delete, micros(300), RequestOutcome::Ok, at(1));
    check(&metrics, at(1), &[("node_puts", 2), ("node_puts_total", 2), ("node_put_fsm_time_mean", 200)]);
    let samples = parse(&metrics.text(&node_info(&[]), at(1)));
    assert_eq!(samples["larder_requests_total{op=\"put\",outcome=\"refused\"}"], 1.0);
    assert_eq!(samples["larder_request_seconds_count{op=\"put\"}"], 1.0);
}

#[test]
fn data_types_are_counted_by_type_and_not_as_objects() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::get_operation(Datatype::Set), micros(40), RequestOutcome::NotFound, at(1));
    metrics.record_request(KvOp::update_operation(Datatype::Map), micros(70), RequestOutcome::Ok, at(1));
    check(&metrics, at(1), &[("node_gets_set", 1), ("node_gets_set_total", 1), ("node_gets", 0), ("node_puts", 0)]);
    check(&metrics, at(1), &[("node_get_fsm_set_time_100", 40), ("node_gets_map", 0), ("node_puts_map_total", 1)]);
    check(&metrics, at(1), &[("vnode_map_update", 1), ("vnode_map_update_time_mean", 70), ("node_puts_set", 0)]);
    check(&metrics, at(90), &[("node_gets_set", 0), ("node_gets_set_total", 1)]);
}

#[test]
fn active_requests_are_counted_until_dropped_on_any_thread() {
    let metrics = Metrics::default();
    let (get, list) = (metrics.begin_request(KvOp::Get), metrics.begin_request(KvOp::ListBuckets));
    check(&metrics, at(1), &[("node_get_fsm_active", 1), ("node_put_fsm_active", 0), ("list_fsm_active", 1)]);
    std::thread::scope(|scope| drop(scope.spawn(move || drop((get, list)))));
    check(&metrics, at(1), &[("node_get_fsm_active", 0), ("list_fsm_active", 0)]);
}

#[test]
fn concurrent_recording_loses_nothing() {
    const THREADS: u64 = 8;
    const EACH: u64 = 10_000;
    let metrics = Metrics::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let metrics = &metrics;
            scope.spawn(move || {
                for value in 0..EACH {
                    let _active = metrics.begin_request(KvOp::Get);
                    metrics.record_request(
                        KvOp::Get,
                        micros(value % 100),
                        RequestOutcome::Ok,
                        at(100 + (value + thread) % 40),
                    );
                    metrics.count_event(Event::BlobWritten);
                }
            });
        }
        (0..20).for_each(|_| drop(metrics.stats(&node_info(&[]), at(139))));
    });
    check(&metrics, at(139), &[("node_gets", THREADS * EACH), ("node_gets_total", THREADS * EACH)]);
    check(&metrics, at(139), &[("larder_blob_written_total", THREADS * EACH), ("node_get_fsm_active", 0)]);
    let samples = parse(&metrics.text(&node_info(&[]), at(139)));
    assert_eq!(samples["larder_request_seconds_bucket{op=\"get\",le=\"0.0001\"}"], (THREADS * EACH) as f64);
    assert_eq!(metrics.last_minute(&[Series::Time(KvOp::Get)], at(139)).statistic(distribution::Statistic::Mean), 49);
}

#[test]
fn operations_of_s3_are_shown_from_their_first_request_on() {
    let metrics = Metrics::default();
    assert!(!metrics.text(&node_info(&[]), at(1)).contains("GetObject"));
    metrics.count_s3_begun("GetObject");
    metrics.count_s3_answered("GetObject", micros(300), RequestOutcome::Ok);
    metrics.count_s3_begun("PutObject");
    metrics.count_s3_answered("PutObject", micros(2), RequestOutcome::Refused);
    // A request that began here may end on another thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            metrics.count_s3_ended("PutObject", 7, 0);
            metrics.count_s3_begun("GetObject");
            metrics.count_s3_answered("GetObject", micros(20), RequestOutcome::Failed);
            metrics.count_s3_ended("GetObject", 3, 5040);
        });
    });
    let samples = parse(&metrics.text(&node_info(&[]), at(1)));
    for (name, value) in [
        ("larder_s3_requests_total{op=\"GetObject\",outcome=\"ok\"}", 1.0),
        ("larder_s3_requests_total{op=\"GetObject\",outcome=\"failed\"}", 1.0),
        ("larder_s3_requests_total{op=\"PutObject\",outcome=\"refused\"}", 1.0),
        ("larder_s3_requests_active{op=\"GetObject\"}", 1.0),
        ("larder_s3_requests_active{op=\"PutObject\"}", 0.0),
        ("larder_s3_request_seconds_bucket{op=\"GetObject\",le=\"0.0001\"}", 1.0),
        ("larder_s3_request_seconds_bucket{op=\"GetObject\",le=\"0.0005\"}", 2.0),
        ("larder_s3_request_seconds_sum{op=\"GetObject\"}", 0.00032),
        ("larder_s3_request_seconds_count{op=\"PutObject\"}", 0.0),
        ("larder_s3_received_bytes_total{op=\"GetObject\"}", 3.0),
        ("larder_s3_received_bytes_total{op=\"PutObject\"}", 7.0),
        ("larder_s3_sent_bytes_total{op=\"GetObject\"}", 5040.0),
    ] {
        assert_eq!(samples[name], value, "{name}");
    }
}

#[test]
fn connections_of_protocol_buffers_are_counted_while_open_and_as_they_open() {
    let metrics = Metrics::default();
    let first = metrics.begin_pb_connection(at(1000));
    let second = metrics.begin_pb_connection(at(1030));
    check(&metrics, at(1031), &[("pbc_active", 2), ("pbc_connects", 2), ("pbc_connects_total", 2)]);
    drop(first);
    check(&metrics, at(1060), &[("pbc_active", 1), ("pbc_connects", 1), ("pbc_connects_total", 2)]);
    drop(second);
    check(&metrics, at(1090), &[("pbc_active", 0), ("pbc_connects", 0), ("pbc_connects_total", 2)]);
}

#[test]
fn names_are_unique_and_sorted() {
    let names: Vec<_> = table().iter().map(|stat| stat.name).collect();
    assert!(names.is_sorted_by(|name, next| name < next), "{names:?}");
    assert!(table().iter().all(|stat| stat.help.ends_with('.')));
    let metrics = Metrics::default();
    let shown: Vec<_> = metrics.stats(&node_info(&[]), at(0)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(shown, names);
    let zeros = table().iter().zip(metrics.stats(&node_info(&[]), at(0))).filter(|(stat, _)| !is_measured(stat));
    zeros.for_each(|(stat, (_, value))| assert_eq!(value, 0, "{}", stat.name));
}

#[test]
fn the_node_and_its_members_are_shown() {
    let members = ["larder@c".to_owned(), "larder@a".to_owned(), "larder@b".to_owned()];
    let stats: BTreeMap<_, _> = Metrics::default().stats(&node_info(&members), at(0)).into_iter().collect();
    let expected = json!({
        "nodename": "larder@a", "connected_nodes": ["larder@b", "larder@c"],
        "ring_members": ["larder@a", "larder@b", "larder@c"],
        "ring_ownership": "[{'larder@a',22},\n {'larder@b',21},\n {'larder@c',21}]",
        "ring_num_partitions": 64, "storage_backend": "local", "disk": [{"id": "/", "size": 1000, "used": 8}],
        "larder_live_bytes": 4000, "larder_dead_bytes": 300,
        "riak_kv_version": "3.2.3", "larder_version": "0.1.0", "larder_catalogue_version": 7,
        "cpu_avg1": 128, "cpu_avg15": 512, "sys_process_count": 9, "sys_wordsize": 8,
    });
    for (name, value) in expected.as_object().expect("object") {
        assert_eq!(&stats[name.as_str()], value, "{name}");
    }
}

#[test]
fn text_is_prometheus_line_by_line() {
    let metrics = Metrics::default();
    metrics.record_request(KvOp::Get, micros(700), RequestOutcome::Ok, at(3));
    metrics.count_event(Event::Panicked);
    let text = metrics.text(&NodeInfo { node: "a\"b\\c\nd", ..node_info(&[]) }, at(3));
    assert!(text.contains(r#"larder_info{node="a\"b\\c\nd",version="0.1.0",engine="local"} 1"#), "{text}");
    assert!(text.contains(
        "larder_engine_cache_bytes Memory of the engine's caches.\n# TYPE larder_engine_cache_bytes gauge\n"
    ));
    let samples = parse(&text);
    for (name, value) in [
        ("larder_requests_total{op=\"get\",outcome=\"ok\"}", 1.0),
        ("larder_request_seconds_bucket{op=\"get\",le=\"0.0005\"}", 0.0),
        ("larder_request_seconds_bucket{op=\"get\",le=\"0.001\"}", 1.0),
        ("larder_request_seconds_bucket{op=\"get\",le=\"60\"}", 1.0),
        ("larder_request_seconds_sum{op=\"get\"}", 0.0007),
        ("larder_request_recent_seconds{op=\"get\",percentile=\"100\"}", 0.0007),
        ("larder_panicked_total", 1.0),
        ("larder_engine_cache_bytes{of=\"blocks\"}", f64::INFINITY),
        ("larder_engine_syncs_total", 3.0),
        ("larder_members", 1.0),
    ] {
        assert_eq!(samples[name], value, "{name}");
    }
}
