//! The pages and the changes, by the rows of the table of routes.

mod datatype;
mod jobs;
mod keys;
mod live;
mod object;
mod overview;
mod s3;
mod s3_uploads;
mod types;

use std::sync::Arc;

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
        A::ResolveObject => object::resolve(call).await,
        A::EditObject => object::edit(call).await,
        A::DeleteObject => object::delete(call).await,
        A::S3Buckets => s3::buckets(call).await,
        A::S3Bucket => s3::bucket(call).await,
        A::S3Object => s3::versions(call).await,
        A::S3Users => s3::users(call).await,
        A::S3Uploads => s3_uploads::uploads(call).await,
        A::S3Upload => s3_uploads::upload(call).await,
        A::AbortUpload => s3_uploads::abort(call).await,
        A::Jobs => jobs::jobs(call).await,
        A::CancelJob => jobs::cancel(call),
        // The server answers these before it looks for a session.
        A::Style | A::Script | A::Icon | A::SignIn => Err(ConsoleFault::not_found("The console has no such page.")),
    }
}

/// The section of an action's pages.
pub(crate) fn action_section(action: ConsoleAction) -> ConsoleSection {
    use ConsoleAction as A;
    match action {
        A::Types | A::Type | A::CreateType | A::ActivateType | A::UpdateType => ConsoleSection::Types,
        A::Keys | A::Object | A::ResolveObject | A::EditObject | A::DeleteObject => ConsoleSection::Keys,
        A::S3Buckets | A::S3Bucket | A::S3Object | A::S3Users | A::S3Uploads | A::S3Upload | A::AbortUpload => {
            ConsoleSection::S3
        }
        A::Jobs | A::CancelJob => ConsoleSection::Jobs,
        A::Style | A::Script | A::Icon | A::SignIn | A::SignOut | A::Overview | A::Live => ConsoleSection::Overview,
    }
}

/// The names of the things that changes are about.
const NAMES: [&str; 5] = ["type", "bucket", "key", "upload", "id"];

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
