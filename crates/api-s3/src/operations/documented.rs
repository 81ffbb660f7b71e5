//! The table of operations in `docs/differences.md`: those of the service model, and the forms of browsers.

use std::fmt::Write as _;

use std::collections::HashSet;

use super::{OPERATIONS, OperationScope, OperationSpec, StubResponse, Support, UNSUPPORTED_PARAMETERS};

/// An operation's former name in the service model; both have one request.
struct FormerName {
    name: &'static str,
    present: &'static str,
}

static FORMER_NAMES: &[FormerName] = &[
    FormerName { name: "GetBucketLifecycle", present: "GetBucketLifecycleConfiguration" },
    FormerName { name: "PutBucketLifecycle", present: "PutBucketLifecycleConfiguration" },
    FormerName { name: "GetBucketNotification", present: "GetBucketNotificationConfiguration" },
    FormerName { name: "PutBucketNotification", present: "PutBucketNotificationConfiguration" },
];

/// The table in Markdown: the operations of S3 in the order of the rows, each once, then former names.
fn operations() -> String {
    let mut out = String::from("| Operation | Request | Answer |\n|---|---|---|\n");
    let mut seen = HashSet::new();
    let of_s3 = |operation: &&OperationSpec| !matches!(operation.scope, OperationScope::Admin(_));
    for operation in OPERATIONS.iter().filter(of_s3).filter(|operation| seen.insert(operation.name)) {
        let _ = writeln!(out, "| {} | `{}` | {} |", operation.name, request(operation), answer(operation.support));
    }
    for former in FORMER_NAMES {
        let present = OPERATIONS.iter().find(|operation| operation.name == former.present).unwrap();
        let _ = writeln!(out, "| {} | `{}` | as {} |", former.name, request(present), former.present);
    }
    let refused: Vec<String> = UNSUPPORTED_PARAMETERS.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(out, "\nRefused by name, with 501, are also the parameters {}.", refused.join(", "));
    out
}

fn request(operation: &OperationSpec) -> String {
    let place = match operation.scope {
        OperationScope::Service => "/",
        OperationScope::Bucket => "/bucket",
        OperationScope::Object | OperationScope::Admin(_) => "/bucket/key",
    };
    let query = match operation.query_params {
        [] => String::new(),
        names => format!("?{}", names.join("&")),
    };
    let header = operation.header.map(|name| format!(" with {name}")).unwrap_or_default();
    format!("{} {place}{query}{header}", operation.method)
}

fn answer(support: Support) -> String {
    match support {
        Support::Implemented(_) => "served".to_owned(),
        Support::NotImplemented => "501".to_owned(),
        Support::ConfigStub(stub) => match stub {
            StubResponse::Empty(_) | StubResponse::EmptyList(_) => "there is none".to_owned(),
            StubResponse::Payer => "the owner pays".to_owned(),
            StubResponse::Absent(code) => format!("`{}`", code.name()),
            StubResponse::NothingToDelete => "204".to_owned(),
            StubResponse::Unset(_) => "200 for what every bucket has, else 501".to_owned(),
        },
    }
}

#[test]
fn the_page_of_differences_has_the_current_table_of_operations() {
    let page = include_str!("../../../../docs/differences.md");
    let table = operations();
    assert!(page.contains(&table), "put this into docs/differences.md, section S3: operations:\n{table}");
}
