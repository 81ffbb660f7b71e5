//! S3 errors: the table of error codes and the error document.
//!
//! User metadata that is not ASCII: encoded words of RFC 2047 on the way, text at rest.
//!
//! AWS decodes an encoded word that a client sends, also one of plain ASCII, and encodes what is not printable ASCII when it answers.

pub(crate) mod gateway;

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};

use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

/// The `HostId` of error documents, where Amazon names a machine.
const HOST_ID: &str = "larder";

/// Generates the enum and the name, status and message of each code.
macro_rules! codes {
    ($($code:ident $status:ident $message:literal;)*) => {
        /// The error codes of S3, of Riak CS, and those of STS that S3 lacks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(
                #[doc = $message]
                $code,
            )*
        }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The code as error documents write it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => stringify!($code),)* }
            }

            /// The HTTP status of the code.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)* }
            }

            /// The default message.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self { $(Self::$code => $message,)* }
            }
        }
    };
}

codes! {
    AccessControlListNotSupported BAD_REQUEST "The bucket does not allow ACLs";
    AccessDenied FORBIDDEN "Access Denied";
    AccessForbidden FORBIDDEN "CORSResponse: This CORS request is not allowed.";
    AuthorizationHeaderMalformed BAD_REQUEST "The authorization header is malformed.";
    AuthorizationQueryParametersError BAD_REQUEST "The query parameters of the signature are malformed.";
    BadDigest BAD_REQUEST "The digest or checksum you specified did not match what was received.";
    BadRequest BAD_REQUEST "The request cannot be understood.";
    BucketAlreadyExists CONFLICT "The bucket name is taken. Choose another one and try again.";
    BucketAlreadyOwnedByYou CONFLICT "The bucket exists already and is yours.";
    BucketNotEmpty CONFLICT "The bucket you tried to delete is not empty.";
    ConditionalRequestConflict CONFLICT "A conflicting write won while this one was carried out. Try again.";
    DeleteConflict CONFLICT "What is to be deleted is still in use.";
    EntityTooLarge BAD_REQUEST "Your proposed upload is larger than it may be.";
    EntityTooSmall BAD_REQUEST "Your proposed upload is smaller than the minimum allowed size.";
    ExpiredToken BAD_REQUEST "The provided token has expired.";
    IllegalVersioningConfigurationException BAD_REQUEST "The versioning configuration is not valid.";
    IncompleteBody BAD_REQUEST "The body did not have the number of bytes that its headers announce.";
    InsufficientStorage INSUFFICIENT_STORAGE "There is no space left to store this.";
    InternalError INTERNAL_SERVER_ERROR "Something went wrong here. Try again.";
    InvalidAccessKeyId FORBIDDEN "The access key id you provided does not exist in our records.";
    InvalidAction BAD_REQUEST "The action or operation requested is not valid.";
    InvalidArgument BAD_REQUEST "Invalid Argument";
    InvalidBucketAclWithObjectOwnership BAD_REQUEST
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketState CONFLICT "The request is not valid with the current state of the bucket.";
    InvalidBucketName BAD_REQUEST "The specified bucket is not valid.";
    InvalidDigest BAD_REQUEST "The Content-MD5 you specified is not valid.";
    InvalidEncryptionAlgorithmError BAD_REQUEST "The encryption request you specified is not valid.";
    InvalidLocationConstraint BAD_REQUEST "The specified location constraint is not valid.";
    InvalidPart BAD_REQUEST
        "One or more of the specified parts could not be found, or its entity tag is not that of the part.";
    InvalidPartNumber RANGE_NOT_SATISFIABLE "The requested partnumber is not satisfiable";
    InvalidPartOrder BAD_REQUEST "The list of parts was not in ascending order of part numbers.";
    InvalidPolicyDocument BAD_REQUEST "The form's policy document is not valid.";
    InvalidRange RANGE_NOT_SATISFIABLE "The requested range is not satisfiable";
    InvalidRedirectLocation BAD_REQUEST
        "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.";
    InvalidRequest BAD_REQUEST "Invalid Request";
    InvalidRetentionPeriod BAD_REQUEST "Default retention period must be a positive integer value.";
    InvalidTag BAD_REQUEST "The tag provided was not a valid tag.";
    InvalidToken BAD_REQUEST "The provided token is malformed or otherwise invalid.";
    InvalidURI BAD_REQUEST "Couldn't parse the specified URI.";
    InvalidUserUpdate BAD_REQUEST "The user's fields could not be read.";
    KeyTooLongError BAD_REQUEST "Your key is too long";
    UnexpectedContent BAD_REQUEST "This request does not support content.";
    MalformedACLError BAD_REQUEST "The access control list is not well formed or does not match its schema.";
    MalformedPOSTRequest BAD_REQUEST "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy BAD_REQUEST "The policy is not valid.";
    MalformedTrailerError BAD_REQUEST "The request's trailers are malformed or not those that were announced.";
    MalformedXML BAD_REQUEST "The XML you provided was not well-formed or did not validate against our published schema";
    MaxMessageLengthExceeded BAD_REQUEST "Your request was too big.";
    MetadataTooLarge BAD_REQUEST "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed METHOD_NOT_ALLOWED "The specified method is not allowed against this resource.";
    MissingAuthenticationToken FORBIDDEN "The request has no signature.";
    MissingContentLength LENGTH_REQUIRED "You must provide the Content-Length HTTP header.";
    MissingRequestBodyError BAD_REQUEST "Request Body is empty";
    MissingParameter BAD_REQUEST "A field that is required is missing.";
    NoSuchBucket NOT_FOUND "The specified bucket does not exist";
    NoSuchBucketPolicy NOT_FOUND "The bucket policy does not exist";
    NoSuchCORSConfiguration NOT_FOUND "The CORS configuration does not exist";
    NoSuchKey NOT_FOUND "The specified key does not exist.";
    NoSuchLifecycleConfiguration NOT_FOUND "The lifecycle configuration does not exist";
    NoSuchObjectLockConfiguration NOT_FOUND "The specified object does not have a ObjectLock configuration";
    NoSuchPublicAccessBlockConfiguration NOT_FOUND "The public access block configuration was not found";
    NoSuchTagSet NOT_FOUND "The TagSet does not exist";
    NoSuchUpload NOT_FOUND
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.";
    NoSuchUser NOT_FOUND "The specified user does not exist.";
    NoSuchVersion NOT_FOUND "The specified version does not exist.";
    NoSuchConfiguration NOT_FOUND "The specified configuration does not exist.";
    NoSuchWebsiteConfiguration NOT_FOUND "The specified bucket does not have a website configuration";
    NotImplemented NOT_IMPLEMENTED "A header you provided implies functionality that is not implemented";
    NotModified NOT_MODIFIED "Not Modified";
    ObjectLockConfigurationNotFoundError NOT_FOUND "Object Lock configuration does not exist for this bucket";
    OperationAborted CONFLICT "A conflicting operation is in progress against this resource. Try again.";
    OwnershipControlsNotFoundError NOT_FOUND "The bucket ownership controls were not found";
    PreconditionFailed PRECONDITION_FAILED "At least one of the pre-conditions you specified did not hold";
    QuotaExceeded FORBIDDEN "The quota of the bucket or of its owner is used up.";
    ReplicationConfigurationNotFoundError NOT_FOUND "The replication configuration was not found";
    RequestTimeTooSkewed FORBIDDEN "The difference between the request time and the current time is too large.";
    RequestTimeout BAD_REQUEST
        "Your socket connection to the server was not read from or written to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError NOT_FOUND
        "The server side encryption configuration was not found";
    ServiceUnavailable SERVICE_UNAVAILABLE "The service is unavailable. Try again.";
    SignatureDoesNotMatch FORBIDDEN
        "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    SlowDown SERVICE_UNAVAILABLE "Please reduce your request rate.";
    TooManyBuckets BAD_REQUEST "You have attempted to create more buckets than allowed";
    UnsupportedNotification BAD_REQUEST "The kind of notification is not offered.";
    UnresolvableGrantByEmailAddress BAD_REQUEST "The e-mail address you provided does not match any account on record.";
    UserAlreadyExists CONFLICT "The specified e-mail address has already been registered.";
    UserKeyMustBeSpecified BAD_REQUEST "The form has no field named key.";
    XAmzContentSHA256Mismatch BAD_REQUEST "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

/// An S3 error response.
#[derive(Debug, Clone)]
pub struct S3Error {
    /// The code; it determines the status.
    pub code: Code,
    /// The message for people.
    pub message: Cow<'static, str>,
    /// Elements of the document after `Code` and `Message`, in order.
    pub extras: Vec<(&'static str, String)>,
    /// Headers of the response.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl From<Code> for S3Error {
    fn from(code: Code) -> Self {
        Self::new(code, code.message())
    }
}

impl S3Error {
    /// An error with this message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), extras: Vec::new(), headers: Vec::new() }
    }

    /// Adds an element to the document.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.extras.push((name, value.into()));
        self
    }

    /// Adds a header; an invalid value is dropped.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        if let Ok(value) = value.try_into() {
            self.headers.push((name, value));
        }
        self
    }

    /// 400 for an invalid argument.
    #[must_use]
    pub fn argument(name: &'static str, value: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message).with("ArgumentName", name).with("ArgumentValue", value)
    }

    /// 501 for an unsupported header.
    #[must_use]
    pub fn header_not_offered(name: &str) -> Self {
        Self::from(Code::NotImplemented).with("Header", name)
    }

    /// 501 for an unsupported field of a form.
    #[must_use]
    pub fn field_not_offered(name: &str) -> Self {
        let message = format!("The field {name} implies functionality that is not implemented");
        Self::new(Code::NotImplemented, message).with("Field", name)
    }

    /// 501 for an unsupported query parameter.
    #[must_use]
    pub fn parameter_not_offered(name: &str) -> Self {
        let message = "A parameter you provided implies functionality that is not implemented";
        Self::new(Code::NotImplemented, message).with("QueryParameter", name)
    }

    /// 501 for an unsupported element of a document.
    #[must_use]
    pub fn element_not_offered(name: &str) -> Self {
        let message = format!("The element {name} implies functionality that is not implemented");
        Self::new(Code::NotImplemented, message).with("Element", name)
    }

    /// 400 `InvalidRequest` with this message.
    #[must_use]
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// 405 with the allowed methods.
    #[must_use]
    pub fn not_allowed(method: &str, kind: &'static str, allowed: &str) -> Self {
        Self::from(Code::MethodNotAllowed)
            .with("Method", method)
            .with("ResourceType", kind)
            .with("AllowedMethods", allowed)
            .with_header(hyper::header::ALLOW, allowed)
    }

    /// The error document. It has no namespace; elements specific to the code follow the message.
    #[must_use]
    pub fn document(&self, resource: &str, request_id: &str) -> bytes::Bytes {
        let mut xml = XmlWriter::without_namespace("Error");
        xml.text("Code", self.code.name()).text("Message", &self.message);
        for (name, value) in &self.extras {
            xml.text(name, value);
        }
        xml.text("Resource", resource).text("RequestId", request_id).text("HostId", HOST_ID);
        xml.finish()
    }

    /// The response; with `head` it has no body.
    #[must_use]
    pub fn into_response(self, resource: &str, request_id: &str, head: bool) -> S3Response {
        let status = self.code.status();
        let mut response = if head || status == StatusCode::NOT_MODIFIED {
            response::empty(status)
        } else {
            response::xml(status, self.document(resource, request_id))
        };
        if matches!(self.code, Code::SlowDown | Code::ServiceUnavailable) {
            response.headers_mut().insert(hyper::header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// Longest value that is decoded. Its text may be no longer than 2 KiB with all other metadata.
const WORDS_BYTES_MAX: usize = 8 * 1024;

/// The text of a header's value; a value without encoded words, or a long one, as it is.
#[must_use]
pub(crate) fn decoded(value: &Bytes) -> Bytes {
    // Attack: each mark is followed to the next end, which a long value may have thousands of times.
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= WORDS_BYTES_MAX && text.contains("=?"));
    let Some(text) = text else { return value.clone() };
    let (mut out, mut rest, mut after_word) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find("=?") {
        let (before, from) = rest.split_at(at);
        let Some((word, after)) = leading_word(from) else {
            let (mark, after) = from.split_at("=?".len());
            out.push_str(before);
            out.push_str(mark);
            (rest, after_word) = (after, false);
            continue;
        };
        // Space between two words is part of neither (RFC 2047 §6.2).
        if !(after_word && before.trim().is_empty()) {
            out.push_str(before);
        }
        out.push_str(&word);
        (rest, after_word) = (after, true);
    }
    out.push_str(rest);
    out.into()
}

/// The text of the encoded word that the text begins with, and what follows it.
fn leading_word(text: &str) -> Option<(String, &str)> {
    let mut pieces = text.strip_prefix("=?")?.splitn(3, '?');
    let (charset, encoding, rest) = (pieces.next()?, pieces.next()?, pieces.next()?);
    let (content, after) = rest.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => STANDARD.decode(content).ok()?,
        "Q" | "q" => decoded_quotes(content)?,
        _ => return None,
    };
    let text = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok()?,
        "iso-8859-1" => bytes.into_iter().map(char::from).collect(),
        _ => return None,
    };
    // A stored line end would break the answer's head.
    (!text.contains(['\r', '\n', '\0'])).then_some((text, after))
}

/// The bytes of the form `Q`.
fn decoded_quotes(content: &str) -> Option<Vec<u8>> {
    let mut bytes = content.bytes();
    let mut out = Vec::with_capacity(content.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'_' => b' ',
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(out)
}

/// The value of a header for this text: as it is where it is printable ASCII, and where it is no text.
#[must_use]
pub(crate) fn encoded(value: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(value) else { return value.clone() };
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return value.clone();
    }
    // The form in which a person still reads most of it.
    let is_readable = 2 * text.chars().filter(char::is_ascii).count() >= text.chars().count();
    match is_readable && !text.contains(|char: char| char.is_ascii_control()) {
        true => format!("=?UTF-8?Q?{}?=", encoded_quotes(text)).into(),
        false => format!("=?UTF-8?B?{}?=", STANDARD.encode(text)).into(),
    }
}

fn encoded_quotes(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('_'),
            b'_' | b'?' | b'=' => drop(write!(out, "={byte:02X}")),
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "={byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_document_has_ordered_elements_and_no_namespace() {
        let error = S3Error::argument("max-parts", "-1", "no <less> than 0");
        let text = String::from_utf8(error.document("/b/a&b", "R1").to_vec()).unwrap();
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidArgument</Code><Message>no &lt;less&gt; than \
             0</Message><ArgumentName>max-parts</ArgumentName><ArgumentValue>-1</ArgumentValue><Resource>/b/a&amp;b\
             </Resource><RequestId>R1</RequestId><HostId>larder</HostId></Error>"
        );
    }

    #[test]
    fn head_and_304_responses_have_no_body() {
        for (code, head) in [(Code::NoSuchKey, true), (Code::NotModified, false)] {
            let response = S3Error::from(code).into_response("/b/k", "R", head);
            assert_eq!(response.status(), code.status());
            assert!(response.into_body().into_bytes().unwrap().is_empty());
        }
        let response = S3Error::not_allowed("POST", "OBJECT", "GET, PUT").into_response("/b/k", "R", false);
        assert_eq!(response.headers()["allow"], "GET, PUT");
        assert_eq!(response.headers()["content-type"], "application/xml");
    }

    #[test]
    fn every_code_has_a_unique_name_and_an_error_status() {
        let names: std::collections::HashSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            let error = code.status().is_client_error() || code.status().is_server_error();
            assert!(error || *code == Code::NotModified, "{code:?}");
        }
    }
}

#[cfg(test)]
mod encoded_words_tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded_text(value: &'static str) -> String {
        String::from_utf8(decoded(&Bytes::from_static(value.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn encoded_words_are_read_as_text() {
        for (value, text) in [
            ("=?UTF-8?B?YWJj?=", "abc"),
            ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
            ("=?utf-8?q?=C3=A9_t=C3=A9?=", "é té"),
            ("=?ISO-8859-1?Q?=E9?=", "é"),
            ("a =?UTF-8?B?YQ==?= =?UTF-8?B?Yg==?= c", "a ab c"),
            ("plain", "plain"),
            ("=?UTF-8?B?***?=", "=?UTF-8?B?***?="),
            ("=?UTF-8?X?a?=", "=?UTF-8?X?a?="),
            ("=?UTF-8?Q?a", "=?UTF-8?Q?a"),
            ("=?UTF-8?Q?=0D=0Ax:_y?=", "=?UTF-8?Q?=0D=0Ax:_y?="),
            ("x=?y", "x=?y"),
        ] {
            assert_eq!(encoded_text(value), text, "{value}");
        }
    }

    #[test]
    fn text_that_is_not_ascii_is_an_encoded_word() {
        for (text, value) in [
            ("plain text", "plain text"),
            ("Hello World é", "=?UTF-8?Q?Hello_World_=C3=A9?="),
            ("a_b?c=d%é", "=?UTF-8?Q?a=5Fb=3Fc=3Dd%=C3=A9?="),
            ("日本語", "=?UTF-8?B?5pel5pys6Kqe?="),
        ] {
            assert_eq!(encoded(&Bytes::from_static(text.as_bytes())), value, "{text}");
        }
        let raw = Bytes::from_static(b"\xe9");
        assert_eq!((decoded(&raw), encoded(&raw)), (raw.clone(), raw), "no text");
    }

    proptest! {
        #[test]
        fn text_comes_back(text in "[^\r\n\0]*") {
            let text = Bytes::from(text.into_bytes());
            let value = encoded(&text);
            prop_assume!(value != text);
            prop_assert!(value.is_ascii());
            prop_assert_eq!(decoded(&value), text);
        }

        #[test]
        fn no_value_panics(value in any::<Vec<u8>>(), text in "[=?BQutf8-]*") {
            let _ = decoded(&value.into());
            let _ = decoded(&text.into());
        }
    }
}
