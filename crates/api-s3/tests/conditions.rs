//! Random policies with the condition keys of locks, encryption, tags and ACLs, and requests whose headers and documents carry them:
//! each is served or refused as a second evaluator says, which knows AWS's published rules alone.
//!
//! The requests are anonymous, so that only the policy decides. `LARDER_TEST_SEED` repeats a case.

#![allow(clippy::disallowed_methods, reason = "the servers of tests have the wall clock too")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_api_s3::S3Settings;
use larder_core::Config;
use larder_testkit::http::HttpResponse;
use larder_testkit::policy_evaluator::{RequestFacts, Verdict, evaluate};
use larder_testkit::{SplitMix64, case_seeds};
use md5::{Digest as _, Md5};
use serde_json::{Value as Json, json};

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const REQUESTS_PER_POLICY: usize = 5;
const DAY: u64 = 86_400;

/// A condition key, the action whose requests carry it, an operator of its kind, and values that requests have or have not.
type KeyRow = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const TEXT: &[&str] = &["StringEquals", "StringNotEquals", "StringLike", "StringEqualsIfExists"];
const NUMERIC: &[&str] = &["NumericLessThan", "NumericGreaterThanEquals", "NumericEquals", "NumericNotEquals"];
const DATE: &[&str] = &["DateLessThan", "DateGreaterThan"];

const KEYS: &[KeyRow] = &[
    ("s3:object-lock-mode", "s3:PutObject", TEXT, &["GOVERNANCE", "COMPLIANCE", "*"]),
    ("s3:object-lock-mode", "s3:PutObjectRetention", TEXT, &["GOVERNANCE", "COMPLIANCE", "GOV*"]),
    ("s3:object-lock-legal-hold", "s3:PutObject", TEXT, &["ON", "OFF"]),
    ("s3:object-lock-legal-hold", "s3:PutObjectLegalHold", TEXT, &["ON", "OFF"]),
    ("s3:object-lock-remaining-retention-days", "s3:PutObject", NUMERIC, &["3", "10", "40"]),
    ("s3:object-lock-remaining-retention-days", "s3:PutObjectRetention", NUMERIC, &["3", "10", "40"]),
    (
        "s3:object-lock-retain-until-date",
        "s3:PutObjectRetention",
        DATE,
        &["2020-01-01T00:00:00Z", "2200-01-01T00:00:00Z"],
    ),
    ("s3:x-amz-server-side-encryption", "s3:PutObject", TEXT, &["AES256", "aws:kms"]),
    ("s3:x-amz-server-side-encryption-customer-algorithm", "s3:PutObject", TEXT, &["AES256", "none"]),
    ("s3:RequestObjectTag/team", "s3:PutObject", TEXT, &["red", "blue", "r*"]),
    ("s3:RequestObjectTag/team", "s3:PutObjectTagging", TEXT, &["red", "blue"]),
    (
        "s3:RequestObjectTagKeys",
        "s3:PutObjectTagging",
        &["ForAllValues:StringEquals", "ForAnyValue:StringLike"],
        &["team", "st*"],
    ),
    ("s3:x-amz-acl", "s3:PutObject", TEXT, &["private", "public-read"]),
    ("s3:x-amz-acl", "s3:PutObjectAcl", TEXT, &["private", "public-read"]),
    ("s3:x-amz-storage-class", "s3:PutObject", TEXT, &["STANDARD", "STANDARD_IA"]),
];
const ACTIONS: &[&str] = &[
    "s3:PutObject",
    "s3:PutObjectRetention",
    "s3:PutObjectLegalHold",
    "s3:PutObjectTagging",
    "s3:PutObjectAcl",
    "s3:BypassGovernanceRetention",
    "s3:DeleteObjectVersion",
];

/// A policy that often allows, and a condition for some of it.
fn policy(dice: &mut SplitMix64) -> Json {
    let statement = |effect: &str, action: &str, condition: Json| {
        let mut statement =
            json!({"Effect": effect, "Principal": "*", "Action": action, "Resource": "arn:aws:s3:::box/*"});
        if !condition.is_null() {
            statement["Condition"] = condition;
        }
        statement
    };
    let mut statements: Vec<Json> = match dice.chance(600) {
        true => vec![statement("Allow", "s3:*", Json::Null)],
        false => {
            ACTIONS.iter().filter(|_| dice.chance(700)).map(|action| statement("Allow", action, Json::Null)).collect()
        }
    };
    for _ in 0..1 + dice.below(2) {
        let (key, action, operators, values) = *dice.pick(KEYS);
        let values: Vec<&str> = (0..1 + dice.below(2)).map(|_| *dice.pick(values)).collect();
        let condition = match dice.below(6) {
            0 => json!({"Null": {key: dice.pick(&["true", "false"])}}),
            _ => json!({*dice.pick(operators): {key: values}}),
        };
        let effect = if dice.chance(700) { "Deny" } else { "Allow" };
        statements.push(statement(effect, action, condition));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// A request, the actions that it needs, and the values of its condition keys.
#[derive(Debug, Default)]
struct ConditionedRequest {
    method: &'static str,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    actions: Vec<&'static str>,
    context: BTreeMap<String, Vec<String>>,
}

impl ConditionedRequest {
    fn header(&mut self, name: &'static str, value: &str, key: Option<&str>) {
        self.headers.push((name, value.to_owned()));
        if let Some(key) = key {
            self.set(key, value);
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        self.context.entry(key.to_lowercase()).or_default().push(value.to_owned());
    }

    /// A retention of so many days, in headers or in a document.
    fn retention(&mut self, dice: &mut SplitMix64) -> (String, String) {
        let (mode, days) = (dice.pick(&["GOVERNANCE", "COMPLIANCE"]).to_string(), *dice.pick(&[2_u64, 10, 50]));
        // Half a day more, so that the days that are left do not depend on the moment.
        let until = iso(SystemTime::now() + Duration::from_secs(days * DAY + DAY / 2));
        self.set("s3:object-lock-mode", &mode);
        self.set("s3:object-lock-retain-until-date", &until);
        self.set("s3:object-lock-remaining-retention-days", &days.to_string());
        (mode, until)
    }

    fn put(dice: &mut SplitMix64) -> Self {
        let mut request = Self { method: "PUT", target: "/box/new".into(), body: "body".into(), ..Self::default() };
        request.actions.push("s3:PutObject");
        if dice.chance(400) {
            let (mode, until) = request.retention(dice);
            request.header("x-amz-object-lock-mode", &mode, None);
            request.header("x-amz-object-lock-retain-until-date", &until, None);
            request.actions.push("s3:PutObjectRetention");
        }
        if dice.chance(300) {
            let hold = *dice.pick(&["ON", "OFF"]);
            request.header("x-amz-object-lock-legal-hold", hold, Some("s3:object-lock-legal-hold"));
            request.actions.push("s3:PutObjectLegalHold");
        }
        match dice.below(3) {
            0 => request.header("x-amz-server-side-encryption", "AES256", Some("s3:x-amz-server-side-encryption")),
            1 => {
                let key = "s3:x-amz-server-side-encryption-customer-algorithm";
                request.header("x-amz-server-side-encryption-customer-algorithm", "AES256", Some(key));
                request.header("x-amz-server-side-encryption-customer-key", &STANDARD.encode([7; 32]), None);
                let digest = STANDARD.encode(Md5::digest([7; 32]));
                request.header("x-amz-server-side-encryption-customer-key-md5", &digest, None);
            }
            _ => {}
        }
        if dice.chance(400) {
            let team = *dice.pick(&["red", "blue"]);
            let more = dice.chance(400);
            let tags = format!("team={team}{}", if more { "&stage=test" } else { "" });
            request.header("x-amz-tagging", &tags, None);
            request.tag("team", team);
            if more {
                request.tag("stage", "test");
            }
            request.actions.push("s3:PutObjectTagging");
        }
        if dice.chance(300) {
            let acl = dice.pick::<&str>(&["private", "public-read"]);
            request.header("x-amz-acl", acl, Some("s3:x-amz-acl"));
            // A private object is one without an ACL of its own.
            if *acl != "private" {
                request.actions.push("s3:PutObjectAcl");
            }
        }
        if dice.chance(300) {
            let class = dice.pick::<&str>(&["STANDARD", "STANDARD_IA"]);
            request.header("x-amz-storage-class", class, Some("s3:x-amz-storage-class"));
        }
        request
    }

    fn tag(&mut self, key: &str, value: &str) {
        self.set(&format!("s3:RequestObjectTag/{key}"), value);
        self.set("s3:RequestObjectTagKeys", key);
    }

    /// A request about a version that has no lock yet.
    fn on_version(dice: &mut SplitMix64, version: &str) -> Self {
        let target = |parameter: &str| format!("/box/k?{parameter}versionId={version}");
        let mut request = Self { method: "PUT", ..Self::default() };
        match dice.below(3) {
            0 => {
                let (mode, until) = request.retention(dice);
                let date = format!("<RetainUntilDate>{until}</RetainUntilDate>");
                request.body = format!("<Retention><Mode>{mode}</Mode>{date}</Retention>");
                request.target = target("retention&");
                request.actions.push("s3:PutObjectRetention");
            }
            1 => {
                let hold = *dice.pick(&["ON", "OFF"]);
                request.set("s3:object-lock-legal-hold", hold);
                request.body = format!("<LegalHold><Status>{hold}</Status></LegalHold>");
                request.target = target("legal-hold&");
                request.actions.push("s3:PutObjectLegalHold");
                return request;
            }
            _ => {
                request.method = "DELETE";
                request.target = target("");
                request.actions.push("s3:DeleteObjectVersion");
            }
        }
        if dice.chance(500) {
            request.header("x-amz-bypass-governance-retention", "true", None);
            request.actions.push("s3:BypassGovernanceRetention");
        }
        request
    }

    fn is_allowed(&self, policy: &Json) -> bool {
        self.actions.iter().all(|action| {
            let facts = RequestFacts {
                action: (*action).to_owned(),
                resource: format!("arn:aws:s3:::{}", self.target.trim_start_matches('/').split('?').next().unwrap()),
                context: self.context.clone(),
                ..RequestFacts::default()
            };
            evaluate(policy, &facts) == Verdict::Allow
        })
    }

    fn send(&self, server: &S3TestServer) -> HttpResponse {
        let digest = STANDARD.encode(Md5::digest(&self.body));
        let lines: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\n{lines}content-md5: {digest}\r\nContent-Length: {}\r\n\r\n",
            self.method,
            self.target,
            self.body.len()
        );
        server.ask_text(&head, self.body.as_bytes())
    }
}

/// `2026-01-31T00:00:00Z`, from the date of HTTP.
fn iso(time: SystemTime) -> String {
    let date = httpdate::fmt_http_date(time);
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(&date[8..11]).unwrap() / 3 + 1;
    format!("{}-{month:02}-{}T{}Z", &date[12..16], &date[5..7], &date[17..25])
}

#[test]
fn conditions_on_locks_encryption_tags_and_acls_decide_as_the_published_rules_do() {
    let settings = S3Settings { takes_plain_customer_keys: true, ..S3Settings::default() };
    let server = S3TestServer::start_with(Config::default(), settings);
    let lock = [("x-amz-bucket-object-lock-enabled", "true")];
    assert_eq!(server.ask("PUT", "/box", &lock, b"").status, 200);
    let mut decided = [0; 2];
    for seed in case_seeds(150, 20_000) {
        let dice = &mut SplitMix64::new(seed);
        let policy = policy(dice);
        let put = server.ask("PUT", "/box?policy", NOTHING, policy.to_string().as_bytes());
        assert_eq!(put.status, 204, "{policy:#} {put:?}");
        for _ in 0..REQUESTS_PER_POLICY {
            let request = if dice.chance(600) {
                ConditionedRequest::put(dice)
            } else {
                let version = server.ask("PUT", "/box/k", NOTHING, b"body");
                ConditionedRequest::on_version(dice, version.header("x-amz-version-id").unwrap())
            };
            let (is_allowed, answer) = (request.is_allowed(&policy), request.send(&server));
            let expected = if is_allowed { answer.status < 300 } else { answer.status == 403 };
            assert!(expected, "LARDER_TEST_SEED={seed}: allowed {is_allowed}: {policy:#}\n{request:#?}\n{answer:?}");
            decided[usize::from(is_allowed)] += 1;
        }
    }
    assert!(decided.iter().all(|count| count * 5 > decided[0] + decided[1]), "{decided:?}");
    server.stop();
}
