//! `?notification`: which events of a bucket go to which targets.

use bytes::Bytes;
use hyper::StatusCode;
use larder_core::rules::event_target::EventTarget;
use larder_s3_rules::notification::{
    EventPattern, FILTER_BYTES_MAX, NOTIFICATION_RULES_MAX, NotificationConfig, NotificationRule, RULE_ID_BYTES_MAX,
    TargetArn,
};

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

const ROOT: &str = "NotificationConfiguration";
/// Longest document, in bytes: every gateway holds the rules of all buckets.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// The header that asks for targets that this server does not know.
const SKIP_VALIDATION: &str = "x-amz-skip-destination-validation";
const OVERLAP: &str = "Configurations overlap. Configurations on the same bucket cannot share a common event type.";
const OTHER_REGION: &str = "A specified destination is in a different region than the bucket. You must use a destination that resides in the same region as the bucket.";

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(response::document(write(bucket.notification.as_deref())))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let document = upload_body::document(call).await?;
    if document.len() > DOCUMENT_BYTES_MAX {
        let max = DOCUMENT_BYTES_MAX.to_string();
        return Err(S3Error::from(Code::MaxMessageLengthExceeded).with("MaxMessageLengthBytes", max));
    }
    let context = call.objects.gateway.context();
    let mut config = read(&document)?;
    // A rule without an id gets one, by which its events name it.
    for rule in config.rules.iter_mut().filter(|rule| rule.id.is_empty()) {
        rule.id = context.new_request_id();
    }
    let skips = call.header(SKIP_VALIDATION).is_some_and(|skip| skip.eq_ignore_ascii_case("true"));
    check_targets(&config, &context.config.event_targets, &call.objects.config.region, skips)?;
    let config = Some(config).filter(|config| !config.rules.is_empty()).map(std::sync::Arc::new);
    call.configure(StatusCode::OK, |bucket| bucket.notification.clone_from(&config)).await
}

fn read(document: &[u8]) -> Result<NotificationConfig, S3Error> {
    let mut xml = XmlReader::open(document, ROOT)?;
    let mut config = NotificationConfig::default();
    while let Some(name) = xml.next_child()? {
        match name {
            "QueueConfiguration" => config.rules.push(rule(&mut xml)?),
            "TopicConfiguration" | "CloudFunctionConfiguration" => {
                let message = format!("{name} is not offered: name the target of a QueueConfiguration.");
                return Err(S3Error::new(Code::UnsupportedNotification, message).with("Element", name));
            }
            // `EventBridgeConfiguration`, too: a rule of an unknown kind would look as if it were there.
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    if config.rules.len() > NOTIFICATION_RULES_MAX {
        return Err(S3Error::invalid(format!("A bucket has at most {NOTIFICATION_RULES_MAX} notification rules.")));
    }
    let unparsable = config.rules.iter().find(|rule| TargetArn::parse(&rule.target).is_none());
    if let Some(rule) = unparsable {
        return Err(S3Error::argument("Queue", &rule.target, "The ARN could not be parsed"));
    }
    let ids = config.rules.iter().enumerate().filter(|(_, rule)| !rule.id.is_empty());
    let is_taken = |(at, rule): (usize, &NotificationRule)| config.rules[..at].iter().any(|other| other.id == rule.id);
    if ids.into_iter().any(is_taken) {
        return Err(S3Error::new(
            Code::InvalidArgument,
            "Same ID used for multiple configurations. IDs must be unique",
        ));
    }
    if config.overlaps() {
        return Err(S3Error::new(Code::InvalidArgument, OVERLAP));
    }
    Ok(config)
}

/// A rule; its id is empty where the document names none.
fn rule(xml: &mut XmlReader<'_>) -> Result<NotificationRule, S3Error> {
    let (mut id, mut target, mut events, mut filter) = (String::new(), None, Vec::new(), FilterSides::default());
    while let Some(name) = xml.next_child()? {
        match name {
            "Id" => id = xml.text()?,
            "Queue" => target = Some(xml.text()?.trim().to_owned()),
            "Event" => events.push(event(xml.text()?.trim())?),
            "Filter" => read_filter(xml, &mut filter)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    if id.len() > RULE_ID_BYTES_MAX {
        return Err(S3Error::argument("Id", id, format!("An Id has at most {RULE_ID_BYTES_MAX} bytes.")));
    }
    let target = target.ok_or(Code::MalformedXML)?;
    if events.is_empty() {
        return Err(Code::MalformedXML.into());
    }
    let FilterSides { prefix, suffix } = filter;
    Ok(NotificationRule { id, target, events, prefix, suffix })
}

fn event(name: &str) -> Result<EventPattern, S3Error> {
    let unknown = || S3Error::argument("Event", name, "A specified event is not supported for notifications.");
    EventPattern::named(name).ok_or_else(unknown)
}

/// The prefix and the suffix of a filter.
#[derive(Default)]
struct FilterSides {
    prefix: Option<String>,
    suffix: Option<String>,
}

fn read_filter(xml: &mut XmlReader<'_>, filter: &mut FilterSides) -> Result<(), S3Error> {
    while let Some(name) = xml.next_child()? {
        match name {
            "S3Key" => read_key_filter(xml, filter)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(())
}

fn read_key_filter(xml: &mut XmlReader<'_>, filter: &mut FilterSides) -> Result<(), S3Error> {
    while let Some(name) = xml.next_child()? {
        match name {
            "FilterRule" => read_filter_rule(xml, filter)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(())
}

fn read_filter_rule(xml: &mut XmlReader<'_>, filter: &mut FilterSides) -> Result<(), S3Error> {
    let (mut kind, mut value) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Name" => kind = Some(xml.text()?),
            "Value" => value = Some(xml.text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    let (kind, value) = kind.zip(value).ok_or(Code::MalformedXML)?;
    let bad = |value: &str, message: &'static str| Err(S3Error::argument("FilterRule.Value", value, message));
    let has_step = value.split('/').any(|part| matches!(part, "." | ".."));
    if value.len() > FILTER_BYTES_MAX || has_step || value.contains('\\') {
        return bad(&value, "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation");
    }
    let (side, twice) = match kind.trim().to_ascii_lowercase().as_str() {
        "prefix" => (&mut filter.prefix, "Cannot specify more than one prefix rule in a filter."),
        "suffix" => (&mut filter.suffix, "Cannot specify more than one suffix rule in a filter."),
        _ => {
            let message = "filter rule name must be either prefix or suffix";
            return Err(S3Error::argument("FilterRule.Name", kind, message));
        }
    };
    if side.replace(value).is_some() {
        return Err(S3Error::argument("FilterRule.Name", kind, twice));
    }
    Ok(())
}

/// Refuses targets that this server cannot send to.
fn check_targets(
    config: &NotificationConfig,
    targets: &[EventTarget],
    region: &str,
    skips: bool,
) -> Result<(), S3Error> {
    let foreign = |rule: &&NotificationRule| {
        TargetArn::parse(&rule.target)
            .is_some_and(|arn| arn.webhook.is_some() && !arn.region.is_empty() && arn.region != region)
    };
    if let Some(rule) = config.rules.iter().find(foreign) {
        return Err(S3Error::argument("Queue", &rule.target, OTHER_REGION));
    }
    let is_known =
        |rule: &NotificationRule| rule.webhook().is_some_and(|id| targets.iter().any(|target| target.id == id));
    let mut unknown = config.rules.iter().filter(|rule| !is_known(rule)).map(|rule| rule.target.as_str());
    let Some(first) = unknown.next().filter(|_| !skips) else { return Ok(()) };
    let message = "Unable to validate the following destination configurations";
    let error = S3Error::new(Code::InvalidArgument, message);
    let error = error.with("ArgumentName1", first).with("ArgumentValue1", "The destination queue does not exist");
    Err(match unknown.find(|target| *target != first) {
        Some(second) => {
            error.with("ArgumentName2", second).with("ArgumentValue2", "The destination queue does not exist")
        }
        None => error,
    })
}

fn write(config: Option<&NotificationConfig>) -> Bytes {
    let mut xml = XmlWriter::new(ROOT);
    for rule in config.into_iter().flat_map(|config| &config.rules) {
        xml.element("QueueConfiguration", |xml| {
            xml.text("Id", &rule.id).text("Queue", &rule.target);
            for event in &rule.events {
                xml.text("Event", event.name());
            }
            // AWS writes capitals, but its service model and MinIO have the small letters, and `mc event rm` compares them.
            let sides = [("prefix", &rule.prefix), ("suffix", &rule.suffix)];
            if sides.iter().any(|(_, value)| value.is_some()) {
                xml.element("Filter", |xml| {
                    xml.element("S3Key", |xml| {
                        sides.into_iter().for_each(|(name, value)| write_side(xml, name, value))
                    });
                });
            }
        });
    }
    xml.finish()
}

fn write_side(xml: &mut XmlWriter, name: &str, value: &Option<String>) {
    if let Some(value) = value {
        xml.element("FilterRule", |xml| {
            xml.text("Name", name).text("Value", value);
        });
    }
}

#[cfg(test)]
mod tests {
    use larder_core::rules::props::WebhookUrl;
    use proptest::prelude::*;

    use super::*;

    const QUEUE: &str = "<Queue>arn:minio:sqs::T:webhook</Queue>";
    const PUT: &str = "<Event>s3:ObjectCreated:Put</Event>";
    const FULL: &str = "<QueueConfiguration><Id>i</Id><Queue>arn:minio:sqs::T:webhook</Queue>\
        <Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:Delete</Event><Filter><S3Key>\
        <FilterRule><Name>prefix</Name><Value>a/</Value></FilterRule>\
        <FilterRule><Name>suffix</Name><Value/></FilterRule></S3Key></Filter></QueueConfiguration>";

    fn of(inner: &str) -> Result<NotificationConfig, S3Error> {
        read(format!("<{ROOT}>{inner}</{ROOT}>").as_bytes())
    }

    fn one(inner: &str) -> String {
        format!("<QueueConfiguration>{QUEUE}{PUT}{inner}</QueueConfiguration>")
    }

    fn filtered(rules: &[(&str, &str)]) -> String {
        let rule = |(name, value): &(&str, &str)| {
            format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>")
        };
        one(&format!("<Filter><S3Key>{}</S3Key></Filter>", rules.iter().map(rule).collect::<String>()))
    }

    #[test]
    fn a_rule_with_a_filter_was_not_found_again_by_mc() {
        for spelled in [FULL.to_owned(), FULL.replace("prefix", "Prefix").replace("suffix", "SUFFIX")] {
            let text = String::from_utf8(write(Some(&of(&spelled).unwrap())).to_vec()).unwrap();
            assert!(text.ends_with(&format!("03-01/\">{FULL}</{ROOT}>")), "{text}");
        }
        assert!(String::from_utf8_lossy(&write(None)).ends_with("></NotificationConfiguration>"));
        assert_eq!(of("").unwrap(), NotificationConfig::default());
    }

    #[test]
    fn faults_are_refused_by_their_codes() {
        let queue = |arn: &str| format!("<QueueConfiguration><Queue>{arn}</Queue>{PUT}</QueueConfiguration>");
        let event = |name: &str| format!("<QueueConfiguration>{QUEUE}<Event>{name}</Event></QueueConfiguration>");
        let long = "x".repeat(1025);
        for (inner, code) in [
            ("<QueueConfiguration/>".to_owned(), "MalformedXML"),
            ("<Other/>".to_owned(), "NotImplemented"),
            (one("<Other/>"), "NotImplemented"),
            (format!("<QueueConfiguration>{QUEUE}</QueueConfiguration>"), "MalformedXML"),
            (format!("<QueueConfiguration>{PUT}</QueueConfiguration>"), "MalformedXML"),
            (one("<Filter><S3Key><FilterRule><Name>prefix</Name></FilterRule></S3Key></Filter>"), "MalformedXML"),
            (filtered(&[("infix", "a")]), "InvalidArgument"),
            (filtered(&[("prefix", "a"), ("Prefix", "b")]), "InvalidArgument"),
            (filtered(&[("prefix", "a/../b")]), "InvalidArgument"),
            (filtered(&[("suffix", &long)]), "InvalidArgument"),
            (event("s3:ObjectAccessed:Get"), "InvalidArgument"),
            (event("s3:ReducedRedundancyLostObject"), "InvalidArgument"),
            (queue("not-an-arn"), "InvalidArgument"),
            (one("") + &one(""), "InvalidArgument"),
            (one(PUT), "InvalidArgument"),
            ("<TopicConfiguration/>".into(), "UnsupportedNotification"),
            ("<CloudFunctionConfiguration/>".into(), "UnsupportedNotification"),
            ("<EventBridgeConfiguration/>".into(), "NotImplemented"),
        ] {
            assert_eq!(of(&inner).unwrap_err().code.name(), code, "{inner}");
        }
        assert!(of(&filtered(&[("prefix", ""), ("suffix", ".jpg")])).is_ok());
    }

    #[test]
    fn targets_are_those_of_the_settings_unless_the_request_skips_the_check() {
        let url = WebhookUrl::parse("http://h/").unwrap();
        let targets = [EventTarget { id: "T".into(), url, authorization: None }];
        let check = |arns: &[&str], skips| {
            let rule = |(at, arn): (usize, &&str)| {
                format!(
                    "<QueueConfiguration><Queue>{arn}</Queue>{PUT}<Filter><S3Key><FilterRule><Name>prefix</Name>\
                     <Value>{at}</Value></FilterRule></S3Key></Filter></QueueConfiguration>"
                )
            };
            let config = of(&arns.iter().enumerate().map(rule).collect::<String>()).unwrap();
            check_targets(&config, &targets, "eu", skips)
        };
        assert!(check(&["arn:minio:sqs::T:webhook", "arn:minio:sqs:eu:T:webhook"], false).is_ok());
        let unknown = check(&["arn:aws:sqs:eu:1:q", "arn:minio:sqs::U:webhook"], false).unwrap_err();
        assert_eq!(unknown.message, "Unable to validate the following destination configurations");
        assert_eq!(unknown.extras[0], ("ArgumentName1", "arn:aws:sqs:eu:1:q".to_owned()));
        assert_eq!(unknown.extras[2], ("ArgumentName2", "arn:minio:sqs::U:webhook".to_owned()));
        assert!(check(&["arn:aws:sqs:eu:1:q"], true).is_ok());
        assert_eq!(check(&["arn:minio:sqs:us:T:webhook"], true).unwrap_err().message, OTHER_REGION);
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            bytes: Vec<u8>,
            text in "(<|>|/|NotificationConfiguration|QueueConfiguration|Filter|S3Key|FilterRule|Name|Value| )*",
        ) {
            let _ = (read(&bytes), read(text.as_bytes()));
        }
    }
}
