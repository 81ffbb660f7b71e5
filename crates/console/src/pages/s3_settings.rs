//! The settings of a bucket: what it holds and may hold, versioning, policy, lifecycle rules; and its end.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use larder_rows::text::parse_size;
use larder_s3::Error;
use larder_s3::quotas::QuotaHolder;
use larder_s3_rules::lifecycle::{Expiration, Lifecycle, LifecycleFilter, LifecycleRule, NoncurrentExpiration};
use larder_s3_rules::policy::BucketPolicy;
use larder_s3_rules::{Bucket, BucketLock, DefaultRetention, RetentionPeriod, S3Action, StorageQuota, Versioning};
use maud::{Markup, PreEscaped, html};

use super::s3_links::{to_bucket, to_settings, to_uploads};
use crate::call::ConsoleCall;
use crate::escaped::{shown, shown_lines};
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};
use crate::units;

/// How long a page waits for a measurement.
const MEASURE_PATIENCE: Duration = Duration::from_secs(1);

/// `GET /s3/settings`.
pub(super) async fn settings(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.text("bucket");
    let bucket = call.objects.buckets.find(&name).await?;
    let here = to_bucket(&name);
    let body = html! {
        (trail(&[(Href::to("/s3"), "S3".to_owned()), (here.clone(), shown(name.as_bytes()))], "Settings"))
        div.head {
            h1 { "Settings of " (shown(name.as_bytes())) }
            a href=(here.text()) { "Objects" }
            a href=(to_uploads(&name).text()) { "Open uploads" }
        }
        (storage(call, &bucket).await)
        (versioning(call, &bucket))
        (policy(call, &bucket))
        (lifecycle(call, &bucket))
        @if call.may_change() { (delete_form(call, &bucket)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::S3, "Settings", &body)))
}

/// What the bucket held within the last minute, beside its quota. A large bucket shows it once its measurement has ended.
async fn storage(call: &ConsoleCall<'_>, bucket: &Arc<Bucket>) -> Markup {
    let stored = call.objects.quotas.last_stored(bucket, MEASURE_PATIENCE).await;
    let most = |limit: Option<u64>, text: fn(u64) -> String| {
        limit.map_or_else(String::new, |limit| format!(" of {}", text(limit)))
    };
    let bytes = bucket.quota.bytes.map(units::exact_bytes);
    html! {
        section.panel {
            h2 { "Storage" }
            dl.rows {
                div {
                    dt { "Objects" }
                    dd { @match stored { Some(stored) => (units::count(stored.objects)), None => "being measured" }
                        span.unit { (most(bucket.quota.objects, units::count)) } }
                }
                div {
                    dt { "Bytes" }
                    dd { @match stored { Some(stored) => (units::bytes(stored.bytes)), None => "being measured" }
                        span.unit { (most(bucket.quota.bytes, units::bytes)) } }
                }
                div { dt { "Created" } dd { (units::moment(bucket.created)) } }
                div { dt { "Owner" } dd { code { (shown(bucket.owner.as_bytes())) } } }
            }
            @if call.may_change() {
                details {
                    summary { "Change the quota" }
                    form.fields method="post" action=(to("/s3/settings/quota", &bucket.name).text()) {
                        (csrf(call.session))
                        label { "Most objects, every version counted; none for no limit"
                            input name="objects" type="number" min="0" value=[bucket.quota.objects]; }
                        label { "Most bytes, such as 10 GiB; none for no limit" input name="bytes" value=[bytes] autocomplete="off"; }
                        button type="submit" { "Store" }
                    }
                }
            }
        }
    }
}

fn versioning(call: &ConsoleCall<'_>, bucket: &Bucket) -> Markup {
    let (state, other, button) = match bucket.versioning {
        Versioning::Off => ("Off: a put replaces the object.", "enabled", "Enable"),
        Versioning::Enabled => ("Enabled: every put adds a version.", "suspended", "Suspend"),
        Versioning::Suspended => ("Suspended: earlier versions stay, a put adds none.", "enabled", "Enable"),
    };
    html! {
        section.panel {
            h2 { "Versioning" }
            p { (state) }
            @if let Some(lock) = bucket.object_lock {
                p { "Object lock keeps it enabled. " (default_retention(lock)) }
            } @else if call.may_change() {
                form method="post" action=(to("/s3/settings/versioning", &bucket.name).text()) {
                    (csrf(call.session))
                    input type="hidden" name="versioning" value=(other);
                    button type="submit" { (button) }
                }
            }
        }
    }
}

fn default_retention(lock: BucketLock) -> String {
    match lock.default_retention {
        None => "New versions are retained only if their request says so.".to_owned(),
        Some(DefaultRetention { mode, period }) => {
            let (count, unit) = match period {
                RetentionPeriod::Days(days) => (days, "days"),
                RetentionPeriod::Years(years) => (years, "years"),
            };
            format!("New versions are retained for {count} {unit}, {}.", mode.name())
        }
    }
}

fn policy(call: &ConsoleCall<'_>, bucket: &Bucket) -> Markup {
    let text = bucket.policy.as_ref().map(|policy| policy.text.as_str()).unwrap_or_default();
    html! {
        section.panel {
            h2 { "Policy" }
            @match &bucket.policy {
                None => p { "No policy: the owner alone, and those whom an ACL names, may use the bucket." },
                Some(policy) => {
                    @if policy.is_public() { p { span.tag.changed { "public" } " Anyone may do what this policy allows to all." } }
                    pre tabindex="0" { (crate::json_layout::indented(text.as_bytes()).unwrap_or_else(|| shown_lines(text.as_bytes()))) }
                }
            }
            @if call.may_change() {
                details {
                    summary { "Change the policy" }
                    form.fields method="post" action=(to("/s3/settings/policy", &bucket.name).text()) {
                        (csrf(call.session))
                        label for="policy" { "Policy as JSON; empty for none" }
                        textarea id="policy" name="policy" rows="12" spellcheck="false" { (PreEscaped("\n")) (text) }
                        button type="submit" { "Store" }
                    }
                }
            }
        }
    }
}

fn lifecycle(call: &ConsoleCall<'_>, bucket: &Bucket) -> Markup {
    let rules = bucket.lifecycle.as_ref().map(|lifecycle| &lifecycle.rules[..]).unwrap_or_default();
    html! {
        section.panel {
            h2 { "Lifecycle" }
            @if rules.is_empty() { p { "No rules: objects stay until they are deleted." } }
            @for rule in rules {
                div.rule {
                    p {
                        strong { (shown(rule.id.as_bytes())) }
                        @if !rule.enabled { " " span.tag { "disabled" } }
                        " " (described(rule))
                    }
                    @if call.may_change() {
                        form method="post" action=(to("/s3/settings/lifecycle/remove", &bucket.name).text()) {
                            (csrf(call.session))
                            input type="hidden" name="id" value=(rule.id);
                            button.plain type="submit" { "Remove" }
                        }
                    }
                }
            }
            @if call.may_change() {
                details {
                    summary { "Add a rule" }
                    form.fields method="post" action=(to("/s3/settings/lifecycle/add", &bucket.name).text()) {
                        (csrf(call.session))
                        label { "Name" input name="id" required maxlength="255" autocomplete="off"; }
                        label { "Keys that begin with; empty for all" input name="prefix" autocomplete="off" spellcheck="false"; }
                        label { "Days until an object expires" input name="days" type="number" min="1"; }
                        label { "Days until a replaced version goes" input name="noncurrent-days" type="number" min="1"; }
                        label { "Days until an unfinished upload is aborted" input name="upload-days" type="number" min="1"; }
                        button type="submit" { "Add" }
                    }
                }
            }
        }
    }
}

/// A rule as a sentence.
fn described(rule: &LifecycleRule) -> String {
    let mut parts = Vec::new();
    match rule.expiration {
        Some(Expiration::Days(days)) => parts.push(format!("objects expire after {days} days")),
        Some(Expiration::Date(date)) => parts.push(format!("objects expire on {}", units::moment(date))),
        Some(Expiration::ExpiredDeleteMarkers) => parts.push("delete markers without versions go".to_owned()),
        None => {}
    }
    if let Some(NoncurrentExpiration { days, keep }) = rule.noncurrent {
        let kept = keep.map_or_else(String::new, |keep| format!(", but for the newest {keep}"));
        parts.push(format!("replaced versions go after {days} days{kept}"));
    }
    if let Some(days) = rule.abort_uploads_days {
        parts.push(format!("unfinished uploads are aborted after {days} days"));
    }
    let LifecycleFilter { prefix, tags, larger_than, smaller_than } = &rule.filter;
    let mut only = Vec::new();
    only.extend(
        prefix
            .iter()
            .filter(|prefix| !prefix.is_empty())
            .map(|prefix| format!("keys from {}", shown(prefix.as_bytes()))),
    );
    only.extend(
        tags.iter().map(|tag| format!("the tag {}={}", shown(tag.key.as_bytes()), shown(tag.value.as_bytes()))),
    );
    only.extend(larger_than.map(|bytes| format!("more than {}", units::bytes(bytes))));
    only.extend(smaller_than.map(|bytes| format!("less than {}", units::bytes(bytes))));
    let only = if only.is_empty() { String::new() } else { format!(" (only {})", only.join(", ")) };
    format!("{}{only}", parts.join("; "))
}

fn delete_form(call: &ConsoleCall<'_>, bucket: &Bucket) -> Markup {
    html! {
        section.panel {
            h2 { "Delete the bucket" }
            p { "It has to be empty: without objects, versions and open uploads." }
            form.fields method="post" action=(to("/s3/delete", &bucket.name).text()) {
                (csrf(call.session))
                label for="confirm" { "Type its name again" }
                input id="confirm" name="confirm" required autocomplete="off" spellcheck="false";
                button.danger type="submit" { "Delete the bucket" }
            }
        }
    }
}

/// `POST /s3/settings/versioning`.
pub(super) async fn set_versioning(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let versioning = match call.form.text("versioning").as_str() {
        "enabled" => Versioning::Enabled,
        "suspended" => Versioning::Suspended,
        _ => return Err(ConsoleFault::bad("Versioning is enabled or suspended; it is never off again.")),
    };
    configure(call, S3Action::PutBucketVersioning, move |bucket| {
        bucket.versioning = versioning;
        Ok(())
    })
    .await
}

/// `POST /s3/settings/quota`.
pub(super) async fn set_quota(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, bytes) = (call.query.text("bucket"), call.form.text("bytes"));
    let bytes = match bytes.trim() {
        "" => None,
        text => Some(parse_size(text).ok_or_else(|| ConsoleFault::bad("Bytes are a number, such as 500 MiB."))?),
    };
    let quota = StorageQuota { objects: number(call, "objects")?, bytes };
    call.objects.quotas.set(&QuotaHolder::Bucket(name.clone()), quota).await?;
    Ok(done(&name))
}

/// `POST /s3/settings/policy`.
pub(super) async fn set_policy(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let (name, text) = (call.query.text("bucket"), call.form.text("policy"));
    if text.trim().is_empty() {
        return configure(call, S3Action::DeleteBucketPolicy, |bucket| {
            bucket.policy = None;
            Ok(())
        })
        .await;
    }
    let policy = BucketPolicy::parse(&name, text.trim()).map_err(|error| ConsoleFault::sentence(&error.message))?;
    if let Some((_, part)) = policy.void_parts(&name).next() {
        return Err(ConsoleFault::sentence(&part.to_string()));
    }
    let policy = Arc::new(policy);
    configure(call, S3Action::PutBucketPolicy, move |bucket| {
        bucket.policy = Some(Arc::clone(&policy));
        Ok(())
    })
    .await
}

/// `POST /s3/settings/lifecycle/add`.
pub(super) async fn add_rule(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let days = |name| {
        let days = number(call, name)?.map(u32::try_from).transpose();
        days.map_err(|_| ConsoleFault::bad("So many days are no number."))
    };
    let prefix = call.form.text("prefix");
    let rule = LifecycleRule {
        id: call.form.text("id").trim().to_owned(),
        enabled: true,
        filter: LifecycleFilter { prefix: Some(prefix), ..LifecycleFilter::default() },
        expiration: days("days")?.map(Expiration::Days),
        noncurrent: days("noncurrent-days")?.map(|days| NoncurrentExpiration { days, keep: None }),
        abort_uploads_days: days("upload-days")?,
        ..LifecycleRule::default()
    };
    if rule.id.is_empty() {
        return Err(ConsoleFault::bad("The rule needs a name."));
    }
    change_rules(call, move |rules| rules.push(rule.clone())).await
}

/// `POST /s3/settings/lifecycle/remove`.
pub(super) async fn remove_rule(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let id = call.form.text("id");
    change_rules(call, move |rules| rules.retain(|rule| rule.id != id)).await
}

async fn change_rules(
    call: &ConsoleCall<'_>,
    change: impl Fn(&mut Vec<LifecycleRule>) + Send + Sync,
) -> Result<ConsoleReply, ConsoleFault> {
    configure(call, S3Action::PutLifecycleConfiguration, move |bucket| {
        let mut lifecycle = bucket.lifecycle.take().unwrap_or_default();
        change(&mut lifecycle.rules);
        bucket.lifecycle = if lifecycle.rules.is_empty() { None } else { Some(checked(lifecycle)?) };
        Ok(())
    })
    .await
}

fn checked(lifecycle: Lifecycle) -> Result<Lifecycle, Error> {
    lifecycle.validate().map_err(|error| Error::InvalidRequest(error.message))?;
    Ok(lifecycle)
}

async fn configure(
    call: &ConsoleCall<'_>,
    action: S3Action,
    change: impl Fn(&mut Bucket) -> Result<(), Error> + Send + Sync,
) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.text("bucket");
    let caller = call.s3_caller(action).await?;
    call.objects.buckets.configure(&caller, &name, change).await?;
    Ok(done(&name))
}

fn done(bucket: &str) -> ConsoleReply {
    redirect(to_settings(bucket).with("done", b"settings"))
}

/// The number in a field; `None` for an empty one.
fn number(call: &ConsoleCall<'_>, field: &str) -> Result<Option<u64>, ConsoleFault> {
    let text = call.form.text(field);
    match text.trim() {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| ConsoleFault::bad(format!("The field {field} has no whole number.")))
        }
    }
}

fn to(path: &'static str, bucket: &str) -> Href {
    Href::to(path).with("bucket", bucket.as_bytes())
}
