//! The notification configuration of a bucket: which events go to which receivers. Pure.
//!
//! ```text
//! change of a key ─> its names (AWS's, MinIO's) ─> a rule that has one of them, and whose filter fits the key ─> its target
//! ```

use larder_rows::EventName;
use serde::{Deserialize, Serialize};

/// Most rules of a bucket, as in AWS.
pub const NOTIFICATION_RULES_MAX: usize = 100;
/// Longest value of a filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 1024;
/// Longest id of a rule, in bytes.
pub const RULE_ID_BYTES_MAX: usize = 255;

/// The notification configuration of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotificationConfig {
    /// Its rules.
    pub rules: Vec<NotificationRule>,
}

/// A rule: these events of keys that fit go to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRule {
    /// Its id.
    pub id: String,
    /// The ARN of the target, as it was given.
    pub target: String,
    /// The events.
    pub events: Vec<EventPattern>,
    /// The beginning of the keys, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The end of the keys, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
}

/// An event, or all of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EventPattern {
    /// One event.
    One(EventName),
    /// A group.
    Every(EventGroup),
}

/// A group of events, as AWS has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventGroup {
    /// New objects.
    Created,
    /// Objects that clients removed.
    Removed,
    /// Objects that lifecycle rules removed.
    Expired,
    /// Changes of tags.
    Tagging,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAction {
    /// A put.
    Put,
    /// A put by a form.
    Post,
    /// A copy.
    Copy,
    /// A completed upload.
    Complete,
    /// A removed version.
    Delete,
    /// A new delete marker.
    Mark,
    /// A version that a lifecycle rule removed.
    Expire,
    /// A delete marker that a lifecycle rule made.
    ExpireMark,
    /// A delete marker that a lifecycle rule removed.
    ExpireMarker,
    /// New tags.
    PutTags,
    /// Removed tags.
    DeleteTags,
    /// Another ACL.
    PutAcl,
    /// Another retention.
    PutRetention,
    /// Another legal hold.
    PutLegalHold,
}

impl EventAction {
    /// The names of its event. A rule with several of them gets the first.
    #[must_use]
    pub fn names(self) -> &'static [EventName] {
        use EventName as Name;
        match self {
            Self::Put => &[Name::CreatedPut],
            Self::Post => &[Name::CreatedPost],
            Self::Copy => &[Name::CreatedCopy],
            Self::Complete => &[Name::CreatedComplete],
            Self::Delete => &[Name::RemovedDelete],
            Self::Mark => &[Name::RemovedMarker],
            Self::Expire => &[Name::ExpiredDelete],
            Self::ExpireMark => &[Name::ExpiredMarker],
            Self::ExpireMarker => &[Name::ExpiredDelete, Name::MinioMarkerExpired],
            Self::PutTags => &[Name::TaggingPut, Name::MinioTaggingPut],
            Self::DeleteTags => &[Name::TaggingDelete, Name::MinioTaggingDelete],
            Self::PutAcl => &[Name::AclPut],
            Self::PutRetention => &[Name::RetentionPut, Name::MinioRetentionPut],
            Self::PutLegalHold => &[Name::MinioLegalHoldPut],
        }
    }

    /// Whether its event shows the object, and not only its key and version.
    #[must_use]
    pub fn shows_object(self) -> bool {
        !matches!(self, Self::Delete | Self::Mark | Self::Expire | Self::ExpireMark | Self::ExpireMarker)
    }
}

impl EventGroup {
    const ALL: [Self; 4] = [Self::Created, Self::Removed, Self::Expired, Self::Tagging];

    fn name(self) -> &'static str {
        match self {
            Self::Created => "s3:ObjectCreated:*",
            Self::Removed => "s3:ObjectRemoved:*",
            Self::Expired => "s3:LifecycleExpiration:*",
            Self::Tagging => "s3:ObjectTagging:*",
        }
    }

    fn has(self, name: EventName) -> bool {
        use EventName as Name;
        match self {
            Self::Created => {
                matches!(name, Name::CreatedPut | Name::CreatedPost | Name::CreatedCopy | Name::CreatedComplete)
            }
            Self::Removed => matches!(name, Name::RemovedDelete | Name::RemovedMarker),
            Self::Expired => matches!(name, Name::ExpiredDelete | Name::ExpiredMarker),
            Self::Tagging => matches!(name, Name::TaggingPut | Name::TaggingDelete),
        }
    }
}

impl EventPattern {
    /// The pattern of this name; `None` for events that never happen here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let group = EventGroup::ALL.into_iter().find(|group| group.name() == name).map(Self::Every);
        group.or_else(|| EventName::ALL.into_iter().find(|event| event.name() == name).map(Self::One))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One(event) => event.name(),
            Self::Every(group) => group.name(),
        }
    }

    fn has(self, name: EventName) -> bool {
        match self {
            Self::One(event) => event == name,
            Self::Every(group) => group.has(name),
        }
    }

    fn overlaps(self, other: Self) -> bool {
        EventName::ALL.into_iter().any(|name| self.has(name) && other.has(name))
    }
}

impl TryFrom<String> for EventPattern {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("unknown event {name}"))
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> Self {
        pattern.name().to_owned()
    }
}

impl NotificationConfig {
    /// The rules that want to hear of this change of a key, one for each target, and the name by which each hears of it.
    pub fn matches<'a>(
        &'a self,
        key: &'a [u8],
        action: EventAction,
    ) -> impl Iterator<Item = (&'a NotificationRule, EventName)> {
        let matched = move |rule: &NotificationRule| rule.event(key, action);
        self.rules.iter().enumerate().filter_map(move |(at, rule)| {
            let name = matched(rule)?;
            // A change has two names at most, which two rules of one target may share.
            let is_first =
                self.rules[..at].iter().all(|earlier| !earlier.shares_target(rule) || matched(earlier).is_none());
            is_first.then_some((rule, name))
        })
    }

    /// Whether a rule sends events to the webhook with this id.
    #[must_use]
    pub fn has_webhook(&self, id: &str) -> bool {
        self.rules.iter().any(|rule| rule.webhook() == Some(id))
    }

    /// Whether two rules would send one event to one target twice.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        let rules = self.rules.iter().enumerate();
        rules.clone().any(|(at, rule)| {
            let twice = rule.events.iter().enumerate();
            let repeats = twice.clone().any(|(at, event)| rule.events[..at].iter().any(|other| other.overlaps(*event)));
            repeats || self.rules[..at].iter().any(|earlier| earlier.overlaps(rule))
        })
    }
}

impl NotificationRule {
    /// The id of its target; `None` for an ARN that names no webhook.
    #[must_use]
    pub fn webhook(&self) -> Option<&str> {
        TargetArn::parse(&self.target)?.webhook
    }

    /// Whether both go to one target: its ARN may have a region or none.
    fn shares_target(&self, other: &Self) -> bool {
        self.target == other.target || self.webhook().is_some_and(|id| other.webhook() == Some(id))
    }

    /// The name by which this rule hears of a change of a key; `None`: it does not.
    fn event(&self, key: &[u8], action: EventAction) -> Option<EventName> {
        let mut names = action.names().iter().copied();
        let name = names.find(|name| self.events.iter().any(|event| event.has(*name)))?;
        let begins = |prefix: &String| key.starts_with(&decoded(prefix));
        let ends = |suffix: &String| key.ends_with(&decoded(suffix));
        (self.prefix.as_ref().is_none_or(begins) && self.suffix.as_ref().is_none_or(ends)).then_some(name)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let text = |text: &Option<String>| decoded(text.as_deref().unwrap_or_default());
        let (prefixes, suffixes) =
            ([text(&self.prefix), text(&other.prefix)], [text(&self.suffix), text(&other.suffix)]);
        self.shares_target(other)
            && (prefixes[0].starts_with(&prefixes[1]) || prefixes[1].starts_with(&prefixes[0]))
            && (suffixes[0].ends_with(&suffixes[1]) || suffixes[1].ends_with(&suffixes[0]))
            && self.events.iter().any(|event| other.events.iter().any(|another| event.overlaps(*another)))
    }
}

/// The bytes of a filter: `+` is a space, and `%XX` a byte. Another `%` stands for itself.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|two| {
            let digits = std::str::from_utf8(two).ok().filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
            u8::from_str_radix(digits?, 16).ok()
        });
        out.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

/// The parts of the ARN of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetArn<'a> {
    /// The id of a webhook of this server; `None`: it names something else.
    pub webhook: Option<&'a str>,
    /// The region; empty for any.
    pub region: &'a str,
}

impl<'a> TargetArn<'a> {
    /// Reads `arn:PARTITION:SERVICE:REGION:ID:TYPE`; `None` for what is no ARN.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let ["arn", partition, service, region, id, kind] = parts[..] else { return None };
        if [partition, service, id, kind].iter().any(|part| part.is_empty()) {
            return None;
        }
        let is_webhook = (partition, service, kind) == ("minio", "sqs", "webhook");
        Some(Self { webhook: Some(id).filter(|_| is_webhook), region })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(target: &str, events: &[&str], prefix: &str, suffix: &str) -> NotificationRule {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        NotificationRule {
            id: "r".into(),
            target: target.into(),
            events: events.iter().map(|name| EventPattern::named(name).unwrap()).collect(),
            prefix: text(prefix),
            suffix: text(suffix),
        }
    }

    fn matched(rules: &[NotificationRule], key: &str, action: EventAction) -> Vec<(String, &'static str)> {
        let config = NotificationConfig { rules: rules.to_vec() };
        let found = config.matches(key.as_bytes(), action);
        found.map(|(rule, name)| (rule.target.clone(), name.name())).collect()
    }

    #[test]
    fn a_rule_hears_of_its_events_of_keys_that_fit() {
        let all = [rule("t", &["s3:ObjectCreated:*"], "a b/", ".jpg")];
        for (key, fits) in [("a b/c.jpg", true), ("a b/c.png", false), ("a/c.jpg", false), ("a b/.jpg", true)] {
            assert_eq!(matched(&all, key, EventAction::Copy).len(), usize::from(fits), "{key}");
        }
        let encoded = [rule("t", &["s3:ObjectCreated:Put"], "a+b%2F%C3%BC%", "")];
        assert_eq!(matched(&encoded, "a b/ü%", EventAction::Put), [("t".to_owned(), "s3:ObjectCreated:Put")]);
        assert_eq!(matched(&encoded, "a+b/ü%", EventAction::Put), []);
        assert_eq!(matched(&encoded, "a b/ü%", EventAction::Post), []);
    }

    #[test]
    fn created_is_not_tagged_and_each_name_of_a_change_is_heard() {
        let name = |event: &str, action| matched(&[rule("t", &[event], "", "")], "k", action).first().map(|one| one.1);
        assert_eq!(name("s3:ObjectCreated:*", EventAction::PutTags), None);
        assert_eq!(name("s3:ObjectTagging:*", EventAction::DeleteTags), Some("s3:ObjectTagging:Delete"));
        assert_eq!(name("s3:ObjectCreated:PutTagging", EventAction::PutTags), Some("s3:ObjectCreated:PutTagging"));
        assert_eq!(name("s3:ObjectRemoved:*", EventAction::Expire), None);
        assert_eq!(name("s3:LifecycleExpiration:*", EventAction::ExpireMarker), Some("s3:LifecycleExpiration:Delete"));
        let both = [
            rule("t", &["s3:ObjectTagging:Put"], "", ""),
            rule("t", &["s3:ObjectCreated:PutTagging"], "", ""),
            rule("u", &["s3:ObjectCreated:PutTagging"], "", ""),
        ];
        let heard = [("t".to_owned(), "s3:ObjectTagging:Put"), ("u".to_owned(), "s3:ObjectCreated:PutTagging")];
        assert_eq!(matched(&both, "k", EventAction::PutTags), heard, "each target once");
    }

    #[test]
    fn no_target_gets_an_event_twice() {
        let overlaps = |one, two| NotificationConfig { rules: vec![one, two] }.overlaps();
        let put = |target: &str, prefix: &str, suffix: &str| rule(target, &["s3:ObjectCreated:Put"], prefix, suffix);
        let all = rule("t", &["s3:ObjectCreated:*"], "", "");
        assert!(overlaps(put("t", "a", ""), all.clone()));
        assert!(overlaps(put("t", "a", "z"), put("t", "ab", "yz")));
        assert!(overlaps(put("t", "a%2F", ""), put("t", "a/b", "")), "decoded");
        assert!(!overlaps(put("t", "a", ""), put("t", "b", "")));
        assert!(!overlaps(put("t", "a", "x"), put("t", "ab", "y")));
        assert!(!overlaps(put("u", "a", ""), all.clone()), "another target");
        assert!(overlaps(put("arn:minio:sqs::x:webhook", "", ""), put("arn:minio:sqs:eu:x:webhook", "", "")));
        assert!(!overlaps(rule("t", &["s3:ObjectRemoved:*"], "", ""), all));
        let twice = rule("t", &["s3:ObjectCreated:*", "s3:ObjectCreated:Put"], "", "");
        assert!(NotificationConfig { rules: vec![twice] }.overlaps());
    }

    #[test]
    fn arns_name_webhooks_or_something_else() {
        let arn = |text| TargetArn::parse(text).map(|arn| (arn.webhook, arn.region));
        assert_eq!(arn("arn:minio:sqs::PRIMARY:webhook"), Some((Some("PRIMARY"), "")));
        assert_eq!(arn("arn:minio:sqs:eu:_:webhook"), Some((Some("_"), "eu")));
        assert_eq!(arn("arn:aws:sqs:us-east-1:123:queue"), Some((None, "us-east-1")));
        for text in ["", "arn", "arn:minio:sqs::webhook", "arn:minio:sqs:::webhook", "arn:minio:sqs::x:", "x:a:b:c:d:e"]
        {
            assert_eq!(arn(text), None, "{text}");
        }
    }

    #[test]
    fn stored_rules_name_their_events() {
        let config =
            NotificationConfig { rules: vec![rule("t", &["s3:ObjectCreated:*", "s3:ObjectAcl:Put"], "p", "")] };
        let json = serde_json::to_value(&config).unwrap();
        let golden = serde_json::json!({"rules": [{
            "id": "r", "target": "t", "events": ["s3:ObjectCreated:*", "s3:ObjectAcl:Put"], "prefix": "p",
        }]});
        assert_eq!(json, golden);
        assert_eq!(serde_json::from_value::<NotificationConfig>(golden).unwrap(), config);
        let unknown = serde_json::json!({"rules": [{"id": "r", "target": "t", "events": ["s3:Other:*"]}]});
        assert!(serde_json::from_value::<NotificationConfig>(unknown).is_err());
    }
}
