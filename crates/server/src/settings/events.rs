//! The targets of S3 events: own settings, and MinIO's variables for each webhook.

use std::collections::BTreeMap;
use std::ffi::OsString;

use larder_core::rules::event_target::EventTarget;
use larder_core::rules::props::WebhookUrl;

/// Most targets.
const TARGETS_MAX: usize = 100;
/// Longest id of a target, in bytes.
const ID_BYTES_MAX: usize = 64;
/// The id of MinIO's webhook without one.
const MINIO_ID: &str = "_";
/// The beginning of MinIO's variables of webhooks. A part's name follows, and then `_` and the id.
pub(super) const MINIO_WEBHOOK: &str = "MINIO_NOTIFY_WEBHOOK_";
/// Parts of a webhook that are read. The store keeps every event, as a queue directory would.
const MINIO_PARTS: &[&str] = &["ENABLE", "ENDPOINT", "AUTH_TOKEN", "QUEUE_DIR", "COMMENT"];

/// The targets in a list of `ID=URL`, by their ids.
///
/// # Errors
/// The first fault.
pub(super) fn targets(text: &str) -> Result<BTreeMap<String, EventTarget>, String> {
    let mut targets = BTreeMap::new();
    for (id, url) in pairs(text)? {
        let url = WebhookUrl::parse(url).map_err(|fault| format!("{id} {}", fault.text()))?;
        let target = EventTarget { id: id.to_owned(), url, authorization: None };
        if targets.insert(id.to_owned(), target).is_some() {
            return Err(format!("{id} is there twice"));
        }
    }
    if targets.len() > TARGETS_MAX { Err(format!("there are more than {TARGETS_MAX}")) } else { Ok(targets) }
}

/// These targets with the tokens of a list of `ID=TOKEN`.
///
/// # Errors
/// The first fault, without its token.
pub(super) fn with_tokens(
    mut targets: BTreeMap<String, EventTarget>,
    tokens: &str,
) -> Result<Vec<EventTarget>, String> {
    for (id, token) in pairs(tokens)? {
        let target = targets.get_mut(id).ok_or_else(|| format!("{id} is none of --s3-event-targets"))?;
        target.authorization = authorization(token).map_err(|fault| format!("the token of {id} {fault}"))?;
    }
    Ok(targets.into_values().collect())
}

/// The value of `Authorization` for a token, as MinIO makes it: two words are the whole of it.
fn authorization(token: &str) -> Result<Option<String>, &'static str> {
    if !token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err("has characters that a header cannot have");
    }
    Ok(match token.split_whitespace().count() {
        0 => None,
        1 => Some(format!("Bearer {}", token.trim())),
        2 => Some(token.trim().to_owned()),
        _ => return Err("has more than two words"),
    })
}

/// The entries `ID=VALUE` of a list. Their values may be secrets, so no error shows them.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let all: Option<Vec<_>> = entries.map(|entry| entry.split_once('=').filter(|(id, _)| is_id(id))).collect();
    all.ok_or_else(|| "expected ID=VALUE with commas between them, each ID of letters, digits, - and _".to_owned())
}

fn is_id(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_part)
}

/// MinIO's webhooks that are enabled, as texts of the own settings: targets and tokens.
///
/// # Errors
/// A variable is not UTF-8, an enabled webhook lacks its endpoint, or a value cannot be one of a list.
pub(super) fn minio_webhooks(variables: &[(OsString, OsString)]) -> Result<Option<(String, String)>, String> {
    let mut webhooks: BTreeMap<String, BTreeMap<&str, String>> = BTreeMap::new();
    for (name, text) in variables {
        let Some((part, id)) = name.to_str().and_then(webhook_part) else { continue };
        let not_utf8 = || format!("{} is not UTF-8", name.display());
        let text = text.to_str().ok_or_else(not_utf8)?;
        webhooks.entry(id.to_owned()).or_default().insert(part, text.to_owned());
    }
    webhooks.retain(|_, parts| parts.get("ENABLE").is_some_and(|text| is_on(text)));
    if webhooks.is_empty() {
        return Ok(None);
    }
    let (mut targets, mut tokens) = (Vec::new(), Vec::new());
    for (id, parts) in &webhooks {
        let variable = |part: &str| match id.as_str() {
            MINIO_ID => format!("{MINIO_WEBHOOK}{part}"),
            id => format!("{MINIO_WEBHOOK}{part}_{id}"),
        };
        let endpoint = parts.get("ENDPOINT").filter(|endpoint| !endpoint.is_empty());
        let missing = || format!("{} needs {}, which is missing", variable("ENABLE"), variable("ENDPOINT"));
        targets.push(format!("{id}={}", endpoint.ok_or_else(missing)?.replace(',', "%2C")));
        if let Some(token) = parts.get("AUTH_TOKEN").filter(|token| !token.is_empty()) {
            if token.contains(',') {
                return Err(format!("{} has a comma, which is not offered", variable("AUTH_TOKEN")));
            }
            tokens.push(format!("{id}={token}"));
        }
    }
    Ok(Some((targets.join(","), tokens.join(","))))
}

/// The part and the id of a variable of a webhook that is read; `None` for any other variable.
pub(super) fn webhook_part(name: &str) -> Option<(&'static str, &str)> {
    let rest = name.strip_prefix(MINIO_WEBHOOK)?;
    MINIO_PARTS.iter().find_map(|part| match rest.strip_prefix(part)? {
        "" => Some((*part, MINIO_ID)),
        id => id.strip_prefix('_').filter(|id| !id.is_empty()).map(|id| (*part, id)),
    })
}

fn is_on(text: &str) -> bool {
    ["on", "true", "1", "enable"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::super::cli::{Invocation, read};
    use super::*;

    fn targets(arguments: &str, variables: &str) -> Result<Vec<String>, String> {
        let arguments = std::iter::once("larder").chain(arguments.split_whitespace()).map(OsString::from);
        let pair = |pair: &str| pair.split_once('=').map(|(name, text)| (name.into(), text.replace('~', " ").into()));
        let variables: Vec<(OsString, OsString)> = variables.split_whitespace().filter_map(pair).collect();
        match read(arguments, &variables, |_| unreachable!("no file is named")) {
            Ok(Invocation::Serve(settings)) => {
                let shown = |target: &EventTarget| {
                    let token = target.authorization.as_deref().unwrap_or("-");
                    format!("{} {} {token}", target.name(), target.url.as_str())
                };
                Ok(settings.s3_event_targets.iter().map(shown).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn minios_variables_name_targets_and_their_arns_stay() {
        let variables = "MINIO_NOTIFY_WEBHOOK_ENABLE_PRIMARY=on MINIO_NOTIFY_WEBHOOK_ENDPOINT_PRIMARY=https://h/a,b \
            MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_PRIMARY=secret MINIO_NOTIFY_WEBHOOK_QUEUE_DIR_PRIMARY=/queue \
            MINIO_NOTIFY_WEBHOOK_ENABLE=on MINIO_NOTIFY_WEBHOOK_ENDPOINT=http://other:1/ MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN=Basic~x \
            MINIO_NOTIFY_WEBHOOK_ENABLE_OFF=off MINIO_NOTIFY_WEBHOOK_ENDPOINT_OFF=nonsense";
        let expected = [
            "arn:minio:sqs::PRIMARY:webhook https://h/a%2Cb Bearer secret",
            "arn:minio:sqs::_:webhook http://other:1/ Basic x",
        ];
        for arguments in ["server /data", ""] {
            assert_eq!(targets(arguments, variables).unwrap(), expected);
        }
        let own = "LARDER_S3_EVENT_TARGETS=a=http://h/,b=http://h/2 LARDER_S3_EVENT_TOKENS=b=t";
        let shown = ["arn:minio:sqs::a:webhook http://h/ -", "arn:minio:sqs::b:webhook http://h/2 Bearer t"];
        assert_eq!(targets("", own).unwrap(), shown);
        assert_eq!(targets("", "").unwrap(), [""; 0]);
    }

    #[test]
    fn a_part_that_is_not_offered_or_is_malformed_is_refused_by_name_and_no_token_is_shown() {
        let enabled = "MINIO_NOTIFY_WEBHOOK_ENABLE_P=on MINIO_NOTIFY_WEBHOOK_ENDPOINT_P=http://h/";
        for (arguments, variables, named) in [
            ("server /d", "MINIO_NOTIFY_WEBHOOK_QUEUE_LIMIT_P=5", "MINIO_NOTIFY_WEBHOOK_QUEUE_LIMIT_P"),
            ("server /d", "MINIO_NOTIFY_WEBHOOK_CLIENT_CERT=c", "MINIO_NOTIFY_WEBHOOK_CLIENT_CERT"),
            ("server /d", "MINIO_NOTIFY_KAFKA_ENABLE=on", "MINIO_NOTIFY_KAFKA_ENABLE"),
            ("", "MINIO_NOTIFY_WEBHOOK_ENABLE_P=on", "MINIO_NOTIFY_WEBHOOK_ENDPOINT_P, which is missing"),
            ("", "MINIO_NOTIFY_WEBHOOK_ENABLE_P=on MINIO_NOTIFY_WEBHOOK_ENDPOINT_P=ftp://h/", "http://"),
            ("", "LARDER_S3_EVENT_TARGETS=a", "LARDER_S3_EVENT_TARGETS"),
            ("", "LARDER_S3_EVENT_TARGETS=a=http://h/,a=http://h/", "twice"),
            ("", "LARDER_S3_EVENT_TARGETS=a/b=http://h/", "ID=VALUE"),
            ("", "LARDER_S3_EVENT_TOKENS=a=hidden", "LARDER_S3_EVENT_TOKENS: a is none of --s3-event-targets"),
            ("", "LARDER_S3_EVENT_TARGETS=a=http://h/ LARDER_S3_EVENT_TOKENS=a=hidden~b~c", "two words"),
            ("", &format!("{enabled} LARDER_S3_EVENT_TARGETS=Q=http://h/"), "differ"),
        ] {
            let message = targets(arguments, variables).unwrap_err();
            assert!(message.contains(named) && !message.contains("hidden"), "{arguments} {variables}: {message}");
        }
        assert!(targets("", "MINIO_NOTIFY_KAFKA_ENABLE=on").is_ok(), "it may be meant for another program");
    }
}
