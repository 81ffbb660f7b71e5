use larder_rows::Timestamp;
use larder_rows::limits::POLICY_BYTES_MAX;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn user(name: &str) -> User {
    User {
        id: format!("id-{name}"),
        key_id: format!("KEY-{name}"),
        secret: String::new(),
        name: name.to_owned(),
        email: format!("{name}@example.com"),
        display_name: name.to_owned(),
        enabled: true,
        admin: false,
        created: Timestamp::ZERO,
        ..User::default()
    }
}

/// A statement that allows everything to all callers, with the fields of `with` instead of its own; `null` removes a field.
fn statement(with: Json) -> Json {
    let mut all = json!({
        "Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::tea", "arn:aws:s3:::tea/*"],
    });
    for (name, value) in with.as_object().unwrap() {
        all[name] = value.clone();
    }
    all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    all
}

fn document(statements: &[Json]) -> String {
    json!({"Version": "2012-10-17", "Id": "x", "Statement": statements}).to_string()
}

fn policy(statements: &[Json]) -> BucketPolicy {
    BucketPolicy::parse("tea", &document(statements)).unwrap()
}

fn request(action: S3Action, key: Option<&str>) -> AccessRequest<'_> {
    AccessRequest { action, key: key.map(str::as_bytes), version: None }
}

/// The decision on a get of the object `a/b` by `alice`.
fn get(policy: &BucketPolicy, access_context: &AccessContext) -> PolicyDecision {
    policy.evaluate("tea", Some(&user("alice")), &request(S3Action::GetObject, Some("a/b")), access_context)
}

fn at() -> AccessContext {
    AccessContext {
        is_session: false,
        source: Some("10.1.2.3".parse().unwrap()),
        secure: true,
        now: Timestamp(1_372_550_400_000_000),
        keys: vec![
            ("aws:Referer", "http://example.com/page".into()),
            ("s3:prefix", "home/alice/".into()),
            ("s3:max-keys", "10".into()),
        ],
        request_tags: vec![tag("team", "red"), tag("stage", "test")],
        work: PolicyWork::default(),
    }
}

fn tag(key: &str, value: &str) -> super::super::tags::Tag {
    super::super::tags::Tag { key: key.into(), value: value.into() }
}

#[test]
fn a_deny_wins_in_any_order() {
    let (allow, deny) = (statement(json!({})), statement(json!({"Effect": "Deny", "Action": "s3:Get*"})));
    for order in [[allow.clone(), deny.clone()], [deny, allow.clone()]] {
        assert_eq!(get(&policy(&order), &at()), PolicyDecision::Deny);
        let put = policy(&order).evaluate("tea", None, &request(S3Action::PutObject, Some("k")), &at());
        assert_eq!(put, PolicyDecision::Allow);
    }
    let other = statement(json!({"Action": "s3:PutObject"}));
    assert_eq!(get(&policy(std::slice::from_ref(&other)), &at()), PolicyDecision::Neutral);
    assert_eq!(get(&policy(&[other, allow]), &at()), PolicyDecision::Allow);
}

#[test]
fn principals_select_the_callers_that_they_name() {
    let alice = user("alice");
    let mallory = User { name: "alice@example.com".into(), ..user("mallory") };
    let includes = |principal: Json, who: Option<&User>| {
        let policy = policy(&[statement(json!({"Principal": principal}))]);
        policy.evaluate("tea", who, &request(S3Action::GetObject, Some("k")), &at()) == PolicyDecision::Allow
    };
    for everybody in [json!("*"), json!({"AWS": "*"}), json!({"AWS": ["id-bob", "*"]})] {
        assert!(includes(everybody.clone(), None) && includes(everybody, Some(&alice)));
    }
    for only_alice in [
        json!({"AWS": "id-alice"}),
        json!({"AWS": "KEY-alice"}),
        json!({"CanonicalUser": "id-alice"}),
        json!({"CanonicalUser": ["id-bob", "id-alice"]}),
        json!({"AWS": "id-bob", "CanonicalUser": "id-alice"}),
        json!({"AWS": "arn:aws:iam::123456789012:user/id-alice"}),
        json!({"AWS": "arn:aws:iam:::user/KEY-alice"}),
        json!({"AWS": "arn:aws:iam::x:user/alice@example.com"}),
        json!({"AWS": "arn:aws:iam::x:user/some/path/KEY-alice"}),
        json!({"AWS": "arn:aws:iam::KEY-alice:root"}),
    ] {
        assert!(includes(only_alice.clone(), Some(&alice)), "{only_alice}");
        assert!(!includes(only_alice.clone(), None), "{only_alice}");
        assert!(!includes(only_alice.clone(), Some(&user("bob2"))), "{only_alice}");
        assert!(!includes(only_alice.clone(), Some(&mallory)), "{only_alice}");
    }
    // Users choose their names, so a name identifies no user.
    assert!(!includes(json!({"AWS": "arn:aws:iam::123456789012:user/alice"}), Some(&alice)));
}

#[test]
fn a_deny_with_not_principal_spares_the_named_user() {
    let deny = statement(json!({"Effect": "Deny", "Principal": null, "NotPrincipal": {"AWS": "id-alice"}}));
    let policy = policy(&[statement(json!({})), deny]);
    let request = request(S3Action::GetObject, Some("k"));
    assert_eq!(policy.evaluate("tea", Some(&user("alice")), &request, &at()), PolicyDecision::Allow);
    assert_eq!(policy.evaluate("tea", Some(&user("bob")), &request, &at()), PolicyDecision::Deny);
    assert_eq!(policy.evaluate("tea", None, &request, &at()), PolicyDecision::Deny);
}

#[test]
fn an_allow_with_not_principal_does_not_let_anonymous_callers_in() {
    let policy = policy(&[statement(json!({"Principal": null, "NotPrincipal": {"AWS": "id-alice"}}))]);
    assert_eq!(policy.void_parts("tea").collect::<Vec<_>>(), [(1, VoidPart::AllowNotPrincipal)]);
    let request = request(S3Action::GetObject, Some("k"));
    for user in [None, Some(&user("alice")), Some(&user("bob"))] {
        assert_eq!(policy.evaluate("tea", user, &request, &at()), PolicyDecision::Neutral);
    }
}

#[test]
fn actions_and_resources_select_what_they_name() {
    let allows = |with: Json, action: S3Action, key: Option<&str>| {
        let policy = policy(&[statement(with)]);
        policy.evaluate("tea", Some(&user("alice")), &request(action, key), &at()) == PolicyDecision::Allow
    };
    let get = |with: Json| allows(with, S3Action::GetObject, Some("a/b"));
    for good in [
        json!({"Action": "*"}),
        json!({"Action": "S3:getobject"}),
        json!({"Action": ["s3:PutObject", "s3:Get?bject"]}),
        json!({"Action": null, "NotAction": ["s3:Put*", "s3:Delete*"]}),
        json!({"Resource": "*"}),
        json!({"Resource": "arn:aws:s3:::tea/a/*"}),
        json!({"Resource": "arn:aws:s3:::*"}),
        json!({"Resource": "arn:aws:s3:::t?a/?/b"}),
        json!({"Resource": "arn:aws-cn:s3:region:account:tea/a/b"}),
        json!({"Resource": null, "NotResource": "arn:aws:s3:::tea/A/*"}),
    ] {
        assert!(get(good.clone()), "{good}");
    }
    for bad in [
        json!({"Action": "s3:PutObject"}),
        json!({"Action": "s3:GetObjectAcl"}),
        json!({"Action": null, "NotAction": "s3:get*"}),
        json!({"Resource": "arn:aws:s3:::tea"}),
        json!({"Resource": "arn:aws:s3:::tea/"}),
        json!({"Resource": "arn:aws:s3:::tea/A/*"}),
        json!({"Resource": null, "NotResource": "arn:aws:s3:::tea/a/*"}),
    ] {
        assert!(!get(bad.clone()), "{bad}");
    }
    assert!(allows(json!({"Resource": "arn:aws:s3:::tea"}), S3Action::ListBucket, None));
    assert!(!allows(json!({"Resource": "arn:aws:s3:::tea/*"}), S3Action::ListBucket, None));
    assert!(allows(json!({"Action": "s3:ListObjectVersions"}), S3Action::ListBucketVersions, None));
    assert!(!allows(json!({"Action": null, "NotAction": "s3:ListObjectVersions"}), S3Action::ListBucketVersions, None));
}

#[test]
fn variables_are_filled_in() {
    let home = statement(json!({"Resource": "arn:aws:s3:::tea/home/${aws:username}/*"}));
    let decision = |policy: &BucketPolicy, who: Option<&User>, key| {
        policy.evaluate("tea", who, &request(S3Action::GetObject, Some(key)), &at())
    };
    let new = policy(std::slice::from_ref(&home));
    assert_eq!(decision(&new, Some(&user("alice")), "home/alice/x"), PolicyDecision::Allow);
    assert_eq!(decision(&new, Some(&user("bob")), "home/alice/x"), PolicyDecision::Neutral);
    assert_eq!(decision(&new, None, "home//x"), PolicyDecision::Neutral);
    assert_eq!(decision(&new, Some(&user("*")), "home/alice/x"), PolicyDecision::Neutral, "a value's wildcard is none");
    let old = json!({"Version": "2008-10-17", "Statement": home}).to_string();
    let old = BucketPolicy::parse("tea", &old).unwrap();
    assert_eq!(decision(&old, Some(&user("alice")), "home/alice/x"), PolicyDecision::Neutral);
    assert_eq!(decision(&old, None, "home/${aws:username}/x"), PolicyDecision::Allow);
    let star = policy(&[statement(json!({"Resource": "arn:aws:s3:::tea/${*}${$}${?}"}))]);
    assert_eq!(decision(&star, None, "*$?"), PolicyDecision::Allow);
    assert_eq!(decision(&star, None, "x$?"), PolicyDecision::Neutral);
}

#[test]
fn conditions_that_hold() {
    for condition in [
        json!({"StringEquals": {"s3:prefix": ["x", "home/alice/"]}}),
        json!({"StringEquals": {"S3:Prefix": "home/${aws:username}/"}}),
        json!({"StringNotEquals": {"s3:prefix": "home/alice"}}),
        json!({"StringNotEquals": {"s3:delimiter": "/"}}),
        json!({"StringEqualsIgnoreCase": {"s3:prefix": "HOME/alice/"}}),
        json!({"StringNotEqualsIgnoreCase": {"s3:prefix": "HOMER/alice/"}}),
        json!({"StringLike": {"aws:Referer": ["http://no/*", "http://example.com/*"]}}),
        json!({"StringNotLike": {"aws:Referer": "https://*"}}),
        json!({"StringEqualsIfExists": {"s3:delimiter": "/"}}),
        json!({"NumericLessThanEquals": {"s3:max-keys": 10}}),
        json!({"NumericEquals": {"s3:max-keys": "10.0"}}),
        json!({"NumericNotEquals": {"s3:max-keys": 11}}),
        json!({"NumericGreaterThan": {"s3:max-keys": "9"}}),
        json!({"DateGreaterThanEquals": {"aws:CurrentTime": "2013-06-30T00:00:00Z"}}),
        json!({"DateLessThan": {"aws:CurrentTime": "2013-07-01"}}),
        json!({"DateEquals": {"aws:EpochTime": "1372550400"}}),
        json!({"Bool": {"aws:SecureTransport": true}}),
        json!({"Bool": {"aws:SecureTransport": "TRUE"}}),
        json!({"IpAddress": {"aws:SourceIp": ["192.168.0.0/16", "10.0.0.0/8"]}}),
        json!({"NotIpAddress": {"aws:SourceIp": "10.1.2.4"}}),
        json!({"Null": {"s3:delimiter": "true", "s3:prefix": "false"}}),
        json!({"StringEquals": {"s3:RequestObjectTag/team": "red"}}),
        json!({"ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": ["team", "stage", "other"]}}),
        json!({"ForAnyValue:StringEquals": {"s3:RequestObjectTagKeys": ["team", "other"]}}),
        json!({"ForAllValues:StringEquals": {"s3:delimiter": "/"}}),
        json!({"ForAnyValue:StringNotEquals": {"s3:RequestObjectTagKeys": "team"}}),
        json!({}),
    ] {
        let policy = policy(&[statement(json!({"Condition": condition}))]);
        assert_eq!(get(&policy, &at()), PolicyDecision::Allow, "{condition}");
    }
}

#[test]
fn conditions_that_do_not_hold() {
    for condition in [
        json!({"StringEquals": {"s3:prefix": "home/*"}}),
        json!({"StringEquals": {"s3:delimiter": "/"}}),
        json!({"StringEquals": {"s3:prefix": "home/alice/"}, "Bool": {"aws:SecureTransport": "false"}}),
        json!({"StringEquals": {"s3:prefix": "home/alice/", "s3:delimiter": "/"}}),
        json!({"StringNotEquals": {"s3:prefix": ["x", "home/alice/"]}}),
        json!({"StringLike": {"aws:Referer": "http://no/*"}}),
        json!({"StringEqualsIfExists": {"s3:prefix": "/"}}),
        json!({"NumericLessThan": {"s3:max-keys": 10}}),
        json!({"NumericLessThan": {"s3:prefix": 10}}),
        json!({"NumericNotEquals": {"s3:max-keys": [9, 10]}}),
        json!({"DateLessThan": {"aws:CurrentTime": "2013-06-30T00:00:00Z"}}),
        json!({"IpAddress": {"aws:SourceIp": "10.1.2.4/32"}}),
        json!({"NotIpAddress": {"aws:SourceIp": ["10.1.2.3", "1.1.1.1"]}}),
        json!({"Null": {"s3:prefix": true}}),
        json!({"ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": ["team"]}}),
        json!({"ForAnyValue:StringEquals": {"s3:RequestObjectTagKeys": "other"}}),
        json!({"ForAnyValue:StringNotEquals": {"s3:delimiter": "/"}}),
        json!({"StringNotEquals": {"s3:RequestObjectTagKeys": "team"}}),
        json!({"StringEquals": {"s3:ExistingObjectTag/team": "red"}}),
    ] {
        let policy = policy(&[statement(json!({"Condition": condition}))]);
        assert_eq!(get(&policy, &at()), PolicyDecision::Neutral, "{condition}");
    }
}

#[test]
fn a_request_without_source_matches_no_address() {
    let allow = policy(&[statement(json!({"Condition": {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}}))]);
    assert_eq!(get(&allow, &AccessContext::default()), PolicyDecision::Neutral);
    let deny = json!({"Effect": "Deny", "Condition": {"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}});
    assert_eq!(get(&policy(&[statement(deny)]), &AccessContext::default()), PolicyDecision::Deny);
}

#[test]
fn policies_for_all_callers_are_public() {
    let public = |with: Json| policy(&[statement(with)]).is_public();
    for open in [
        json!({}),
        json!({"Principal": {"AWS": ["id-x", "*"]}}),
        json!({"Principal": null, "NotPrincipal": {"AWS": "id-x"}}),
        json!({"Condition": {"StringLike": {"aws:Referer": "http://example.com/*"}}}),
        json!({"Condition": {"Bool": {"aws:SecureTransport": true}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "0.0.0.0/1"}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "::/0"]}}}),
        json!({"Condition": {"IpAddressIfExists": {"aws:SourceIp": "10.0.0.0/8"}}}),
        json!({"Condition": {"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}),
        json!({"Condition": {"StringLike": {"aws:username": "a*"}}}),
        json!({"Condition": {"StringEquals": {"aws:username": "${aws:username}"}}}),
        json!({"Condition": {"ForAllValues:StringEquals": {"aws:userid": "id-x"}}}),
    ] {
        assert!(public(open.clone()), "{open}");
    }
    for closed in [
        json!({"Effect": "Deny"}),
        json!({"Principal": {"AWS": "id-x"}}),
        json!({"Principal": {"AWS": "arn:aws:iam::x:user/alice"}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/32"}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "2001:db8::/32"]}}}),
        json!({"Condition": {"StringEquals": {"aws:userid": ["id-x", "id-y"]}}}),
        json!({"Condition": {"StringLike": {"aws:username": "alice"}}}),
    ] {
        assert!(!public(closed.clone()), "{closed}");
    }
    assert!(policy(&[statement(json!({"Effect": "Deny"})), statement(json!({}))]).is_public());
}

#[test]
fn bad_statements_are_refused() {
    for bad in [
        json!({"Effect": null}),
        json!({"Effect": "allow"}),
        json!({"Principal": null}),
        json!({"Principal": "id-alice"}),
        json!({"Principal": {}}),
        json!({"Principal": {"AWS": []}}),
        json!({"Principal": {"AWS": [1]}}),
        json!({"Principal": {"Service": "x"}}),
        json!({"Principal": {"AWS": "arn:aws:iam::x:role/y"}}),
        json!({"Principal": {"AWS": "arn:aws:iam::x:user/*"}}),
        json!({"Principal": {"AWS": "arn:aws:iam::x:user/"}}),
        json!({"Principal": {"AWS": "id-*"}}),
        json!({"Principal": {"CanonicalUser": "*"}}),
        json!({"NotPrincipal": "*"}),
        json!({"Action": null}),
        json!({"Action": []}),
        json!({"Action": 1}),
        json!({"Action": "GetObject"}),
        json!({"Action": "s3:"}),
        json!({"Action": "s3:Get Object"}),
        json!({"Action": "ec2:*"}),
        json!({"Action": "é"}),
        json!({"Action": ["s3:GetObject", "s3:CreateBucket"]}),
        json!({"Action": "s3:listallmybuckets"}),
        json!({"NotAction": "s3:GetObject"}),
        json!({"Resource": null}),
        json!({"Resource": "tea"}),
        json!({"Resource": "arn:aws:s3:::milk/*"}),
        json!({"Resource": "arn:aws:s3:::teatime"}),
        json!({"Resource": ["arn:aws:s3:::tea", "arn:aws:s3:::milk"]}),
        json!({"Resource": "arn:aws:sqs:::tea"}),
        json!({"Resource": "arn:aws:s3:::tea/${aws:username"}),
        json!({"Condition": []}),
        json!({"Condition": {"StringEquals": "x"}}),
        json!({"Condition": {"StringSame": {"s3:prefix": "x"}}}),
        json!({"Condition": {"stringequals": {"s3:prefix": "x"}}}),
        json!({"Condition": {"ForSome:StringEquals": {"s3:prefix": "x"}}}),
        json!({"Condition": {"NullIfExists": {"s3:prefix": true}}}),
        json!({"Condition": {"StringEquals": {"prefix": "x"}}}),
        json!({"Condition": {"StringEquals": {"s3:prefix": []}}}),
        json!({"Condition": {"StringEquals": {"s3:prefix": [{}]}}}),
        json!({"Condition": {"NumericEquals": {"s3:max-keys": "many"}}}),
        json!({"Condition": {"DateEquals": {"aws:CurrentTime": "soon"}}}),
        json!({"Condition": {"Bool": {"aws:SecureTransport": "maybe"}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/64"}}}),
        json!({"Sid": 1}),
        json!({"Effects": "Allow"}),
    ] {
        let text = document(&[statement(bad.clone())]);
        let refused = BucketPolicy::parse("tea", &text);
        assert!(refused.as_ref().is_err_and(|error| !error.message.is_empty()), "{bad}");
    }
}

#[test]
fn bad_documents_are_refused() {
    let good = statement(json!({}));
    let parse = |json: Json| BucketPolicy::parse("tea", &json.to_string());
    assert!(parse(json!({"Statement": good})).is_ok());
    assert!(parse(json!({"Statement": [good], "Version": "2008-10-17"})).is_ok());
    for bad in [
        json!([]),
        json!({}),
        json!({"Statement": []}),
        json!({"Statement": "x"}),
        json!({"Statement": ["x"]}),
        json!({"Statement": good, "Version": "2020-01-01"}),
        json!({"Statement": good, "Version": 1}),
        json!({"Statement": good, "Id": 1}),
        json!({"Statement": good, "Extra": 1}),
        json!({"Statement": [statement(json!({"Sid": "a"})), statement(json!({"Sid": "a"}))]}),
    ] {
        assert!(parse(bad.clone()).is_err(), "{bad}");
    }
    let twice = json!({"Statement": good}).to_string().replacen('{', r#"{"Id":"a","Id":"a","#, 1);
    for bad in ["", "{", "null", "{} {}", &twice] {
        assert!(BucketPolicy::parse("tea", bad).is_err(), "{bad}");
    }
    let padded = |length: usize| format!("{:length$}", json!({"Statement": good}).to_string());
    assert!(BucketPolicy::parse("tea", &padded(POLICY_BYTES_MAX)).is_ok());
    assert!(BucketPolicy::parse("tea", &padded(POLICY_BYTES_MAX + 1)).is_err());
    assert!(BucketPolicy::parse("tea", &"[".repeat(POLICY_BYTES_MAX)).is_err());
}

#[test]
fn the_text_is_stored_byte_for_byte() {
    let text = format!("  {}\n", document(&[statement(json!({}))]));
    assert_eq!(BucketPolicy::parse("tea", &text).unwrap().text, text);
}

proptest! {
    #[test]
    fn random_text_is_a_policy_or_an_error(text in ".{0,60}", good in any::<prop::sample::Index>()) {
        let _ = BucketPolicy::parse("tea", &text);
        let mut changed: Vec<char> = document(&[statement(json!({}))]).chars().collect();
        let at = good.index(changed.len());
        changed.splice(at..at, text.chars());
        if let Ok(policy) = BucketPolicy::parse("tea", &changed.iter().collect::<String>()) {
            let _ = (get(&policy, &AccessContext::default()), policy.is_public());
        }
    }
}

#[test]
fn a_stored_policy_with_a_void_part_keeps_its_meaning() {
    let typo = policy(&[statement(json!({"Condition": {"StringNotEquals": {"aws:PrincipalArn": "x"}}}))]);
    assert_eq!(typo.void_parts("tea").count(), 1);
    assert_eq!(get(&typo, &at()), PolicyDecision::Allow);
}

#[test]
fn a_header_that_many_variables_named_filled_the_memory() {
    let resource = format!("arn:aws:s3:::tea/*{}", "${aws:Referer}".repeat(1_000));
    let policy = policy(&[statement(json!({"Resource": resource}))]);
    let long = AccessContext { keys: vec![("aws:Referer", "a".repeat(60_000))], ..at() };
    assert_eq!(get(&policy, &long), PolicyDecision::Neutral);
    let short = AccessContext { keys: vec![("aws:Referer", String::new())], ..at() };
    assert_eq!(get(&policy, &short), PolicyDecision::Allow);
}

#[test]
fn an_evaluation_that_takes_too_long_denies() {
    let patterns: Vec<String> = (0..40).map(|number| format!("*{}{number}b", "a".repeat(400))).collect();
    let policy = policy(&[statement(json!({"Condition": {"StringNotLike": {"aws:UserAgent": patterns}}}))]);
    let agent = |length| AccessContext { keys: vec![("aws:UserAgent", "a".repeat(length))], ..at() };
    assert_eq!(get(&policy, &agent(1_000)), PolicyDecision::Allow);
    assert_eq!(get(&policy, &agent(60_000)), PolicyDecision::Deny);
}

#[test]
fn a_policy_of_many_stars_once_took_its_steps_for_each_key_of_a_request() {
    let patterns: Vec<String> =
        (0..110).map(|number| format!("arn:aws:s3:::tea/*{}{number}*z", "a*".repeat(60))).collect();
    let starred = policy(&[statement(json!({"Resource": patterns}))]);
    let at = AccessContext { work: PolicyWork::from_keys(1000), ..at() };
    let key = "a".repeat(1000);
    let decisions: Vec<_> =
        (0..1000).map(|_| starred.evaluate("tea", None, &request(S3Action::DeleteObject, Some(&key)), &at)).collect();
    let spent = decisions.iter().position(|decision| *decision == PolicyDecision::Deny).expect("the steps are spent");
    assert!(spent < 300 && decisions[spent..].iter().all(|decision| *decision == PolicyDecision::Deny), "{spent}");
}

#[test]
fn a_version_of_each_key_once_gave_each_its_own_steps() {
    let patterns: Vec<String> = (0..90).map(|number| format!("*{}{number}b", "a".repeat(150))).collect();
    let condition = json!({"StringNotLike": {"s3:VersionId": patterns, "aws:UserAgent": "*old*"}});
    let policy = policy(&[statement(json!({"Condition": condition}))]);
    let context = AccessContext { work: PolicyWork::from_keys(100), ..at() };
    let decisions: Vec<_> = (0..100)
        .map(|number| {
            let mut of_key = context.clone();
            of_key.work.set_own(["s3:VersionId"].into_iter());
            of_key.keys.push(("s3:VersionId", format!("{}{number}", "a".repeat(1000))));
            policy.evaluate("tea", None, &request(S3Action::DeleteObjectVersion, Some("k")), &of_key)
        })
        .collect();
    assert_eq!((decisions[0], decisions[99]), (PolicyDecision::Allow, PolicyDecision::Deny));
}

#[test]
fn a_value_of_one_key_decides_for_no_other() {
    let condition = json!({"StringEquals": {"s3:VersionId": "1"}});
    let policy = policy(&[statement(json!({"Condition": condition}))]);
    let context = AccessContext { work: PolicyWork::from_keys(2), ..at() };
    let decide = |version: &str| {
        let mut of_key = context.clone();
        of_key.work.set_own(["s3:VersionId"].into_iter());
        of_key.keys.push(("s3:VersionId", version.into()));
        policy.evaluate("tea", None, &request(S3Action::DeleteObjectVersion, Some("k")), &of_key)
    };
    assert_eq!(["1", "2", "1"].map(decide), [PolicyDecision::Allow, PolicyDecision::Neutral, PolicyDecision::Allow]);
}

#[test]
fn a_long_policy_decides_on_all_keys_of_a_request() {
    let patterns: Vec<String> = (0..300).map(|number| format!("arn:aws:s3:::tea/folder {number}/*")).collect();
    let agents: Vec<String> = (0..100).map(|number| format!("*agent {number}*")).collect();
    let condition = json!({"StringNotLike": {"aws:UserAgent": agents}});
    let long = policy(&[statement(json!({"Resource": patterns, "Condition": condition}))]);
    let keys = vec![("aws:UserAgent", "b".repeat(200))];
    let at = AccessContext { work: PolicyWork::from_keys(1000), keys, ..at() };
    for number in 0..1000 {
        let key = format!("folder {}/{}", number % 300, "k".repeat(900));
        let decision = long.evaluate("tea", None, &request(S3Action::DeleteObject, Some(&key)), &at);
        assert_eq!(decision, PolicyDecision::Allow, "{number}");
    }
}
