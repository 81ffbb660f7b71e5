//! What a node reads when it starts. Its archive holds no configuration.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::cluster::Lock;
use crate::ports::Ports;

/// What the files of one node say.
#[derive(Debug, Clone)]
pub(crate) struct Told<'a> {
    /// Its directory.
    pub(crate) dir: &'a Path,
    /// Its number, from 1.
    pub(crate) number: usize,
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// Those that a node asks first when it starts.
    pub(crate) seeds: &'a [Ipv4Addr],
    /// Ports of the cluster.
    pub(crate) ports: Ports,
    /// Heap of its Java, in MiB.
    pub(crate) heap_mib: u32,
    /// Whether a change of the schema is synced to disk.
    pub(crate) keeps_schema: bool,
    /// Number of its datacenter, from 1.
    pub(crate) datacenter: usize,
    /// Whom it lets in.
    pub(crate) lock: Option<&'a Lock>,
}

/// Packages of Java itself that Cassandra calls though they are not for everyone.
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

/// Those it looks into as well.
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

impl Told<'_> {
    /// `cassandra.yaml`: small, quick to start, on its own address, with the guarded writes of version 2.
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
             commitlog_sync: periodic\n\
             commitlog_sync_period: 10000ms\n\
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
            door = self.door(),
        )
    }

    /// Who is let in, and in which way.
    fn door(&self) -> String {
        let Some(Lock { identity, trusted }) = self.lock else {
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

    /// The word on the command line that no other process has.
    pub(crate) fn mark(&self) -> String {
        format!("-Dcassandra.config=file://{}", self.dir.join("cassandra.yaml").display())
    }

    /// What Java is told.
    pub(crate) fn java(&self, lib: &Path, agent: &Path) -> Vec<String> {
        let heap = self.heap_mib;
        let mut words = vec![format!("-Xms{heap}m"), format!("-Xmx{heap}m")];
        let own = ["-Xss512k", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djdk.attach.allowAttachSelf=true"];
        words.extend(own.map(str::to_owned));
        words.extend(EXPORTS.iter().map(|package| format!("--add-exports={package}=ALL-UNNAMED")));
        words.extend(OPENS.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED")));
        words.push(format!("-javaagent:{}", agent.display()));
        words.push(self.mark());
        words.push(format!("-Dlogback.configurationFile={}", self.dir.join("logback.xml").display()));
        words.push(format!("-Dcassandra.storagedir={}", self.dir.display()));
        words.push(format!("-Dcassandra.jmx.local.port={}", self.ports.jmx(self.number)));
        let quick = [
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=3000",
            "-Dcassandra.consistent.rangemovement=false",
            "-Dcassandra.superuser_setup_delay_ms=0",
        ];
        words.extend(quick.map(str::to_owned));
        words.push(format!("-Dcassandra.test.flush_local_schema_changes={}", self.keeps_schema));
        words.extend(["-cp".to_owned(), format!("{}:{}/*", self.dir.display(), lib.display())]);
        words.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_its_own_address_and_the_ports_of_all() {
        let seeds = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
        let told = Told {
            dir: Path::new("/d/node2"),
            number: 2,
            address: seeds[1],
            seeds: &seeds,
            ports: Ports::at(10_000).unwrap(),
            heap_mib: 768,
            keeps_schema: true,
            datacenter: 1,
            lock: None,
        };
        let yaml = told.cassandra_yaml();
        for line in ["listen_address: 127.0.0.2", "storage_port: 17000", "native_transport_port: 19042"] {
            assert!(yaml.lines().any(|text| text == line), "{line}\n{yaml}");
        }
        assert!(yaml.contains("- seeds: \"127.0.0.1,127.0.0.2\"\n") && yaml.contains("  - /d/node2/data\n"), "{yaml}");
        assert_eq!(told.rackdc(), "dc=dc1\nrack=rack2\n");
        let (identity, trusted) = ("/d/node.pem".into(), "/d/ca.pem".into());
        let (yaml, locked) = (told.cassandra_yaml(), Told { lock: Some(&Lock { identity, trusted }), ..told.clone() });
        assert!(yaml.contains("\nauthenticator: AllowAllAuthenticator\n") && !yaml.contains("_encryption_"), "{yaml}");
        assert!(locked.cassandra_yaml().contains("\n  keystore: /d/node.pem\n  truststore: /d/ca.pem\n"));
        let words = told.java(Path::new("/l"), Path::new("/l/jamm.jar"));
        assert!(words.contains(&told.mark()) && words.contains(&"-Dcassandra.jmx.local.port=17200".to_owned()));
    }
}
