use larder_rows::address::BucketAddress;
use serde_json::json;

use super::super::{GrantChange, GrantTarget, RoleOptions, SecurityEdit, SecurityRefusal, SourceMethod};
use super::*;

/// Rules that tests change command by command.
struct TestRules(AccessRules, u64);

impl TestRules {
    fn new() -> Self {
        Self(AccessRules::default(), 0)
    }

    fn apply(&mut self, edit: SecurityEdit) {
        self.1 += 1;
        self.0 = self.0.changed(Timestamp(self.1), edit).unwrap();
    }

    fn user(&mut self, name: &str, options: &[&str]) {
        let edit = self.0.add_role(RoleKind::User, name, RoleOptions::parse(options).unwrap(), None).unwrap();
        self.apply(edit);
    }

    fn group(&mut self, name: &str, options: &[&str]) {
        let edit = self.0.add_role(RoleKind::Group, name, RoleOptions::parse(options).unwrap(), None).unwrap();
        self.apply(edit);
    }

    fn grant(&mut self, permissions: &str, target: &GrantTarget, roles: &str) {
        let edit = self.0.change_grants(GrantChange::Grant, permissions, target, roles).unwrap();
        self.apply(edit);
    }

    fn source(&mut self, users: &str, cidr: &str, method: &str) {
        let edit = self.0.add_source(users, cidr, method, &[]).unwrap();
        self.apply(edit);
    }

    fn method(&self, user: &str, address: &str) -> Option<SourceMethod> {
        let user = &self.0.users()[user];
        self.0.user_source(user, address.parse().unwrap()).map(|source| source.method)
    }

    /// The scopes on which a user may get: `any`, the type `t`, the buckets `t/b` and `t/c`, and `u/b`.
    fn gets(&self, user: &str) -> [bool; 5] {
        let bucket =
            |of_type: &'static str, name: &'static str| BucketAddress::new(of_type.into(), name.into()).unwrap();
        let (tb, tc, ub) = (bucket("t", "b"), bucket("t", "c"), bucket("u", "b"));
        let scopes = [
            AccessScope::Any,
            AccessScope::Type(b"t"),
            AccessScope::Bucket(&tb),
            AccessScope::Bucket(&tc),
            AccessScope::Bucket(&ub),
        ];
        scopes.map(|scope| self.0.is_permitted(user, KvPermission::Get, scope))
    }
}

fn on_type(name: &str) -> GrantTarget {
    GrantTarget::Type(name.into())
}

fn on_bucket(of_type: &str, name: &str) -> GrantTarget {
    GrantTarget::Bucket(of_type.into(), name.into())
}

#[test]
fn a_grant_holds_for_its_target_and_what_is_in_it() {
    let mut rules = TestRules::new();
    rules.user("u", &[]);
    assert_eq!(rules.gets("u"), [false; 5]);
    rules.grant("riak_kv.get", &on_bucket("t", "b"), "u");
    assert_eq!(rules.gets("u"), [false, false, true, false, false]);
    rules.grant("riak_kv.get", &on_type("t"), "u");
    assert_eq!(rules.gets("u"), [false, true, true, true, false]);
    rules.grant("riak_kv.put", &GrantTarget::Any, "u");
    assert_eq!(rules.gets("u"), [false, true, true, true, false]);
    rules.grant("riak_kv.get", &GrantTarget::Any, "u");
    assert_eq!(rules.gets("u"), [true; 5]);
    assert_eq!(rules.gets("stranger"), [false; 5]);
}

#[test]
fn grants_add_up_over_groups_of_groups_and_all() {
    let mut rules = TestRules::new();
    rules.group("outer", &[]);
    rules.group("inner", &["groups=outer"]);
    rules.user("u", &["groups=inner"]);
    rules.user("v", &[]);
    rules.grant("riak_kv.get", &on_type("t"), "outer");
    rules.grant("riak_kv.get", &on_bucket("u", "b"), "inner");
    assert_eq!((rules.gets("u"), rules.gets("v")), ([false, true, true, true, true], [false; 5]));
    rules.grant("riak_kv.get", &GrantTarget::Any, "all");
    assert_eq!((rules.gets("u"), rules.gets("v")), ([true; 5], [true; 5]));
}

#[test]
fn groups_in_a_circle_are_found_once() {
    let mut rules = TestRules::new();
    rules.group("a", &[]);
    rules.group("b", &["groups=a"]);
    let edit = rules.0.alter_role(RoleKind::Group, "a", RoleOptions::parse(&["groups=b"]).unwrap(), None).unwrap();
    rules.apply(edit);
    rules.user("u", &["groups=a"]);
    rules.grant("riak_kv.get", &on_type("t"), "b");
    assert_eq!(rules.0.effective_groups(&rules.0.users()["u"].record), ["a", "b"]);
    assert!(rules.gets("u")[1]);
}

#[test]
fn a_removed_group_leaves_no_members_to_a_later_one_of_its_name() {
    let mut rules = TestRules::new();
    rules.group("g", &[]);
    rules.user("u", &["groups=g"]);
    rules.grant("riak_kv.get", &GrantTarget::Any, "g");
    let edit = rules.0.delete_role(RoleKind::Group, "g").unwrap();
    rules.apply(edit);
    rules.group("g", &[]);
    rules.grant("riak_kv.get", &GrantTarget::Any, "g");
    assert_eq!(rules.gets("u"), [false; 5]);
}

#[test]
fn a_removed_user_takes_its_grants_and_sources_along() {
    let mut rules = TestRules::new();
    rules.user("u", &[]);
    rules.grant("riak_kv.get", &GrantTarget::Any, "u");
    rules.source("u", "127.0.0.0/8", "trust");
    let edit = rules.0.delete_role(RoleKind::User, "U").unwrap();
    rules.apply(edit);
    assert_eq!(rules.gets("u"), [false; 5]);
    rules.user("u", &[]);
    assert_eq!((rules.gets("u"), rules.method("u", "127.0.0.1")), ([false; 5], None));
}

#[test]
fn a_revoked_permission_is_gone_and_others_stay() {
    let mut rules = TestRules::new();
    rules.user("u", &[]);
    rules.grant("riak_kv.get,riak_kv.put", &on_type("t"), "u");
    for target in [on_type("t"), GrantTarget::Any] {
        let edit = rules.0.change_grants(GrantChange::Revoke, "riak_kv.get", &target, "u").unwrap();
        rules.apply(edit);
    }
    assert_eq!(rules.gets("u"), [false; 5]);
    assert!(rules.0.is_permitted("u", KvPermission::Put, AccessScope::Type(b"t")));
}

#[test]
fn the_longest_mask_decides_and_a_users_own_source_before_that_of_all() {
    let mut rules = TestRules::new();
    rules.user("u", &[]);
    rules.user("v", &[]);
    assert_eq!(rules.method("u", "127.0.0.1"), None);
    rules.source("all", "127.0.0.0/8", "password");
    rules.source("u", "127.0.0.0/8", "trust");
    assert_eq!(rules.method("u", "127.0.0.1"), Some(SourceMethod::Trust));
    assert_eq!(rules.method("v", "::ffff:127.0.0.1"), Some(SourceMethod::Password));
    rules.source("all", "127.0.0.1/32", "certificate");
    assert_eq!(rules.method("u", "127.0.0.1"), Some(SourceMethod::Certificate));
    assert_eq!(rules.method("u", "127.0.0.2"), Some(SourceMethod::Trust));
    assert_eq!(rules.method("u", "::1"), None);
    rules.source("u", "127.9.9.9/8", "password");
    assert_eq!(rules.0.users()["u"].record.sources.len(), 1, "the same network");
    let edit = rules.0.delete_source("u", "127.0.0.0/8").unwrap();
    rules.apply(edit);
    assert_eq!(rules.method("u", "127.0.0.2"), Some(SourceMethod::Password));
}

#[test]
fn what_does_not_exist_is_refused_by_name() {
    let mut rules = TestRules::new();
    rules.user("both", &[]);
    rules.group("both", &[]);
    let grant = |permission: &str, roles: &str| {
        rules.0.change_grants(GrantChange::Grant, permission, &GrantTarget::Any, roles).unwrap_err()
    };
    let text = |text: &str| text.to_owned();
    use SecurityRefusal::{AmbiguousNames, BadNetwork, NameInUse, PamSource, UnknownGroup, UnknownNames, UnknownUsers};
    assert_eq!(grant("riak_kv.get", "x,both,y"), UnknownNames(text("x,y")));
    assert_eq!(grant("riak_kv.get", "both"), AmbiguousNames(text("both")));
    assert_eq!(grant("get", "both"), SecurityRefusal::UnknownPermission(text("get")));
    assert_eq!(rules.0.resolve_role("User/both"), Ok(SecurityKey::User(text("both"))));
    let options = || RoleOptions::parse(&["groups=h"]).unwrap();
    let unknown = SecurityRefusal::UnknownGroups(text("h"));
    assert_eq!(rules.0.add_role(RoleKind::User, "w", options(), None), Err(unknown));
    assert_eq!(rules.0.add_role(RoleKind::User, "BOTH", RoleOptions::default(), None), Err(NameInUse));
    assert_eq!(rules.0.delete_role(RoleKind::Group, "H"), Err(UnknownGroup(text("h"))));
    assert_eq!(rules.0.add_source("both,x", "::1", "trust", &[]), Err(UnknownUsers(text("x"))));
    assert_eq!(rules.0.add_source("both", "::1/x", "trust", &[]), Err(BadNetwork(text("::1/x"))));
    assert_eq!(rules.0.add_source("both", "::1", "pam", &["service=x"]), Err(PamSource));
}

#[test]
fn rules_know_the_rows_that_they_are_made_of() {
    let row = |key, number| (key, Timestamp(number), json!({}));
    let rows = vec![row(SecurityKey::All, 3), row(SecurityKey::User("u".into()), 4)];
    let rows_hold = |rules: &AccessRules, rows: &[(SecurityKey, Timestamp, Value)]| {
        rules.rows_hold(rows.iter().map(|(key, number, _)| (key, *number)))
    };
    let rules = AccessRules::from_rows(rows.clone()).unwrap();
    assert!(rows_hold(&rules, &rows));
    assert!(!rows_hold(&rules, &rows[..1]));
    assert!(!rows_hold(&rules, &[rows[0].clone(), row(SecurityKey::User("u".into()), 5)]));
    assert!(!rows_hold(&rules, &[rows[0].clone(), row(SecurityKey::User("v".into()), 4)]));
    assert!(AccessRules::from_rows(vec![(SecurityKey::All, Timestamp(1), json!(7))]).is_err());
}
