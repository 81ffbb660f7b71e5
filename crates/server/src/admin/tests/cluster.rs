//! The rows that need several nodes: one of them is stopped, so it has not caught up.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_type_that_a_node_does_not_have_yet_is_not_activated() {
    let nodes = nodes(&["a@host", "b@host"]).await;
    let (first, second) = (&nodes[0], &nodes[1]);
    second.way.freeze();
    first.check("$ bucket-type create t\nt created").await;

    let status = first.run("bucket-type status t").await;
    assert_eq!((status.exit, status.stderr.as_str()), (1, ""));
    assert!(status.stdout.starts_with("t has been created and is not ready to activate\n\nyoung_vclock: 20\n"));
    assert!(status.stdout.ends_with("\nactive: false\nclaimant: a@host\n"), "{}", status.stdout);
    let json = first.run("bucket-type status t --json").await;
    assert!(json.stdout.contains(r#""stage":"created""#) && json.exit == 1, "{json:?}");

    first.check("$ bucket-type activate t\n! t has been created and is not ready to activate").await;
    first.check("$ bucket-type list\ndefault (active)\nt (not active)").await;
    let ready = first.run("ringready").await;
    assert_eq!(
        (ready.stdout.as_str(), ready.exit),
        ("FALSE [b@host] have not caught up with the newest bucket types\n", 1)
    );

    second.way.thaw();
    caught_up(first).await;
    second.check("$ bucket-type activate t\nt has been activated").await;
    first.check("$ bucket-type list\ndefault (active)\nt (active)").await;
}

#[tokio::test]
async fn every_node_answers_the_same() {
    let nodes = nodes(&["a@host", "b@host", "c@host"]).await;
    nodes[0].check("$ bucket-type create t\nt created").await;
    caught_up(&nodes[2]).await;
    for node in &nodes {
        node.check("$ bucket-type list\ndefault (active)\nt (not active)").await;
        let status = node.run("bucket-type status t").await.stdout;
        assert!(status.ends_with("\nclaimant: a@host\n"), "the node that created it: {status}");
    }
    nodes[1]
        .check(
            "$ member-status
    ================================= Membership ==================================
    Status     Ring    Pending    Node
    -------------------------------------------------------------------------------
    valid      33.3%      --      a@host
    valid      33.3%      --      b@host
    valid      33.3%      --      c@host
    -------------------------------------------------------------------------------
    Valid:3 / Leaving:0 / Exiting:0 / Joining:0 / Down:0",
        )
        .await;
}

/// Waits for a heartbeat of every node.
async fn caught_up(node: &Node) {
    for _ in 0..500 {
        if node.run("bucket-type status t").await.exit == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a node does not catch up");
}
