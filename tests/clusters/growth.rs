//! The steps of docs/growing.md: from one machine to three nodes, and back, with the same answers at each place.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Home, LarderNode, TestCluster, figure};
use crate::transfer::{answers, assert_same, checksums, contexts_hold, fill, run};

/// Objects that move, beside those of every kind.
const KEYS: usize = 100;
/// How long servers cache users: those of the export have replaced the gateway's own.
const USERS_CACHED: Duration = Duration::from_secs(3);

/// Everything of one machine moves to this gateway, which is new, over three nodes; these are repaired; and it moves back.
pub(crate) fn one_machine_becomes_three_and_one_again(cluster: &TestCluster, gateway: &LarderNode) {
    let start = || LarderNode::start_in(Home::new(), &["--s3", "127.0.0.1:0", "--engine", "local"]);
    let machine = start();
    machine
        .admin()
        .check(&["cluster", "repair-advice"], "Nothing is due: this engine is one machine's, and looks after itself\n");
    let held = fill(&machine, KEYS);
    let before = answers(&machine, KEYS, &held);
    let (out, back) = (Home::new(), Home::new());
    let exported = run(&machine, &["export"], out.path());
    drop(machine);

    assert_eq!(checksums(&run(gateway, &["import"], out.path())), checksums(&exported));
    thread::sleep(USERS_CACHED);
    assert_same(&before, &answers(gateway, KEYS, &held));
    every_table_is_repaired(cluster, gateway);

    assert_eq!(checksums(&run(gateway, &["export"], back.path())), checksums(&exported));
    let machine = start();
    assert_eq!(checksums(&run(&machine, &["import"], back.path())), checksums(&exported));
    thread::sleep(USERS_CACHED);
    assert_same(&before, &answers(&machine, KEYS, &held));
    contexts_hold(&machine, &held);
}

/// The advice is followed to the letter, on one node after the other; then nothing is due.
fn every_table_is_repaired(cluster: &TestCluster, gateway: &LarderNode) {
    let advice = gateway.admin().output(&["cluster", "repair-advice"]);
    assert!(advice.starts_with("Repairs that are due: later, deleted rows may come back\n"), "{advice}");
    assert!(!advice.contains("Not known"), "{advice}");
    let commands: Vec<Vec<&str>> = advice
        .lines()
        .filter_map(|line| line.strip_prefix("  nodetool "))
        .map(|words| words.split_whitespace().collect())
        .collect();
    // Keyspaces with one copy need no repair.
    assert_eq!(commands, [["repair", "-pr", "larder_n3"]], "{advice}");
    let begun = Instant::now();
    for node in 1..=3 {
        let before = gateway.admin().output(&["cluster", "repair-advice"]);
        assert!(before.contains("never"), "a part is left to repair: {before}");
        cluster.node(node).nodetool(&commands[0]).unwrap();
    }
    figure("growth: repair of three nodes", &format!("{:.1?}", begun.elapsed()));
    gateway.admin().check(&["cluster", "repair-advice"], "Nothing is due\n");
}
