//! The frame of every page: head, navigation, notices; and the parts that several pages have.

use hyper::StatusCode;
use larder_rows::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::escaped::shown_lines;
use super::href::Href;
use crate::access::ConsoleSession;
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::routes::ConsoleAction;
use crate::units;

/// A section of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleSection {
    /// The state of the server.
    Overview,
    /// Bucket types.
    Types,
    /// Buckets, keys and objects.
    Keys,
    /// The S3 side.
    S3,
    /// Users, grants and sources of Riak's protocols.
    Security,
    /// What the server wrote about itself, and changes and refusals.
    Log,
    /// Jobs that run.
    Jobs,
}

const SECTIONS: &[(ConsoleSection, &str, &str)] = &[
    (ConsoleSection::Overview, "/", "Overview"),
    (ConsoleSection::Types, "/types", "Types"),
    (ConsoleSection::Keys, "/keys", "Keys"),
    (ConsoleSection::S3, "/s3", "S3"),
    (ConsoleSection::Security, "/security", "Security"),
    (ConsoleSection::Log, "/log", "Log"),
    (ConsoleSection::Jobs, "/jobs", "Jobs"),
];

/// The notices after a change: the value of the parameter `done`, and the sentence that it shows. Others show nothing, so a link
/// cannot put words into the console's mouth.
const NOTICES: &[(&str, &str)] = &[
    ("created", "The type is created. Activate it once every node has it."),
    ("activated", "The type is active."),
    ("updated", "The properties are changed."),
    ("resolved", "The key has one value now."),
    ("edited", "The value is stored."),
    ("deleted", "The object is deleted."),
    ("bucket-created", "The bucket is created."),
    ("bucket-deleted", "The bucket is deleted."),
    ("settings", "The settings are stored."),
    ("stored", "The object is stored."),
    ("described", "The metadata is stored."),
    ("tagged", "The tags are stored."),
    ("user-enabled", "The user's requests are accepted again."),
    ("user-disabled", "The user's requests are refused from now on."),
    ("user-deleted", "The user is deleted."),
    ("key-revoked", "The key is revoked."),
    ("security", "The change is made, on every node."),
    ("aborted", "The upload is aborted, and its parts are removed."),
    ("cancelled", "The job is cancelled. Its client gets an error."),
    ("move-pause", "The move stops within a few seconds, until it is resumed."),
    ("move-resume", "The move goes on."),
    ("move-verify", "All keys are compared. The page shows the result once it is there."),
];

/// The fields of forms that nobody types.
const HIDDEN_FIELDS: &[&str] =
    &["csrf", "context", "vtag", "seen", "within", "id", "versioning", "seconds", "edit", "kind", "switch", "change"];

/// The fields of forms that have a line for each thing, however many are typed.
const LINE_FIELDS: &[&str] = &["meta", "tags"];

/// A page within the frame.
pub(crate) fn framed(call: &ConsoleCall<'_>, section: ConsoleSection, title: &str, body: &Markup) -> Markup {
    let notice = call.query.given("done");
    let notice = NOTICES.iter().find(|(name, _)| notice.as_deref() == Some(name.as_bytes())).map(|(_, text)| *text);
    let node = call.gateway().context().config.node.as_str();
    document(
        title,
        &html! {
            header.top {
                a.skip href="#content" { "Skip to the content" }
                div.bar {
                    a.brand href="/" { "Larder" }
                    nav aria-label="Sections" {
                        @for (one, path, name) in SECTIONS {
                            a href=(path) aria-current=[(*one == section).then_some("page")] { (name) }
                        }
                    }
                    div.session {
                        span.node title="This node" { (node) }
                        @if !call.may_change() { span.tag { "read-only" } }
                        form method="post" action="/logout" {
                            (csrf(call.session))
                            button.plain type="submit" { "Sign out" }
                        }
                    }
                }
            }
            main id="content" tabindex="-1" {
                @if let Some(notice) = notice { p.notice role="status" { (notice) } }
                (body)
            }
        },
    )
}

/// The page of a failure.
pub(crate) fn failure(call: &ConsoleCall<'_>, section: ConsoleSection, fault: &ConsoleFault) -> Markup {
    let title = heading(fault.status);
    framed(
        call,
        section,
        title,
        &html! {
            h1 { (title) }
            div.problem role="alert" { @for reason in &fault.reasons { p { (shown_lines(reason.as_bytes())) } } }
            @match refilled(call, fault.status) {
                Some(form) => { h2 { "What you entered" } (form) }
                None => p { "Use your browser's Back to return to the page before." }
            }
        },
    )
}

/// The form that was refused for what it holds, so that nothing is typed twice. None for a form with other bytes than text, with
/// a password, whose refusal says that the sender may not do this at all, or whose change may be made.
fn refilled(call: &ConsoleCall<'_>, status: StatusCode) -> Option<Markup> {
    let fields = call.form.texts()?;
    // The name of a lifecycle rule is typed; other ids name the thing that a button is about.
    let is_hidden = |name: &str| {
        HIDDEN_FIELDS.contains(&name) || name == "id" && call.route.action != ConsoleAction::AddLifecycleRule
    };
    let has_typed = fields.iter().any(|(name, _)| !is_hidden(name));
    let is_safe =
        matches!(status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT) && call.form.given("password").is_none();
    let link = call.query.texts()?.into_iter();
    let to = link.fold(Href::to(call.route.path), |to, (name, value)| to.with(&name, value.as_bytes()));
    (call.route.change().is_some() && has_typed && is_safe).then(|| {
        html! {
            form.fields method="post" action=(to.text()) {
                (csrf(call.session))
                @for (name, value) in fields.iter().filter(|(name, _)| name != "csrf") {
                    @if is_hidden(name) { input type="hidden" name=(name) value=(value); }
                    @else if LINE_FIELDS.contains(&name.as_str()) || value.contains('\n') || value.len() > 80 {
                        label { (label_of(name)) textarea name=(name) rows="12" spellcheck="false" { (PreEscaped("\n")) (value) } }
                    } @else {
                        label { (label_of(name)) input name=(name) value=(value) autocomplete="off"; }
                    }
                }
                button type="submit" { "Try again" }
            }
        }
    })
}

/// The label of a field: its name with a capital.
fn label_of(name: &str) -> String {
    let mut chars = name.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
        .unwrap_or_default()
        .replace('-', " ")
}

/// A page for a client without a session.
pub(crate) fn outside(title: &str, body: &Markup) -> Markup {
    document(title, &html! { main.narrow id="content" { p.brand { "Larder" } h1 { (title) } (body) } })
}

/// A page that sends its reader on to the overview. The cookie of a session is strict: a browser that came by a link from
/// elsewhere sends it only with a request of this page.
pub(crate) fn welcome() -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0; url=/";
                title { "Signed in – Larder" }
                link rel="stylesheet" href="/console.css";
            }
            body { main.narrow { p.brand { "Larder" } p { "You are signed in. " a href="/" { "Open the console" } } } }
        }
    }
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Larder" }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/console.css";
                script type="module" src="/console.js" {}
            }
            body { (body) }
        }
    }
}

/// The hidden field that proves that a form came from a page of this session.
pub(crate) fn csrf(session: &ConsoleSession) -> Markup {
    html! { input type="hidden" name="csrf" value=(session.csrf); }
}

/// The path to a page: links to the pages above it, and its own name.
pub(crate) fn trail(steps: &[(Href, String)], here: &str) -> Markup {
    html! {
        nav.trail aria-label="Path" {
            ol {
                @for (href, name) in steps { li { a href=(href.clone().text()) { (name) } } }
                li aria-current="page" { (here) }
            }
        }
    }
}

/// A moment in a cell of a table: a narrow one breaks it between date and time.
pub(crate) fn moment_cell(at: Timestamp) -> Markup {
    let moment = units::moment(at);
    html! { td.moment { @for part in moment.split(' ') { span { (part) } " " } } }
}

/// The link to the next page, and to the first one.
pub(crate) fn pager(first: Option<Href>, next: Option<Href>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.pager aria-label="Pages" {
                @if let Some(first) = first { a href=(first.text()) { "First page" } }
                @if let Some(next) = next { a href=(next.text()) rel="next" { "Next page" } }
            }
        }
    }
}

fn heading(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "Not allowed",
        404 => "Not found",
        409 => "Not done: something changed",
        503 => "Not available now",
        507 => "The disk is full",
        400..=499 => "Not done",
        _ => "Failed",
    }
}
