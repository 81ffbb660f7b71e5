//! Commands over several nodes, one of which is stopped and lags.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_type_is_not_activated_before_every_node_has_it() {
    let nodes = nodes(&["a@host", "b@host"]).await;
    let (first, second) = (&nodes[0], &nodes[1]);
    second.faulty.freeze();
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

    second.faulty.thaw();
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

#[tokio::test]
async fn the_cluster_prints_as_riak_prints_it() {
    let nodes = nodes(&["long@10.0.0.1", "a@host", "b@host"]).await;
    nodes[0].check("$ bucket-type create t\nt created").await;
    nodes[1]
        .check(
            "$ cluster status
    ---- Cluster Status ----
    Ring ready: true

    +-------------------+------+-------+-----+-------+
    |       node        |status| avail |ring |pending|
    +-------------------+------+-------+-----+-------+
    |     a@host        |valid |  up   | 33.3|  --   |
    |     b@host        |valid |  up   | 33.3|  --   |
    | (C) long@10.0.0.1 |valid |  up   | 33.3|  --   |
    +-------------------+------+-------+-----+-------+

    Key: (C) = Claimant; availability marked with '!' is unexpected",
        )
        .await;
    let ring = nodes[2].run("ring-status").await.stdout;
    assert!(ring.contains("\nClaimant:  'long@10.0.0.1'\n"), "the same for every node: {ring}");
    let json = nodes[2].run("cluster status --json").await.stdout;
    assert!(json.contains(r#""ready":true"#) && json.contains(r#""claimant":true"#), "{json}");
    nodes[1].gateway.shutdown().await;
    let shown = nodes[2].run("cluster status").await.stdout;
    assert!(!shown.contains("a@host") && shown.contains("| 50.0|"), "{shown}");
}

/// Waits until every node wrote a heartbeat.
async fn caught_up(node: &TestNode) {
    for _ in 0..500 {
        if node.run("bucket-type status t").await.exit == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a node does not catch up");
}

#[tokio::test]
async fn security_is_on_everywhere_when_the_command_returns() {
    let nodes = nodes(&["a@h", "b@h"]).await;
    for enabled in [true, false] {
        let command = if enabled { "security enable" } else { "security disable" };
        assert_eq!(nodes[0].run(command).await.exit, 0);
        let seen: Vec<bool> = nodes.iter().map(|node| node.objects.gateway.security().is_enabled()).collect();
        assert_eq!(seen, [enabled; 2], "{command}");
    }
}
