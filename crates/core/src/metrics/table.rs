//! The table of stats, which `/stats` and `kv-admin status` show.
//!
//! Names are Riak's, for the graphs that operators have; `larder_…` are ours. Units are Riak's: times in microseconds; names
//! without `_total` count the last 60 seconds; `_100` is the largest. Unbuilt features that are often graphed show 0.

use std::sync::LazyLock;

use serde_json::Value;

use super::distribution::{LAST_MINUTE_SECONDS, Statistic};
use super::stats::{INDEX_PAGES, LIST_PAGES, LISTS, PUTS, Snapshot};
use super::{Event, KvOp, NodeInfo};

/// Version of Riak whose protocols are spoken: clients choose their features by it.
pub const PROTOCOL_VERSION: &str = "3.2.3";
/// Nominal ring size for Riak's tools: Riak's default. There is no ring.
pub const RING_PARTITIONS: u64 = 64;

/// One stat: a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// Its name in `/stats`.
    pub name: &'static str,
    /// Its meaning, in one or two sentences.
    pub help: &'static str,
    pub(super) source: StatSource,
}

/// Source of a stat's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum StatSource {
    /// None: always 0.
    NotBuilt,
    /// This constant text.
    Text(&'static str),
    /// Operations of the last minute that were not refused.
    LastMinute(KvOp),
    /// The same since the start.
    SinceStart(KvOp),
    /// Computed from metrics and node info.
    Computed(fn(&Snapshot, &NodeInfo<'_>) -> Value),
    /// A statistic of a distribution over the last minute.
    Statistic(StatDistribution, Statistic),
    /// Number of occurrences of an event.
    Event(Event),
}

/// A distribution that rows show statistics of.
#[derive(Debug, Clone, Copy)]
pub(super) enum StatDistribution {
    /// Times of an operation.
    Time(KvOp),
    /// Siblings of objects read.
    GetSiblings,
    /// Bytes of objects read.
    GetBytes,
    /// Times of writes and deletes.
    PutTime,
    /// Of a feature that is not built.
    NotBuilt,
}

/// All stats, sorted by name.
#[must_use]
pub fn table() -> &'static [Stat] {
    static TABLE: LazyLock<Vec<Stat>> = LazyLock::new(|| {
        let built = [REQUESTS, DATATYPES, SPREADS, NODE, MACHINE, UNMEASURED_SPREADS].concat();
        let unmeasured =
            UNMEASURED.split_whitespace().map(|name| row(name, "Not measured: always 0.", StatSource::NotBuilt));
        let events = Event::ALL.iter().map(|event| row(event.name(), event.help(), StatSource::Event(*event)));
        let mut table: Vec<Stat> = built.into_iter().chain(unmeasured).chain(events).collect();
        table.sort_unstable_by_key(|stat| stat.name);
        table
    });
    &TABLE
}

const fn row(name: &'static str, help: &'static str, source: StatSource) -> Stat {
    Stat { name, help, source }
}

const fn stat(name: &'static str, help: &'static str, value: fn(&Snapshot, &NodeInfo<'_>) -> Value) -> Stat {
    row(name, help, StatSource::Computed(value))
}

/// Five rows for each name: statistics of its distribution.
macro_rules! spread {
    ($help:literal, $($name:literal = $spread:expr,)+) => {
        &[$(
            row(concat!($name, "_mean"), concat!($help, " Mean."), StatSource::Statistic($spread, Statistic::Mean)),
            row(concat!($name, "_median"), concat!($help, " Median."), StatSource::Statistic($spread, Statistic::Median)),
            row(concat!($name, "_95"), concat!($help, " 95th percentile."), StatSource::Statistic($spread, Statistic::P95)),
            row(concat!($name, "_99"), concat!($help, " 99th percentile."), StatSource::Statistic($spread, Statistic::P99)),
            row(concat!($name, "_100"), concat!($help, " Largest."), StatSource::Statistic($spread, Statistic::Max)),
        )+]
    };
}

const REQUESTS: &[Stat] = &[
    row("precommit_fail", Event::PrecommitFailed.help(), StatSource::Event(Event::PrecommitFailed)),
    row("postcommit_fail", Event::PostcommitFailed.help(), StatSource::Event(Event::PostcommitFailed)),
    row("node_gets", "Reads of objects in the last minute.", StatSource::LastMinute(KvOp::Get)),
    row("node_gets_total", "Reads of objects since the start.", StatSource::SinceStart(KvOp::Get)),
    stat("node_puts", "Writes and deletes of objects in the last minute.", |s, _| s.puts.count.into()),
    stat("node_puts_total", "Writes and deletes of objects since the start.", |s, _| s.ended(&PUTS)),
    row("vnode_gets", "The same as node_gets: there are no vnodes.", StatSource::LastMinute(KvOp::Get)),
    row("vnode_gets_total", "The same as node_gets_total: there are no vnodes.", StatSource::SinceStart(KvOp::Get)),
    stat("vnode_puts", "The same as node_puts: there are no vnodes.", |s, _| s.puts.count.into()),
    stat("vnode_puts_total", "The same as node_puts_total: there are no vnodes.", |s, _| s.ended(&PUTS)),
    stat("node_get_fsm_active", "Reads of objects being worked on.", |s, _| s.active(&[KvOp::Get])),
    stat("node_get_fsm_errors", "Reads that failed in the last minute.", |s, _| s.last_minute(KvOp::Get).failed.into()),
    stat("node_get_fsm_errors_total", "Reads that failed since the start.", |s, _| s.failed(&[KvOp::Get])),
    stat("node_get_fsm_in_rate", "Reads per second over the last minute.", |s, _| {
        per_second(s.last_minute(KvOp::Get).count)
    }),
    stat("node_get_fsm_out_rate", "Reads per second over the last minute.", |s, _| {
        per_second(s.last_minute(KvOp::Get).count)
    }),
    stat("node_put_fsm_active", "Writes and deletes being worked on.", |s, _| s.active(&PUTS)),
    stat("node_put_fsm_in_rate", "Writes and deletes per second over the last minute.", |s, _| {
        per_second(s.puts.count)
    }),
    stat("node_put_fsm_out_rate", "Writes and deletes per second over the last minute.", |s, _| {
        per_second(s.puts.count)
    }),
    stat("list_fsm_active", "Listings of keys and buckets being worked on.", |s, _| s.active(&LIST_PAGES)),
    stat("list_fsm_create", "Listings of keys and buckets in the last minute.", |s, _| s.lists.count.into()),
    stat("list_fsm_create_total", "Listings of keys and buckets since the start.", |s, _| s.ended(&LISTS)),
    stat("list_fsm_create_error", "Listings that failed in the last minute.", |s, _| s.list_pages.failed.into()),
    stat("list_fsm_create_error_total", "Listings that failed since the start.", |s, _| s.failed(&LIST_PAGES)),
    stat("index_fsm_active", "Queries of secondary indexes being worked on.", |s, _| s.active(&INDEX_PAGES)),
    row("index_fsm_create", "Queries of secondary indexes in the last minute.", StatSource::LastMinute(KvOp::Index)),
    stat("index_fsm_create_error", "Such queries that failed in the last minute.", |s, _| {
        INDEX_PAGES.iter().map(|op| s.last_minute(*op).failed).sum::<u64>().into()
    }),
    stat("pbc_active", "Open connections of protocol buffers.", |s, _| s.pb_open.into()),
    stat("pbc_connects", "Connections of protocol buffers in the last minute.", |s, _| s.pb_connects.count.into()),
    stat("pbc_connects_total", "Connections of protocol buffers since the start.", |s, _| s.pb_connects_total.into()),
];

const SPREADS: &[Stat] = spread![
    "Of the last minute; times in microseconds, sizes in bytes.",
    "node_get_fsm_time" = StatDistribution::Time(KvOp::Get),
    "node_get_fsm_siblings" = StatDistribution::GetSiblings,
    "node_get_fsm_objsize" = StatDistribution::GetBytes,
    "node_put_fsm_time" = StatDistribution::PutTime,
    "vnode_get_fsm_time" = StatDistribution::Time(KvOp::Get),
    "vnode_put_fsm_time" = StatDistribution::PutTime,
    "node_get_fsm_counter_time" = StatDistribution::Time(KvOp::CounterGet),
    "node_put_fsm_counter_time" = StatDistribution::Time(KvOp::CounterUpdate),
    "vnode_counter_update_time" = StatDistribution::Time(KvOp::CounterUpdate),
    "node_get_fsm_set_time" = StatDistribution::Time(KvOp::SetGet),
    "node_put_fsm_set_time" = StatDistribution::Time(KvOp::SetUpdate),
    "vnode_set_update_time" = StatDistribution::Time(KvOp::SetUpdate),
    "node_get_fsm_gset_time" = StatDistribution::Time(KvOp::GsetGet),
    "node_put_fsm_gset_time" = StatDistribution::Time(KvOp::GsetUpdate),
    "vnode_gset_update_time" = StatDistribution::Time(KvOp::GsetUpdate),
    "node_get_fsm_map_time" = StatDistribution::Time(KvOp::MapGet),
    "node_put_fsm_map_time" = StatDistribution::Time(KvOp::MapUpdate),
    "vnode_map_update_time" = StatDistribution::Time(KvOp::MapUpdate),
    "node_get_fsm_hll_time" = StatDistribution::Time(KvOp::HllGet),
    "node_put_fsm_hll_time" = StatDistribution::Time(KvOp::HllUpdate),
    "vnode_hll_update_time" = StatDistribution::Time(KvOp::HllUpdate),
];

/// Six rows for each data type.
macro_rules! datatypes {
    ($($name:literal = $get:ident, $update:ident;)+) => {
        &[$(
            row(concat!("node_gets_", $name), "Reads of the data type in the last minute.", StatSource::LastMinute(KvOp::$get)),
            row(concat!("node_gets_", $name, "_total"), "Reads of it since the start.", StatSource::SinceStart(KvOp::$get)),
            row(concat!("node_puts_", $name), "Updates of it in the last minute.", StatSource::LastMinute(KvOp::$update)),
            row(concat!("node_puts_", $name, "_total"), "Updates of it since the start.", StatSource::SinceStart(KvOp::$update)),
            row(concat!("vnode_", $name, "_update"), "The same as node_puts of it.", StatSource::LastMinute(KvOp::$update)),
            row(concat!("vnode_", $name, "_update_total"), "The same as its total.", StatSource::SinceStart(KvOp::$update)),
        )+]
    };
}

const DATATYPES: &[Stat] = datatypes![
    "counter" = CounterGet, CounterUpdate;
    "set" = SetGet, SetUpdate;
    "gset" = GsetGet, GsetUpdate;
    "map" = MapGet, MapUpdate;
    "hll" = HllGet, HllUpdate;
];

const VERSION_HELP: &str = "Version of Riak whose protocols are spoken; ours is larder_version.";

const NODE: &[Stat] = &[
    stat("nodename", "Name of this node.", |_, info| info.node.into()),
    stat("connected_nodes", "Names of all other members.", |_, info| info.connected_nodes().into()),
    stat("ring_members", "Names of all members.", |_, info| info.ring_members().into()),
    stat("ring_num_partitions", "There is no ring: what Riak starts with.", |_, _| RING_PARTITIONS.into()),
    stat("ring_creation_size", "There is no ring: what Riak starts with.", |_, _| RING_PARTITIONS.into()),
    stat("ring_ownership", "There is no ring: even shares, as an Erlang list.", |_, info| info.ring_ownership().into()),
    stat("storage_backend", "Name of the store engine.", |_, info| info.engine.into()),
    stat("disk", "Disks of the store: mount, size in KiB, percent used.", |_, info| info.disks()),
    stat("larder_live_bytes", "Bytes of tables and journals with live rows, at least.", |_, info| {
        info.stored.live.into()
    }),
    stat("larder_dead_bytes", "Bytes of them with removed and replaced rows, at most.", |_, info| {
        info.stored.dead.into()
    }),
    stat("larder_version", "Version of Larder.", |_, info| info.version.into()),
    stat(
        "larder_engine_fault",
        "Failure of the engine that ends or holds up writes, or damage that it found.",
        |_, info| info.fault.unwrap_or("none").into(),
    ),
    stat("larder_ready", "Whether requests are served.", |_, info| info.ready.into()),
    stat("larder_catalogue_version", "Version of the catalogue in use.", |_, info| info.catalogue.into()),
    stat("larder_webhooks_waiting", "Webhook notices of this gateway not delivered yet.", |_, info| {
        info.webhooks_waiting.into()
    }),
    row("riak_kv_version", VERSION_HELP, StatSource::Text(PROTOCOL_VERSION)),
    row("riak_core_version", VERSION_HELP, StatSource::Text(PROTOCOL_VERSION)),
    row("riak_api_version", VERSION_HELP, StatSource::Text(PROTOCOL_VERSION)),
    row("riak_pb_version", VERSION_HELP, StatSource::Text(PROTOCOL_VERSION)),
    row("riak_pipe_version", VERSION_HELP, StatSource::Text(PROTOCOL_VERSION)),
];

const MACHINE: &[Stat] = &[
    stat("cpu_nprocs", "Tasks of all processes of the machine.", |_, info| info.process.host.tasks.into()),
    stat("cpu_avg1", "Load of the last minute, times 256.", |_, info| load(info, 0)),
    stat("cpu_avg5", "Load of the last 5 minutes, times 256.", |_, info| load(info, 1)),
    stat("cpu_avg15", "Load of the last 15 minutes, times 256.", |_, info| load(info, 2)),
    stat("mem_total", "Memory of the machine in bytes.", |_, info| info.process.host.memory_bytes.into()),
    stat("mem_allocated", "Memory of the machine in use, in bytes.", |_, info| {
        info.process.host.memory_bytes.saturating_sub(info.process.host.memory_available_bytes).into()
    }),
    stat("memory_total", "Resident memory of this process in bytes.", |_, info| info.process.rss_bytes.into()),
    stat("sys_process_count", "Threads of this process.", |_, info| info.process.threads.into()),
    stat("sys_port_count", "Open file descriptors of this process.", |_, info| info.process.open_fds.into()),
    stat("sys_logical_processors", "Processors of this process.", |_, info| info.process.host.processors.into()),
    stat("sys_system_version", "Name and version of this program.", |_, info| {
        format!("Larder {}", info.version).into()
    }),
    stat("sys_system_architecture", "Processor and system.", |_, _| {
        format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS).into()
    }),
    stat("sys_wordsize", "Bytes of a machine word.", |_, _| size_of::<usize>().into()),
    row("sys_otp_release", "There is no Erlang.", StatSource::Text("undefined")),
    row("sys_driver_version", "There is no Erlang.", StatSource::Text("undefined")),
    row("sys_heap_type", "There is no Erlang.", StatSource::Text("undefined")),
    row("sys_global_heaps_size", "There is no Erlang.", StatSource::Text("deprecated")),
    stat("sys_smp_support", "All processors are used.", |_, _| true.into()),
    stat("sys_threads_enabled", "Threads are used.", |_, _| true.into()),
];

const UNMEASURED_SPREADS: &[Stat] = spread![
    "Not measured: always 0.",
    "consistent_get_objsize" = StatDistribution::NotBuilt,
    "consistent_get_time" = StatDistribution::NotBuilt,
    "consistent_put_objsize" = StatDistribution::NotBuilt,
    "consistent_put_time" = StatDistribution::NotBuilt,
    "counter_actor_counts" = StatDistribution::NotBuilt,
    "map_actor_counts" = StatDistribution::NotBuilt,
    "set_actor_counts" = StatDistribution::NotBuilt,
    "object_counter_merge_time" = StatDistribution::NotBuilt,
    "object_hll_merge_time" = StatDistribution::NotBuilt,
    "object_map_merge_time" = StatDistribution::NotBuilt,
    "object_merge_time" = StatDistribution::NotBuilt,
    "object_set_merge_time" = StatDistribution::NotBuilt,
    "write_once_put_objsize" = StatDistribution::NotBuilt,
    "write_once_put_time" = StatDistribution::NotBuilt,
];

const UNMEASURED: &str = "
    consistent_gets consistent_gets_total consistent_puts consistent_puts_total
    converge_delay_last converge_delay_max converge_delay_mean converge_delay_min coord_redirs_total
    dropped_vnode_requests_total executing_mappers gossip_received handoff_timeouts ignored_gossip_total
    late_put_fsm_coordinator_ack leveldb_read_block_error
    memory_atom memory_atom_used memory_binary memory_code memory_ets memory_processes
    memory_processes_used memory_system
    node_get_fsm_rejected node_get_fsm_rejected_60s node_get_fsm_rejected_total
    node_put_fsm_rejected node_put_fsm_rejected_60s node_put_fsm_rejected_total
    object_counter_merge object_counter_merge_total object_hll_merge object_hll_merge_total
    object_map_merge object_map_merge_total object_merge object_merge_total object_set_merge object_set_merge_total
    pipeline_active pipeline_create_count pipeline_create_error_count
    pipeline_create_error_one pipeline_create_one
    read_repairs read_repairs_total read_repairs_fallback_notfound_count read_repairs_fallback_notfound_one
    read_repairs_fallback_outofdate_count read_repairs_fallback_outofdate_one
    read_repairs_primary_notfound_count read_repairs_primary_notfound_one
    read_repairs_primary_outofdate_count read_repairs_primary_outofdate_one
    rebalance_delay_last rebalance_delay_max rebalance_delay_mean rebalance_delay_min rejected_handoffs
    riak_kv_vnodeq_max riak_kv_vnodeq_mean riak_kv_vnodeq_median riak_kv_vnodeq_min riak_kv_vnodeq_total
    riak_kv_vnodes_running rings_reconciled rings_reconciled_total
    search_index_fail_count search_index_fail_one search_index_latency_95 search_index_latency_99
    search_index_latency_999 search_index_latency_max search_index_latency_median search_index_latency_min
    search_index_throughput_count search_index_throughput_one search_query_fail_count search_query_fail_one
    search_query_latency_95 search_query_latency_99 search_query_latency_999 search_query_latency_max
    search_query_latency_median search_query_latency_min search_query_throughput_count search_query_throughput_one
    skipped_read_repairs skipped_read_repairs_total sys_monitor_count sys_thread_pool_size
    vnode_index_deletes vnode_index_deletes_total vnode_index_deletes_postings vnode_index_deletes_postings_total
    vnode_index_reads vnode_index_reads_total vnode_index_refreshes vnode_index_refreshes_total
    vnode_index_writes vnode_index_writes_total vnode_index_writes_postings vnode_index_writes_postings_total
    write_once_merge write_once_puts write_once_puts_total
";

/// A whole number as in Riak, rounded up so that a low rate is not 0.
fn per_second(count: u64) -> Value {
    count.div_ceil(LAST_MINUTE_SECONDS).into()
}

/// Riak's integer form of a load.
fn load(info: &NodeInfo<'_>, minutes: usize) -> Value {
    ((info.process.host.load[minutes] * 256.0) as u64).into()
}
