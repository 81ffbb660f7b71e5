//! The help: the table of commands as text.

use std::fmt::Write as _;

use super::command::AdminCommand;

const COLUMN: usize = 31;

const TAIL: &str = "\
Properties are a JSON object with the member props, given as one word or as @FILE:
    kv-admin bucket-type create carts '{\"props\":{\"n_val\":3}}'
    kv-admin bucket-type activate carts

Options:
    --socket PATH                  Socket of the server; also LARDER_ADMIN_SOCKET. Default: ./data/admin.sock,
                                   or else the service's, /run/larder/admin.sock
    --json                         Answer as JSON: list, show, create, rotate-key, status, cluster status,
                                   cluster repair-advice, member-status, mapreduce list, webhooks list,
                                   move status, index status, policy attach and detach,
                                   security but for del-, -source, grant and revoke
    --key KEY --secret-file FILE   s3 user create, s3 key create: a key and a secret that are in use elsewhere
    --id ID                        s3 user create: the canonical id
    --objects N, --bytes SIZE      s3 quota set: most objects, and most bytes, such as 10GiB
    --read-only, --bucket BUCKET, --prefix PREFIX, --expires TIME
                                   s3 key create: limits of the key; several buckets and prefixes may be named
    --types TYPE,TYPE              move start: the bucket types to move; without it `default` alone
    --secret-file FILE, --buckets BUCKET,BUCKET, --owner EMAIL
                                   move start, from s3://: the secret of the key, the buckets that move (without
                                   it all), and the user who owns them here (without it the S3 admin)
    --acls                         move start, from s3://: bring the ACLs of buckets and objects, too
    --rate N                       move start: most requests to the source in a second; without it 1000
    --queue NAME                   move start, from riak://: its replication queue; without it `larder`
    --repair                       move verify: copy again what differs
    --force                        move back, move finish: whatever the last verification found
    --verify                       export, import: only compare what is there with the directory

Exit code 0: done. Exit code 1: not done, standard error says why.
";

/// The text of `kv-admin help`.
pub(super) fn all(commands: &[AdminCommand]) -> String {
    let commands: String = commands.iter().map(|command| line(command, command.usage)).collect();
    format!("Usage: kv-admin [--socket PATH] <command> [--json]\n\nCommands:\n{commands}\n{TAIL}")
}

/// The text of `kv-admin bucket-type` without a command.
pub(super) fn bucket_type(commands: &[AdminCommand]) -> String {
    let commands = family(commands, "bucket-type ");
    // "The follow commands" is Riak's text, which scripts may compare.
    format!(
        "Usage: kv-admin bucket-type <command>\n\n\
         The follow commands can be used to manage bucket types for the cluster:\n\n{commands}"
    )
}

/// The text of `kv-admin s3` without a command.
pub(super) fn s3(commands: &[AdminCommand]) -> String {
    let commands = family(commands, "s3 ");
    format!(
        "Usage: kv-admin s3 <command>\n\nUsers, groups, keys, policies and quotas of the S3 interface:\n\n{commands}"
    )
}

/// The text of `kv-admin security` without a command.
pub(super) fn security(commands: &[AdminCommand]) -> String {
    let commands = family(commands, "security ");
    format!("Usage: kv-admin security <command>\n\nUsers, sources and grants of Riak's protocols:\n\n{commands}")
}

/// The lines of the commands that begin with these words.
fn family(commands: &[AdminCommand], words: &str) -> String {
    commands.iter().filter_map(|command| Some(line(command, command.usage.strip_prefix(words)?))).collect()
}

fn line(command: &AdminCommand, usage: &str) -> String {
    let mut out = format!("    {usage}");
    let width = usage.len() + 1;
    if width > COLUMN {
        out.push_str("\n    ");
    }
    let pad = if width > COLUMN { COLUMN } else { COLUMN - usage.len() };
    let _ = writeln!(out, "{:pad$}{}", "", command.help);
    out
}

#[cfg(test)]
mod tests {
    use super::super::table::{COMMANDS, help_text};

    #[test]
    fn kv_admin_prints_the_same_help_without_a_server() {
        assert_eq!(help_text(), include_str!("../../../kv-admin/src/help.txt"));
    }

    #[test]
    fn the_manual_shows_the_same_help() {
        assert!(
            include_str!("../../../../docs/manual.md").contains(&help_text()),
            "put `kv-admin help` into docs/manual.md"
        );
    }

    #[test]
    fn the_help_names_every_command_with_a_json_form() {
        let with: Vec<_> = COMMANDS.iter().filter(|command| command.json).map(|c| c.words().join(" ")).collect();
        let s3 = [
            "s3 user create",
            "s3 user import",
            "s3 user list",
            "s3 user show",
            "s3 user rotate-key",
            "s3 user policy attach",
            "s3 user policy detach",
            "s3 user policy list",
            "s3 key create",
            "s3 key list",
            "s3 group list",
            "s3 group show",
            "s3 group policy attach",
            "s3 group policy detach",
            "s3 policy list",
            "s3 quota show",
            "s3 quota list",
            "s3 encryption status",
            "s3 events list",
        ];
        let security = [
            "status",
            "enable",
            "disable",
            "add-user",
            "alter-user",
            "add-group",
            "alter-group",
            "print-users",
            "print-user",
            "print-groups",
            "print-group",
            "print-sources",
            "print-grants",
            "ciphers",
        ]
        .map(|word| format!("security {word}"));
        let security: Vec<&str> = security.iter().map(String::as_str).collect();
        assert_eq!(
            with,
            [
                &["bucket-type list", "bucket-type status"],
                &s3[..],
                &security[..],
                &[
                    "status",
                    "cluster status",
                    "cluster repair-advice",
                    "member-status",
                    "mapreduce list",
                    "webhooks list",
                    "move status",
                    "index status"
                ]
            ]
            .concat()
        );
    }
}
