//! The pages and the changes, by the rows of the table of routes.

mod findings;
mod live;
mod overview;
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
        // The server answers these before it looks for a session.
        A::Style | A::Script | A::Icon | A::SignIn => Err(ConsoleFault::not_found("The console has no such page.")),
    }
}

/// The section of an action's pages.
pub(crate) fn section_of(action: ConsoleAction) -> ConsoleSection {
    use ConsoleAction as A;
    match action {
        A::Types | A::Type | A::CreateType | A::ActivateType | A::UpdateType => ConsoleSection::Types,
        A::Style | A::Script | A::Icon | A::SignIn | A::SignOut | A::Overview | A::Live => ConsoleSection::Overview,
    }
}

/// The thing that a change is about, for the audit log: the names in its link or its form.
pub(crate) fn target_of(call: &ConsoleCall<'_>) -> String {
    const NAMES: [&str; 5] = ["type", "bucket", "key", "upload", "id"];
    let given = |name: &&str| call.query.given(name).or_else(|| call.form.given(name));
    let parts: Vec<String> = NAMES.iter().filter_map(given).map(|name| crate::escaped::shown(&name)).collect();
    parts.join("/")
}

fn sign_out(call: &ConsoleCall<'_>) -> ConsoleReply {
    Arc::clone(&call.settings.access).end(call.cookie);
    let text = maud::html! { p { "This session has ended." } };
    reply::page(hyper::StatusCode::OK, frame::outside("Signed out", &text))
}
