//! `/riak-cs/users`: all users as a multipart stream.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use larder_s3_rules::User;

use super::document::{json, status, write_fields};
use super::{DocumentFormat, accepted_format, admin_only};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Body, S3Response};
use crate::xml::XmlWriter;

/// Users per part.
const PAGE: usize = 500;

/// The position of the stream.
enum UserListState {
    Page(Vec<Arc<User>>),
    End,
}

pub(crate) async fn list(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    let format = accepted_format(&call.headers, DocumentFormat::Xml);
    let status_filter = call.query.non_empty("status").map(str::to_owned);
    // The first page is read before the response begins, so that its failure has its own status.
    let first = call.objects.users.list("", PAGE).await?;
    let boundary = multipart_boundary(&call.objects.gateway.context().new_unique_name());
    let media = format!("multipart/mixed; boundary={boundary}");
    let objects = Arc::clone(&call.objects);
    let pieces = stream::unfold(Some(UserListState::Page(first)), move |next| {
        let (objects, boundary, status_filter) = (Arc::clone(&objects), boundary.clone(), status_filter.clone());
        async move {
            match next? {
                UserListState::Page(users) => match users.last().map(|user| user.id.clone()) {
                    None => Some((Ok(end(&boundary)), None)),
                    Some(last) => {
                        let piece = part(&boundary, format, &users, status_filter.as_deref());
                        match objects.users.list(&last, PAGE).await {
                            Ok(more) if more.is_empty() => Some((Ok(piece), Some(UserListState::End))),
                            Ok(more) => Some((Ok(piece), Some(UserListState::Page(more)))),
                            Err(error) => Some((Err(io::Error::other(error)), None)),
                        }
                    }
                },
                UserListState::End => Some((Ok(end(&boundary)), None)),
            }
        }
    });
    let mut response = response::with(StatusCode::OK, S3Body::streamed(Box::pin(pieces), None));
    response::set(&mut response, CONTENT_TYPE, media);
    Ok(response)
}

/// A boundary of letters and digits that no document contains.
fn multipart_boundary(unique: &str) -> String {
    let plain: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("larder{plain}")
}

fn part(boundary: &str, format: DocumentFormat, users: &[Arc<User>], status_filter: Option<&str>) -> Bytes {
    let users = users.iter().filter(|user| status_filter.is_none_or(|expected| expected == status(user)));
    let (media, document) = match format {
        DocumentFormat::Json => {
            let list = users.map(|user| json(user)).collect();
            ("json", Bytes::from(serde_json::Value::Array(list).to_string()))
        }
        DocumentFormat::Xml => {
            let mut xml = XmlWriter::without_namespace("Users");
            for user in users {
                xml.element("User", |xml| write_fields(xml, user));
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
    fn parts_list_the_wanted_users() {
        let users = [Arc::new(user()), Arc::new(User { enabled: false, key_id: "OFF".into(), ..user() })];
        let text =
            |format, status_filter| String::from_utf8(part("B", format, &users, status_filter).to_vec()).unwrap();
        let all = text(DocumentFormat::Xml, None);
        assert!(all.starts_with("\r\n--B\r\nContent-Type: application/xml\r\n\r\n<?xml"), "{all}");
        assert!(all.contains("<Users><User><Email>") && all.ends_with("</User></Users>"), "{all}");
        assert_eq!(all.matches("<User>").count(), 2);
        let off = text(DocumentFormat::Json, Some("disabled"));
        assert!(off.starts_with("\r\n--B\r\nContent-Type: application/json\r\n\r\n[{\"email\""), "{off}");
        assert!(off.contains("OFF") && !off.contains("\"KEY\""), "{off}");
        assert_eq!(end("B"), "\r\n--B--");
        assert_eq!(multipart_boundary("a-b/c"), "larderabc");
    }
}
