//! User documents in JSON and XML, and the changes that clients send.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::ETAG;
use larder_s3::users::UserChange;
use larder_s3_rules::User;
use larder_s3_rules::checksum::Md5Hasher;
use serde_json::{Value as Json, json};

use super::DocumentFormat;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{LenientXmlReader, XmlWriter};

/// Parses the change that a document requests; unknown fields are ignored. `media` is its type; without one the content
/// decides.
///
/// # Errors
/// 400 `InvalidUserUpdate`.
pub(super) fn read(media: Option<&str>, document: &[u8]) -> Result<UserChange, S3Error> {
    let media = media.unwrap_or_default().to_ascii_lowercase();
    let looks_like_json = document.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let is_json = media.starts_with("application/json") || (looks_like_json && !media.contains("xml"));
    if is_json { read_json(document) } else { read_xml(document).map_err(|_| Code::InvalidUserUpdate.into()) }
}

fn read_json(document: &[u8]) -> Result<UserChange, S3Error> {
    let json: Json = serde_json::from_slice(document).map_err(|_| Code::InvalidUserUpdate)?;
    let fields = json.as_object().ok_or(Code::InvalidUserUpdate)?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(S3Error::from(Code::InvalidUserUpdate)),
    };
    let new_secret = match fields.get("new_key_secret") {
        None | Some(Json::Null) => false,
        Some(value) => value.as_bool().or_else(|| value.as_str().map(is_true)).ok_or(Code::InvalidUserUpdate)?,
    };
    let enabled = text("status")?.map(|status| enabled(&status)).transpose()?;
    Ok(UserChange { email: text("email")?, name: text("name")?, enabled, new_secret })
}

fn read_xml(document: &[u8]) -> Result<UserChange, S3Error> {
    let mut fields = UserChange::default();
    let mut xml = LenientXmlReader::new(document)?;
    if !xml.next_child()?.is_some_and(|root| root == "User" || root == "UserUpdate") {
        return Err(Code::InvalidUserUpdate.into());
    }
    while let Some(name) = xml.next_child()? {
        match name {
            "Email" => fields.email = Some(xml.text()?.trim().to_owned()),
            "Name" => fields.name = Some(xml.text()?.trim().to_owned()),
            "Status" => fields.enabled = Some(enabled(xml.text()?.trim())?),
            "NewKeySecret" => fields.new_secret = is_true(xml.text()?.trim()),
            _ => xml.skip()?,
        }
    }
    xml.expect_end()?;
    Ok(fields)
}

fn enabled(status: &str) -> Result<bool, S3Error> {
    match status {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(Code::InvalidUserUpdate.into()),
    }
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// A response with a user document.
pub(super) fn user_response(status: StatusCode, user: &User, format: DocumentFormat) -> S3Response {
    let (mut response, text) = match format {
        DocumentFormat::Json => {
            let text = Bytes::from(json(user).to_string());
            (response::json(status, text.clone()), text)
        }
        DocumentFormat::Xml => {
            let mut xml = XmlWriter::without_namespace("User");
            write_fields(&mut xml, user);
            let text = xml.finish();
            (response::xml(status, text.clone()), text)
        }
    };
    response::set(&mut response, ETAG, etag(&text));
    response
}

/// The entity tag of a document.
pub(super) fn etag(text: &[u8]) -> String {
    format!("\"{:032x}\"", u128::from_be_bytes(Md5Hasher::digest(text)))
}

/// A user in JSON with its secret; readers are the user or an administrator.
pub(super) fn json(user: &User) -> Json {
    json!({
        "email": user.email,
        "display_name": user.display_name,
        "name": user.name,
        "key_id": user.key_id,
        "key_secret": user.secret,
        "id": user.id,
        "status": status(user),
    })
}

/// Writes the fields of a user with its secret.
pub(super) fn write_fields(xml: &mut XmlWriter, user: &User) {
    xml.text("Email", &user.email).text("DisplayName", &user.display_name).text("Name", &user.name);
    xml.text("KeyId", &user.key_id).text("KeySecret", &user.secret).text("Id", &user.id).text("Status", status(user));
}

/// The status of a user in documents.
pub(super) fn status(user: &User) -> &'static str {
    if user.enabled { "enabled" } else { "disabled" }
}

#[cfg(test)]
pub(super) mod tests {
    use larder_rows::Timestamp;
    use proptest::prelude::*;

    use super::*;

    /// A user.
    pub(in crate::admin) fn user() -> User {
        User {
            id: "id".into(),
            key_id: "KEY".into(),
            secret: "s==".into(),
            name: "Foo & Bar".into(),
            email: "foo@b".into(),
            display_name: "foo".into(),
            enabled: true,
            admin: false,
            created: Timestamp::ZERO,
            ..User::default()
        }
    }

    fn text(format: DocumentFormat) -> String {
        let response = user_response(StatusCode::OK, &user(), format);
        assert_eq!(response.headers()["etag"].len(), 34);
        String::from_utf8(response.into_body().into_bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_user_is_written_in_json_and_xml() {
        let expected = "<User><Email>foo@b</Email><DisplayName>foo</DisplayName><Name>Foo &amp; Bar</Name>\
            <KeyId>KEY</KeyId>\
            <KeySecret>s==</KeySecret><Id>id</Id><Status>enabled</Status></User>";
        assert!(text(DocumentFormat::Xml).ends_with(expected), "{}", text(DocumentFormat::Xml));
        let expected = "{\"email\":\"foo@b\",\"display_name\":\"foo\",\"name\":\"Foo & Bar\",\"key_id\":\"KEY\",\
            \"key_secret\":\"s==\",\"id\":\"id\",\"status\":\"enabled\"}";
        assert_eq!(text(DocumentFormat::Json), expected);
    }

    #[test]
    fn user_documents_are_parsed_or_refused() {
        let fields =
            UserChange { email: Some("a@b".into()), name: Some("Foo".into()), enabled: Some(false), new_secret: true };
        let json = br#"{"email":"a@b","name":"Foo","status":"disabled","new_key_secret":true,"colour":"red"}"#;
        assert_eq!(read(Some("application/json; charset=utf-8"), json).unwrap(), fields);
        assert_eq!(read(None, json).unwrap(), fields);
        let xml = b"<?xml version=\"1.0\"?><User><Email>a@b</Email><Name>Foo</Name><Status>disabled</Status>\
            <NewKeySecret>true</NewKeySecret><Colour/></User>";
        assert_eq!(read(Some("application/xml"), xml).unwrap(), fields);
        assert_eq!(read(None, xml).unwrap(), fields);
        assert_eq!(read(None, b"<UserUpdate/>").unwrap(), UserChange::default());
        for bad in [
            "",
            "{",
            "[]",
            r#"{"email":7}"#,
            r#"{"status":"on"}"#,
            r#"{"new_key_secret":7}"#,
            "<Users/>",
            "<User>",
            "<User><Status/></User>",
        ] {
            assert_eq!(read(None, bad.as_bytes()).unwrap_err().code.name(), "InvalidUserUpdate", "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            document: Vec<u8>,
            text in "(\\{|\\}|<|>|/|\"|:|User|email|status|enabled)*",
        ) {
            for media in [None, Some("application/json"), Some("application/xml")] {
                let _ = (read(media, &document), read(media, text.as_bytes()));
            }
        }
    }
}
