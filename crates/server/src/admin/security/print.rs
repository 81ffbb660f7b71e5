//! The tables of `security`, and the same as JSON.

use std::collections::BTreeMap;

use larder_core::rules::security::{AccessRules, GrantTarget, PermissionSet, RoleKind, RoleRecord, SecurityKey};
use larder_kv_admin::frame::AdminAnswer;
use serde_json::{Value as Json, json};

use super::super::command::{CommandCall, CommandResult, shown};
use super::super::console_table::{TableColumn, table, wrapped};
use super::{refused, rules};

const USER_COLUMNS: &[TableColumn] =
    &[("username", 10), ("member of", MEMBER_WIDTH), ("password", 40), ("options", 30)];
const GROUP_COLUMNS: &[TableColumn] = &[("group", 10), ("member of", MEMBER_WIDTH), ("options", 30)];
const SOURCE_COLUMNS: &[TableColumn] = &[("users", USERS_WIDTH), ("cidr", 10), ("source", 10), ("options", 10)];
const GRANT_COLUMNS: &[TableColumn] = &[("type", 10), ("bucket", 10), ("grants", GRANTS_WIDTH)];
const INHERITED_COLUMNS: &[TableColumn] = &[("group", 20), ("type", 10), ("bucket", 10), ("grants", GRANTS_WIDTH)];
const MEMBER_WIDTH: usize = 15;
const USERS_WIDTH: usize = 20;
const GRANTS_WIDTH: usize = 40;
/// Digits of a hash that are shown, as many as Riak's have. Without its salt no password can be guessed from it.
const HASH_DIGITS: usize = 40;

pub(in super::super) async fn print_users(call: CommandCall<'_>) -> CommandResult {
    let rules = rules(&call).await?;
    let users: Vec<_> = rules.users().iter().map(|(name, entry)| (name.as_str(), &*entry.record)).collect();
    Ok(roles(RoleKind::User, &users, call.json))
}

pub(in super::super) async fn print_groups(call: CommandCall<'_>) -> CommandResult {
    let rules = rules(&call).await?;
    let groups: Vec<_> = rules.groups().iter().map(|(name, entry)| (name.as_str(), &*entry.record)).collect();
    Ok(roles(RoleKind::Group, &groups, call.json))
}

pub(in super::super) async fn print_user(call: CommandCall<'_>) -> CommandResult {
    role(&*rules(&call).await?, RoleKind::User, call.args[0], call.json)
}

pub(in super::super) async fn print_group(call: CommandCall<'_>) -> CommandResult {
    role(&*rules(&call).await?, RoleKind::Group, call.args[0], call.json)
}

/// The table of one user or group.
pub(super) fn role(rules: &AccessRules, kind: RoleKind, name: &str, json: bool) -> CommandResult {
    let (name, entry) = rules.existing(kind, name).map_err(|error| refused(error.into()))?;
    if json {
        return Ok(AdminAnswer::json(&role_json(kind, &name, &entry.record)));
    }
    Ok(roles(kind, &[(&name, &*entry.record)], false))
}

pub(in super::super) async fn print_sources(call: CommandCall<'_>) -> CommandResult {
    let rules = rules(&call).await?;
    let mut sources: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    let (all, users) = (rules.all(), rules.users());
    let of_users =
        users.iter().flat_map(|(name, entry)| entry.record.sources.iter().map(|source| (name.as_str(), source)));
    for (name, source) in of_users.chain(all.sources.iter().map(|source| ("all", source))) {
        // In the order in which a log-in looks at them: the longest mask first, and those of all last.
        let order = (u32::MAX - source.network.bits(), name == "all", source.network.to_string(), source.method.word());
        sources.entry((order, Json::Object(source.options.clone()).to_string())).or_default().push(name);
    }
    let of = |(((_, _, cidr, method), options), names)| (cidr, method, options, names);
    let sources: Vec<(String, &str, String, Vec<&str>)> = sources.into_iter().map(of).collect();
    if call.json {
        let parsed = |options: &str| serde_json::from_str::<Json>(options).unwrap_or_default();
        let line = |(cidr, method, options, names): &(String, &str, String, Vec<&str>)| json!({"users": names, "cidr": cidr, "source": method, "options": parsed(options)});
        return Ok(AdminAnswer::json(&sources.iter().map(line).collect()));
    }
    let row = |(cidr, method, options, names): &(String, &str, String, Vec<&str>)| {
        let options = serde_json::from_str(options).unwrap_or_default();
        vec![wrapped(names.iter().copied(), USERS_WIDTH), cidr.clone(), (*method).to_owned(), erlang_list(&options)]
    };
    Ok(printed(SOURCE_COLUMNS, &sources.iter().map(row).collect::<Vec<_>>()))
}

pub(in super::super) async fn print_grants(call: CommandCall<'_>) -> CommandResult {
    let rules = rules(&call).await?;
    let key = rules.resolve_role(call.args[0]).map_err(|error| refused(error.into()))?;
    let record = rules.record(&key);
    let of_user = matches!(key, SecurityKey::User(_));
    let all = rules.all();
    let mut inherited: Vec<(&str, &GrantTarget, PermissionSet)> = Vec::new();
    for group in rules.effective_groups(&record) {
        let grants = rules.groups().get(group).map(|entry| entry.record.grants.as_slice()).unwrap_or_default();
        inherited.extend(grants.iter().map(|grant| (group, &grant.target, grant.permissions)));
    }
    if of_user {
        inherited.extend(all.grants.iter().map(|grant| ("all", &grant.target, grant.permissions)));
    }
    let dedicated: Vec<_> = record.grants.iter().map(|grant| (&grant.target, grant.permissions)).collect();
    let mut cumulative: BTreeMap<&GrantTarget, PermissionSet> = BTreeMap::new();
    for (target, set) in dedicated.iter().copied().chain(inherited.iter().map(|(_, target, set)| (*target, *set))) {
        let sum = cumulative.entry(target).or_default();
        *sum = sum.with(set);
    }
    let cumulative: Vec<_> = cumulative.into_iter().collect();
    if call.json {
        let of_group = |(group, target, set): &(&str, &GrantTarget, PermissionSet)| {
            let mut grant = grant_json(target, *set);
            grant["group"] = json!(group);
            grant
        };
        return Ok(AdminAnswer::json(&json!({
            "inherited": inherited.iter().map(of_group).collect::<Vec<_>>(),
            "dedicated": dedicated.iter().map(|(target, set)| grant_json(target, *set)).collect::<Vec<_>>(),
            "cumulative": cumulative.iter().map(|(target, set)| grant_json(target, *set)).collect::<Vec<_>>(),
        })));
    }
    let title = shown(column_title(&key).as_bytes());
    let of_group = |(group, target, set): &(&str, &GrantTarget, PermissionSet)| {
        [vec![(*group).to_owned()], grant_row(target, *set)].concat()
    };
    let grant_rows = |grants: &[(&GrantTarget, PermissionSet)]| {
        grants.iter().map(|(target, set)| grant_row(target, *set)).collect::<Vec<_>>()
    };
    let tables = [
        ("Inherited", INHERITED_COLUMNS, inherited.iter().map(of_group).collect()),
        ("Dedicated", GRANT_COLUMNS, grant_rows(&dedicated)),
        ("Cumulative", GRANT_COLUMNS, grant_rows(&cumulative)),
    ];
    let shown = tables.iter().filter(|(.., rows)| !rows.is_empty());
    let text: String = shown
        .map(|(kind, columns, rows)| format!("\n{kind} permissions ({title})\n{}", table(columns, rows)))
        .collect();
    Ok(AdminAnswer { stdout: text, ..AdminAnswer::default() })
}

fn column_title(key: &SecurityKey) -> String {
    match key {
        SecurityKey::User(name) => format!("user/{name}"),
        SecurityKey::Group(name) => format!("group/{name}"),
        SecurityKey::All | SecurityKey::Settings => "all".to_owned(),
    }
}

fn roles(kind: RoleKind, roles: &[(&str, &RoleRecord)], json: bool) -> AdminAnswer {
    if json {
        return AdminAnswer::json(&roles.iter().map(|(name, record)| role_json(kind, name, record)).collect());
    }
    let row = |(name, record): &(&str, &RoleRecord)| {
        let hash = record.password.as_deref().and_then(|stored| stored.rsplit_once('$')).map_or("", |(_, hash)| hash);
        let (groups, options) = (record.groups.iter().map(String::as_str), erlang_list(&record.options));
        let mut row = vec![(*name).to_owned(), wrapped(groups, MEMBER_WIDTH), options];
        if kind == RoleKind::User {
            row.insert(2, hash.chars().take(HASH_DIGITS).collect());
        }
        row
    };
    let columns = if kind == RoleKind::User { USER_COLUMNS } else { GROUP_COLUMNS };
    printed(columns, &roles.iter().map(row).collect::<Vec<_>>())
}

/// A table, as it is: it ends with an empty line, and without rows nothing is printed.
fn printed(columns: &[TableColumn], rows: &[Vec<String>]) -> AdminAnswer {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| readable(cell)).collect()).collect();
    AdminAnswer { stdout: table(columns, &rows), ..AdminAnswer::default() }
}

/// A cell whose lines have no control characters.
fn readable(cell: &str) -> String {
    cell.lines().map(|line| shown(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

fn role_json(kind: RoleKind, name: &str, record: &RoleRecord) -> Json {
    match kind {
        RoleKind::User => json!({"username": name, "groups": record.groups, "password": record.password.is_some(),
            "options": record.options}),
        RoleKind::Group => json!({"group": name, "groups": record.groups, "options": record.options}),
    }
}

fn grant_json(target: &GrantTarget, permissions: PermissionSet) -> Json {
    let (of_type, bucket) = match target {
        GrantTarget::Any => (None, None),
        GrantTarget::Type(of_type) => (Some(of_type), None),
        GrantTarget::Bucket(of_type, bucket) => (Some(of_type), Some(bucket)),
    };
    let names: Vec<&str> = permissions.iter().map(|permission| permission.name()).collect();
    json!({"type": of_type, "bucket": bucket, "permissions": names})
}

fn grant_row(target: &GrantTarget, permissions: PermissionSet) -> Vec<String> {
    let (of_type, bucket) = target.columns();
    let names = wrapped(permissions.iter().map(|permission| permission.name()), GRANTS_WIDTH);
    vec![shown(of_type.as_bytes()), shown(bucket.as_bytes()), names]
}

/// Options as Riak's console prints them.
fn erlang_list(options: &serde_json::Map<String, Json>) -> String {
    let pair = |(key, value): (&String, &Json)| format!("{{{key:?},{value}}}");
    format!("[{}]", options.iter().map(pair).collect::<Vec<_>>().join(","))
}
