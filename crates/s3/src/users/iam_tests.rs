//! Policies, groups and sessions of users, over a memory store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_core::Config;
use larder_rows::limits::{ATTACHED_POLICIES_MAX, GROUPS_PER_USER_MAX};
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, Partition, ReadQuery, Store};
use larder_testkit::VirtualClock;
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};

use super::super::buckets::testing::{S3TestStore, new_caller, ports_over};
use super::*;
use crate::ObjectsConfig;
use crate::acl_choice::AclChoice;
use crate::rules::policy::canned::canned_document;
use crate::rules::{Bucket, KeyLimits, S3Action};
use crate::{Caller, Objects};

const READS: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:ListBucket"],
    "Resource":["arn:aws:s3:::tea","arn:aws:s3:::tea/*"]}]}"#;
const NO_DELETES: &str = r#"{"Statement":[{"Effect":"Deny","Action":"s3:Delete*","Resource":"*"}]}"#;
const ATTACH: AttachmentChange = AttachmentChange::Attach;
const DETACH: AttachmentChange = AttachmentChange::Detach;

fn holder(user: &User) -> PolicyHolder<'_> {
    PolicyHolder::User(&user.key_id)
}

/// The caller that the key of the user makes now.
async fn caller_of(objects: &Objects, user: &User) -> Caller {
    caller_by(&objects.users.key_holder(&user.key_id).await.unwrap())
}

fn caller_by(holder: &KeyHolder) -> Caller {
    let mut caller = Caller { user: Some(Arc::clone(&holder.user)), policies: holder.policies(), ..Caller::default() };
    caller.access_context.is_session = holder.session().is_some();
    caller
}

async fn bucket(objects: &Objects, name: &str) -> Arc<Bucket> {
    objects.buckets.find(name).await.unwrap()
}

fn may(caller: &Caller, bucket: &Arc<Bucket>, action: S3Action) -> bool {
    let asked = if action == S3Action::ListBucket { action.on_bucket() } else { action.on_key(b"k") };
    caller.check(bucket, &asked).is_ok()
}

fn names(page: &crate::buckets::BucketsPage) -> Vec<&str> {
    page.buckets.iter().map(|bucket| bucket.name.as_str()).collect()
}

/// A gateway with the buckets `tea` of alice and `milk` of bob.
async fn with_buckets(stores: &S3TestStore) -> (Arc<Objects>, Arc<User>, Arc<User>) {
    let objects = stores.gateway().await;
    let (alice, bob) = (new_caller(&objects, "alice").await, new_caller(&objects, "bob").await);
    objects.buckets.create(&alice, "tea", AclChoice::default(), None).await.unwrap();
    objects.buckets.create(&bob, "milk", AclChoice::default(), None).await.unwrap();
    (objects, alice.user.unwrap(), bob.user.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_attached_policy_takes_the_place_of_ownership_until_it_is_detached() {
    let stores = S3TestStore::new();
    let (objects, alice, bob) = with_buckets(&stores).await;
    let (tea, milk) = (bucket(&objects, "tea").await, bucket(&objects, "milk").await);
    assert!(objects.users.key_holder(&bob.key_id).await.unwrap().policies().is_none());
    objects.users.put_policy("reads", READS).await.unwrap();
    assert_eq!(objects.users.change_policies(holder(&bob), &["reads"], ATTACH).await.unwrap(), ["reads"]);
    let caller = caller_of(&objects, &bob).await;
    assert!(may(&caller, &tea, S3Action::GetObject) && may(&caller, &tea, S3Action::ListBucket));
    assert!(!may(&caller, &tea, S3Action::PutObject) && !may(&caller, &milk, S3Action::PutObject));
    assert_eq!(names(&objects.buckets.list(&caller, "", "", 10).await.unwrap()), ["tea"]);
    let made = objects.buckets.create(&caller, "new", AclChoice::default(), None).await;
    assert!(matches!(made, Err(Error::AccessDenied)), "{made:?}");
    // Alice, without policies, is as before.
    let caller = caller_of(&objects, &alice).await;
    assert!(may(&caller, &tea, S3Action::PutObject) && !may(&caller, &milk, S3Action::GetObject));
    assert_eq!(names(&objects.buckets.list(&caller, "", "", 10).await.unwrap()), ["tea"]);
    objects.users.change_policies(holder(&bob), &["reads"], DETACH).await.unwrap();
    let caller = caller_of(&objects, &bob).await;
    assert!(may(&caller, &milk, S3Action::PutObject) && !may(&caller, &tea, S3Action::GetObject));
}

#[tokio::test(start_paused = true)]
async fn members_have_the_policies_of_their_groups_and_a_deny_of_one_is_final() {
    let stores = S3TestStore::new();
    let (objects, _, bob) = with_buckets(&stores).await;
    let tea = bucket(&objects, "tea").await;
    objects.users.put_policy("no-deletes", NO_DELETES).await.unwrap();
    objects.users.create_group("team").await.unwrap();
    objects.users.change_members("team", std::slice::from_ref(&bob.key_id), ATTACH).await.unwrap();
    // A member of a group without policies has no rights of its own any more.
    let caller = caller_of(&objects, &bob).await;
    assert!(!may(&caller, &bucket(&objects, "milk").await, S3Action::GetObject));
    let listed = objects.buckets.list(&caller, "", "", 10).await;
    assert!(matches!(listed, Err(Error::AccessDenied)), "{listed:?}");
    objects.users.change_policies(PolicyHolder::Group("team"), &["readwrite"], ATTACH).await.unwrap();
    let caller = caller_of(&objects, &bob).await;
    assert!(may(&caller, &tea, S3Action::DeleteObject));
    assert_eq!(names(&objects.buckets.list(&caller, "", "", 10).await.unwrap()), ["milk", "tea"]);
    objects.buckets.create(&caller, "new", AclChoice::default(), None).await.unwrap();
    objects.users.change_policies(holder(&bob), &["no-deletes"], ATTACH).await.unwrap();
    let caller = caller_of(&objects, &bob).await;
    assert!(may(&caller, &tea, S3Action::PutObject) && !may(&caller, &tea, S3Action::DeleteObject));
    assert_eq!(objects.users.members("team").await.unwrap().len(), 1);
    objects.users.change_members("team", std::slice::from_ref(&bob.key_id), DETACH).await.unwrap();
    assert!(!may(&caller_of(&objects, &bob).await, &tea, S3Action::PutObject));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_use_stays_and_what_is_not_there_is_named() {
    let stores = S3TestStore::new();
    let (objects, alice, bob) = with_buckets(&stores).await;
    let users = &objects.users;
    let (admin, _) = users.ensure_admin(None).await.unwrap();
    users.put_policy("reads", READS).await.unwrap();
    users.put_policy("reads", READS).await.unwrap();
    users.create_group("team").await.unwrap();
    users.change_policies(PolicyHolder::Group("team"), &["reads"], ATTACH).await.unwrap();
    users.change_members("team", std::slice::from_ref(&bob.key_id), ATTACH).await.unwrap();
    let message = |result: Result<()>| match result {
        Err(Error::InvalidUser(message) | Error::MalformedPolicy(message)) => message,
        other => panic!("not refused: {other:?}"),
    };
    let attach = async |holder, name: &str| message(users.change_policies(holder, &[name], ATTACH).await.map(drop));
    assert!(message(users.delete_policy("reads").await).contains("attached to the group team"));
    assert!(message(users.delete_group("team").await).contains(&bob.key_id));
    assert!(message(users.delete_policy("readonly").await).contains("built in"));
    assert!(message(users.delete_policy("other").await).contains("no policy other"));
    assert!(message(users.delete_group("other").await).contains("no group other"));
    assert!(message(users.create_group("team").await).contains("already"));
    assert!(message(users.create_group("a b").await).contains("letters"));
    assert!(message(users.put_policy("readonly", READS).await).contains("built in"));
    assert!(message(users.put_policy("x", "{}").await).contains("Statement"));
    assert!(attach(holder(&bob), "other").await.contains("no policy other"));
    assert!(attach(holder(&bob), "diagnostics").await.contains("admin API"));
    assert!(attach(holder(&admin), "readonly").await.contains("administrator"));
    let member = users.change_members("team", std::slice::from_ref(&admin.key_id), ATTACH).await;
    assert!(message(member).contains("administrator"));
    let detached = users.change_policies(holder(&bob), &["reads"], DETACH).await.map(drop);
    assert!(message(detached).contains("not attached"));
    // All or none.
    let keys = [alice.key_id.clone(), "nobody".to_owned()];
    assert!(matches!(users.change_members("team", &keys, ATTACH).await, Err(Error::UnknownKey(_))));
    assert_eq!(users.members("team").await.unwrap().len(), 1);
    users.change_members("team", std::slice::from_ref(&bob.key_id), DETACH).await.unwrap();
    users.delete_group("team").await.unwrap();
    users.delete_policy("reads").await.unwrap();
    assert!(users.groups().await.unwrap().is_empty());
    assert_eq!(users.policies().await.unwrap().len(), 4);
}

/// A store whose calls wait for others now and then, in an order that follows from their number.
struct TurnsHook {
    store: Arc<MemoryStore>,
    calls: AtomicU64,
}

impl StoreHook for TurnsHook {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn around<'a, T: Send>(
        &'a self,
        _call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> larder_store::Result<T> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..number >> 62 {
            tokio::task::yield_now().await;
        }
        make(options).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_or_group_is_not_deleted_while_another_gateway_uses_it() {
    let start = tokio::time::Instant::now();
    let memory = Arc::new(MemoryStore::new(Arc::new(VirtualClock(start))));
    let hook = Arc::new(TurnsHook { store: Arc::clone(&memory), calls: AtomicU64::new(0) });
    let gateway = async |actor: u64| {
        let store = Arc::new(Hooked(Arc::clone(&hook)));
        let ports = ports_over(store, Arc::clone(&memory) as _, Arc::new(VirtualClock(start)), actor);
        let config = Config { node: format!("g{actor}"), single_process: false, ..Config::default() };
        let settings = ObjectsConfig { single_process: false, ..ObjectsConfig::default() };
        Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), settings)
    };
    let (one, other) = (gateway(1).await, gateway(2).await);
    let bob = one.users.create("bob@b", "bob", false, None).await.unwrap();
    let keys = std::slice::from_ref(&bob.key_id);
    let mut attached_first = [0; 2];
    for _ in 0..40 {
        one.users.put_policy("own", READS).await.unwrap();
        let attach = other.users.change_policies(holder(&bob), &["own"], ATTACH);
        let (deleted, attached) = tokio::join!(one.users.delete_policy("own"), attach);
        assert_ne!(deleted.is_ok(), attached.is_ok(), "{deleted:?} {attached:?}");
        if attached.is_ok() {
            attached_first[0] += 1;
            other.users.change_policies(holder(&bob), &["own"], DETACH).await.unwrap();
        }
        one.users.create_group("team").await.unwrap();
        let add = other.users.change_members("team", keys, ATTACH);
        let (added, deleted) = tokio::join!(add, one.users.delete_group("team"));
        assert_ne!(deleted.is_ok(), added.is_ok(), "{deleted:?} {added:?}");
        if added.is_ok() {
            attached_first[1] += 1;
            other.users.change_members("team", keys, DETACH).await.unwrap();
            one.users.delete_group("team").await.unwrap();
        }
    }
    // Both orders came.
    assert!(attached_first.iter().all(|count| (1..40).contains(count)), "{attached_first:?}");
}

#[tokio::test(start_paused = true)]
async fn attachments_are_bounded() {
    let objects = S3TestStore::new().gateway().await;
    let bob = objects.users.create("bob@b", "bob", false, None).await.unwrap();
    for number in 0..=ATTACHED_POLICIES_MAX {
        let name = format!("p{number}");
        objects.users.put_policy(&name, READS).await.unwrap();
        let attached = objects.users.change_policies(holder(&bob), &[&name], ATTACH).await;
        assert_eq!(attached.is_ok(), number < ATTACHED_POLICIES_MAX, "{number}");
    }
    for number in 0..=GROUPS_PER_USER_MAX {
        let name = format!("g{number}");
        objects.users.create_group(&name).await.unwrap();
        let added = objects.users.change_members(&name, std::slice::from_ref(&bob.key_id), ATTACH).await;
        assert_eq!(added.is_ok(), number < GROUPS_PER_USER_MAX, "{number}");
    }
}

/// The store of a gateway that reads a user, and then finds a policy of it gone, must not allow what the policy denied.
#[tokio::test(start_paused = true)]
async fn a_policy_that_vanished_denies_all_until_the_user_is_read_again() {
    let stores = S3TestStore::new();
    let (objects, _, bob) = with_buckets(&stores).await;
    for (policies, groups) in
        [(vec!["gone".to_owned(), "readwrite".to_owned()], vec![]), (vec![], vec!["gone".to_owned()])]
    {
        let user = User { policies, groups, ..User::clone(&bob) };
        let attached = objects.users.attached_policies(&user).await.unwrap();
        let policies = Some(Arc::new(crate::rules::policy::CallerPolicies { attached, narrowing: Vec::new() }));
        let caller = Caller { user: Some(Arc::new(user)), policies, ..Caller::default() };
        assert!(!may(&caller, &bucket(&objects, "milk").await, S3Action::GetObject));
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_policies_hold_at_once_here_and_elsewhere_in_two_seconds() {
    let stores = S3TestStore::new();
    let (objects, _, bob) = with_buckets(&stores).await;
    let other = stores.gateway().await;
    let tea = bucket(&objects, "tea").await;
    objects.users.put_policy("own", canned_document("readwrite").unwrap()).await.unwrap();
    objects.users.change_policies(holder(&bob), &["own"], ATTACH).await.unwrap();
    assert!(may(&caller_of(&other, &bob).await, &tea, S3Action::PutObject));
    objects.users.put_policy("own", READS).await.unwrap();
    assert!(!may(&caller_of(&objects, &bob).await, &tea, S3Action::PutObject));
    tokio::time::advance(Duration::from_millis(2001)).await;
    assert!(!may(&caller_of(&other, &bob).await, &tea, S3Action::PutObject));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_valid_on_each_gateway_and_narrowed_by_its_policy() {
    let stores = S3TestStore::new();
    let (objects, alice, bob) = with_buckets(&stores).await;
    let (tea, milk) = (bucket(&objects, "tea").await, bucket(&objects, "milk").await);
    let maker = objects.users.key_holder(&alice.key_id).await.unwrap();
    let wide = objects.users.create_session(&maker, 900, None).await.unwrap();
    let narrow = objects.users.create_session(&maker, 900, Some(READS.to_owned())).await.unwrap();
    assert!(wide.key.key_id.starts_with("ASIA") && wide.key.secret.len() == 40 && wide.key.secret != narrow.key.secret);
    let other = stores.gateway().await;
    let found = other.users.session_holder(&wide.key.key_id, &wide.token).await.unwrap();
    assert_eq!((found.secret(), found.key_id()), (&*wide.key.secret, &*alice.key_id));
    assert!(!found.is_first_key() && !format!("{found:?}").contains(&wide.key.secret));
    let caller = caller_by(&found);
    assert!(may(&caller, &tea, S3Action::PutObject) && !may(&caller, &milk, S3Action::GetObject));
    let found = other.users.session_holder(&narrow.key.key_id, &narrow.token).await.unwrap();
    let caller = caller_by(&found);
    assert!(may(&caller, &tea, S3Action::GetObject) && !may(&caller, &tea, S3Action::PutObject));
    // The policy narrows: it gives nothing that its user has not.
    let maker = objects.users.key_holder(&bob.key_id).await.unwrap();
    let foreign = objects.users.create_session(&maker, 900, Some(READS.to_owned())).await.unwrap();
    let found = objects.users.session_holder(&foreign.key.key_id, &foreign.token).await.unwrap();
    assert!(!may(&caller_by(&found), &tea, S3Action::GetObject));
    // A session cannot make another, and a token opens for its own key alone.
    assert!(matches!(objects.users.create_session(&found, 900, None).await, Err(Error::AccessDenied)));
    for (key_id, token) in [(&*wide.key.key_id, &*narrow.token), ("ASIAX", &wide.token), (&wide.key.key_id, "x")] {
        assert!(matches!(objects.users.session_holder(key_id, token).await, Err(Error::InvalidToken)), "{key_id}");
    }
    assert!(matches!(objects.users.key_holder(&wide.key.key_id).await, Err(Error::UnknownKey(_))));
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_user_its_key_and_the_secret_of_it() {
    let stores = S3TestStore::new();
    let (objects, other) = (stores.gateway().await, stores.gateway().await);
    let users = &objects.users;
    let user = users.create("foo@example.com", "Foo", false, None).await.unwrap();
    let limits = KeyLimits {
        read_only: true,
        expires: Some(users.context.now().saturating_add(60 * 1_000_000)),
        ..KeyLimits::default()
    };
    let (_, key) = users.add_key(&user.key_id, NewKey { limits, ..NewKey::default() }).await.unwrap();
    let session = async |key_id: &str| {
        let maker = users.key_holder(key_id).await.unwrap();
        users.create_session(&maker, 3600, None).await.unwrap()
    };
    let find = async |session: &SessionCredentials| {
        tokio::time::advance(Duration::from_millis(2001)).await;
        other.users.session_holder(&session.key.key_id, &session.token).await
    };
    // By a further key: its limits are those of the session, and its end, too.
    let limited = session(&key.id).await;
    assert_eq!(Some(limited.key.expires), key.limits.expires);
    assert!(find(&limited).await.unwrap().policies().is_some());
    users.revoke_key(&key.id).await.unwrap();
    assert!(matches!(find(&limited).await, Err(Error::InvalidToken)));
    let first = session(&user.key_id).await;
    assert!(!first.key.is_expired(users.context.now()) && first.key.is_expired(first.key.expires));
    let change = UserChange { enabled: Some(false), ..UserChange::default() };
    users.update(&user.key_id, change).await.unwrap();
    assert!(!find(&first).await.unwrap().user.enabled);
    let change = UserChange { enabled: Some(true), new_secret: true, ..UserChange::default() };
    users.update(&user.key_id, change).await.unwrap();
    assert!(matches!(find(&first).await, Err(Error::InvalidToken)));
    let second = session(&user.key_id).await;
    let given = users.find_by_key(&user.key_id).await.unwrap();
    users.delete(&user.key_id).await.unwrap();
    assert!(matches!(find(&second).await, Err(Error::InvalidToken)));
    // Another user with the same key is another user.
    let same_key = Some((given.key_id.clone(), given.secret.clone()));
    users.create("foo@example.com", "Foo", false, same_key).await.unwrap();
    assert!(matches!(find(&second).await, Err(Error::InvalidToken)));
}

/// Once all policies of a caller shared the work of one: keys at the end of a request were denied.
#[test]
fn many_policies_leave_the_keys_of_a_long_request_their_work() {
    let key = "k".repeat(24);
    let policies = (0..8).map(|number| {
        let statement = |last: usize| {
            let resource = if last == 0 { key.clone() } else { format!("{key}{number}-{last}*") };
            format!(r#"{{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::tea/{resource}"}}"#)
        };
        let statements: Vec<String> = (0..150).map(|at| statement(149 - at)).collect();
        let document = format!(r#"{{"Statement":[{}]}}"#, statements.join(","));
        Arc::new(crate::rules::policy::IdentityPolicy::parse_new(&document).unwrap())
    });
    let policies = crate::rules::policy::CallerPolicies { attached: Some(policies.collect()), narrowing: Vec::new() };
    let user = Arc::new(User { id: "bob".into(), ..User::default() });
    let caller = Caller { user: Some(user), policies: Some(Arc::new(policies)), ..Caller::default() };
    let caller = caller.with_work(1000);
    let tea = Bucket::new("tea", crate::rules::BucketId([1; 16]), "alice", larder_rows::Timestamp(1));
    for number in 0..1000 {
        assert!(caller.check(&tea, &S3Action::DeleteObject.on_key(key.as_bytes())).is_ok(), "{number}");
    }
}

/// An older server must not ignore what policies forbid: it refuses a user of version 2.
#[tokio::test(start_paused = true)]
async fn the_golden_rows() {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let users = &objects.users;
    let key = Some(("KEY".to_owned(), "secret".to_owned()));
    let new = NewUser { email: "a@b".into(), name: "A".into(), key, id: Some("0".repeat(64)), ..NewUser::default() };
    let user = users.create_user(new).await.unwrap();
    let text = async |name: &[u8]| {
        let query = ReadQuery::one(bytes::Bytes::copy_from_slice(name));
        let page = users.context.read_at_quorum(&Partition::users(), &query).await.unwrap();
        String::from_utf8(page.rows[0].value.to_vec()).unwrap()
    };
    let row = [b"u", user.id.as_bytes()].concat();
    assert!(text(&row).await.starts_with("\u{1}{\"id\":"));
    users.put_policy("own", r#"{"Statement":[]}"#).await.unwrap_err();
    users.put_policy("own", NO_DELETES).await.unwrap();
    users.create_group("team").await.unwrap();
    users.change_policies(PolicyHolder::Group("team"), &["own"], ATTACH).await.unwrap();
    users.change_policies(holder(&user), &["readonly"], ATTACH).await.unwrap();
    users.change_members("team", std::slice::from_ref(&user.key_id), ATTACH).await.unwrap();
    let stored = text(&row).await;
    assert!(stored.starts_with("\u{2}{\"id\":") && stored.ends_with(r#","policies":["readonly"],"groups":["team"]}"#));
    let document = r#"{\"Statement\":[{\"Effect\":\"Deny\",\"Action\":\"s3:Delete*\",\"Resource\":\"*\"}]}"#;
    assert_eq!(text(b"pown").await, format!("\u{1}\"{document}\""));
    let created = users.group("team").await.unwrap().created.0;
    assert_eq!(
        text(b"gteam").await,
        format!("\u{1}{{\"name\":\"team\",\"created\":{created},\"policies\":[\"own\"]}}")
    );
    let maker = users.key_holder("KEY").await.unwrap();
    users.create_session(&maker, 900, None).await.unwrap();
    let query = ReadQuery::one(bytes::Bytes::from_static(b"t"));
    let page = users.context.read_at_quorum(&Partition::users(), &query).await.unwrap();
    assert_eq!((page.rows[0].value.len(), page.rows[0].value[0]), (33, 1));
    // Without attachments it is a row of version 1 again.
    users.change_policies(holder(&user), &["readonly"], DETACH).await.unwrap();
    users.change_members("team", std::slice::from_ref(&user.key_id), DETACH).await.unwrap();
    assert!(text(&row).await.starts_with("\u{1}{\"id\":"));
}
