//! Users as documents, in JSON and XML, and what clients ask to be changed of them.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::ETAG;
use larder_gateway::objects::users::UserChange;
use larder_model::objects::User;
use larder_model::objects::checksum::Md5;
use serde_json::{Value as Json, json};

use super::Form;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

/// What a document says of a user; unknown fields do not count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) email: Option<String>,
    pub(super) name: Option<String>,
    pub(super) enabled: Option<bool>,
    pub(super) new_secret: bool,
}

impl Said {
    /// The change of a user it asks for.
    pub(super) fn change(self) -> UserChange {
        UserChange { name: self.name, email: self.email, enabled: self.enabled, new_secret: self.new_secret }
    }
}

/// Reads a document. `media` is its type; without one it is looked at.
///
/// # Errors
/// 400 `InvalidUserUpdate`.
pub(super) fn read(media: Option<&str>, document: &[u8]) -> Result<Said, Fault> {
    let media = media.unwrap_or_default().to_ascii_lowercase();
    let looks_like_json = document.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let is_json = media.starts_with("application/json") || (looks_like_json && !media.contains("xml"));
    if is_json { read_json(document) } else { read_xml(document).map_err(|_| Code::InvalidUserUpdate.into()) }
}

fn read_json(document: &[u8]) -> Result<Said, Fault> {
    let json: Json = serde_json::from_slice(document).map_err(|_| Code::InvalidUserUpdate)?;
    let fields = json.as_object().ok_or(Code::InvalidUserUpdate)?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Fault::from(Code::InvalidUserUpdate)),
    };
    let new_secret = match fields.get("new_key_secret") {
        None | Some(Json::Null) => false,
        Some(value) => value.as_bool().or_else(|| value.as_str().map(is_true)).ok_or(Code::InvalidUserUpdate)?,
    };
    let enabled = text("status")?.map(|status| enabled(&status)).transpose()?;
    Ok(Said { email: text("email")?, name: text("name")?, enabled, new_secret })
}

fn read_xml(document: &[u8]) -> Result<Said, Fault> {
    let mut said = Said::default();
    let mut xml = Reader::any(document)?;
    if !xml.child()?.is_some_and(|root| root == "User" || root == "UserUpdate") {
        return Err(Code::InvalidUserUpdate.into());
    }
    while let Some(name) = xml.child()? {
        match name {
            "Email" => said.email = Some(xml.text()?.trim().to_owned()),
            "Name" => said.name = Some(xml.text()?.trim().to_owned()),
            "Status" => said.enabled = Some(enabled(xml.text()?.trim())?),
            "NewKeySecret" => said.new_secret = is_true(xml.text()?.trim()),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    Ok(said)
}

fn enabled(status: &str) -> Result<bool, Fault> {
    match status {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(Code::InvalidUserUpdate.into()),
    }
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// An answer with a user's document.
pub(super) fn answer(status: StatusCode, user: &User, form: Form) -> Reply {
    let (mut reply, text) = match form {
        Form::Json => {
            let text = Bytes::from(json(user).to_string());
            (reply::json(status, text.clone()), text)
        }
        Form::Xml => {
            let mut xml = Xml::bare("User");
            write_fields(&mut xml, user);
            let text = xml.finish();
            (reply::xml(status, text.clone()), text)
        }
    };
    reply::set(&mut reply, ETAG, etag(&text));
    reply
}

/// The entity tag of a document.
pub(super) fn etag(text: &[u8]) -> String {
    format!("\"{:032x}\"", u128::from_be_bytes(Md5::of(text)))
}

/// A user in JSON, its secret included: who may read it is the user or an administrator.
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

/// Writes the fields of a user, its secret included.
pub(super) fn write_fields(xml: &mut Xml, user: &User) {
    xml.text("Email", &user.email).text("DisplayName", &user.display_name).text("Name", &user.name);
    xml.text("KeyId", &user.key_id).text("KeySecret", &user.secret).text("Id", &user.id).text("Status", status(user));
}

/// Whether the user is enabled, in the words of the documents.
pub(super) fn status(user: &User) -> &'static str {
    if user.enabled { "enabled" } else { "disabled" }
}

#[cfg(test)]
pub(super) mod tests {
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
            created: 0,
        }
    }

    fn text(form: Form) -> String {
        let reply = answer(StatusCode::OK, &user(), form);
        assert_eq!(reply.headers()["etag"].len(), 34);
        String::from_utf8(reply.into_body().into_full().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn documents() {
        let expected = "<User><Email>foo@b</Email><DisplayName>foo</DisplayName><Name>Foo &amp; Bar</Name>\
            <KeyId>KEY</KeyId>\
            <KeySecret>s==</KeySecret><Id>id</Id><Status>enabled</Status></User>";
        assert!(text(Form::Xml).ends_with(expected), "{}", text(Form::Xml));
        let expected = "{\"email\":\"foo@b\",\"display_name\":\"foo\",\"name\":\"Foo & Bar\",\"key_id\":\"KEY\",\
            \"key_secret\":\"s==\",\"id\":\"id\",\"status\":\"enabled\"}";
        assert_eq!(text(Form::Json), expected);
    }

    #[test]
    fn what_clients_say() {
        let said = Said { email: Some("a@b".into()), name: Some("Foo".into()), enabled: Some(false), new_secret: true };
        let json = br#"{"email":"a@b","name":"Foo","status":"disabled","new_key_secret":true,"colour":"red"}"#;
        assert_eq!(read(Some("application/json; charset=utf-8"), json).unwrap(), said);
        assert_eq!(read(None, json).unwrap(), said);
        let xml = b"<?xml version=\"1.0\"?><User><Email>a@b</Email><Name>Foo</Name><Status>disabled</Status>\
            <NewKeySecret>true</NewKeySecret><Colour/></User>";
        assert_eq!(read(Some("application/xml"), xml).unwrap(), said);
        assert_eq!(read(None, xml).unwrap(), said);
        assert_eq!(read(None, b"<UserUpdate/>").unwrap(), Said::default());
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
