//! `/riak-cs/user`: one user.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{ACCEPT, ETAG, HeaderValue, LOCATION};
use larder_s3::Error;
use larder_s3::users::{NewUser, UserChange};
use larder_s3_rules::User;
use serde_json::{Map, Value as Json, json};

use super::document::{self, etag, user_response};
use super::{ChangedUser, DocumentFormat, accepted_format, admin_only, self_or_admin};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};

pub(crate) async fn create(call: &S3Call) -> Result<S3Response, S3Error> {
    let is_open_to_all = call.settings.anonymous_user_creation && call.caller.user.is_none();
    if !is_open_to_all {
        admin_only(call)?;
    }
    let fields = read_fields(call).await?;
    let missing = |name: &str| {
        S3Error::new(Code::MissingParameter, format!("The field {name} is missing.")).with("ParameterName", name)
    };
    let email = fields.email.ok_or_else(|| missing("email"))?;
    let name = fields.name.ok_or_else(|| missing("name"))?;
    let new = NewUser { email, name, self_registered: is_open_to_all, ..NewUser::default() };
    let user = call.objects.users.create_user(new).await?;
    let mut response = user_response(StatusCode::CREATED, &user, accepted_format(&call.headers, DocumentFormat::Xml));
    response::set(&mut response, LOCATION, "/riak-cs/user");
    response.extensions_mut().insert(ChangedUser(user.key_id.clone()));
    Ok(response)
}

pub(crate) async fn read(call: &S3Call) -> Result<S3Response, S3Error> {
    let user = requested_user(call).await?;
    Ok(user_response(StatusCode::OK, &user, accepted_format(&call.headers, DocumentFormat::Xml)))
}

pub(crate) async fn update(call: &S3Call) -> Result<S3Response, S3Error> {
    let user = requested_user(call).await.map_err(no_such_user)?;
    let mut fields = read_fields(call).await?;
    if !call.caller.require_user()?.admin {
        fields = own_change(&user, fields)?;
    }
    let user = call.objects.users.update(&user.key_id, fields).await.map_err(|error| no_such_user(error.into()))?;
    Ok(user_response(StatusCode::OK, &user, accepted_format(&call.headers, DocumentFormat::Xml)))
}

/// The part of `asked` that a user may change of itself: its secret, and whether it is enabled, which it can only end.
///
/// # Errors
/// `AccessDenied` for another name or address: policies and grants name users by them.
fn own_change(user: &User, asked: UserChange) -> Result<UserChange, S3Error> {
    let differs = |new: &Option<String>, old: &str| new.as_deref().is_some_and(|new| new != old);
    if differs(&asked.name, &user.name) || differs(&asked.email, &user.email) {
        let message = "The name and the e-mail address of a user are changed by an administrator.";
        return Err(S3Error::new(Code::AccessDenied, message));
    }
    // The caller was enabled when its signature was verified. An administrator may have disabled it while the body
    // arrived; a stale request must not enable it again.
    if asked.enabled == Some(true) && !user.enabled {
        return Err(Error::AccessDenied.into());
    }
    // Race: a name that an administrator has just changed must not come back with the old document.
    Ok(UserChange { name: None, email: None, enabled: asked.enabled.filter(|enabled| !enabled), ..asked })
}

/// Only an administrator removes users, and no administrator this way: a call without a key once removed the only one.
pub(crate) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    if path_key(&call.key).is_none() {
        return Err(S3Error::invalid("Name the user to remove: DELETE /riak-cs/user/KEY"));
    }
    let user = requested_user(call).await.map_err(no_such_user)?;
    if user.admin {
        return Err(S3Error::new(Code::AccessDenied, "An administrator is not removed by this call."));
    }
    call.objects.users.delete(&user.key_id).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// The user that the path names; without a key, the caller.
async fn requested_user(call: &S3Call) -> Result<Arc<User>, S3Error> {
    let Some(key_id) = path_key(&call.key) else { return Ok(Arc::clone(call.caller.require_user()?)) };
    self_or_admin(call, &key_id)?;
    Ok(call.objects.users.find_by_key(&key_id).await?)
}

/// The access key id after `user/`.
fn path_key(path: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(path);
    let (_, key) = path.split_once('/')?;
    Some(key.trim_end_matches('/').to_owned()).filter(|key| !key.is_empty())
}

async fn read_fields(call: &S3Call) -> Result<UserChange, S3Error> {
    let document = call.take_body().document().await?;
    document::read(call.header("content-type"), &document)
}

/// An unknown key names the user to be changed, not the signer, so the error is `NoSuchUser`.
fn no_such_user(error: S3Error) -> S3Error {
    if error.code == Code::InvalidAccessKeyId { Code::NoSuchUser.into() } else { error }
}

/// Whether requests are served; needs no signature.
pub(crate) fn ping(call: &S3Call) -> S3Response {
    if !call.objects.gateway.is_ready() {
        return response::empty(StatusCode::SERVICE_UNAVAILABLE);
    }
    response::typed(StatusCode::OK, HeaderValue::from_static("text/html"), "OK")
}

/// The statistics, including those of Riak KV.
pub(crate) fn stats(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    let stats = call.objects.gateway.stats().into_iter().map(|(name, value)| (name.to_owned(), value));
    let stats = Json::Object(stats.collect::<Map<_, _>>());
    let plain = call.headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain"));
    let (media, text) = if plain {
        (HeaderValue::from_static("text/plain"), format!("{stats:#}\n"))
    } else {
        (response::JSON, stats.to_string())
    };
    let tag = etag(text.as_bytes());
    let mut response = response::typed(StatusCode::OK, media, text);
    response::set(&mut response, ETAG, tag);
    Ok(response)
}

/// Version and uptime.
pub(crate) fn info(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    let version = env!("CARGO_PKG_VERSION");
    let info = json!({
        "version": version,
        "system_version": format!("Larder {version}"),
        "uptime": format!("{} seconds", call.objects.gateway.context().monotonic().as_secs()),
        "storage_info": [],
    });
    Ok(response::json(StatusCode::OK, info.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::user;
    use super::*;

    #[test]
    fn a_user_sends_its_own_document_back_but_takes_no_other_name() {
        let asked = |name: &str, email: &str| UserChange {
            name: Some(name.into()),
            email: Some(email.into()),
            enabled: Some(true),
            new_secret: true,
        };
        let same = own_change(&user(), asked("Foo & Bar", "foo@b")).unwrap();
        assert_eq!(same, UserChange { new_secret: true, ..UserChange::default() });
        for other in [asked("Foo", "foo@b"), asked("Foo & Bar", "bar@b")] {
            assert_eq!(own_change(&user(), other).unwrap_err().code, Code::AccessDenied);
        }
        let off = UserChange { enabled: Some(false), ..UserChange::default() };
        assert_eq!(own_change(&user(), off.clone()).unwrap(), off);
        let disabled = User { enabled: false, ..user() };
        let on = UserChange { enabled: Some(true), ..UserChange::default() };
        assert_eq!(own_change(&disabled, on).unwrap_err().code, Code::AccessDenied);
    }

    #[test]
    fn the_path_names_a_user_or_the_caller() {
        for (path, key) in [
            ("user", None),
            ("user/", None),
            ("user/KEY", Some("KEY")),
            ("user/KEY/", Some("KEY")),
            ("user/a/b", Some("a/b")),
        ] {
            assert_eq!(path_key(path.as_bytes()).as_deref(), key, "{path}");
        }
    }

    #[test]
    fn an_unknown_key_is_no_such_user() {
        assert_eq!(no_such_user(Error::UnknownKey("K".into()).into()).code, Code::NoSuchUser);
        assert_eq!(no_such_user(Error::AccessDenied.into()).code, Code::AccessDenied);
    }
}
