//! `status`: the statistics in the form that monitoring scripts parse, one `name : value` per line.

use larder_core::rules::props::Value;
use larder_kv_admin::frame::AdminAnswer;
use serde_json::{Map, Value as Json};

use super::command::{CommandCall, CommandResult};
use super::erlang;

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let stats = call.gateway().stats();
    if call.json {
        let object: Map<String, Json> = stats.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        return Ok(AdminAnswer::json(&Json::Object(object)));
    }
    let node = Value::Node(call.gateway().context().config.node.clone()).console();
    Ok(AdminAnswer::done(text(&node, &stats)))
}

fn text(node: &str, stats: &[(&'static str, Json)]) -> String {
    let lines: String = stats.iter().map(|(name, value)| format!("{name} : {}\n", erlang::stat(name, value))).collect();
    format!("1-minute stats for {node}\n{}\n{lines}\n", "-".repeat(43))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn each_statistic_is_a_line() {
        let stats = [("node_gets", json!(3)), ("nodename", json!("a@b"))];
        assert_eq!(
            super::text("'larder@127.0.0.1'", &stats),
            "1-minute stats for 'larder@127.0.0.1'\n-------------------------------------------\n\
             node_gets : 3\nnodename : a@b\n\n"
        );
    }
}
