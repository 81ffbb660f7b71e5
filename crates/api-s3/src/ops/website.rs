//! `?website`: index and error documents and redirects of a bucket's website.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::website::{
    KeyReplacement, ROUTING_RULES_MAX, RedirectTarget, RoutingRule, WebProtocol, Website, WebsitePages,
};

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

/// Longest document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 128 * 1024;
/// The elements of a document.
const INDEX: &str = "IndexDocument";
const ERROR: &str = "ErrorDocument";

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let website = bucket.website.as_ref().ok_or(Error::NoConfiguration(Configuration::Website))?;
    Ok(response::document(write(website)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let document = upload_body::document(call).await?;
    // Bound: every gateway holds the websites of all buckets.
    if document.len() > DOCUMENT_BYTES_MAX {
        let max = DOCUMENT_BYTES_MAX.to_string();
        return Err(S3Error::from(Code::MaxMessageLengthExceeded).with("MaxMessageLengthBytes", max));
    }
    let website = read(&document)?;
    call.configure(StatusCode::OK, |bucket| bucket.website = Some(website.clone())).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.website = None).await
}

/// The elements of a document, each as it was given.
#[derive(Default)]
struct WebsiteDocument {
    redirect: Option<RedirectTarget>,
    index: Option<String>,
    error: Option<String>,
    rules: Option<Vec<RoutingRule>>,
}

pub(super) fn read(document: &[u8]) -> Result<Website, S3Error> {
    let mut xml = XmlReader::open(document, "WebsiteConfiguration")?;
    let mut read = WebsiteDocument::default();
    while let Some(name) = xml.next_child()? {
        match name {
            "RedirectAllRequestsTo" => read.redirect = Some(target(&mut xml)?),
            INDEX => read.index = Some(single(&mut xml, "Suffix")?),
            ERROR => read.error = Some(single(&mut xml, "Key")?),
            "RoutingRules" => read.rules = Some(rules(&mut xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    website(read)
}

/// The website of a document, if its elements go together.
fn website(document: WebsiteDocument) -> Result<Website, S3Error> {
    let WebsiteDocument { redirect, index, error, rules } = document;
    let rules = rules.unwrap_or_default();
    if let Some(target) = redirect {
        let is_alone = index.is_none() && error.is_none() && rules.is_empty();
        return if is_alone { Ok(Website::RedirectAll(target)) } else { Err(Code::MalformedXML.into()) };
    }
    let index = index.ok_or(Code::MalformedXML)?;
    if index.is_empty() || index.contains('/') {
        return Err(S3Error::argument(INDEX, index, "The IndexDocument Suffix is not well formed"));
    }
    if error.as_ref().is_some_and(String::is_empty) {
        return Err(S3Error::argument(ERROR, "", "The ErrorDocument Key is not well formed"));
    }
    let count = rules.len();
    if count > ROUTING_RULES_MAX {
        return Err(S3Error::invalid(format!(
            "{count} routing rules provided, the number of routing rules in a website configuration is limited to \
             {ROUTING_RULES_MAX}."
        )));
    }
    Ok(Website::Pages(WebsitePages { index, error, rules }))
}

/// The text of the only child.
fn single(xml: &mut XmlReader<'_>, child: &str) -> Result<String, S3Error> {
    let mut text = None;
    while let Some(name) = xml.next_child()? {
        match name {
            _ if name == child => text = Some(xml.text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    text.ok_or_else(|| Code::MalformedXML.into())
}

fn target(xml: &mut XmlReader<'_>) -> Result<RedirectTarget, S3Error> {
    let (mut host, mut protocol) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "HostName" => host = Some(xml.text()?),
            "Protocol" => protocol = read_protocol(&xml.text()?)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    let host = host.filter(|host| !host.is_empty()).ok_or(Code::MalformedXML)?;
    Ok(RedirectTarget { host: checked_host(host)?, protocol })
}

fn rules(xml: &mut XmlReader<'_>) -> Result<Vec<RoutingRule>, S3Error> {
    let mut rules = Vec::new();
    while let Some(name) = xml.next_child()? {
        match name {
            "RoutingRule" => rules.push(rule(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(rules)
}

fn rule(xml: &mut XmlReader<'_>) -> Result<RoutingRule, S3Error> {
    let (mut rule, mut has_redirect) = (RoutingRule::default(), false);
    while let Some(name) = xml.next_child()? {
        match name {
            "Condition" => read_condition(xml, &mut rule)?,
            "Redirect" => {
                has_redirect = true;
                read_redirect(xml, &mut rule)?;
            }
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    if has_redirect { Ok(rule) } else { Err(Code::MalformedXML.into()) }
}

fn read_condition(xml: &mut XmlReader<'_>, rule: &mut RoutingRule) -> Result<(), S3Error> {
    while let Some(name) = xml.next_child()? {
        match name {
            "KeyPrefixEquals" => rule.prefix = Some(xml.text()?).filter(|prefix| !prefix.is_empty()),
            "HttpErrorCodeReturnedEquals" => rule.error = read_error_code(&xml.text()?)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    // A condition of nothing would fit every request, which its author cannot mean.
    if rule.prefix.is_none() && rule.error.is_none() { Err(Code::MalformedXML.into()) } else { Ok(()) }
}

fn read_redirect(xml: &mut XmlReader<'_>, rule: &mut RoutingRule) -> Result<(), S3Error> {
    let (mut key, mut prefix) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Protocol" => rule.protocol = read_protocol(&xml.text()?)?,
            "HostName" => {
                let host = Some(xml.text()?).filter(|host| !host.is_empty());
                rule.host = host.map(checked_host).transpose()?;
            }
            "ReplaceKeyWith" => key = Some(xml.text()?).filter(|key| !key.is_empty()),
            // An empty one takes the prefix away.
            "ReplaceKeyPrefixWith" => prefix = Some(xml.text()?),
            "HttpRedirectCode" => rule.status = read_redirect_code(&xml.text()?)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    rule.replace = match (key, prefix) {
        (Some(_), Some(_)) => {
            return Err(S3Error::invalid("You can only define ReplaceKeyPrefix or ReplaceKey but not both."));
        }
        (Some(key), None) => Some(KeyReplacement::Key(key)),
        (None, Some(prefix)) => Some(KeyReplacement::Prefix(prefix)),
        (None, None) => None,
    };
    let RoutingRule { protocol, host, replace, status, .. } = rule;
    let is_empty = protocol.is_none() && host.is_none() && replace.is_none() && status.is_none();
    if is_empty { Err(Code::MalformedXML.into()) } else { Ok(()) }
}

fn read_protocol(text: &str) -> Result<Option<WebProtocol>, S3Error> {
    let bad = || {
        S3Error::invalid(
            "Invalid protocol, protocol can be http or https. If not defined the protocol will be selected automatically.",
        )
    };
    if text.is_empty() { Ok(None) } else { WebProtocol::named(text).map(Some).ok_or_else(bad) }
}

/// A host as it stands in the address of a redirect.
fn checked_host(host: String) -> Result<String, S3Error> {
    // A line end, a space or a fragment would make another address of it.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\\?#@<>\"".contains(&byte);
    if host.bytes().all(is_plain) {
        Ok(host)
    } else {
        Err(S3Error::invalid("The host name of a redirect is not valid."))
    }
}

fn read_error_code(text: &str) -> Result<Option<u16>, S3Error> {
    let bad = |code: &str| {
        S3Error::invalid(format!("The provided HTTP error code ({code}) is not valid. Valid codes are 4XX or 5XX."))
    };
    read_code(text, |code| matches!(code, 400..=417 | 500..=505), bad)
}

fn read_redirect_code(text: &str) -> Result<Option<u16>, S3Error> {
    let bad = |code: &str| {
        S3Error::invalid(format!(
            "The provided HTTP redirect code ({code}) is not valid. Valid codes are 3XX except 300."
        ))
    };
    read_code(text, |code| matches!(code, 301..=305 | 307 | 308), bad)
}

/// A status code; `None` for an empty text.
fn read_code(
    text: &str,
    is_valid: impl Fn(u16) -> bool,
    bad: impl Fn(&str) -> S3Error,
) -> Result<Option<u16>, S3Error> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Code::MalformedXML.into());
    }
    text.parse().ok().filter(|code| is_valid(*code)).map(Some).ok_or_else(|| bad(text))
}

fn write(website: &Website) -> Bytes {
    let mut xml = XmlWriter::new("WebsiteConfiguration");
    match website {
        Website::RedirectAll(target) => {
            xml.element("RedirectAllRequestsTo", |xml| {
                xml.text("HostName", &target.host);
                xml.optional_text("Protocol", target.protocol.map(WebProtocol::name));
            });
        }
        Website::Pages(pages) => {
            xml.element(INDEX, |xml| {
                xml.text("Suffix", &pages.index);
            });
            if let Some(key) = &pages.error {
                xml.element(ERROR, |xml| {
                    xml.text("Key", key);
                });
            }
            if !pages.rules.is_empty() {
                xml.element("RoutingRules", |xml| pages.rules.iter().for_each(|rule| write_rule(xml, rule)));
            }
        }
    }
    xml.finish()
}

fn write_rule(xml: &mut XmlWriter, rule: &RoutingRule) {
    xml.element("RoutingRule", |xml| {
        if rule.prefix.is_some() || rule.error.is_some() {
            xml.element("Condition", |xml| {
                xml.optional_text("HttpErrorCodeReturnedEquals", rule.error.map(|code| code.to_string()));
                xml.optional_text("KeyPrefixEquals", rule.prefix.as_ref());
            });
        }
        xml.element("Redirect", |xml| {
            xml.optional_text("Protocol", rule.protocol.map(WebProtocol::name));
            xml.optional_text("HostName", rule.host.as_ref());
            match &rule.replace {
                Some(KeyReplacement::Key(key)) => xml.text("ReplaceKeyWith", key),
                Some(KeyReplacement::Prefix(prefix)) => xml.text("ReplaceKeyPrefixWith", prefix),
                None => xml,
            };
            xml.optional_text("HttpRedirectCode", rule.status.map(|code| code.to_string()));
        });
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";
    const EVERYTHING: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>\
        <ErrorDocument><Key>error.html</Key></ErrorDocument><RoutingRules>\
        <RoutingRule><Condition><HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals>\
        <KeyPrefixEquals>a/</KeyPrefixEquals></Condition><Redirect><Protocol>https</Protocol><HostName>h:1</HostName>\
        <ReplaceKeyPrefixWith>b/</ReplaceKeyPrefixWith><HttpRedirectCode>302</HttpRedirectCode></Redirect></RoutingRule>\
        <RoutingRule><Redirect><ReplaceKeyWith>k</ReplaceKeyWith></Redirect></RoutingRule></RoutingRules>";
    const ALL: &str = "<RedirectAllRequestsTo><HostName>example.com</HostName><Protocol>https</Protocol>\
        </RedirectAllRequestsTo>";

    fn of(inner: &str) -> Result<Website, S3Error> {
        read(format!("<WebsiteConfiguration>{inner}</WebsiteConfiguration>").as_bytes())
    }

    #[test]
    fn documents_come_back() {
        for inner in [PAGES, EVERYTHING, ALL] {
            let website = of(inner).unwrap();
            let text = String::from_utf8(write(&website).to_vec()).unwrap();
            assert!(text.ends_with(&format!("03-01/\">{inner}</WebsiteConfiguration>")), "{text}");
            assert_eq!(read(text.as_bytes()).unwrap(), website);
        }
    }

    #[test]
    fn faults_are_refused_by_their_codes() {
        let rule = |inner: &str| format!("{PAGES}<RoutingRules><RoutingRule>{inner}</RoutingRule></RoutingRules>");
        let redirect = |inner: &str| rule(&format!("<Redirect>{inner}</Redirect>"));
        let condition =
            |inner: &str| rule(&format!("<Condition>{inner}</Condition><Redirect><HostName>h</HostName></Redirect>"));
        let error =
            |code: &str| condition(&format!("<HttpErrorCodeReturnedEquals>{code}</HttpErrorCodeReturnedEquals>"));
        let status =
            |code: &str| redirect(&format!("<HostName>h</HostName><HttpRedirectCode>{code}</HttpRedirectCode>"));
        let many = format!(
            "{PAGES}<RoutingRules>{}</RoutingRules>",
            "<RoutingRule><Redirect><HostName>h</HostName></Redirect></RoutingRule>".repeat(51)
        );
        for (inner, code) in [
            (String::new(), "MalformedXML"),
            ("<IndexDocument/>".into(), "MalformedXML"),
            ("<IndexDocument><Suffix/></IndexDocument>".into(), "InvalidArgument"),
            ("<IndexDocument><Suffix>a/b</Suffix></IndexDocument>".into(), "InvalidArgument"),
            (format!("{PAGES}<ErrorDocument><Key/></ErrorDocument>"), "InvalidArgument"),
            ("<ErrorDocument><Key>e</Key></ErrorDocument>".into(), "MalformedXML"),
            (format!("{ALL}{PAGES}"), "MalformedXML"),
            ("<RedirectAllRequestsTo><HostName/></RedirectAllRequestsTo>".into(), "MalformedXML"),
            (ALL.replace("https", "ftp"), "InvalidRequest"),
            (ALL.replace("example.com", "a b"), "InvalidRequest"),
            (ALL.replace("example.com", "a@b"), "InvalidRequest"),
            (rule(""), "MalformedXML"),
            (redirect(""), "MalformedXML"),
            (redirect("<Protocol>ftp</Protocol>"), "InvalidRequest"),
            (condition(""), "MalformedXML"),
            (
                redirect("<ReplaceKeyWith>a</ReplaceKeyWith><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>"),
                "InvalidRequest",
            ),
            (error("399"), "InvalidRequest"),
            (error("418"), "InvalidRequest"),
            (error("506"), "InvalidRequest"),
            (error("4xx"), "MalformedXML"),
            (status("300"), "InvalidRequest"),
            (status("306"), "InvalidRequest"),
            (status("99999999"), "InvalidRequest"),
            (status("-301"), "MalformedXML"),
            (many, "InvalidRequest"),
        ] {
            assert_eq!(of(&inner).unwrap_err().code.name(), code, "{inner}");
        }
        assert!(of(&error("404")).is_ok() && of(&status("308")).is_ok());
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            bytes: Vec<u8>,
            text in "(<|>|/|WebsiteConfiguration|RoutingRules|RoutingRule|Redirect|Condition| )*",
        ) {
            let _ = (read(&bytes), read(text.as_bytes()));
        }
    }
}
