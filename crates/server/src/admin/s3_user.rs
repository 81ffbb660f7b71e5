//! `s3 user`: create, list, show, disable, enable, rotate-key. A secret is printed when it is made and never again.

use std::sync::Arc;

use larder_gateway::objects::users::UserChange;
use larder_gateway::objects::{Error, Objects};
use larder_model::objects::User;
use serde_json::json;

use super::Answer;
use super::answer::shown;
use super::table::Call;

/// Users read at once.
const PAGE: usize = 1000;

pub(super) async fn create(call: Call<'_>) -> Answer {
    match call.objects.create_user(call.args[0], call.args[1], false, None).await {
        Ok(user) => with_secret(&user, call.json),
        Err(error) => failed("creating", call.args[0], &error),
    }
}

pub(super) async fn list(call: Call<'_>) -> Answer {
    let mut users = Vec::new();
    loop {
        let after = users.last().map_or("", |user: &Arc<User>| &user.id).to_owned();
        match call.objects.list_users(&after, PAGE).await {
            Ok(page) if page.is_empty() => break,
            Ok(page) => users.extend(page),
            Err(error) => return Answer::failed(format!("Error listing S3 users:\n{error}")),
        }
    }
    if call.json {
        return Answer::json(&users.iter().map(|user| described(user)).collect());
    }
    let line = |user: &Arc<User>| {
        let marks = match (user.enabled, user.admin) {
            (false, _) => " (disabled)",
            (true, true) => " (admin)",
            (true, false) => "",
        };
        format!("{} {}{marks}\n", user.key_id, shown(user.email.as_bytes()))
    };
    Answer::done(users.iter().map(line).collect::<String>())
}

pub(super) async fn show(call: Call<'_>) -> Answer {
    match find(call.objects, call.args[0]).await {
        Ok(user) if call.json => Answer::json(&described(&user)),
        Ok(user) => Answer::done(text(&user)),
        Err(error) => failed("showing", call.args[0], &error),
    }
}

pub(super) async fn disable(call: Call<'_>) -> Answer {
    let change = UserChange { enabled: Some(false), ..UserChange::default() };
    changed(&call, change, "disabled").await
}

pub(super) async fn enable(call: Call<'_>) -> Answer {
    let change = UserChange { enabled: Some(true), ..UserChange::default() };
    changed(&call, change, "enabled").await
}

pub(super) async fn rotate_key(call: Call<'_>) -> Answer {
    match change(&call, UserChange { new_secret: true, ..UserChange::default() }).await {
        Ok(user) => with_secret(&user, call.json),
        Err(error) => failed("changing", call.args[0], &error),
    }
}

async fn changed(call: &Call<'_>, asked: UserChange, done: &str) -> Answer {
    match change(call, asked).await {
        Ok(user) => Answer::done(format!("{} {done}", shown(user.key_id.as_bytes()))),
        Err(error) => failed("changing", call.args[0], &error),
    }
}

async fn change(call: &Call<'_>, change: UserChange) -> Result<Arc<User>, Error> {
    let user = find(call.objects, call.args[0]).await?;
    call.objects.update_user(&user.key_id, change).await
}

/// A user by access key or by e-mail address.
async fn find(objects: &Objects, word: &str) -> Result<Arc<User>, Error> {
    match objects.user_of_email(word).await? {
        Some(user) => Ok(user),
        None => objects.user_of_key(word).await,
    }
}

fn with_secret(user: &User, json: bool) -> Answer {
    if json {
        let mut described = described(user);
        described["key_secret"] = json!(user.secret);
        return Answer::json(&described);
    }
    Answer::done(format!("{}key_secret: {}\n", text(user), user.secret))
}

fn described(user: &User) -> serde_json::Value {
    json!({
        "email": user.email,
        "display_name": user.display_name,
        "name": user.name,
        "key_id": user.key_id,
        "id": user.id,
        "status": status(user),
        "admin": user.admin,
    })
}

fn text(user: &User) -> String {
    format!(
        "email: {}\nname: {}\nid: {}\nstatus: {}\nadmin: {}\nkey_id: {}\n",
        shown(user.email.as_bytes()),
        shown(user.name.as_bytes()),
        user.id,
        status(user),
        user.admin,
        user.key_id
    )
}

fn status(user: &User) -> &'static str {
    if user.enabled { "enabled" } else { "disabled" }
}

fn failed(doing: &str, who: &str, error: &Error) -> Answer {
    let who = shown(who.as_bytes());
    match error {
        Error::UnknownKey(_) => {
            Answer::failed(format!("{who} is no S3 user: neither an access key nor an e-mail address"))
        }
        Error::UserExists => Answer::failed(format!("An S3 user with the e-mail address {who} exists already")),
        error => Answer::failed(format!("Error {doing} S3 user {who}:\n{error}")),
    }
}
