//! `/riak-cs/user`: one user.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::LOCATION;
use larder_gateway::objects::Error;
use larder_model::objects::User;

use super::document::{Said, answer};
use super::{Form, admin_only, document, form, self_or_admin};
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};

pub(super) async fn create(call: &Call) -> Result<Reply, Fault> {
    let anybody = call.settings.anonymous_user_creation && call.caller.user.is_none();
    if !anybody {
        admin_only(call)?;
    }
    let said = said(call).await?;
    let missing = |name: &str| {
        Fault::new(Code::MissingParameter, format!("The field {name} is missing.")).with("ParameterName", name)
    };
    let email = said.email.ok_or_else(|| missing("email"))?;
    let name = said.name.ok_or_else(|| missing("name"))?;
    let user = call.objects.create_user(&email, &name, false, None).await?;
    let mut reply = answer(StatusCode::CREATED, &user, form(&call.headers, Form::Xml));
    reply::set(&mut reply, LOCATION, "/riak-cs/user");
    Ok(reply)
}

pub(super) async fn read(call: &Call) -> Result<Reply, Fault> {
    let user = asked(call).await?;
    Ok(answer(StatusCode::OK, &user, form(&call.headers, Form::Xml)))
}

pub(super) async fn update(call: &Call) -> Result<Reply, Fault> {
    let user = asked(call).await.map_err(unknown)?;
    let mut said = said(call).await?;
    if said.enabled == Some(true) && !call.caller.signed()?.admin {
        // Whoever could sign was enabled then, but may have been disabled while the body came.
        if !user.enabled {
            return Err(Error::AccessDenied.into());
        }
        said.enabled = None;
    }
    let user = call.objects.update_user(&user.key_id, said.change()).await.map_err(|error| unknown(error.into()))?;
    Ok(answer(StatusCode::OK, &user, form(&call.headers, Form::Xml)))
}

pub(super) async fn delete(call: &Call) -> Result<Reply, Fault> {
    let user = asked(call).await.map_err(unknown)?;
    call.objects.delete_user(&user.key_id).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// The user that the path names; without a key who asks.
async fn asked(call: &Call) -> Result<Arc<User>, Fault> {
    let Some(key_id) = key_of(&call.key) else { return Ok(Arc::clone(call.caller.signed()?)) };
    self_or_admin(call, &key_id)?;
    Ok(call.objects.user_of_key(&key_id).await?)
}

/// The access key id behind `user/`.
fn key_of(path: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(path);
    let (_, key) = path.split_once('/')?;
    Some(key.trim_end_matches('/').to_owned()).filter(|key| !key.is_empty())
}

async fn said(call: &Call) -> Result<Said, Fault> {
    let document = call.take_body().document().await?;
    document::read(call.header("content-type"), &document)
}

/// Who is changed is not who signed: then a key that nobody has is a user that is not there.
fn unknown(fault: Fault) -> Fault {
    if fault.code == Code::InvalidAccessKeyId { Code::NoSuchUser.into() } else { fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_path() {
        for (path, key) in [
            ("user", None),
            ("user/", None),
            ("user/KEY", Some("KEY")),
            ("user/KEY/", Some("KEY")),
            ("user/a/b", Some("a/b")),
        ] {
            assert_eq!(key_of(path.as_bytes()).as_deref(), key, "{path}");
        }
    }

    #[test]
    fn a_key_nobody_has() {
        assert_eq!(unknown(Error::UnknownKey("K".into()).into()).code, Code::NoSuchUser);
        assert_eq!(unknown(Error::AccessDenied.into()).code, Code::AccessDenied);
    }
}
