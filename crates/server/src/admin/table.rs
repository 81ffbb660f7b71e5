//! The table of commands: the interpreter, the usage lines and the help are made from it.

use larder_kv_admin::frame::AdminAnswer;

use super::command::{AdminCommand, CommandCall, CommandResult, shown};
use super::{
    backup, bucket_type, cluster, console, help, index, mapreduce, moving, repair_advice, s3_encryption, s3_events,
    s3_group, s3_identity_policy, s3_key, s3_policy, s3_quota, s3_user, s3_user_import, security, self_test, services,
    stats, transfer, unsupported, webhooks,
};

const ANY: usize = usize::MAX;

macro_rules! command {
    ($usage:literal, $args:expr, $json:expr, $help:literal, $handler:path) => {
        AdminCommand {
            usage: $usage,
            args: $args,
            help: $help,
            json: $json,
            reports_progress: false,
            audited: false,
            options: &[],
            handler: |call| Box::pin($handler(call)),
        }
    };
}

/// A command with a line in the audit log.
macro_rules! change {
    ($($command:tt)*) => { AdminCommand { audited: true, ..command!($($command)*) } };
}

/// All commands, in the order of the help. `kv-admin` answers `version` and a plain `help` itself; it sends the forms with
/// further arguments. `export` and `import` also take `--verify`, which the help has among the options.
pub(super) static COMMANDS: &[AdminCommand] = &[
    command!("bucket-type list", (0, 0), true, "List all bucket types and their activation status", bucket_type::list),
    command!(
        "bucket-type status <type>",
        (1, 1),
        true,
        "Display the status and properties of a type",
        bucket_type::status
    ),
    change!("bucket-type activate <type>", (1, 1), false, "Activate a type", bucket_type::activate),
    change!(
        r#"bucket-type create <type> ['{"props": { ... }}']"#,
        (1, ANY),
        false,
        "Create or modify a type before activation",
        bucket_type::create
    ),
    change!(
        r#"bucket-type update <type> '{"props": { ... }}'"#,
        (2, ANY),
        false,
        "Update a type after activation",
        bucket_type::update
    ),
    AdminCommand {
        options: s3_user::OPTIONS,
        ..change!(
            "s3 user create <email> <name> [key]",
            (2, ANY),
            true,
            "Create an S3 user; prints the key and its secret",
            s3_user::create
        )
    },
    change!(
        "s3 user import @<file>",
        (1, 1),
        true,
        "Create the users of a MinIO's or Riak CS's export",
        s3_user_import::import
    ),
    command!("s3 user list", (0, 0), true, "List the S3 users", s3_user::list),
    command!("s3 user show <key or email>", (1, 1), true, "Show an S3 user, without the secret", s3_user::show),
    change!(
        "s3 user disable <key or email>",
        (1, 1),
        false,
        "Refuse an S3 user's requests from now on",
        s3_user::disable
    ),
    change!("s3 user enable <key or email>", (1, 1), false, "Take an S3 user's requests again", s3_user::enable),
    change!("s3 user delete <key or email>", (1, 1), false, "Remove an S3 user who has no buckets", s3_user::delete),
    change!(
        "s3 user rotate-key <key or email>",
        (1, 1),
        true,
        "Replace the secret of an S3 user; prints the new one",
        s3_user::rotate_key
    ),
    change!(
        "s3 user policy attach <key or email> <policy ...>",
        (2, ANY),
        true,
        "Let policies decide what an S3 user may do",
        s3_identity_policy::attach
    ),
    change!(
        "s3 user policy detach <key or email> <policy ...>",
        (2, ANY),
        true,
        "Take policies from an S3 user",
        s3_identity_policy::detach
    ),
    command!(
        "s3 user policy list <key or email>",
        (1, 1),
        true,
        "The policies of an S3 user, and those of its groups",
        s3_identity_policy::list_of_user
    ),
    AdminCommand {
        options: s3_key::OPTIONS,
        ..change!(
            "s3 key create <key or email> [limits]",
            (1, ANY),
            true,
            "Give an S3 user a further key; prints its secret",
            s3_key::create
        )
    },
    command!("s3 key list <key or email>", (1, 1), true, "List the keys of an S3 user with their limits", s3_key::list),
    change!("s3 key revoke <key>", (1, 1), false, "Refuse a further key from now on", s3_key::revoke),
    change!("s3 group create <group>", (1, 1), false, "Create a group of S3 users", s3_group::create),
    change!("s3 group delete <group>", (1, 1), false, "Remove a group without members", s3_group::delete),
    command!("s3 group list", (0, 0), true, "List the groups with their policies", s3_group::list),
    command!("s3 group show <group>", (1, 1), true, "Show a group, its policies and members", s3_group::show),
    change!("s3 group add <group> <key or email ...>", (2, ANY), false, "Add S3 users to a group", s3_group::add),
    change!(
        "s3 group remove <group> <key or email ...>",
        (2, ANY),
        false,
        "Remove S3 users from a group",
        s3_group::remove
    ),
    change!(
        "s3 group policy attach <group> <policy ...>",
        (2, ANY),
        true,
        "Let policies decide what members may do",
        s3_group::attach
    ),
    change!(
        "s3 group policy detach <group> <policy ...>",
        (2, ANY),
        true,
        "Take policies from a group",
        s3_group::detach
    ),
    change!(
        "s3 policy create <policy> <document>",
        (2, 2),
        false,
        "Create or replace a policy for S3 users and groups",
        s3_identity_policy::create
    ),
    command!("s3 policy list", (0, 0), true, "List the policies for S3 users and groups", s3_identity_policy::list),
    command!("s3 policy show <policy>", (1, 1), false, "Print the document of a policy", s3_identity_policy::show),
    change!(
        "s3 policy delete <policy>",
        (1, 1),
        false,
        "Remove a policy that is attached to nothing",
        s3_identity_policy::delete
    ),
    command!(
        "s3 policy check [bucket]",
        (0, 1),
        false,
        "Report parts of bucket policies that no request can meet",
        s3_policy::check
    ),
    AdminCommand {
        options: s3_quota::OPTIONS,
        ..change!(
            "s3 quota set <bucket|user> <name> <limits>",
            (2, ANY),
            false,
            "Limit what a bucket, or all buckets of a user, may hold",
            s3_quota::set
        )
    },
    change!("s3 quota clear <bucket|user> <name>", (2, 2), false, "Remove a quota", s3_quota::clear),
    command!("s3 quota show <bucket|user> <name>", (2, 2), true, "Show a quota and what is stored now", s3_quota::show),
    command!("s3 quota list", (0, 0), true, "List the quotas", s3_quota::list),
    command!("s3 encryption status", (0, 0), true, "The master keys of encrypted data", s3_encryption::status),
    change!("s3 encryption rotate", (0, 0), false, "Encrypt what is new with a new master key", s3_encryption::rotate),
    change!(
        "s3 encryption rewrap",
        (0, 0),
        false,
        "Put what is encrypted at rest under the current master key",
        s3_encryption::rewrap
    ),
    command!("s3 events list", (0, 0), true, "The targets of S3 events, and what waits here", s3_events::list),
    change!(
        "s3 events drop <bucket|arn>",
        (1, 1),
        false,
        "Drop waiting events: of a bucket, or for a target",
        s3_events::drop
    ),
    command!("security status", (0, 0), true, "Whether Riak's protocols need a user", security::status),
    change!("security enable", (0, 0), true, "Refuse requests without a user and its permission", security::enable),
    change!("security disable", (0, 0), true, "Take requests without a user again", security::disable),
    change!(
        "security add-user <user> [key=value ...]",
        (1, ANY),
        true,
        "Add a user: password=, groups=",
        security::add_user
    ),
    change!(
        "security alter-user <user> key=value ...",
        (1, ANY),
        true,
        "Change options of a user",
        security::alter_user
    ),
    change!("security del-user <user>", (1, 1), false, "Remove a user with its grants and sources", security::del_user),
    change!("security add-group <group> [key=value ...]", (1, ANY), true, "Add a group: groups=", security::add_group),
    change!(
        "security alter-group <group> key=value ...",
        (1, ANY),
        true,
        "Change options of a group",
        security::alter_group
    ),
    change!("security del-group <group>", (1, 1), false, "Remove a group with its grants", security::del_group),
    change!(
        "security add-source <users> <CIDR> <source> [key=value ...]",
        (3, ANY),
        false,
        "Let users, or all, come from a network",
        security::add_source
    ),
    change!("security del-source <users> <CIDR>", (2, 2), false, "Let them come from it no more", security::del_source),
    change!(
        "security grant <permissions> on (<type> [bucket]|any) to <users>",
        (0, ANY),
        false,
        "Give users or groups permissions",
        security::grant
    ),
    change!(
        "security revoke <permissions> on (<type> [bucket]|any) from <users>",
        (0, ANY),
        false,
        "Take permissions from users or groups",
        security::revoke
    ),
    command!("security print-users", (0, 0), true, "The users", security::print_users),
    command!("security print-user <user>", (1, 1), true, "One user", security::print_user),
    command!("security print-groups", (0, 0), true, "The groups", security::print_groups),
    command!("security print-group <group>", (1, 1), true, "One group", security::print_group),
    command!(
        "security print-sources",
        (0, 0),
        true,
        "The sources, in the order of their choice",
        security::print_sources
    ),
    command!(
        "security print-grants <user or group>",
        (1, 1),
        true,
        "The grants of a user or group",
        security::print_grants
    ),
    change!("security ciphers [list]", (0, 1), true, "Show or set the list of ciphers", security::ciphers),
    command!("status", (0, 0), true, "Statistics of the last minute", stats::status),
    command!("cluster status", (0, 0), true, "The running nodes as a table", cluster::status),
    command!("cluster repair-advice", (0, 0), true, "What to run on the engine's nodes", repair_advice::repair_advice),
    command!("member-status", (0, 0), true, "The running nodes", cluster::member_status),
    command!("ring-status", (0, 0), false, "Claimant, pending changes, unreachable nodes", cluster::ring_status),
    command!("ringready", (0, 0), false, "Whether all running nodes agree", cluster::ringready),
    command!("transfers", (0, 0), false, "Data on its way between nodes: never any", cluster::transfers),
    command!("mapreduce list", (0, 0), true, "The MapReduce jobs that run on this node", mapreduce::list),
    command!(
        "mapreduce cancel <id>",
        (1, 1),
        false,
        "End a MapReduce job; its client gets an error",
        mapreduce::cancel
    ),
    command!("webhooks list", (0, 0), true, "The notices for webhooks that wait on this node", webhooks::list),
    change!(
        "webhooks drop <type/bucket|url|all>",
        (1, 1),
        false,
        "Drop waiting notices: of a bucket, for a webhook, or all",
        webhooks::drop
    ),
    change!("console link", (0, 0), false, "Print a link that signs in to the web console once", console::link),
    command!("services", (0, 0), false, "The services that run", services::services),
    command!(
        "wait-for-service <service>",
        (1, 2),
        false,
        "Wait until a service is up, a minute at most",
        services::wait_for_service
    ),
    AdminCommand {
        reports_progress: true,
        ..command!(
            "backup <directory>",
            (1, 1),
            false,
            "Copy the embedded engine's data while it serves",
            backup::backup
        )
    },
    AdminCommand {
        reports_progress: true,
        ..command!(
            "export <directory>",
            (1, 2),
            false,
            "Copy everything into a directory of the server's machine",
            transfer::export
        )
    },
    AdminCommand {
        reports_progress: true,
        ..change!(
            "import <directory>",
            (1, 2),
            false,
            "Bring an export into this empty server, and verify it",
            transfer::import
        )
    },
    AdminCommand {
        options: moving::START_OPTIONS,
        ..change!(
            "move start <source> [options]",
            (1, ANY),
            false,
            "Bring the data of a Riak, a Larder or an S3 store here, live",
            moving::start
        )
    },
    command!("move status", (0, 0), true, "The move: its phase, counts, notes, keys that differ", moving::status),
    AdminCommand {
        options: moving::VERIFY_OPTIONS,
        ..change!("move verify", (0, ANY), false, "Compare every key with the source of the move", moving::verify)
    },
    change!("move pause", (0, 0), false, "Stop the move for a while", moving::pause),
    change!("move resume", (0, 0), false, "Go on with it", moving::resume),
    AdminCommand {
        options: moving::FORCE_OPTIONS,
        ..change!(
            "move back",
            (0, ANY),
            false,
            "Hand what changes here back to the Riak that it came from",
            moving::back
        )
    },
    AdminCommand {
        options: moving::FORCE_OPTIONS,
        ..change!("move finish", (0, ANY), false, "End a move that is verified: nothing differs", moving::finish)
    },
    change!("move cancel", (0, 0), false, "End the move before; what it copied stays", moving::cancel),
    change!("js-reload", (0, ANY), false, "Load the JavaScript modules of --js-dir again", mapreduce::js_reload),
    AdminCommand {
        reports_progress: true,
        ..command!("index check", (0, 0), false, "Compare all secondary indexes with all objects", index::check)
    },
    AdminCommand {
        reports_progress: true,
        ..command!("index repair", (0, 0), false, "The same, and repair what differs", index::repair)
    },
    command!("index status", (0, 0), true, "The buckets whose indexes have more shards", index::status),
    command!(
        "tls self-signed <directory> [host ...]",
        (1, ANY),
        false,
        "Make a certificate for trying listeners with TLS",
        unsupported::self_signed
    ),
    command!("test", (0, 0), false, "Write, read and delete an object and data types", self_test::test),
    command!("ping", (0, 0), false, "Whether the server answers", services::ping),
    command!("version", (0, 0), false, "The version", services::version),
    command!("help", (0, ANY), false, "This text", answer_help),
];

/// The text of `kv-admin help`.
pub(super) fn help_text() -> String {
    help::all(COMMANDS)
}

async fn answer_help(_: CommandCall<'_>) -> CommandResult {
    Ok(AdminAnswer::done(help_text()))
}

/// The result of a lookup.
pub(super) enum CommandLookup<'a> {
    /// A command, and the arguments after its words.
    Command(&'static AdminCommand, &'a [&'a str]),
    /// No command; this is the answer.
    Other(AdminAnswer),
}

/// Looks up a command. In its first word `_` stands for `-`, as in `riak-admin`.
pub(super) fn find<'a>(words: &'a [&'a str]) -> CommandLookup<'a> {
    let Some(verb) = words.first().map(|verb| verb.replace('_', "-")) else {
        return CommandLookup::Other(AdminAnswer::failed(help_text()));
    };
    let is = |command: &&AdminCommand| {
        let command_words = command.words();
        command_words[0] == verb
            && words.len() >= command_words.len()
            && words[1..command_words.len()] == command_words[1..]
    };
    if let Some(command) = COMMANDS.iter().find(is) {
        return CommandLookup::Command(command, &words[command.words().len()..]);
    }
    CommandLookup::Other(match verb.as_str() {
        "bucket-type" => wrong_subcommand(words, help::bucket_type(COMMANDS)),
        "s3" => wrong_subcommand(words, help::s3(COMMANDS)),
        "security" => wrong_subcommand(words, help::security(COMMANDS)),
        "cluster" => cluster::refuse_membership_change(words),
        "console" => AdminAnswer::usage("console link"),
        "index" => AdminAnswer::usage("index check | index repair | index status"),
        "move" => AdminAnswer::usage("move start <source> | status | verify | pause | resume | finish | cancel"),
        "--help" | "-h" => AdminAnswer::done(help_text()),
        "--version" => AdminAnswer::done(env!("CARGO_PKG_VERSION")),
        _ => unsupported::refuse(&verb, words),
    })
}

/// The help of a family of commands, after a line that names the words which are none of them.
fn wrong_subcommand(words: &[&str], help: String) -> AdminAnswer {
    AdminAnswer::failed(match words {
        [_] => help,
        words => {
            // Later words may be a password.
            let named: Vec<&str> = words.iter().copied().take(3).take_while(|word| !word.contains('=')).collect();
            format!("`{}` is not a command\n{help}", shown(named.join(" ").as_bytes()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_lines_begin_with_the_words_and_descriptions_fit_a_line() {
        for command in COMMANDS {
            let words = command.words().join(" ");
            assert!(!words.is_empty() && command.usage.starts_with(&words), "{command:?}");
            assert!(command.help.len() <= 60 && !command.help.ends_with('.'), "{command:?}");
        }
    }

    #[test]
    fn a_lookup_finds_the_command_of_its_words() {
        let lookup = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            match find(&words) {
                CommandLookup::Command(command, rest) => format!("{} + {}", command.words().join(" "), rest.join(",")),
                CommandLookup::Other(answer) => answer.stderr.lines().next().unwrap_or_default().to_owned(),
            }
        };
        for (line, to) in [
            ("bucket-type create t {}", "bucket-type create + t,{}"),
            ("bucket_type list", "bucket-type list + "),
            ("member_status", "member-status + "),
            ("bucket-type", "Usage: kv-admin bucket-type <command>"),
            ("bucket-type nonsense", "`bucket-type nonsense` is not a command"),
            ("s3 user create a@b A", "s3 user create + a@b,A"),
            ("s3 user", "`s3 user` is not a command"),
            ("s3 policy check tea", "s3 policy check + tea"),
            ("s3 user policy attach K readonly", "s3 user policy attach + K,readonly"),
            ("s3 group policy detach team readonly", "s3 group policy detach + team,readonly"),
            ("s3 group policy", "`s3 group policy` is not a command"),
            ("s3 key create K --read-only", "s3 key create + K,--read-only"),
            ("s3 quota set bucket tea --bytes 1g", "s3 quota set + bucket,tea,--bytes,1g"),
            ("cluster status", "cluster status + "),
            ("cluster", "Usage: kv-admin cluster status | repair-advice"),
            (
                "cluster join a@b",
                "cluster join is not supported: gateways over one Cassandra are members while they run; start or stop one",
            ),
            ("security add-user u password=p", "security add-user + u,password=p"),
            ("security grant a on any to u", "security grant + a,on,any,to,u"),
            ("security pam u password=p", "`security pam u` is not a command"),
            ("nonsense", "nonsense is not a command; `kv-admin help` lists them"),
        ] {
            assert_eq!(lookup(line), to, "{line}");
        }
    }
}
