//! The administrator's interface of Riak CS: its users, its usage reports, its statistics, under `/riak-cs/` and
//! through the
//! buckets `riak-cs` and `usage`.
//!
//! ```text
//! user, users  create, read, update, remove, list      document  how a user is written, in JSON and XML
//! usage        what users did and what they store      status    ping, stats, info
//! ```
//! A user may see and change itself, an administrator everybody.

mod document;
mod status;
mod usage;
mod user;
mod users;

use hyper::header::{ACCEPT, HeaderMap};
use larder_gateway::objects::Error;

use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::operations::Op;
use crate::reply::Reply;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Xml,
}

/// Carries an operation of the administrator's out.
///
/// # Errors
/// Every refusal.
pub(crate) async fn run(call: &Call) -> Result<Reply, Fault> {
    match call.operation.op {
        Op::AdminPing | Op::AdminHeadPing => Ok(status::ping(call)),
        Op::AdminStats => status::stats(call),
        Op::AdminInfo => status::info(call),
        Op::AdminCreateUser => user::create(call).await,
        Op::AdminReadUser | Op::AdminHeadUser => user::read(call).await,
        Op::AdminUpdateUser => user::update(call).await,
        Op::AdminDeleteUser => user::delete(call).await,
        Op::AdminListUsers => users::list(call).await,
        Op::AdminUsage => usage::report(call).await,
        _ => Err(Code::NotImplemented.into()),
    }
}

/// Refuses who is no administrator.
fn admin_only(call: &Call) -> Result<(), Fault> {
    if call.caller.signed()?.admin { Ok(()) } else { Err(Error::AccessDenied.into()) }
}

/// Refuses who is neither an administrator nor the user of this key.
fn self_or_admin(call: &Call, key_id: &str) -> Result<(), Fault> {
    let user = call.caller.signed()?;
    if user.admin || user.key_id == key_id { Ok(()) } else { Err(Error::AccessDenied.into()) }
}

/// The form that `Accept` asks for.
fn form(headers: &HeaderMap, default: Form) -> Form {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let medias = accept.split(',').map(|media| media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let known = medias.filter_map(|media| match media.as_str() {
        "application/json" => Some(Form::Json),
        "application/xml" | "text/xml" => Some(Form::Xml),
        _ => None,
    });
    known.into_iter().next().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_first_form_that_is_known() {
        let of =
            |accept: &'static str| form(&[(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect(), Form::Xml);
        assert_eq!(of("application/json"), Form::Json);
        assert_eq!(of("text/html, Application/JSON;q=0.9, application/xml"), Form::Json);
        assert_eq!(of("text/xml"), Form::Xml);
        assert_eq!(of("*/*"), Form::Xml);
        assert_eq!(form(&HeaderMap::new(), Form::Json), Form::Json);
    }
}
