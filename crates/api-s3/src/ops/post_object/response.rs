//! The response to a form: no body, a document, or a redirect.

use hyper::header::{ETAG, LOCATION};
use hyper::{HeaderMap, StatusCode, Uri};
use larder_s3::put::StoredVersion;

use super::super::listing_document::{encoded_path, encoded_value};
use super::super::{object_headers, put_object};
use super::form::FormFields;
use crate::call::S3Call;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

/// The response that the form asks for; `headers` are those of its fields.
pub(super) fn stored_response(
    call: &S3Call,
    fields: &FormFields,
    headers: &HeaderMap,
    key: &str,
    stored: &StoredVersion,
) -> S3Response {
    let location = format!("{}{}", call.location(), encoded_path(key.as_bytes()));
    let etag = stored.version.object.as_ref().map(|object| object_headers::quoted(object.etag)).unwrap_or_default();
    let mut response = match redirect(fields, &call.bucket, key, &etag) {
        Some(page) => {
            let mut response = response::empty(StatusCode::SEE_OTHER);
            put_object::write_stored(&mut response, stored, headers);
            response::set(&mut response, LOCATION, page);
            return response;
        }
        None => plain(status(fields), &location, &call.bucket, key, &etag),
    };
    put_object::write_stored(&mut response, stored, headers);
    response::set(&mut response, LOCATION, location);
    response::set(&mut response, ETAG, etag);
    response
}

/// The requested status; values other than 200 and 201 mean 204.
fn status(fields: &FormFields) -> StatusCode {
    match fields.get("success_action_status").map(str::trim) {
        Some("200") => StatusCode::OK,
        Some("201") => StatusCode::CREATED,
        _ => StatusCode::NO_CONTENT,
    }
}

fn plain(status: StatusCode, location: &str, bucket: &str, key: &str, etag: &str) -> S3Response {
    if status != StatusCode::CREATED {
        return response::empty(status);
    }
    let mut xml = XmlWriter::without_namespace("PostResponse");
    xml.text("Location", location).text("Bucket", bucket).text("Key", key).text("ETag", etag);
    response::xml(status, xml.finish())
}

/// The redirect address, if the form names a valid one.
fn redirect(fields: &FormFields, bucket: &str, key: &str, etag: &str) -> Option<String> {
    let page = fields.get("success_action_redirect").or_else(|| fields.get("redirect"))?;
    let uri: Uri = page.parse().ok()?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let mark = if uri.query().is_some() { '&' } else { '?' };
    let [bucket, key, etag] = [bucket, key, etag].map(|value| encoded_value(value.as_bytes()));
    Some(format!("{page}{mark}bucket={bucket}&key={key}&etag={etag}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_redirects_are_followed() {
        let to = |name: &str, page: &str| redirect(&FormFields::fixed(&[(name, page)], ""), "b", "a/é k", "\"e\"");
        let tail = "bucket=b&key=a%2F%C3%A9%20k&etag=%22e%22";
        assert_eq!(to("success_action_redirect", "http://x/y"), Some(format!("http://x/y?{tail}")));
        assert_eq!(to("redirect", "https://x/?a=b"), Some(format!("https://x/?a=b&{tail}")));
        for bad in ["", "/y", "javascript:1", "a b", "ftp://x/"] {
            assert_eq!(to("redirect", bad), None, "{bad}");
        }
    }

    #[test]
    fn only_200_and_201_override_the_status() {
        let chosen = |value: &str| status(&FormFields::fixed(&[("success_action_status", value)], "")).as_u16();
        assert_eq!(["200", "201", "204", "404", ""].map(chosen), [200, 201, 204, 204, 204]);
        assert_eq!(status(&FormFields::default()).as_u16(), 204);
        let response = plain(StatusCode::CREATED, "http://b/k", "b", "k", "\"e\"");
        let text = String::from_utf8(response.into_body().into_bytes().unwrap().to_vec()).unwrap();
        let expected = "<PostResponse><Location>http://b/k</Location><Bucket>b</Bucket><Key>k</Key>\
            <ETag>&quot;e&quot;</ETag></PostResponse>";
        assert!(text.ends_with(expected), "{text}");
    }
}
