//! `/riak-cs/usage/KEY`: what a user did, hour by hour, and what its buckets hold.

mod report;
mod request;

use hyper::StatusCode;
use larder_gateway::objects::Error;

use super::{Form, self_or_admin};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};
use crate::route::USAGE_BUCKET;
use crate::xml::Xml;

use report::Report;
use request::Request;

pub(super) async fn report(call: &Call) -> Result<Reply, Fault> {
    let path = String::from_utf8_lossy(&call.key);
    let rest = if call.bucket == USAGE_BUCKET { &*path } else { path.strip_prefix("usage").unwrap_or_default() };
    let form = super::form(&call.headers, Form::Json);
    let request = match Request::of(rest, &call.query, form, call.now) {
        Ok(request) => request,
        Err(message) => return Ok(refused(StatusCode::BAD_REQUEST, message, form)),
    };
    self_or_admin(call, &request.key_id)?;
    let user = match call.objects.user_of_key(&request.key_id).await {
        Ok(user) => user,
        Err(Error::UnknownKey(_)) => return Ok(refused(StatusCode::NOT_FOUND, "Unknown user", request.form)),
        Err(error) => return Err(error.into()),
    };
    let access =
        if request.access { Some(call.objects.usage(&user.key_id, request.from, request.to).await?) } else { None };
    let storage = if request.storage { Some(call.objects.storage_of(&user.id).await?) } else { None };
    let report = Report { access, storage, now: call.now, to: request.to };
    Ok(match request.form {
        Form::Json => reply::json(StatusCode::OK, report.json().to_string()),
        Form::Xml => reply::document(report.xml()),
    })
}

/// A refusal as Riak CS's reports have it.
fn refused(status: StatusCode, message: &str, form: Form) -> Reply {
    match form {
        Form::Json => reply::json(status, serde_json::json!({ "Error": { "Message": message } }).to_string()),
        Form::Xml => {
            let mut xml = Xml::bare("Error");
            xml.text("Message", message);
            reply::xml(status, xml.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let text = |form| {
            let reply = refused(StatusCode::NOT_FOUND, "Unknown user", form);
            assert_eq!(reply.status(), StatusCode::NOT_FOUND);
            String::from_utf8(reply.into_body().into_full().unwrap().to_vec()).unwrap()
        };
        assert_eq!(text(Form::Json), "{\"Error\":{\"Message\":\"Unknown user\"}}");
        assert!(text(Form::Xml).ends_with("<Error><Message>Unknown user</Message></Error>"));
    }
}
