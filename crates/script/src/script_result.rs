//! The result of a script, JSON that the server parses within bounds of memory and time.

use larder_core::ScriptError;
use larder_core::rules::riak_json::values_in;
use serde_json::Value;

use crate::worker_process::VALUES_MAX;

/// Most bytes of a result that is parsed on a thread of the runtime.
const PARSED_AT_ONCE_MAX: usize = 256 << 10;

/// Parses a result. A large one takes long, so it is parsed beside the threads of the runtime.
pub(crate) async fn parse_result(json: Vec<u8>) -> Result<Value, ScriptError> {
    let parse = |json: &[u8]| match values_in(json) > VALUES_MAX {
        true => Err(ScriptError::TooLarge),
        false => {
            serde_json::from_slice(json).map_err(|error| ScriptError::Threw(format!("the result is not JSON: {error}")))
        }
    };
    if json.len() <= PARSED_AT_ONCE_MAX {
        return parse(&json);
    }
    tokio::task::spawn_blocking(move || parse(&json)).await.unwrap_or(Err(ScriptError::Crashed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_result_of_too_many_values_is_refused_before_it_takes_memory() {
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count)).into_bytes();
        assert_eq!(parse_result(zeros(VALUES_MAX)).await, Err(ScriptError::TooLarge));
        assert!(parse_result(zeros(1000)).await.is_ok());
        let text = format!("\"{}\"", ",".repeat(2 * VALUES_MAX)).into_bytes();
        assert!(parse_result(text).await.is_ok());
    }
}
