//! Commands of `riak-admin` that this server refuses by name: a script must not take silence for success.

use larder_kv_admin::frame::AdminAnswer;

use super::command::{CommandCall, CommandResult};

/// The reason why a command of Riak is refused.
enum UnsupportedReason {
    /// Not built yet: this feature.
    NotYet(&'static str),
    /// Never: the command has no meaning for Larder.
    Never(&'static str),
}

use UnsupportedReason::{Never, NotYet};

const RING: &str = "Larder has no ring and no partitions to hand off";
const MEMBERS: &str = "a node is a member while it runs; start or stop one";
const ERLANG: &str = "it is about Erlang's runtime";

static UNSUPPORTED: &[(&str, UnsupportedReason)] = &[
    ("join", Never(MEMBERS)),
    ("leave", Never(MEMBERS)),
    ("remove", Never(MEMBERS)),
    ("force-remove", Never(MEMBERS)),
    ("down", Never(MEMBERS)),
    ("search", NotYet("search")),
    ("repair-2i", Never("`kv-admin index repair` repairs all secondary indexes")),
    ("tictacaae", NotYet("folds over keys and objects")),
    (
        "restore",
        Never("a backup is a data directory: start a server on a copy of it; `kv-admin import` reads an export"),
    ),
    ("stat", NotYet("single statistics; `kv-admin status` prints all")),
    ("diag", NotYet("diagnostic checks")),
    ("cluster-info", NotYet("the diagnostic report")),
    ("set", NotYet("changing settings at run time; `larder --help` lists them")),
    ("show", NotYet("showing settings; `larder --help` lists them")),
    ("describe", NotYet("describing settings; `larder --help` does")),
    ("transfer-limit", Never(RING)),
    ("handoff", Never(RING)),
    ("vnode-status", Never(RING)),
    ("aae-status", Never("Larder has no hash trees to exchange")),
    ("ensemble-status", Never("Larder has no ensembles")),
    ("reip", Never(RING)),
    ("reip-manual", Never(RING)),
    ("reformat-indexes", Never("Larder has one form of indexes")),
    ("downgrade-objects", Never("Larder has one form of objects")),
    ("top", Never(ERLANG)),
    ("erl-reload", Never(ERLANG)),
];

/// The answer to a command that the table does not have.
pub(super) fn refuse(verb: &str, words: &[&str]) -> AdminAnswer {
    AdminAnswer::failed(match UNSUPPORTED.iter().find(|(name, _)| *name == verb) {
        Some((name, NotYet(feature))) if name == feature => format!("{name} is not available yet"),
        Some((name, NotYet(feature))) => format!("{name} is not available yet: {feature}"),
        Some((name, Never(reason))) => format!("{name} is not supported: {reason}"),
        None => {
            let word = super::command::shown(words.first().unwrap_or(&verb).as_bytes());
            format!("{word} is not a command; `kv-admin help` lists them")
        }
    })
}

/// `tls self-signed`, which `kv-admin` runs without a server.
pub(super) async fn self_signed(_: CommandCall<'_>) -> CommandResult {
    Err(AdminAnswer::failed("kv-admin makes the certificate itself: use the one of this server's version"))
}

#[cfg(test)]
mod tests {
    use super::super::table::COMMANDS;
    use super::*;

    #[test]
    fn no_command_is_both_supported_and_refused() {
        for command in COMMANDS {
            assert!(UNSUPPORTED.iter().all(|(name, _)| *name != command.words()[0]), "{command:?}");
        }
    }

    #[test]
    fn every_command_of_riak_admins_usage_is_supported_or_refused() {
        const RIAK: &str = "cluster join leave backup restore test reip js-reload erl-reload wait-for-service ringready \
            transfers force-remove down cluster-info member-status ring-status vnode-status aae-status diag stat status \
            transfer-limit reformat-indexes top downgrade-objects security bucket-type repair-2i search services \
            ensemble-status handoff set show describe";
        for word in RIAK.split_whitespace() {
            let command = COMMANDS.iter().any(|command| command.words()[0] == word);
            assert!(command || UNSUPPORTED.iter().any(|(name, _)| *name == word), "{word}");
        }
    }
}
