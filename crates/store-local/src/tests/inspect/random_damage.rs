//! Random damage to any file: neither `check` nor `repair` says less than is true.

use larder_testkit::case_seeds;

use super::*;

/// Random damages of a test run, and of a soak.
const CASES: (u64, u64) = (24, 2000);

/// Damages one random file of a directory; returns what was done.
fn damage(dir: &Path, random: &mut SplitMix64) -> String {
    let mut below = |bound: usize| random.below(bound);
    let all = tree_bytes(dir).into_iter().filter_map(|(path, bytes)| Some((path, bytes?)));
    // The lock is empty.
    let all = all.filter(|(_, bytes)| !bytes.is_empty()).collect::<Vec<_>>();
    let (path, mut bytes) = all[below(all.len())].clone();
    let at = below(bytes.len());
    let what = match below(7) {
        0 => {
            bytes[at] ^= 1 << below(8);
            "a flipped bit"
        }
        1 => {
            bytes.truncate(at);
            "cut"
        }
        2 => {
            bytes.clear();
            "emptied"
        }
        3 => {
            bytes.iter_mut().skip(at / 4096 * 4096).take(4096).for_each(|byte| *byte = 0);
            "a page of zeros"
        }
        4 => {
            bytes.extend_from_slice(b"16 bytes appended");
            "bytes appended"
        }
        5 => {
            let beside = all.iter().filter(|(other, _)| other.parent() == path.parent()).collect::<Vec<_>>();
            bytes = beside[below(beside.len())].1.clone();
            "another file in its place"
        }
        // Only rows name a blob file, and the rows of this store are noise.
        _ if path.starts_with(dir.join("blobs")) => "nothing",
        _ => {
            fs::remove_file(&path).unwrap();
            return format!("{} removed", path.display());
        }
    };
    fs::write(&path, bytes).unwrap();
    format!("{}: {what} at {at}", path.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_random_damage_loses_anything_silently() {
    let fixture = InspectFixture::new().await;
    for seed in case_seeds(CASES.0, CASES.1) {
        let mut random = SplitMix64::new(seed);
        let options = RepairOptions { leave_out_older: random.below(2) == 0 };
        let mut what = String::new();
        let outcome = fixture.after(options, |dir| what = damage(dir, &mut random));
        println!("LARDER_TEST_SEED={seed} LARDER_TEST_CASES=1: {what}: {:?}", outcome.checked.damage);
        // Groups that are lost from the journal name no keys: the report names the groups.
        if outcome.checked.is_about("/journal/") {
            continue;
        }
        match options.leave_out_older {
            true => fixture.assert_nothing_lost_silently(&outcome),
            false => fixture.assert_every_difference_named(&outcome),
        }
        assert!(!outcome.summary.is_whole() || outcome.found == fixture.expected, "check called it whole");
    }
}
