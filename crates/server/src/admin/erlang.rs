//! Statistics in the form of Riak's console.

use larder_core::rules::props::Value;
use serde_json::Value as Json;

/// Statistics whose texts are atoms; all other texts are binaries.
const ATOMS: [&str; 4] = ["nodename", "connected_nodes", "ring_members", "storage_backend"];

/// The value of the statistic `name`.
pub(super) fn stat(name: &str, value: &Json) -> String {
    term(value, &|text| {
        let value = text.to_owned();
        if ATOMS.contains(&name) { Value::Node(value).console() } else { Value::Text(value).console() }
    })
}

fn term(value: &Json, text: &dyn Fn(&str) -> String) -> String {
    match value {
        Json::Null => "undefined".to_owned(),
        Json::Bool(flag) => flag.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(word) if word == "undefined" => word.clone(),
        Json::String(word) => text(word),
        Json::Array(items) => format!("[{}]", joined(items.iter(), text)),
        Json::Object(members) => format!("{{{}}}", joined(members.values(), &|word| format!("{word:?}"))),
    }
}

fn joined<'a>(values: impl Iterator<Item = &'a Json>, text: &dyn Fn(&str) -> String) -> String {
    values.map(|value| term(value, text)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statistics_print_as_on_riaks_console() {
        for (name, value, text) in [
            ("node_gets", json!(12), "12"),
            ("cpu_avg1", json!(1.5), "1.5"),
            ("riak_kv_version", json!("3.2.3"), r#"<<"3.2.3">>"#),
            ("nodename", json!("larder@127.0.0.1"), "'larder@127.0.0.1'"),
            ("ring_members", json!(["larder@127.0.0.1", "a@b"]), "['larder@127.0.0.1',a@b]"),
            ("connected_nodes", json!([]), "[]"),
            ("converge_delay_mean", json!("undefined"), "undefined"),
            ("disk", json!([{ "id": "/", "size": 9, "used": 3 }]), r#"[{"/",9,3}]"#),
            ("flag", json!(true), "true"),
            ("none", json!(null), "undefined"),
        ] {
            assert_eq!(stat(name, &value), text, "{name}");
        }
    }
}
