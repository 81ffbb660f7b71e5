//! The answer to a form: nothing, a document, or the page to go to.

use hyper::header::{ETAG, LOCATION};
use hyper::{StatusCode, Uri};
use larder_gateway::objects::put::Stored;

use super::super::spelling::{path_of, value_of};
use super::super::{describe, put_object};
use super::form::Fields;
use crate::call::Call;
use crate::reply::{self, Reply};
use crate::xml::Xml;

/// The answer, as the form asks for it.
pub(super) fn of(call: &Call, fields: &Fields, key: &str, stored: &Stored) -> Reply {
    let location = format!("{}{}", call.location(), path_of(key.as_bytes()));
    let etag = stored.version.object.as_ref().map(|object| describe::quoted(object.etag)).unwrap_or_default();
    let mut reply = match redirect(fields, &call.bucket, key, &etag) {
        Some(page) => {
            let mut reply = reply::empty(StatusCode::SEE_OTHER);
            put_object::say(&mut reply, stored);
            reply::set(&mut reply, LOCATION, page);
            return reply;
        }
        None => plain(status(fields), &location, &call.bucket, key, &etag),
    };
    put_object::say(&mut reply, stored);
    reply::set(&mut reply, LOCATION, location);
    reply::set(&mut reply, ETAG, etag);
    reply
}

/// The status asked for; any other than these three is none.
fn status(fields: &Fields) -> StatusCode {
    match fields.get("success_action_status").map(str::trim) {
        Some("200") => StatusCode::OK,
        Some("201") => StatusCode::CREATED,
        _ => StatusCode::NO_CONTENT,
    }
}

fn plain(status: StatusCode, location: &str, bucket: &str, key: &str, etag: &str) -> Reply {
    if status != StatusCode::CREATED {
        return reply::empty(status);
    }
    let mut xml = Xml::bare("PostResponse");
    xml.text("Location", location).text("Bucket", bucket).text("Key", key).text("ETag", etag);
    reply::xml(status, xml.finish())
}

/// The page to go to, if the form names one that can be gone to.
fn redirect(fields: &Fields, bucket: &str, key: &str, etag: &str) -> Option<String> {
    let page = fields.get("success_action_redirect").or_else(|| fields.get("redirect"))?;
    let uri: Uri = page.parse().ok()?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let mark = if uri.query().is_some() { '&' } else { '?' };
    let [bucket, key, etag] = [bucket, key, etag].map(|value| value_of(value.as_bytes()));
    Some(format!("{page}{mark}bucket={bucket}&key={key}&etag={etag}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_go() {
        let to = |name: &str, page: &str| redirect(&Fields::fixed(&[(name, page)], ""), "b", "a/é k", "\"e\"");
        let tail = "bucket=b&key=a%2F%C3%A9%20k&etag=%22e%22";
        assert_eq!(to("success_action_redirect", "http://x/y"), Some(format!("http://x/y?{tail}")));
        assert_eq!(to("redirect", "https://x/?a=b"), Some(format!("https://x/?a=b&{tail}")));
        for bad in ["", "/y", "javascript:1", "a b", "ftp://x/"] {
            assert_eq!(to("redirect", bad), None, "{bad}");
        }
    }

    #[test]
    fn statuses() {
        let of = |value: &str| status(&Fields::fixed(&[("success_action_status", value)], "")).as_u16();
        assert_eq!(["200", "201", "204", "404", ""].map(of), [200, 201, 204, 204, 204]);
        assert_eq!(status(&Fields::default()).as_u16(), 204);
        let reply = plain(StatusCode::CREATED, "http://b/k", "b", "k", "\"e\"");
        let text = String::from_utf8(reply.into_body().into_full().unwrap().to_vec()).unwrap();
        let expected = "<PostResponse><Location>http://b/k</Location><Bucket>b</Bucket><Key>k</Key>\
            <ETag>&quot;e&quot;</ETag></PostResponse>";
        assert!(text.ends_with(expected), "{text}");
    }
}
