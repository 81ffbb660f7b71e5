//! Riak's security over protocol buffers: a connection is encrypted, then it has a user, then each request needs a permission (Riak
//! KV protocol buffers reference §9).
//!
//! ```text
//! in clear ──255──> encrypted ──253──> has a user ──> any request, with its permission
//! ```

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_core::rules::security::{AccessRules, AccessScope, SourceMethod};
use larder_core::security::{LoggedIn, Login, LoginError, check_permission};
use larder_kv::Gateway;

use super::fault::PbFault;
use super::frame::put_head;
use super::messages::RpbAuthReq;
use super::operations::PbCode;
use super::reply::PbReply;
use super::session::{PbAccess, PbScope, PbSession};

const AUTH_RESP: u8 = 254;
const START_TLS: u8 = 255;
/// A connection ends with its last failed log-in.
const FAILED_LOGINS_MAX: u32 = 3;

/// Whether a request has a user.
#[derive(Debug)]
pub(super) enum PbUser {
    /// Security is off.
    NotNeeded,
    /// Security is on, and the client is no user yet.
    Unknown,
    /// This one.
    Named(Arc<str>),
}

impl PbUser {
    /// Its name, where security is on.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::NotNeeded | Self::Unknown => None,
        }
    }
}

/// Admits a request: its user has the right that the table of codes asks for. `row` is `None` for an unknown code.
///
/// # Errors
/// Riak's text for the step that is missing, or for the permission.
pub(super) async fn admit(
    gateway: &Gateway,
    session: &PbSession,
    row: Option<&PbCode>,
    message: &Bytes,
) -> Result<PbUser, PbFault> {
    let needs_catalogue = matches!(row.map(|row| row.access), Some(PbAccess::Needs(..) | PbAccess::Job));
    if !needs_catalogue && !gateway.security().is_enabled() {
        // Such requests are answered while the catalogue cannot be checked.
        return Ok(PbUser::NotNeeded);
    }
    let rules = gateway.security().rules().await?;
    if !rules.settings().enabled {
        return Ok(PbUser::NotNeeded);
    }
    let access = row.map_or(PbAccess::LoggedIn, |row| row.access);
    let user = session.user.as_ref().filter(|login| still_holds(login, session, &rules));
    let user = user.map(|login| Arc::clone(&login.user));
    if let PbAccess::Login = access {
        return Ok(user.map_or(PbUser::Unknown, PbUser::Named));
    }
    let user = match user {
        _ if !session.source.secure => return Err(text("Security is enabled, please STARTTLS first")),
        None => return Err(text("Security is enabled, please authenticate first")),
        Some(user) => user,
    };
    if let PbAccess::Needs(permissions, scope_of) = access {
        let scope = scope_of(message.clone())?;
        let asked = match &scope {
            PbScope::Type(of_type) => AccessScope::Type(of_type),
            PbScope::Bucket(bucket) => AccessScope::Bucket(bucket),
        };
        for permission in permissions {
            if let Err(denied) = check_permission(&rules, &user, *permission, asked) {
                session.report(gateway, permission.name(), &asked.to_string(), Some(&user));
                return Err(PbFault::Text(denied.to_string()));
            }
        }
    }
    Ok(PbUser::Named(user))
}

/// Whether the client still is the user: by name and password, and by a source that asks for no other proof than it gave.
fn still_holds(login: &LoggedIn, session: &PbSession, rules: &AccessRules) -> bool {
    login.holds(rules)
        && match source_method(rules, &login.user, session) {
            None => false,
            Some(SourceMethod::Trust) => true,
            asked => asked == session.proven_by,
        }
}

/// The method that the client's address asks of a user; `None`: the user may not come from there.
fn source_method(rules: &AccessRules, user: &str, session: &PbSession) -> Option<SourceMethod> {
    let entry = rules.users().get(user)?;
    rules.user_source(entry, session.source.address).map(|source| source.method)
}

/// Code 255: the handshake follows the answer.
///
/// # Errors
/// Security is off, the connection is encrypted already, or the server has no certificate.
pub(super) fn start_tls(session: &PbSession, user: &PbUser, output: &mut BytesMut) -> Result<PbReply, PbFault> {
    match user {
        PbUser::NotNeeded => Err(text("Security not enabled; STARTTLS not allowed.")),
        PbUser::Unknown if session.source.secure => Err(text("Security is enabled, please authenticate first")),
        PbUser::Named(_) => Err(text("The connection is encrypted; STARTTLS not allowed.")),
        PbUser::Unknown if !session.offers_tls => {
            Err(text("STARTTLS is not available: the server has no certificate."))
        }
        PbUser::Unknown => {
            put_head(output, START_TLS, 0);
            Ok(PbReply::StartTls)
        }
    }
}

/// Code 253: makes the client a user.
///
/// # Errors
/// The connection is in clear, or the client did not prove to be the user; the third such error ends the connection.
pub(super) async fn log_in(
    gateway: &Gateway,
    session: &mut PbSession,
    user: &PbUser,
    request: RpbAuthReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    if let PbUser::NotNeeded = user {
        return Err(PbFault::Text("Unknown message code: 253".into()));
    }
    if !session.source.secure {
        return Err(text("Security is enabled, please STARTTLS first"));
    }
    let (name, password) = (request.user.unwrap_or_default(), request.password.unwrap_or_default());
    let address = session.source.address;
    let login = Login { user: &name, password: &password, common_name: session.common_name.as_deref(), address };
    let security = gateway.security();
    let before = security.rules().await?;
    match security.log_in(&login).await {
        Ok(user) => {
            let proven_by = source_method(&before, &user.user, session);
            let after = security.rules().await?;
            // Race: a source that changes during the log-in would pass for a proof that the client did not give.
            if source_method(&after, &user.user, session) != proven_by {
                return Err(Error::Overloaded { retry_after: 1 }.into());
            }
            (session.user, session.proven_by) = (Some(user), proven_by);
            put_head(output, AUTH_RESP, 0);
            Ok(())
        }
        Err(LoginError::Failed) => {
            session.failed_logins += 1;
            session.report(gateway, "Authenticate", &String::from_utf8_lossy(&name), None);
            let failed = "Authentication failed".to_owned();
            let is_last = session.failed_logins >= FAILED_LOGINS_MAX;
            Err(if is_last { PbFault::Last(failed) } else { PbFault::Text(failed) })
        }
        Err(LoginError::Busy) => Err(Error::Overloaded { retry_after: 1 }.into()),
        Err(LoginError::Gateway(error)) => Err(error.into()),
    }
}

fn text(text: &str) -> PbFault {
    PbFault::Text(text.to_owned())
}

#[cfg(test)]
mod tests;
