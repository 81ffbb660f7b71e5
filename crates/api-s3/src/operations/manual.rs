//! The table of operations in the manual.

use std::fmt::Write as _;

use super::{OPERATIONS, OperationScope, OperationSpec, StubResponse, Support, UNSUPPORTED_PARAMETERS};

/// The table in Markdown: the operations of S3, in the order of the rows.
fn operations() -> String {
    let mut out = String::from("| Operation | Request | Answer |\n|---|---|---|\n");
    for operation in OPERATIONS.iter().filter(|operation| !matches!(operation.scope, OperationScope::Admin(_))) {
        let _ = writeln!(out, "| {} | `{}` | {} |", operation.name, request(operation), answer(operation.support));
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
            StubResponse::Empty(_) | StubResponse::NoneById(_) => "there is none".to_owned(),
            StubResponse::Payer => "the owner pays".to_owned(),
            StubResponse::Absent(code) => format!("`{}`", code.name()),
            StubResponse::NothingToDelete => "204".to_owned(),
            StubResponse::Unset(_) => "200 for what every bucket has, else 501".to_owned(),
        },
    }
}

#[test]
fn the_manual_has_the_current_table_of_operations() {
    let manual = include_str!("../../../../docs/manual.md");
    let table = operations();
    assert!(manual.contains(&table), "put this into docs/manual.md, section Supported operations:\n{table}");
}
