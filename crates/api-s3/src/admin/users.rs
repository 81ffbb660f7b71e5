//! `/riak-cs/users`: all users, as a stream of parts.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use larder_model::objects::User;

use super::document::{json, status, write_fields};
use super::{Form, admin_only, form};
use crate::body::Body;
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};
use crate::xml::Xml;

/// Users in a part.
const PAGE: usize = 500;

/// Where the stream is.
enum Next {
    Page(Vec<Arc<User>>),
    End,
}

pub(super) async fn list(call: &Call) -> Result<Reply, Fault> {
    admin_only(call)?;
    let form = form(&call.headers, Form::Xml);
    let wanted = call.query.filled("status").map(str::to_owned);
    // The first page is read before anything is said: its failure has a status of its own.
    let first = call.objects.list_users("", PAGE).await?;
    let boundary = boundary_of(&call.request_id);
    let media = format!("multipart/mixed; boundary={boundary}");
    let objects = Arc::clone(&call.objects);
    let pieces = stream::unfold(Some(Next::Page(first)), move |next| {
        let (objects, boundary, wanted) = (Arc::clone(&objects), boundary.clone(), wanted.clone());
        async move {
            match next? {
                Next::Page(users) => match users.last().map(|user| user.id.clone()) {
                    None => Some((Ok(end(&boundary)), None)),
                    Some(last) => {
                        let piece = part(&boundary, form, &users, wanted.as_deref());
                        match objects.list_users(&last, PAGE).await {
                            Ok(more) if more.is_empty() => Some((Ok(piece), Some(Next::End))),
                            Ok(more) => Some((Ok(piece), Some(Next::Page(more)))),
                            Err(error) => Some((Err(io::Error::other(error)), None)),
                        }
                    }
                },
                Next::End => Some((Ok(end(&boundary)), None)),
            }
        }
    });
    let mut reply = reply::with(StatusCode::OK, Body::pieces(Box::pin(pieces), None));
    reply::set(&mut reply, CONTENT_TYPE, media);
    Ok(reply)
}

/// A boundary of letters and digits that no document has in it.
fn boundary_of(request_id: &str) -> String {
    let plain: String = request_id.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("larder{plain}")
}

fn part(boundary: &str, form: Form, users: &[Arc<User>], wanted: Option<&str>) -> Bytes {
    let users = users.iter().filter(|user| wanted.is_none_or(|wanted| wanted == status(user)));
    let (media, document) = match form {
        Form::Json => {
            let list = users.map(|user| json(user)).collect();
            ("json", Bytes::from(serde_json::Value::Array(list).to_string()))
        }
        Form::Xml => {
            let mut xml = Xml::bare("Users");
            for user in users {
                xml.within("User", |xml| write_fields(xml, user));
            }
            ("xml", xml.finish())
        }
    };
    let head = format!("\r\n--{boundary}\r\nContent-Type: application/{media}\r\n\r\n");
    [head.as_bytes(), &document].concat().into()
}

fn end(boundary: &str) -> Bytes {
    format!("\r\n--{boundary}--").into()
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::user;
    use super::*;

    #[test]
    fn parts() {
        let users = [Arc::new(user()), Arc::new(User { enabled: false, key_id: "OFF".into(), ..user() })];
        let text = |form, wanted| String::from_utf8(part("B", form, &users, wanted).to_vec()).unwrap();
        let all = text(Form::Xml, None);
        assert!(all.starts_with("\r\n--B\r\nContent-Type: application/xml\r\n\r\n<?xml"), "{all}");
        assert!(all.contains("<Users><User><Email>") && all.ends_with("</User></Users>"), "{all}");
        assert_eq!(all.matches("<User>").count(), 2);
        let off = text(Form::Json, Some("disabled"));
        assert!(off.starts_with("\r\n--B\r\nContent-Type: application/json\r\n\r\n[{\"email\""), "{off}");
        assert!(off.contains("OFF") && !off.contains("\"KEY\""), "{off}");
        assert_eq!(end("B"), "\r\n--B--");
        assert_eq!(boundary_of("a-b/c"), "larderabc");
    }
}
