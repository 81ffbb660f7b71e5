//! Requests at the hosts of websites: a bucket's objects as pages, for anonymous readers.
//!
//! ```text
//! host ─> bucket ─> its configuration ─> redirect, page, index document, error document, or a page that names the error
//! ```

use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::{HeaderMap, Method, StatusCode};
use larder_s3::get::{GetObject, ReadWindow, VersionSpec};
use larder_s3::{Caller, Configuration, Error, Objects};
use larder_s3_rules::SystemHeader;
use larder_s3_rules::website::{WebProtocol, Website, WebsitePages, WebsiteRedirect};

use crate::errors::{Code, S3Error};
use crate::ops::{conditions, get_object};
use crate::response::{self, S3Body, S3Response};
use crate::target::{S3Query, check_key};
use crate::{auth, cors, target};

const ERROR_CODE: HeaderName = HeaderName::from_static("x-amz-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-amz-error-message");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// The methods of a website.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// A request for a page of a website.
pub(crate) struct PageRequest<'a> {
    /// The objects.
    pub(crate) objects: &'a Objects,
    /// The bucket, and the key as the path has it, decoded.
    pub(crate) target: &'a target::ResourcePath,
    /// Its method.
    pub(crate) method: &'a Method,
    /// Its headers.
    pub(crate) headers: &'a HeaderMap,
    /// Its query as it was sent: a redirect keeps it.
    pub(crate) query: Option<&'a str>,
    /// The host that the client named, with its port.
    pub(crate) host: &'a str,
    /// An anonymous caller, who may learn that a page is missing where it may read every page.
    pub(crate) caller: Caller,
    /// The request id.
    pub(crate) id: &'a str,
}

/// How a page is read.
#[derive(Clone, Copy)]
enum WebsiteRead {
    /// With the conditions and the range of the request.
    AsRequested,
    /// The whole page.
    Whole,
}

impl PageRequest<'_> {
    /// The response; an error is a page, too.
    pub(crate) async fn answer(&self) -> S3Response {
        self.respond().await.unwrap_or_else(|error| error_page(error, self.id, *self.method == Method::HEAD))
    }

    async fn respond(&self) -> Result<S3Response, S3Error> {
        match *self.method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return cors::preflight(self.objects, self.target, self.headers).await,
            _ => return Err(S3Error::not_allowed(self.method.as_str(), "OBJECT", METHODS)),
        }
        check_key(&self.target.key)?;
        let bucket = self.objects.buckets.find(&self.target.bucket).await?;
        let website = bucket.website.as_ref().ok_or(Error::NoConfiguration(Configuration::Website))?;
        let key = self.key();
        if let Some(redirect) = website.redirect_before(&key) {
            return Ok(self.redirect(&redirect));
        }
        let Some(pages) = website.pages() else { return Err(Code::NoSuchWebsiteConfiguration.into()) };
        match self.page(pages.page_key(&key), WebsiteRead::AsRequested).await {
            Ok(response) => Ok(response),
            Err(error) => self.instead_of(error, website, pages, &key).await,
        }
    }

    /// The answer to a request for `key` whose page could not be read.
    async fn instead_of(
        &self,
        error: S3Error,
        website: &Website,
        pages: &WebsitePages,
        key: &str,
    ) -> Result<S3Response, S3Error> {
        let status = error.code.status();
        if status == StatusCode::NOT_MODIFIED {
            return Err(error);
        }
        if let Some(below) = pages.index_below(key).filter(|_| status == StatusCode::NOT_FOUND)
            && self.objects.head(&self.caller, &self.read(below, WebsiteRead::Whole)?).await.is_ok()
        {
            let (status, key) = (StatusCode::FOUND.as_u16(), format!("{key}/"));
            return Ok(self.redirect(&WebsiteRedirect { status, protocol: None, host: None, key }));
        }
        if let Some(redirect) = website.redirect_after(key, status.as_u16()) {
            return Ok(self.redirect(&redirect));
        }
        let Some(document) = pages.error.as_ref().filter(|_| status.is_client_error()) else { return Err(error) };
        // The error of the request says more than that of the error document.
        let Ok(mut response) = self.page(document.clone(), WebsiteRead::Whole).await else { return Err(error) };
        if response.status() == StatusCode::OK {
            *response.status_mut() = status;
            insert_error(&mut response, &error);
        }
        Ok(response)
    }

    /// The object of this key as a page, or the redirect that it stands for.
    async fn page(&self, key: String, how: WebsiteRead) -> Result<S3Response, S3Error> {
        let request = self.read(key, how)?;
        let (found, body) = if *self.method == Method::HEAD {
            (self.objects.head(&self.caller, &request).await?, S3Body::empty())
        } else {
            let (found, reader) = self.objects.get(&self.caller, &request).await?;
            let bytes = found.window.end.saturating_sub(found.window.start);
            (found, S3Body::object(reader, bytes))
        };
        let object = found.version.object.as_ref().ok_or(Code::NoSuchKey)?;
        if let Some(location) = object.header(SystemHeader::WebsiteRedirect) {
            let mut response = response::empty(StatusCode::MOVED_PERMANENTLY);
            response::set(&mut response, LOCATION, location.as_ref());
            return Ok(response);
        }
        let mut response = get_object::respond(&found, self.headers)?;
        *response.body_mut() = body;
        Ok(response)
    }

    fn read(&self, key: String, how: WebsiteRead) -> Result<GetObject, S3Error> {
        let read = GetObject {
            bucket: self.target.bucket.clone(),
            key: key.into(),
            version: VersionSpec::Current,
            ..GetObject::default()
        };
        Ok(match how {
            WebsiteRead::Whole => GetObject { window: ReadWindow::Whole, ..read },
            WebsiteRead::AsRequested => GetObject {
                window: get_object::window(&S3Query::default(), self.headers)?,
                conditions: conditions::read_conditions(self.headers),
                ..read
            },
        })
    }

    /// A redirect to an absolute address: a path alone that begins with two slashes would lead to another host.
    fn redirect(&self, redirect: &WebsiteRedirect<'_>) -> S3Response {
        let own = if self.caller.access_context.secure { WebProtocol::Https } else { WebProtocol::Http };
        let (protocol, host) = (redirect.protocol.unwrap_or(own).name(), redirect.host.unwrap_or(self.host));
        let key = percent_encoding::percent_encode(redirect.key.as_bytes(), auth::PATH);
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        let status = StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::MOVED_PERMANENTLY);
        let mut response = response::empty(status);
        response::set(&mut response, LOCATION, format!("{protocol}://{host}/{key}{query}"));
        response
    }

    fn key(&self) -> String {
        String::from_utf8_lossy(&self.target.key).into_owned()
    }
}

/// The bucket whose website a host names; `None`: the host is one of S3. The longer of two hosts counts that fit.
pub(crate) fn website_bucket(host: &str, websites: &[String], roots: &[String]) -> Option<String> {
    let name = target::host_name(host)?;
    let root = target::root_length(&name, websites)?;
    if target::root_length(&name, roots).is_some_and(|other| other >= root) {
        return None;
    }
    // The host itself is a bucket of its name.
    Some(name.strip_suffix(&name[name.len() - root..]).map_or("", |front| front.trim_end_matches('.')))
        .map(|front| if front.is_empty() { name.clone() } else { front.to_owned() })
}

/// The page that names an error, as AWS writes it.
pub(crate) fn error_page(error: S3Error, id: &str, is_head: bool) -> S3Response {
    let status = error.code.status();
    let mut body = String::new();
    if !is_head && status != StatusCode::NOT_MODIFIED {
        let (title, named) = (escaped(&status.to_string()), [("RequestId", id), ("HostId", id)]);
        body = format!("<html>\n<head><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n<ul>\n");
        let own = [("Code", error.code.name()), ("Message", &error.message)];
        let extras = error.extras.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in own.into_iter().chain(extras).chain(named) {
            body.push_str(&format!("<li>{name}: {}</li>\n", escaped(value)));
        }
        body.push_str("</ul>\n<hr/>\n</body>\n</html>\n");
    }
    let mut response = error.clone().into_response("", id, true);
    insert_error(&mut response, &error);
    if !body.is_empty() {
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, HTML);
        *response.body_mut() = S3Body::full(body.into());
    }
    response
}

fn insert_error(response: &mut S3Response, error: &S3Error) {
    response::set(response, ERROR_CODE, error.code.name());
    response::set(response, ERROR_MESSAGE, &*error.message);
}

/// A text in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_the_website_of_a_bucket_or_is_one_of_s3() {
        let websites = ["s3-website.localhost".to_owned(), "www.example.com".into()];
        let roots = ["localhost".to_owned(), "s3.example.com".into()];
        for (host, bucket) in [
            ("tea.s3-website.localhost:8080", Some("tea")),
            ("Tea.S3-Website.localhost", Some("tea")),
            ("my.tea.s3-website.localhost.", Some("my.tea")),
            ("www.example.com", Some("www.example.com")),
            ("shop.www.example.com", Some("shop")),
            ("s3-website.localhost", Some("s3-website.localhost")),
            ("tea.localhost", None),
            ("xs3-website.localhost", None),
            ("s3.example.com", None),
            ("127.0.0.1:8080", None),
            ("other.org", None),
            ("", None),
        ] {
            assert_eq!(website_bucket(host, &websites, &roots).as_deref(), bucket, "{host}");
        }
        let same = ["localhost".to_owned()];
        assert_eq!(website_bucket("tea.localhost", &same, &same), None, "a host of both is one of S3");
        assert_eq!(website_bucket("tea.localhost", &[], &roots), None);
    }

    #[test]
    fn an_error_page_escapes_what_it_shows() {
        let error = S3Error::from(Code::NoSuchBucket).with("BucketName", "<script>'\"&");
        let page = error_page(error.clone(), "ID", false);
        let text = String::from_utf8(page.into_body().into_bytes().unwrap().to_vec()).unwrap();
        let expected = "<html>\n<head><title>404 Not Found</title></head>\n<body>\n<h1>404 Not Found</h1>\n<ul>\n\
            <li>Code: NoSuchBucket</li>\n<li>Message: The specified bucket does not exist</li>\n\
            <li>BucketName: &lt;script&gt;&#39;&#34;&amp;</li>\n<li>RequestId: ID</li>\n<li>HostId: ID</li>\n</ul>\n\
            <hr/>\n</body>\n</html>\n";
        assert_eq!(text, expected);
        let head = error_page(error, "ID", true);
        assert_eq!(head.headers()["x-amz-error-code"], "NoSuchBucket");
        assert_eq!(head.into_body().length(), Some(0));
    }
}
