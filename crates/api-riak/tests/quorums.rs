//! Replica counts on a cluster of three nodes, with the exact text of each answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use larder_testkit::http::HttpClient;

use crate::support::RiakServer;

fn ask(client: &mut HttpClient, method: &str, query: &str) -> (u16, String) {
    let body = if method == "PUT" { "x" } else { "" };
    let request = format!(
        "{method} /buckets/b/keys/k?{query} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = client.exchange(request.as_bytes()).unwrap();
    (response.status, String::from_utf8(response.body).unwrap())
}

#[test]
fn an_unmet_count_gets_riaks_text() {
    let (server, replicas) = RiakServer::start_over_three_nodes();
    let mut client = server.client();
    let mut says = |method: &str, query: &str, status: u16, text: &str| {
        let answer = ask(&mut client, method, query);
        assert_eq!(answer, (status, text.to_owned()), "{method} {query}");
    };
    says("PUT", "pw=3&node_confirms=3", 204, "");
    says("GET", "pr=3&node_confirms=3", 200, "x");
    const ABOVE: &str = "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3\n";
    says("GET", "pr=4", 400, ABOVE);
    says("PUT", "dw=4", 400, ABOVE);
    replicas.kill(0);
    says("PUT", "w=all&dw=all", 204, "");
    says("GET", "r=all", 200, "x");
    says("PUT", "pw=all", 503, "PW-value unsatisfied: 2/3\n");
    says("GET", "pr=3", 503, "PR-value unsatisfied: 2/3\n");
    says("GET", "node_confirms=3", 503, "Error:\n{insufficient_nodes,2,need,3}\n");
    says("PUT", "node_confirms=3", 503, "node_confirms-value unsatisfied: 2/3\n");
    replicas.kill(1);
    says("PUT", "", 204, "");
    says("GET", "", 200, "x");
    says("GET", "pr=1", 200, "x");
    says("PUT", "pw=quorum", 503, "PW-value unsatisfied: 1/2\n");
    says("GET", "pr=quorum", 503, "PR-value unsatisfied: 1/2\n");
    says("DELETE", "", 503, "R-value unsatisfied: 1/2\n");
    says("DELETE", "r=1&pw=2", 503, "PW-value unsatisfied: 1/2\n");
    says("DELETE", "r=1", 204, "");
    server.stop();
}

#[test]
fn without_nodes_the_requested_count_is_reported_unmet() {
    let (server, replicas) = RiakServer::start_over_three_nodes();
    let mut client = server.client();
    (0..3).for_each(|node| replicas.kill(node));
    assert_eq!(ask(&mut client, "GET", ""), (503, "R-value unsatisfied: 0/2\n".into()));
    let put = ask(&mut client, "PUT", "");
    assert_eq!(put, (503, "Too Many write failures to satisfy W/DW\n".into()));
    (0..3).for_each(|node| replicas.revive(node));
    server.stop();
}
