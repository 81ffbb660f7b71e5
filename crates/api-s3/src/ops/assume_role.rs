//! `POST /` of STS: AssumeRole, temporary credentials with the rights of their caller, narrowed by a policy.
//!
//! There are no roles: as in MinIO, whose clients send an ARN that says nothing, the credentials are those of the caller. Parameters
//! that would change what the credentials may do are refused.

use bytes::Bytes;
use hyper::StatusCode;
use larder_rows::limits::{SESSION_SECONDS_MAX, SESSION_SECONDS_MIN};
use larder_s3::users::{KeyHolder, SessionCredentials};
use larder_s3_rules::{S3Action, dates};

use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

/// The namespace of its documents.
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// The version of the API.
const VERSION: &str = "2011-06-15";
/// Seconds of a session that names no other number.
const SECONDS: u64 = 3600;
/// The name of a session that names no other.
const SESSION_NAME: &str = "session";
/// Parameters that are taken.
const PARAMETERS: &[&str] = &[
    "Action",
    "Version",
    "DurationSeconds",
    "Policy",
    "RoleSessionName",
    // Without roles these two say nothing, and clients have to send the first.
    "RoleArn",
    "ExternalId",
];
/// The other actions of STS.
const NOT_OFFERED: &[&str] = &[
    "AssumeRoleWithCertificate",
    "AssumeRoleWithClientGrants",
    "AssumeRoleWithCustomToken",
    "AssumeRoleWithLDAPIdentity",
    "AssumeRoleWithSAML",
    "AssumeRoleWithWebIdentity",
    "AssumeRoot",
    "DecodeAuthorizationMessage",
    "GetAccessKeyInfo",
    "GetCallerIdentity",
    "GetFederationToken",
    "GetSessionToken",
];

/// The decoded request.
#[derive(Debug, PartialEq, Eq)]
struct AssumeRoleRequest {
    seconds: u64,
    policy: Option<String>,
    session_name: String,
}

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let body = call.take_body().document().await?;
    let body = std::str::from_utf8(&body).map_err(|_| S3Error::invalid("The body is no form."))?;
    let signer = call.signer.as_ref().ok_or(Code::MissingAuthenticationToken)?;
    let request = decode(&call.query, &S3Query::parse(Some(body.trim_end())))?;
    if signer.session().is_some() {
        return Err(S3Error::new(Code::AccessDenied, "Temporary credentials cannot make others."));
    }
    if call.caller.is_denied(&S3Action::AssumeRole.on_bucket()) {
        return Err(Code::AccessDenied.into());
    }
    let credentials = call.objects.users.create_session(signer, request.seconds, request.policy).await?;
    Ok(response::document(document(signer, &request.session_name, &credentials, &call.request_id)))
}

fn decode(query: &S3Query, body: &S3Query) -> Result<AssumeRoleRequest, S3Error> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for (name, value) in query.iter().chain(body.iter()) {
        if found.iter().any(|(known, _)| *known == name) {
            return Err(S3Error::invalid(format!("The parameter {} is there twice.", shown(name))));
        }
        found.push((name, value));
    }
    let value = |name: &str| found.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    check_action(value("Action"), value("Version"))?;
    if let Some((name, _)) = found.iter().find(|(name, _)| !PARAMETERS.contains(name)) {
        return Err(S3Error::new(Code::NotImplemented, format!("The parameter {} is not offered.", shown(name))));
    }
    Ok(AssumeRoleRequest {
        seconds: value("DurationSeconds").map_or(Ok(SECONDS), seconds)?,
        policy: value("Policy").filter(|policy| !policy.is_empty()).map(str::to_owned),
        session_name: value("RoleSessionName").map_or(Ok(SESSION_NAME.to_owned()), session_name)?,
    })
}

fn check_action(action: Option<&str>, version: Option<&str>) -> Result<(), S3Error> {
    match action {
        Some("AssumeRole") => {}
        Some(other) if NOT_OFFERED.contains(&other) => {
            return Err(S3Error::new(Code::NotImplemented, format!("The action {other} is not offered.")));
        }
        Some(other) => {
            let message = format!("Could not find operation {} for version {VERSION}", shown(other));
            return Err(S3Error::new(Code::InvalidAction, message));
        }
        None => return Err(S3Error::new(Code::InvalidAction, "The request needs an Action, such as AssumeRole.")),
    }
    match version {
        Some(VERSION) => Ok(()),
        _ => Err(S3Error::invalid(format!("The Version of the request is {VERSION}."))),
    }
}

fn seconds(text: &str) -> Result<u64, S3Error> {
    let range = SESSION_SECONDS_MIN..=SESSION_SECONDS_MAX;
    let bad = || {
        let message = format!(
            "Value '{}' at 'durationSeconds' failed to satisfy constraint: Member must have value between \
             {SESSION_SECONDS_MIN} and {SESSION_SECONDS_MAX}",
            shown(text)
        );
        S3Error::invalid(message)
    };
    text.parse().ok().filter(|seconds| range.contains(seconds)).ok_or_else(bad)
}

/// 2 to 64 characters, as in STS.
fn session_name(text: &str) -> Result<String, S3Error> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    if (2..=64).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    let message = "Value at 'roleSessionName' failed to satisfy constraint: Member must have 2 to 64 letters, digits and \
                   characters of _+=,.@-";
    Err(S3Error::invalid(message))
}

/// The beginning of a text of the client.
fn shown(text: &str) -> &str {
    larder_rows::text::beginning(text, 100)
}

fn document(signer: &KeyHolder, name: &str, credentials: &SessionCredentials, request_id: &str) -> Bytes {
    let mut xml = XmlWriter::with_attributes("AssumeRoleResponse", &[("xmlns", NAMESPACE)]);
    let (id, key) = (&signer.user.id, &credentials.key);
    xml.element("AssumeRoleResult", |xml| {
        xml.element("AssumedRoleUser", |xml| {
            xml.text("Arn", format!("arn:aws:sts:::assumed-role/{id}/{name}"));
            xml.text("AssumedRoleId", format!("{id}:{name}"));
        });
        xml.element("Credentials", |xml| {
            xml.text("AccessKeyId", &key.key_id).text("SecretAccessKey", &key.secret);
            xml.text("Expiration", dates::iso(key.expires)).text("SessionToken", &credentials.token);
        });
    });
    xml.element("ResponseMetadata", |xml| {
        xml.text("RequestId", request_id);
    });
    xml.finish()
}

/// The error of a request to STS, in its form.
pub(crate) fn token_error(error: &S3Error, request_id: &str) -> S3Response {
    let (code, status) = sts_code(error.code);
    let mut xml = XmlWriter::with_attributes("ErrorResponse", &[("xmlns", NAMESPACE)]);
    xml.element("Error", |xml| {
        let is_senders = status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED;
        xml.text("Type", if is_senders { "Sender" } else { "Receiver" });
        xml.text("Code", code).text("Message", &error.message);
    });
    xml.text("RequestId", request_id);
    let mut response = response::xml(status, xml.finish());
    for (name, value) in &error.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// The code and the status that STS has for an error.
fn sts_code(code: Code) -> (&'static str, StatusCode) {
    match code {
        Code::InvalidAccessKeyId | Code::InvalidToken => ("InvalidClientTokenId", StatusCode::FORBIDDEN),
        Code::ExpiredToken => ("ExpiredToken", StatusCode::FORBIDDEN),
        Code::AuthorizationHeaderMalformed | Code::AuthorizationQueryParametersError => {
            ("IncompleteSignature", StatusCode::BAD_REQUEST)
        }
        Code::RequestTimeTooSkewed => ("RequestExpired", StatusCode::BAD_REQUEST),
        Code::MalformedPolicy => ("MalformedPolicyDocument", StatusCode::BAD_REQUEST),
        Code::InvalidRequest | Code::InvalidArgument | Code::MaxMessageLengthExceeded => {
            ("ValidationError", StatusCode::BAD_REQUEST)
        }
        Code::SlowDown | Code::ServiceUnavailable => ("ServiceUnavailable", StatusCode::SERVICE_UNAVAILABLE),
        Code::InternalError => ("InternalFailure", StatusCode::INTERNAL_SERVER_ERROR),
        other => (other.name(), other.status()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(query: &str, body: &str) -> Result<AssumeRoleRequest, S3Error> {
        decode(&S3Query::parse(Some(query)), &S3Query::parse(Some(body)))
    }

    #[test]
    fn parameters_come_in_the_query_or_the_body() {
        let plain = AssumeRoleRequest { seconds: 3600, policy: None, session_name: "session".into() };
        assert_eq!(decoded("Action=AssumeRole&Version=2011-06-15", "").unwrap(), plain);
        let body = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:xxx:xxx:xxx:xxxx&RoleSessionName=a%40b\
                    &DurationSeconds=900&Policy=%7B%22a%22%3A+1%7D";
        let full = AssumeRoleRequest { seconds: 900, policy: Some("{\"a\": 1}".into()), session_name: "a@b".into() };
        assert_eq!(decoded("", body).unwrap(), full);
        assert_eq!(decoded("Version=2011-06-15", "Action=AssumeRole&Policy=").unwrap(), plain);
    }

    #[test]
    fn what_would_change_the_rights_of_a_session_is_refused_by_name() {
        let begin = "Action=AssumeRole&Version=2011-06-15";
        for (query, code, message) in [
            ("", "InvalidAction", "needs an Action"),
            ("Action=Nonsense&Version=2011-06-15", "InvalidAction", "Nonsense"),
            ("Action=GetSessionToken&Version=2011-06-15", "NotImplemented", "GetSessionToken"),
            ("Action=AssumeRoleWithWebIdentity&Version=2011-06-15", "NotImplemented", "AssumeRoleWithWebIdentity"),
            ("Action=AssumeRole", "ValidationError", "2011-06-15"),
            (&format!("{begin}&PolicyArns.member.1.arn=x"), "NotImplemented", "PolicyArns.member.1.arn"),
            (&format!("{begin}&SerialNumber=1"), "NotImplemented", "SerialNumber"),
            (&format!("{begin}&Tags.member.1.Key=a"), "NotImplemented", "Tags.member.1.Key"),
            (&format!("{begin}&DurationSeconds=899"), "ValidationError", "durationSeconds"),
            (&format!("{begin}&DurationSeconds=604801"), "ValidationError", "durationSeconds"),
            (&format!("{begin}&DurationSeconds=-1"), "ValidationError", "durationSeconds"),
            (&format!("{begin}&RoleSessionName=a"), "ValidationError", "roleSessionName"),
            (&format!("{begin}&RoleSessionName=a/b"), "ValidationError", "roleSessionName"),
            (&format!("{begin}&Action=AssumeRole"), "ValidationError", "Action is there twice"),
        ] {
            let error = decoded(query, "").expect_err(query);
            assert_eq!(sts_code(error.code).0, code, "{query}");
            assert!(error.message.contains(message), "{query}: {error:?}");
        }
        assert!(decoded(begin, "Policy=a&Policy=b").is_err() && decoded(begin, "Action=AssumeRole").is_err());
    }

    #[test]
    fn errors_have_the_form_of_sts() {
        let response = token_error(&Code::InvalidAccessKeyId.into(), "R1");
        assert_eq!(response.status(), 403);
        assert_eq!(sts_code(Code::ExpiredToken), ("ExpiredToken", StatusCode::FORBIDDEN));
        assert_eq!(sts_code(Code::SignatureDoesNotMatch), ("SignatureDoesNotMatch", StatusCode::FORBIDDEN));
        assert_eq!(sts_code(Code::NotImplemented).1, StatusCode::NOT_IMPLEMENTED);
    }
}
