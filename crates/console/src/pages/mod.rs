//! The pages and the changes, by the rows of the table of routes.

mod datatype;
mod datatype_changes;
mod index_query;
mod jobs;
mod keys;
mod kv_links;
mod live;
mod log;
mod map_path;
mod moving;
mod object;
mod object_changes;
mod overview;
mod s3_buckets;
mod s3_links;
mod s3_metadata;
mod s3_object;
mod s3_settings;
mod s3_uploads;
mod s3_users;
mod security;
mod types;

use std::sync::Arc;

use larder_rows::MoveWish;

use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::frame::{self, ConsoleSection};
use crate::reply::{self, ConsoleReply};
use crate::routes::ConsoleAction;

/// Answers a request that has the rights of its route.
///
/// # Errors
/// The fault, for the page of a failure.
pub(crate) async fn answer(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    use ConsoleAction as A;
    match call.route.action {
        A::SignOut => Ok(sign_out(call)),
        A::Overview => overview::overview(call).await,
        A::Live => live::live(call),
        A::Types => types::list(call).await,
        A::Type => types::show(call).await,
        A::CreateType => types::create(call).await,
        A::ActivateType => types::activate(call).await,
        A::UpdateType => types::update(call).await,
        A::Keys => keys::keys(call).await,
        A::Object => object::object(call).await,
        A::QueryIndex => index_query::query(call).await,
        A::ObjectValue => object_changes::value(call).await,
        A::CreateObject => object_changes::create(call).await,
        A::UpdateDatatype => datatype_changes::update(call).await,
        A::ResolveObject => object_changes::resolve(call).await,
        A::EditObject => object_changes::edit(call).await,
        A::DeleteObject => object_changes::delete(call).await,
        A::S3Buckets => s3_buckets::buckets(call).await,
        A::CreateBucket => s3_buckets::create(call).await,
        A::DeleteBucket => s3_buckets::delete(call).await,
        A::S3Bucket => s3_buckets::bucket(call).await,
        A::S3Settings => s3_settings::settings(call).await,
        A::SetVersioning => s3_settings::set_versioning(call).await,
        A::SetQuota => s3_settings::set_quota(call).await,
        A::SetPolicy => s3_settings::set_policy(call).await,
        A::AddLifecycleRule => s3_settings::add_rule(call).await,
        A::RemoveLifecycleRule => s3_settings::remove_rule(call).await,
        A::S3Object => s3_object::object(call).await,
        A::StoreObject => s3_uploads::store(call).await,
        A::DownloadObject => s3_object::download(call).await,
        A::PreviewObject => s3_object::preview(call).await,
        A::ShareObject => s3_object::share(call).await,
        A::EditMetadata => s3_metadata::edit(call).await,
        A::TagObject => s3_object::tag(call).await,
        A::DeleteS3Object => s3_object::delete(call).await,
        A::S3Uploads => s3_uploads::uploads(call).await,
        A::S3Upload => s3_uploads::upload(call).await,
        A::BeginUpload => s3_uploads::begin(call).await,
        A::StorePart => s3_uploads::store_part(call).await,
        A::CompleteUpload => s3_uploads::complete(call).await,
        A::AbortUpload => s3_uploads::abort(call).await,
        A::S3Users => s3_users::users(call).await,
        A::CreateUser => s3_users::create(call).await,
        A::SwitchUser => s3_users::switch(call).await,
        A::RotateKey => s3_users::rotate(call).await,
        A::DeleteUser => s3_users::delete(call).await,
        A::CreateKey => s3_users::create_key(call).await,
        A::RevokeKey => s3_users::revoke_key(call).await,
        A::Security => security::security(call).await,
        A::SwitchSecurity => security::switch(call).await,
        A::AddRole => security::add_role(call).await,
        A::AlterPassword => security::alter_password(call).await,
        A::DeleteRole => security::delete_role(call).await,
        A::AddSource => security::add_source(call).await,
        A::DeleteSource => security::delete_source(call).await,
        A::ChangeGrants => security::change_grants(call).await,
        A::Log => log::log(call),
        A::Jobs => jobs::jobs(call).await,
        A::CancelJob => jobs::cancel(call),
        A::Move => moving::show(call).await,
        A::PauseMove => moving::change(call, MoveWish::Pause).await,
        A::ResumeMove => moving::change(call, MoveWish::Run).await,
        A::VerifyMove => moving::change(call, MoveWish::Verify).await,
        // The server answers these before it looks for a session.
        A::Style | A::Script | A::Icon | A::SignIn => Err(ConsoleFault::not_found("The console has no such page.")),
    }
}

/// The section of the pages of a path.
pub(crate) fn path_section(path: &str) -> ConsoleSection {
    match path.split('/').nth(1).unwrap_or_default() {
        "type" | "types" => ConsoleSection::Types,
        "keys" | "object" => ConsoleSection::Keys,
        "s3" => ConsoleSection::S3,
        "security" => ConsoleSection::Security,
        "log" => ConsoleSection::Log,
        "jobs" | "move" => ConsoleSection::Jobs,
        _ => ConsoleSection::Overview,
    }
}

/// The names of the things that changes are about.
const NAMES: &[&str] = &[
    "type",
    "bucket",
    "prefix",
    "key",
    "version",
    "upload",
    "id",
    "email",
    "role",
    "roles",
    "network",
    "permissions",
    "change",
    "switch",
    "versioning",
];

/// Whether a name stands both in the link and in the form: a change would take one, and the audit log the other.
pub(crate) fn is_named_twice(call: &ConsoleCall<'_>) -> bool {
    NAMES.iter().any(|name| call.query.given(name).is_some() && call.form.given(name).is_some())
}

/// The thing that a change is about, for the audit log: the names in its link or its form.
pub(crate) fn request_target(call: &ConsoleCall<'_>) -> String {
    let given = |name: &&str| call.query.given(name).or_else(|| call.form.given(name));
    let parts: Vec<String> = NAMES.iter().filter_map(given).map(|name| crate::escaped::shown(&name)).collect();
    parts.join("/")
}

fn sign_out(call: &ConsoleCall<'_>) -> ConsoleReply {
    Arc::clone(&call.settings.access).end(call.cookie);
    let text = maud::html! { p { "This session has ended." } };
    reply::page(hyper::StatusCode::OK, frame::outside("Signed out", &text))
}
