//! The options of lsm-tree for each tree.

use std::path::Path;
use std::sync::Arc;

use lsm_tree::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, RestartIntervalPolicy,
};
use lsm_tree::{Cache, CompressionType, Config, DescriptorTable, KvSeparationOptions, SequenceNumberCounter};

use crate::output_sync::{CompactionSync, OutputBound};
use crate::tree_id::TreeId;

/// An entry of at least so many bytes is beside its table: a merge then moves its place. Of smaller ones the place, and the second
/// read, cost more than that saves.
const LARGE_ENTRY_BYTES: u32 = 2048;
/// The same for a row of the bulk tree, whose shortest body is longer.
const LARGE_BULK_BYTES: u32 = 1024;
/// A file of large values has the size of a table divided by this.
const LARGE_FILES_PER_TABLE: u64 = 8;
/// A tree with many has about so many: a merge opens all at once that it writes anew, see `descriptors`.
const LARGE_FILES: u64 = 512;
/// A merge writes one of so many files of large values anew that have dead bytes.
pub(crate) const STALE_FILE_PARTS: u64 = 3;
/// Files of large values count as having dead bytes from this part of theirs on.
const STALE_PART: f32 = 0.25;

/// Options and resources that the trees share.
pub(crate) struct TreeOptions {
    pub(crate) cache: Arc<Cache>,
    pub(crate) descriptors: Arc<DescriptorTable>,
    pub(crate) seqnos: SequenceNumberCounter,
    pub(crate) table_bytes: u64,
}

impl TreeOptions {
    /// The options of one tree; of one that separates large values from their keys `large_bytes` are the bytes of these now. Reads of absent keys are frequent in
    /// packed and wide, so their last level keeps Bloom filters; a reader of a bulk row knows that it exists.
    pub(crate) fn config(&self, tree_id: TreeId, dir: &Path, large_bytes: Option<u64>, bound: OutputBound) -> Config {
        let bloom = |policy| FilterPolicyEntry::Bloom(policy);
        let blobs = large_bytes.map(|_| dir.join("blobs"));
        let syncs = CompactionSync { tree: dir.to_owned(), bound, blobs };
        // lsm-tree raises its own visible number at each change of version, which would show half a group. Readers take their
        // number from `Snapshots`; this counter is unused.
        Config::new(dir, self.seqnos.clone(), SequenceNumberCounter::default())
            .use_cache(self.cache.clone())
            .use_descriptor_table(Some(self.descriptors.clone()))
            .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
            .filter_policy(FilterPolicy::new([
                bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
                bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
            ]))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .with_compaction_filter_factory(Some(Arc::new(syncs)))
            .expect_point_read_hits(tree_id == TreeId::Bulk)
            .with_kv_separation(large_bytes.map(|bytes| self.separation(tree_id, bytes)))
    }

    /// A merge writes a part of the files anew that have dead bytes, the oldest first, and none of a few. Of small files that
    /// leaves little.
    fn separation(&self, tree_id: TreeId, large_bytes: u64) -> KvSeparationOptions {
        KvSeparationOptions::default()
            .separation_threshold(if tree_id == TreeId::Bulk { LARGE_BULK_BYTES } else { LARGE_ENTRY_BYTES })
            .file_target_size((self.table_bytes / LARGE_FILES_PER_TABLE).max(large_bytes / LARGE_FILES))
            .staleness_threshold(STALE_PART)
            .age_cutoff(1.0 / STALE_FILE_PARTS as f32)
    }
}
