//! The configuration files of a node: Cassandra's archive holds none.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::cluster::ClientAuth;
use crate::ports::CassandraPorts;

/// Configuration of one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeConfig<'a> {
    /// Directory of the node.
    pub(crate) dir: &'a Path,
    /// Number of the node, from 1.
    pub(crate) number: usize,
    /// Address of the node.
    pub(crate) address: Ipv4Addr,
    /// Nodes that the node contacts at its start.
    pub(crate) seeds: &'a [Ipv4Addr],
    /// Ports of the cluster.
    pub(crate) ports: CassandraPorts,
    /// Heap of its Java, in MiB.
    pub(crate) heap_mib: u32,
    /// Whether schema changes are synced to disk.
    pub(crate) syncs_schema: bool,
    pub(crate) syncs_writes: bool,
    /// Whether Java compiles each method once.
    pub(crate) compiles_once: bool,
    /// Number of its datacenter, from 1.
    pub(crate) datacenter: usize,
    /// Authentication of clients.
    pub(crate) auth: Option<&'a ClientAuth>,
}

/// Internal Java packages that Cassandra calls.
const EXPORTS: &[&str] = &[
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];

/// Internal Java packages that Cassandra accesses by reflection.
const OPENS: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
];

impl NodeConfig<'_> {
    /// `cassandra.yaml`: small, quick to start, on its own address, with Paxos version 2.
    pub(crate) fn cassandra_yaml(&self) -> String {
        let dir = self.dir.display();
        let seeds: Vec<String> = self.seeds.iter().map(ToString::to_string).collect();
        let memtable = (self.heap_mib / 6).max(32);
        format!(
            "# Made by larder-cassandra-nodes for each start.\n\
             cluster_name: larder\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             num_tokens: 4\n\
             allocate_tokens_for_local_replication_factor: 3\n\
             auto_bootstrap: false\n\
             endpoint_snitch: GossipingPropertyFileSnitch\n\
             seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters:\n      \
             - seeds: \"{seeds}\"\n\
             listen_address: {address}\n\
             storage_port: {storage}\n\
             rpc_address: {address}\n\
             start_native_transport: true\n\
             native_transport_port: {native}\n\
             {door}\
             data_file_directories:\n  - {dir}/data\n\
             commitlog_directory: {dir}/commitlog\n\
             saved_caches_directory: {dir}/caches\n\
             hints_directory: {dir}/hints\n\
             cdc_raw_directory: {dir}/cdc\n\
             {commit_log}\
             commitlog_segment_size: 8MiB\n\
             commitlog_total_space: 256MiB\n\
             memtable_heap_space: {memtable}MiB\n\
             memtable_offheap_space: {memtable}MiB\n\
             networking_cache_size: 32MiB\n\
             file_cache_size: 64MiB\n\
             concurrent_reads: 16\n\
             concurrent_writes: 16\n\
             max_hints_file_size: 16MiB\n\
             auto_snapshot: false\n\
             paxos_variant: v2\n",
            seeds = seeds.join(","),
            address = self.address,
            storage = self.ports.storage(),
            native = self.ports.native(),
            door = self.auth_settings(),
            commit_log = self.commit_log_settings(),
        )
    }

    /// When writes reach the disk.
    fn commit_log_settings(&self) -> &'static str {
        match self.syncs_writes {
            true => "commitlog_sync: batch\n",
            false => "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n",
        }
    }

    /// The settings of authentication and TLS.
    fn auth_settings(&self) -> String {
        let Some(ClientAuth { identity, trusted }) = self.auth else {
            return "authenticator: AllowAllAuthenticator\nauthorizer: AllowAllAuthorizer\n".into();
        };
        format!(
            "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n\
             client_encryption_options:\n  enabled: true\n  optional: false\n  require_client_auth: true\n  \
             ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n  \
             keystore: {}\n  truststore: {}\n",
            identity.display(),
            trusted.display(),
        )
    }

    /// `cassandra-rackdc.properties`: a rack for each node.
    pub(crate) fn rackdc(&self) -> String {
        format!("dc=dc{}\nrack=rack{}\n", self.datacenter, self.number)
    }

    /// `logback.xml`: one file.
    pub(crate) fn logback(&self) -> String {
        format!(
            "<configuration>\n  <appender name=\"file\" class=\"ch.qos.logback.core.FileAppender\">\n    \
             <file>{}</file>\n    <encoder>\n      \
             <pattern>%date{{ISO8601}} %-5level %logger{{0}} %msg%n</pattern>\n    </encoder>\n  </appender>\n  \
             <root level=\"INFO\">\n    <appender-ref ref=\"file\"/>\n  </root>\n</configuration>\n",
            self.dir.join("system.log").display()
        )
    }

    /// The argument that no other process has.
    pub(crate) fn mark(&self) -> String {
        format!("-Dcassandra.config=file://{}", self.dir.join("cassandra.yaml").display())
    }

    /// The arguments of Java.
    pub(crate) fn java(&self, lib: &Path, agent: &Path) -> Vec<String> {
        let heap = self.heap_mib;
        let mut args = vec![format!("-Xms{heap}m"), format!("-Xmx{heap}m")];
        let own = ["-Xss512k", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djdk.attach.allowAttachSelf=true"];
        args.extend(own.map(str::to_owned));
        args.extend(self.compiles_once.then(|| "-XX:TieredStopAtLevel=1".to_owned()));
        args.extend(opened_packages());
        args.push(format!("-javaagent:{}", agent.display()));
        args.push(self.mark());
        args.push(format!("-Dlogback.configurationFile={}", self.dir.join("logback.xml").display()));
        args.push(format!("-Dcassandra.storagedir={}", self.dir.display()));
        args.push(format!("-Dcassandra.jmx.local.port={}", self.ports.jmx(self.number)));
        let quick = [
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=3000",
            "-Dcassandra.consistent.rangemovement=false",
            "-Dcassandra.superuser_setup_delay_ms=0",
        ];
        args.extend(quick.map(str::to_owned));
        args.push(format!("-Dcassandra.test.flush_local_schema_changes={}", self.syncs_schema));
        args.extend(["-cp".to_owned(), format!("{}:{}/*", self.dir.display(), lib.display())]);
        args.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
        args
    }
}

/// The arguments of Java that open its own packages, which Cassandra and its tools look into.
pub(crate) fn opened_packages() -> impl Iterator<Item = String> {
    let exports = EXPORTS.iter().map(|package| format!("--add-exports={package}=ALL-UNNAMED"));
    exports.chain(OPENS.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_node_address_and_the_cluster_ports() {
        let seeds = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
        let config = NodeConfig {
            dir: Path::new("/d/node2"),
            number: 2,
            address: seeds[1],
            seeds: &seeds,
            ports: CassandraPorts::at(10_000).unwrap(),
            heap_mib: 768,
            syncs_schema: true,
            syncs_writes: false,
            compiles_once: false,
            datacenter: 1,
            auth: None,
        };
        let yaml = config.cassandra_yaml();
        for line in ["listen_address: 127.0.0.2", "storage_port: 17000", "native_transport_port: 19042"] {
            assert!(yaml.lines().any(|text| text == line), "{line}\n{yaml}");
        }
        assert!(yaml.contains("- seeds: \"127.0.0.1,127.0.0.2\"\n") && yaml.contains("  - /d/node2/data\n"), "{yaml}");
        assert_eq!(config.rackdc(), "dc=dc1\nrack=rack2\n");
        let (identity, trusted) = ("/d/node.pem".into(), "/d/ca.pem".into());
        let (yaml, locked) =
            (config.cassandra_yaml(), NodeConfig { auth: Some(&ClientAuth { identity, trusted }), ..config.clone() });
        assert!(yaml.contains("\nauthenticator: AllowAllAuthenticator\n") && !yaml.contains("_encryption_"), "{yaml}");
        assert!(locked.cassandra_yaml().contains("\n  keystore: /d/node.pem\n  truststore: /d/ca.pem\n"));
        let args = config.java(Path::new("/l"), Path::new("/l/jamm.jar"));
        assert!(args.contains(&config.mark()) && args.contains(&"-Dcassandra.jmx.local.port=17200".to_owned()));
    }
}
