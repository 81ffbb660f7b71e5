//! Random policies and requests: the decision of the product is that of a second evaluator, which knows only AWS's rules.
//!
//! A policy and its requests follow from a number, which a failed test prints. `LARDER_TEST_SCALE=soak` tries 1,000,000 policies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "numbers of tests are small")]

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_s3_rules::access::{AccessContext, AccessRequest};
use larder_s3_rules::policy::{BucketPolicy, PolicyDecision, PolicyWork};
use larder_s3_rules::{Etag, Object, ObjectBody, ObjectLock, S3Action, Tag, User, Version, VersionId};
use larder_testkit::case_seeds;
use larder_testkit::policy_evaluator::{self, RequestFacts, Verdict};
use serde_json::{Map, Value as Json, json};

pub(crate) const BUCKET: &str = "tea";
const REQUESTS_PER_POLICY: usize = 4;

/// Choices that follow from a number.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    /// One of these, or a list of up to three.
    fn some(&mut self, from: &[&str]) -> Json {
        match self.roll(3) {
            0 => json!(self.pick(from)),
            more => Json::Array((0..=more).map(|_| json!(self.pick(from))).collect()),
        }
    }
}

const ACTIONS: &[&str] = &[
    "*",
    "s3:*",
    "s3:Get*",
    "s3:GetObject",
    "S3:getobject",
    "s3:GetObject*",
    "s3:PutObject",
    "s3:Put*",
    "s3:ListBucket",
    "s3:List*",
    "s3:?etObject",
    "s3:DeleteObject",
    "s3:*Tagging",
    "s3:GetObjectVersion",
];
const RESOURCES: &[&str] = &[
    "arn:aws:s3:::tea",
    "arn:aws:s3:::tea/*",
    "arn:aws:s3:::tea/a/*",
    "arn:aws:s3:::tea/home/${aws:username}/*",
    "arn:aws:s3:::t?a/?/b",
    "arn:aws:s3:::tea*",
    "arn:aws:s3:::tea/${*}",
    "arn:aws:s3:::tea/home/*/${$}?",
    "arn:aws:s3:::tea/${aws:userid}",
    "arn:aws:s3:::tea/??",
    "arn:aws:s3:::tea/${s3:prefix}*",
];
const TEXTS: &[&str] = &[
    "home/alice/",
    "home/${aws:username}/",
    "home/*",
    "*",
    "HOME/Alice/",
    "a?",
    "red",
    "blue",
    "alice",
    "a${*}",
    "é",
    "team",
    "http://*.example.com/*",
    "public-read",
    "GOVERNANCE",
    "ON",
];
const TEXT_KEYS: &[&str] = &[
    "s3:prefix",
    "s3:Prefix",
    "s3:delimiter",
    "aws:Referer",
    "aws:username",
    "aws:userid",
    "s3:x-amz-acl",
    "s3:VersionId",
    "s3:object-lock-mode",
    "s3:object-lock-legal-hold",
    "s3:ExistingObjectTag/team",
    "s3:RequestObjectTag/team",
    "aws:PrincipalType",
];
const TEXT_OPERATORS: &[&str] = &[
    "StringEquals",
    "StringNotEquals",
    "StringEqualsIgnoreCase",
    "StringNotEqualsIgnoreCase",
    "StringLike",
    "StringNotLike",
];
const RELATIONS: &[&str] = &["Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"];
const NUMBERS: &[&str] = &["10", "9", "10.0", "10.5", "1000", "-1"];
const DATES: &[&str] = &["2013-06-30T00:00:00Z", "2013-06-30", "1372550400", "2013-07-01T12:30:00Z", "2012-02-29"];
const NETS: &[&str] =
    &["10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "192.168.0.0/16", "10.1.2.2/31", "2001:db8::/32", "::/0"];

/// A policy that the product takes.
pub(crate) fn policy(dice: &mut Dice) -> Json {
    let statements: Vec<Json> = (0..=dice.roll(4)).map(|_| statement(dice)).collect();
    let mut policy = json!({"Statement": statements});
    if let Some(version) = dice.pick(&[Some("2012-10-17"), Some("2012-10-17"), Some("2008-10-17"), None]) {
        policy["Version"] = json!(version);
    }
    policy
}

fn statement(dice: &mut Dice) -> Json {
    let deny = dice.roll(3) == 0;
    let mut statement = json!({"Effect": if deny { "Deny" } else { "Allow" }});
    let negated = |dice: &mut Dice, name: &str| if dice.roll(6) == 0 { format!("Not{name}") } else { name.to_owned() };
    // An allow with NotPrincipal is refused, and never applies.
    let principal = if deny { negated(dice, "Principal") } else { "Principal".to_owned() };
    statement[principal] = principal_of(dice);
    statement[negated(dice, "Action")] = broad(dice, ACTIONS);
    statement[negated(dice, "Resource")] = broad(dice, RESOURCES);
    let mut conditions = Map::new();
    for _ in 0..dice.roll(3) {
        let (operator, key, values) = condition(dice);
        let keys = conditions.entry(operator).or_insert_with(|| json!({}));
        keys[key] = values;
    }
    if !conditions.is_empty() {
        statement["Condition"] = Json::Object(conditions);
    }
    statement
}

/// All, half of the time: a statement that selects by everything at once would hardly ever apply.
fn broad(dice: &mut Dice, from: &[&str]) -> Json {
    if dice.roll(2) == 0 { json!("*") } else { dice.some(from) }
}

fn principal_of(dice: &mut Dice) -> Json {
    const NAMES: &[&str] = &[
        "*",
        "id-alice",
        "KEY-bob",
        "arn:aws:iam::1:user/alice@example.com",
        "arn:aws:iam:::user/some/path/id-bob",
        "arn:aws:iam::1:user/alice",
        "id-none",
    ];
    match dice.roll(5) {
        0 | 1 => json!("*"),
        2 => json!({"AWS": dice.some(NAMES)}),
        3 => json!({"CanonicalUser": dice.some(&["id-alice", "id-bob", "id-none"])}),
        _ => json!({"AWS": dice.some(NAMES), "CanonicalUser": "id-bob"}),
    }
}

fn condition(dice: &mut Dice) -> (String, String, Json) {
    let (operator, key, values) = match dice.roll(8) {
        0..=2 => (dice.pick(TEXT_OPERATORS).to_owned(), dice.pick(TEXT_KEYS), dice.some(TEXTS)),
        3 => {
            let key = dice.pick(&["s3:max-keys", "s3:object-lock-remaining-retention-days"]);
            (format!("Numeric{}", dice.pick(RELATIONS)), key, dice.some(NUMBERS))
        }
        4 => {
            let key = dice.pick(&["aws:CurrentTime", "aws:EpochTime", "s3:object-lock-retain-until-date"]);
            (format!("Date{}", dice.pick(RELATIONS)), key, dice.some(DATES))
        }
        5 => (dice.pick(&["IpAddress", "NotIpAddress"]).to_owned(), "aws:SourceIp", dice.some(NETS)),
        6 => match dice.roll(2) {
            0 => ("Bool".to_owned(), "aws:SecureTransport", json!(dice.pick(&["true", "false"]))),
            _ => return ("Null".to_owned(), dice.pick(TEXT_KEYS).to_owned(), json!(dice.pick(&["true", "false"]))),
        },
        _ => {
            let operator = format!("{}:{}", dice.pick(&["ForAnyValue", "ForAllValues"]), dice.pick(TEXT_OPERATORS));
            let key = dice.pick(&["s3:RequestObjectTagKeys", "s3:RequestObjectTagKeys", "s3:prefix"]);
            (operator, key, dice.some(&["team", "stage", "t*", "TEAM", "other"]))
        }
    };
    let suffix = if dice.roll(5) == 0 { "IfExists" } else { "" };
    (operator + suffix, key.to_owned(), values)
}

/// A request, as the product sees it.
pub(crate) struct PolicyRequest {
    pub(crate) user: Option<User>,
    pub(crate) action: S3Action,
    key: Option<&'static str>,
    pub(crate) version: Option<Version>,
    pub(crate) context: AccessContext,
}

const OBJECT_ACTIONS: &[S3Action] = &[
    S3Action::GetObject,
    S3Action::GetObject,
    S3Action::GetObjectVersion,
    S3Action::PutObject,
    S3Action::PutObjectRetention,
    S3Action::PutObjectLegalHold,
    S3Action::DeleteObject,
    S3Action::GetObjectTagging,
    S3Action::GetObjectAcl,
];
const BUCKET_ACTIONS: &[S3Action] = &[S3Action::ListBucket, S3Action::ListBucketVersions, S3Action::PutBucketPolicy];
const KEYS: &[&str] = &["a/b", "a/é", "home/alice/x", "home/al*/$x", "home/bob/$?", "*", "id-bob", "é?", "red1", "xy"];

fn user(name: &str) -> User {
    User {
        id: format!("id-{name}"),
        key_id: format!("KEY-{name}"),
        name: name.to_owned(),
        email: format!("{name}@example.com"),
        enabled: true,
        ..User::default()
    }
}

pub(crate) fn request(dice: &mut Dice) -> PolicyRequest {
    let user = dice.pick(&[None, Some("alice"), Some("bob"), Some("al*")]).map(user);
    let on_key = dice.roll(4) > 0;
    let action = dice.pick(if on_key { OBJECT_ACTIONS } else { BUCKET_ACTIONS });
    let values = [
        ("s3:prefix", &["home/alice/", "home/bob/", "a", "aé", "red", "team"][..]),
        ("s3:delimiter", &["/", "*"]),
        ("s3:max-keys", &["10", "1000"]),
        ("aws:Referer", &["http://www.example.com/x", "a*"]),
        ("s3:x-amz-acl", &["public-read", "private"]),
        ("s3:VersionId", &["red", "blue"]),
        ("s3:object-lock-mode", &["GOVERNANCE", "COMPLIANCE"]),
        ("s3:object-lock-legal-hold", &["ON", "OFF"]),
        ("s3:object-lock-remaining-retention-days", &["9", "10", "11"]),
        ("s3:object-lock-retain-until-date", &["2013-06-30T00:00:00Z", "2013-07-01T12:30:00Z"]),
    ];
    let mut keys = Vec::new();
    for (key, values) in &values {
        if dice.roll(2) == 0 {
            keys.push((*key, dice.pick(values).to_owned()));
        }
    }
    let tags = |dice: &mut Dice| -> Vec<Tag> {
        let all = [("team", dice.pick(&["red", "blue", "a*"])), ("stage", "test")];
        let some = dice.roll(3);
        all[..some].iter().map(|(key, value)| Tag { key: (*key).into(), value: (*value).into() }).collect()
    };
    let request_tags = tags(dice);
    let version = (on_key && dice.roll(2) == 0).then(|| version(tags(dice)));
    let source = dice.pick(&["10.1.2.3", "10.1.2.2", "192.168.7.7", "8.8.8.8", "2001:db8::1"]);
    let now = Timestamp(dice.pick(&[1_372_550_400_u64, 1_372_550_399, 1_330_473_600, 1_400_000_000]) * 1_000_000);
    let context = AccessContext {
        source: Some(source.parse().unwrap()),
        secure: dice.roll(2) == 0,
        now,
        is_session: dice.roll(3) == 0,
        keys,
        request_tags,
        work: PolicyWork::default(),
    };
    PolicyRequest { user, action, key: on_key.then(|| dice.pick(KEYS)), version, context }
}

fn version(tags: Vec<Tag>) -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::new()),
        etag: Etag { md5: [0; 16], parts: None },
        headers: vec![],
        meta: vec![],
        tags,
        acl: None,
        checksum: None,
        upload: None,
        encryption: None,
        lock: ObjectLock::default(),
    };
    let (id, modified) = (VersionId([1; 16]), Timestamp(1));
    Version { id, null: true, modified, owner: "id-owner".to_owned(), object: Some(object) }
}

impl PolicyRequest {
    fn decision(&self, policy: &BucketPolicy) -> PolicyDecision {
        policy.evaluate(BUCKET, self.user.as_ref(), &self.asked(), &self.context)
    }

    pub(crate) fn asked(&self) -> AccessRequest<'_> {
        AccessRequest { action: self.action, key: self.key.map(str::as_bytes), version: self.version.as_ref() }
    }

    /// The same, as the rules see it.
    pub(crate) fn facts(&self) -> RequestFacts {
        let at = &self.context;
        let mut context: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut set = |key: &str, value: &str| context.entry(key.to_lowercase()).or_default().push(value.to_owned());
        at.keys.iter().for_each(|(key, value)| set(key, value));
        set("aws:SourceIp", &at.source.unwrap().to_string());
        set("aws:SecureTransport", &at.secure.to_string());
        let seconds = (at.now.0 / 1_000_000).to_string();
        ["aws:CurrentTime", "aws:EpochTime"].iter().for_each(|key| set(key, &seconds));
        set(
            "aws:PrincipalType",
            match (&self.user, at.is_session) {
                (None, _) => "Anonymous",
                (Some(_), true) => "AssumedRole",
                (Some(_), false) => "User",
            },
        );
        let mut principals = Vec::new();
        if let Some(User { id, key_id, name, email, .. }) = &self.user {
            principals = vec![id.clone(), key_id.clone(), email.clone()];
            set("aws:username", name);
            set("aws:userid", id);
        }
        for tag in &at.request_tags {
            set(&format!("s3:RequestObjectTag/{}", tag.key), &tag.value);
            set("s3:RequestObjectTagKeys", &tag.key);
        }
        let object = self.version.as_ref().and_then(|version| version.object.as_ref());
        for tag in object.iter().flat_map(|object| &object.tags) {
            set(&format!("s3:ExistingObjectTag/{}", tag.key), &tag.value);
        }
        let path = self.key.map_or(BUCKET.to_owned(), |key| format!("{BUCKET}/{key}"));
        let (action, resource) = (self.action.name().to_owned(), format!("arn:aws:s3:::{path}"));
        RequestFacts { principals, action, resource, context }
    }
}

#[test]
fn random_policies_decide_as_the_published_rules_do() {
    let mut verdicts = [0_usize; 3];
    for number in case_seeds(3_300, 1_000_000) {
        let dice = &mut Dice(number);
        let json = policy(dice);
        let policy = BucketPolicy::parse(BUCKET, &json.to_string()).expect("a policy");
        for _ in 0..REQUESTS_PER_POLICY {
            let request = request(dice);
            let (decision, facts) = (request.decision(&policy), request.facts());
            let verdict = policy_evaluator::evaluate(&json, &facts);
            let expected = match verdict {
                Verdict::Deny => PolicyDecision::Deny,
                Verdict::Allow => PolicyDecision::Allow,
                Verdict::Implicit => PolicyDecision::Neutral,
            };
            assert_eq!(decision, expected, "policy {number}: {json:#}\n{facts:#?}");
            verdicts[verdict as usize] += 1;
        }
    }
    // Policies that decide nothing would agree on everything.
    let all: usize = verdicts.iter().sum();
    assert!(verdicts.iter().all(|count| count * 10 > all), "{verdicts:?}");
}
