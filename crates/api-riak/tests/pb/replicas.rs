//! Replica counts with nodes that are down: the outcome through both faces.

use larder_testkit::http::HttpClient;
use larder_testkit::pb::{PbClient, PbField};

use crate::pb::{GET, PUT, content, key};
use crate::support::RiakServer;

use PbField::{Bytes, Number};

/// A request through both faces: the query and the field, then the outcome in each.
struct CountedRequest {
    code: u8,
    query: &'static str,
    fields: &'static [PbField<'static>],
    http: (u16, &'static str),
    pb: (u8, &'static str),
}

const fn counted(
    (code, query, fields): (u8, &'static str, &'static [PbField<'static>]),
    http: (u16, &'static str),
    pb: (u8, &'static str),
) -> CountedRequest {
    CountedRequest { code, query, fields, http, pb }
}

const ONE_DOWN: &[CountedRequest] = &[
    counted((PUT, "w=all", &[Number(5, 3)]), (204, ""), (12, "")),
    counted((GET, "r=all", &[Number(3, 3)]), (200, "v"), (10, "")),
    counted((PUT, "pw=all", &[Number(8, 3)]), (503, "PW-value unsatisfied: 2/3"), (0, "{pw_val_unsatisfied,3,2}")),
    counted((GET, "pr=3", &[Number(4, 3)]), (503, "PR-value unsatisfied: 2/3"), (0, "{pr_val_unsatisfied,3,2}")),
    counted(
        (GET, "node_confirms=3", &[Number(14, 3)]),
        (503, "{insufficient_nodes,2,need,3}"),
        (0, "{insufficient_nodes,2,need,3}"),
    ),
    counted(
        (PUT, "node_confirms=3", &[Number(17, 3)]),
        (503, "node_confirms-value unsatisfied: 2/3"),
        (0, "{node_confirms_val_unsatisfied,3,2}"),
    ),
    counted((GET, "pr=2", &[Number(4, 2)]), (200, "v"), (10, "")),
];

const TWO_DOWN: &[CountedRequest] = &[
    counted((PUT, "", &[]), (204, ""), (12, "")),
    counted((GET, "", &[]), (200, "v"), (10, "")),
    counted(
        (PUT, "pw=quorum", &[Number(8, 4_294_967_293)]),
        (503, "PW-value unsatisfied: 1/2"),
        (0, "{pw_val_unsatisfied,2,1}"),
    ),
];

/// Requests of protocol buffers alone: HTTP has no such parameter.
const PRIMARIES_ALONE: &[CountedRequest] = &[
    counted((PUT, "", &[Number(14, 0)]), (204, ""), (0, "{w_val_unsatisfied,2,1}")),
    counted((GET, "", &[Number(11, 0)]), (200, "v"), (0, "{r_val_unsatisfied,2,1}")),
    counted((PUT, "", &[Number(14, 1)]), (204, ""), (12, "")),
    counted((GET, "", &[Number(11, 1)]), (200, "v"), (10, "")),
    counted((GET, "", &[Number(11, 0), Number(3, 1)]), (200, "v"), (10, "")),
];

fn check(http: &mut HttpClient, pb: &mut PbClient, requests: &[CountedRequest]) {
    for CountedRequest { code, query, fields, http: (status, text), pb: (wanted, error) } in requests {
        let path = format!("/buckets/b/keys/k?{query}");
        let shown = if *code == PUT { http.put(&path, "v") } else { http.get(&path) };
        assert!(shown.status == *status && shown.text().contains(text), "{query} {shown:?}");
        let value = content("v");
        let body = [Bytes(4, &value)];
        let sent = [&key("b", "k")[..], &body[..usize::from(*code == PUT)], fields].concat();
        let (got, answer) = pb.ask(*code, &sent);
        assert_eq!(
            (got, if got == 0 { answer.text(1) } else { String::new() }),
            (*wanted, (*error).to_owned()),
            "{query}"
        );
    }
}

#[test]
fn unmet_counts_have_one_outcome_through_both_faces() {
    let (server, replicas) = RiakServer::start_over_three_nodes();
    let (mut http, mut pb) = (server.client(), server.pb());
    assert_eq!(http.put("/buckets/b/keys/k", "v").status, 204);
    replicas.kill(0);
    check(&mut http, &mut pb, ONE_DOWN);
    replicas.kill(1);
    check(&mut http, &mut pb, TWO_DOWN);
    check(&mut http, &mut pb, PRIMARIES_ALONE);
    server.stop();
}
