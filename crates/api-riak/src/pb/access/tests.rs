//! Every code of the table: in clear, encrypted without a user, with a user that has no permission, and with one that has.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::rules::security::{GrantChange, GrantTarget, KvPermission, RoleKind, RoleOptions};
use larder_net::RequestSource;
use larder_testkit::pb::{PbField, message};

use super::super::operations::{CODES, PbOperation};
use super::super::service::answer;
use super::*;
use crate::pb::testing::gateway;

/// A gateway with security on and the user `u`, who may come from anywhere on this machine.
async fn secured() -> Arc<Gateway> {
    let gateway = gateway().await;
    let security = gateway.security();
    security.add_role(RoleKind::User, "u", RoleOptions::parse(&["password=p"]).unwrap()).await.unwrap();
    security.add_source("u", "127.0.0.0/8", "trust", &[]).await.unwrap();
    security.set_enabled(true).await.unwrap();
    gateway
}

fn session(is_secure: bool) -> PbSession {
    let mut session = PbSession::new(RequestSource::plain([127, 0, 0, 1].into()));
    session.source.secure = is_secure;
    session
}

/// The session of a client that has proved to be `u`.
async fn user_session(gateway: &Gateway) -> PbSession {
    let login = Login { user: b"u", password: b"p", common_name: None, address: [127, 0, 0, 1].into() };
    let user = Some(gateway.security().log_in(&login).await.unwrap());
    PbSession { user, proven_by: Some(SourceMethod::Trust), ..session(true) }
}

/// A message with bucket `b`, a key and type `many`, where this operation has them.
fn sample(operation: PbOperation) -> Vec<u8> {
    let type_field = match operation {
        PbOperation::Get | PbOperation::Delete => 13,
        PbOperation::Put => 16,
        PbOperation::Index => 12,
        PbOperation::ScanBucket => 9,
        PbOperation::GetBucket | PbOperation::ResetBucket => 2,
        PbOperation::GetBucketType | PbOperation::SetBucketType => return message(&[PbField::Bytes(1, b"many")]),
        PbOperation::ListBuckets => return message(&[PbField::Bytes(3, b"many")]),
        PbOperation::GetCounter | PbOperation::UpdateCounter => {
            return message(&[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k")]);
        }
        PbOperation::ListKeys | PbOperation::SetBucket => 3,
        PbOperation::GetPreflist | PbOperation::FetchDatatype | PbOperation::UpdateDatatype => 3,
        PbOperation::Ping
        | PbOperation::GetClientId
        | PbOperation::SetClientId
        | PbOperation::GetServerInfo
        | PbOperation::MapReduce
        | PbOperation::StartTls
        | PbOperation::Authenticate => return Vec::new(),
    };
    let has_key = !matches!(
        operation,
        PbOperation::Index
            | PbOperation::ScanBucket
            | PbOperation::GetBucket
            | PbOperation::ResetBucket
            | PbOperation::ListKeys
            | PbOperation::SetBucket
    );
    let mut fields = vec![PbField::Bytes(1, b"b"), PbField::Bytes(type_field, b"many")];
    if has_key {
        fields.push(PbField::Bytes(2, b"k"));
    }
    message(&fields)
}

/// The error of a request, or nothing.
async fn refusal(gateway: &Arc<Gateway>, session: &mut PbSession, code: u8, message: Vec<u8>) -> Option<String> {
    let mut output = BytesMut::new();
    let error = answer(gateway, session, code, message.into(), &mut output).await.err()?;
    let mut frame = BytesMut::new();
    error.put(&mut frame);
    // The code and the two numbers before the text.
    Some(String::from_utf8_lossy(&frame[5..]).trim_matches(|mark: char| mark.is_control()).to_owned())
}

fn has(refusal: Option<&String>, text: &str) -> bool {
    refusal.is_some_and(|refusal| refusal.contains(text))
}

#[tokio::test]
async fn every_code_needs_encryption_then_a_user_then_its_permission() {
    let gateway = secured().await;
    for row in CODES.iter().filter(|row| !matches!(row.access, PbAccess::Login)) {
        let (code, sample) = (row.code, sample(row.operation));
        let clear = refusal(&gateway, &mut session(false), code, sample.clone()).await;
        assert!(has(clear.as_ref(), "Security is enabled, please STARTTLS first"), "{row:?}: {clear:?}");
        let nobody = refusal(&gateway, &mut session(true), code, sample.clone()).await;
        assert!(has(nobody.as_ref(), "Security is enabled, please authenticate first"), "{row:?}: {nobody:?}");
        let mut known_user = user_session(&gateway).await;
        let user = refusal(&gateway, &mut known_user, code, sample.clone()).await;
        let PbAccess::Needs(permissions, _) = row.access else {
            assert!(!has(user.as_ref(), "Permission denied"), "{row:?}: {user:?}");
            continue;
        };
        let scope = match row.operation {
            PbOperation::GetBucketType | PbOperation::SetBucketType | PbOperation::ListBuckets => "many",
            PbOperation::GetCounter | PbOperation::UpdateCounter => "default/b",
            _ => "many/b",
        };
        let text = format!("Permission denied: User 'u' does not have '{}' on {scope}", permissions[0].name());
        assert!(has(user.as_ref(), &text), "{row:?}: {user:?}");
        let all = permissions.iter().map(|permission| permission.name()).collect::<Vec<_>>().join(",");
        for names in KvPermission::ALL.iter().map(|other| other.name()).chain([&*all]) {
            let grant = |change| gateway.security().change_grants(change, names, &GrantTarget::Any, "u");
            grant(GrantChange::Grant).await.unwrap();
            let user = refusal(&gateway, &mut known_user, code, sample.clone()).await;
            assert_eq!(has(user.as_ref(), "Permission denied"), names != all, "{row:?}, {names}: {user:?}");
            grant(GrantChange::Revoke).await.unwrap();
        }
    }
    let unknown = refusal(&gateway, &mut session(false), 99, Vec::new()).await;
    assert!(has(unknown.as_ref(), "please STARTTLS first"), "{unknown:?}");
    let unknown = refusal(&gateway, &mut user_session(&gateway).await, 99, Vec::new()).await;
    assert!(has(unknown.as_ref(), "Unknown message code: 99"), "{unknown:?}");
}

#[tokio::test]
async fn an_open_connection_once_outlived_its_source() {
    let gateway = secured().await;
    let mut known_user = session(true);
    let log_in = message(&[PbField::Bytes(1, b"u"), PbField::Bytes(2, b"p")]);
    assert_eq!(refusal(&gateway, &mut known_user, 253, log_in.clone()).await, None);
    assert_eq!(refusal(&gateway, &mut known_user, 1, Vec::new()).await, None);
    let security = gateway.security();
    let source = |method| security.add_source("u", "127.0.0.0/8", method, &[]);
    source("password").await.unwrap();
    let unproven = refusal(&gateway, &mut known_user, 1, Vec::new()).await;
    assert!(has(unproven.as_ref(), "please authenticate first"), "by its address alone: {unproven:?}");
    assert_eq!(refusal(&gateway, &mut known_user, 253, log_in).await, None);
    assert_eq!(refusal(&gateway, &mut known_user, 1, Vec::new()).await, None);
    source("trust").await.unwrap();
    assert_eq!(refusal(&gateway, &mut known_user, 1, Vec::new()).await, None, "less than it has proved");
    source("certificate").await.unwrap();
    let unproven = refusal(&gateway, &mut known_user, 1, Vec::new()).await;
    assert!(has(unproven.as_ref(), "please authenticate first"), "by its password: {unproven:?}");
    source("password").await.unwrap();
    security.delete_source("u", "127.0.0.0/8").await.unwrap();
    let gone = refusal(&gateway, &mut known_user, 1, Vec::new()).await;
    assert!(has(gone.as_ref(), "please authenticate first"), "{gone:?}");
}

#[tokio::test]
async fn a_field_given_twice_is_checked_as_it_is_served() {
    let gateway = secured().await;
    let target = GrantTarget::Bucket("default".into(), "open".into());
    gateway.security().change_grants(GrantChange::Grant, "riak_kv.get", &target, "u").await.unwrap();
    let twice = message(&[PbField::Bytes(1, b"open"), PbField::Bytes(2, b"k"), PbField::Bytes(1, b"shut")]);
    let refused = refusal(&gateway, &mut user_session(&gateway).await, 9, twice).await;
    assert!(has(refused.as_ref(), "'riak_kv.get' on default/shut"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_third_failed_log_in_ends_the_connection() {
    let gateway = secured().await;
    gateway.security().add_source("u", "127.0.0.0/8", "password", &[]).await.unwrap();
    let login =
        |password: &[u8]| RpbAuthReq { user: Some("u".into()), password: Some(Bytes::copy_from_slice(password)) };
    let mut session = session(true);
    let mut output = BytesMut::new();
    for is_last in [false, false, true] {
        let begun = tokio::time::Instant::now();
        let failed = log_in(&gateway, &mut session, &PbUser::Unknown, login(b"wrong"), &mut output).await.unwrap_err();
        assert_eq!(failed.is_last(), is_last);
        assert!(begun.elapsed().as_secs() >= 5, "{:?}", begun.elapsed());
    }
    log_in(&gateway, &mut session, &PbUser::Unknown, login(b"p"), &mut output).await.unwrap();
    assert_eq!(&*session.user.unwrap().user, "u");
    assert_eq!(&output[..], [0, 0, 0, 1, AUTH_RESP]);
}

#[tokio::test]
async fn a_connection_once_kept_the_name_of_a_user_that_was_made_again() {
    let gateway = secured().await;
    let grant = gateway.security().change_grants(GrantChange::Grant, "riak_kv.get", &GrantTarget::Any, "u");
    grant.await.unwrap();
    let get = message(&[PbField::Bytes(1, b"b"), PbField::Bytes(2, b"k")]);
    let options = |options: &str| RoleOptions::parse(&[options]).unwrap();
    let mut before = user_session(&gateway).await;
    assert_eq!(refusal(&gateway, &mut before, 9, get.clone()).await, None);
    gateway.security().alter_role(RoleKind::User, "u", options("password=q")).await.unwrap();
    let refused = refusal(&gateway, &mut before, 9, get.clone()).await;
    assert!(has(refused.as_ref(), "please authenticate first"), "{refused:?}");
    let mut before = user_session(&gateway).await;
    assert_eq!(refusal(&gateway, &mut before, 9, get.clone()).await, None);
    gateway.security().delete_role(RoleKind::User, "u").await.unwrap();
    gateway.security().add_role(RoleKind::User, "u", options("password=r")).await.unwrap();
    let refused = refusal(&gateway, &mut before, 9, get).await;
    assert!(has(refused.as_ref(), "please authenticate first"), "{refused:?}");
}

#[tokio::test]
async fn a_certificate_makes_its_common_name_a_user_and_no_other() {
    let gateway = secured().await;
    gateway.security().add_source("u", "127.0.0.0/8", "certificate", &[]).await.unwrap();
    for (common_name, is_user) in [(Some("U"), true), (Some("u"), true), (None, false), (Some("v"), false)] {
        tokio::time::pause();
        let mut session = session(true);
        session.common_name = common_name.map(str::to_owned);
        let request = RpbAuthReq { user: Some("u".into()), password: None };
        let admitted = log_in(&gateway, &mut session, &PbUser::Unknown, request, &mut BytesMut::new()).await;
        assert_eq!(admitted.is_ok(), is_user, "{common_name:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_job_without_inputs_needs_its_permission_on_everything() {
    let gateway = secured().await;
    // {inputs,[]}, and a reduce that would return the key of any object.
    let name = |text: &[u8]| [&[119, text.len() as u8][..], text].concat();
    let tuple = |parts: &[Vec<u8>]| [&[104, parts.len() as u8][..], &parts.concat()].concat();
    let list = |parts: &[Vec<u8>]| [&[108, 0, 0, 0, parts.len() as u8][..], &parts.concat(), &[106]].concat();
    let function = tuple(&[name(b"modfun"), name(b"riak_kv_mapreduce"), name(b"reduce_identity")]);
    let reduce = tuple(&[name(b"reduce"), function, name(b"none"), name(b"true")]);
    let document = list(&[tuple(&[name(b"inputs"), vec![106]]), tuple(&[name(b"query"), list(&[reduce])])]);
    let document = [&[131][..], &document].concat();
    let job = message(&[PbField::Bytes(1, &document), PbField::Bytes(2, b"application/x-erlang-binary")]);
    let mut user = user_session(&gateway).await;
    let refused = refusal(&gateway, &mut user, 23, job.clone()).await;
    assert!(has(refused.as_ref(), "'riak_kv.mapreduce' on any"), "{refused:?}");
    let grant = gateway.security().change_grants(GrantChange::Grant, "riak_kv.mapreduce", &GrantTarget::Any, "u");
    grant.await.unwrap();
    assert_eq!(refusal(&gateway, &mut user, 23, job).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_log_in_that_its_client_gives_up_still_counts_as_a_failure() {
    let gateway = secured().await;
    gateway.security().add_source("u", "192.0.2.0/24", "password", &[]).await.unwrap();
    let address = [192, 0, 2, 1].into();
    let login = Login { user: b"u", password: b"wrong", common_name: None, address };
    // All at once, and given up before their pauses end.
    let given_up = (0..8).map(|_| tokio::time::timeout(Duration::from_secs(4), gateway.security().log_in(&login)));
    let ended = futures_util::future::join_all(given_up).await;
    assert!(ended.iter().all(Result::is_err), "a failure takes five seconds");
    let next = gateway.security().log_in(&login).await.map(|login| login.user);
    assert!(matches!(next, Err(LoginError::Busy)), "{next:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let next = gateway.security().log_in(&login).await.map(|login| login.user);
    assert!(matches!(next, Err(LoginError::Failed)), "the failures have ended: {next:?}");
}

#[tokio::test(start_paused = true)]
async fn guesses_of_one_user_once_kept_another_of_the_same_address_out() {
    let gateway = secured().await;
    gateway.security().add_role(RoleKind::User, "v", RoleOptions::parse(&["password=q"]).unwrap()).await.unwrap();
    gateway.security().add_source("u,v", "192.0.2.0/24", "password", &[]).await.unwrap();
    let address = [192, 0, 2, 1].into();
    let guess = Login { user: b"u", password: b"wrong", common_name: None, address };
    let guesses = futures_util::future::join_all((0..160).map(|_| gateway.security().log_in(&guess)));
    let right = Login { user: b"v", password: b"q", common_name: None, address };
    let (guessed, logged_in) = tokio::join!(guesses, gateway.security().log_in(&right));
    assert_eq!(logged_in.map(|login| login.user).unwrap(), "v".into());
    let (failed, busy): (Vec<_>, Vec<_>) =
        guessed.into_iter().map(Result::err).partition(|error| matches!(error, Some(LoginError::Failed)));
    assert_eq!(failed.len(), 8, "the other guesses are refused without a hash");
    assert!(busy.iter().all(|error| matches!(error, Some(LoginError::Busy))));
}
