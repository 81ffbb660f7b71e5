//! One store, two faces: an object as each protocol writes it, and as each one shows it.

use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_testkit::http::{HttpClient, HttpRequest, HttpResponse};
use larder_testkit::pb::{PbClient, PbField, PbMessage, message};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use PbField::{Bytes, Number};

/// A value with everything that both protocols can say about it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaceObject {
    pub(crate) value: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) charset: Option<String>,
    pub(crate) encoding: Option<String>,
    /// Bucket, key, tag.
    pub(crate) links: Vec<[String; 3]>,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) terms: Vec<(String, String)>,
}

/// A value as a client sees it. Names of metadata are in lower case: HTTP does not tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeenValue {
    pub(crate) value: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) charset: Option<String>,
    pub(crate) encoding: Option<String>,
    pub(crate) links: Vec<[String; 3]>,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) terms: Vec<(String, String)>,
    pub(crate) vtag: String,
    pub(crate) modified: u64,
}

/// A key as a client sees it: its values, sorted, and its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenObject {
    pub(crate) values: Vec<SeenValue>,
    pub(crate) context: Option<Vec<u8>>,
}

/// A protocol to write through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Http,
    Pb,
}

/// A client of each protocol, of one server.
pub(crate) struct Faces {
    pub(crate) http: HttpClient,
    pub(crate) pb: PbClient,
}

/// The address of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaceAddress<'a> {
    pub(crate) bucket_type: &'a str,
    pub(crate) key: &'a str,
}

impl FaceAddress<'_> {
    pub(crate) fn path(&self) -> String {
        let key = percent_encode(self.key.as_bytes(), NON_ALPHANUMERIC);
        format!("/types/{}/buckets/b/keys/{key}", self.bucket_type)
    }

    /// The fields of a message whose type has this number.
    pub(crate) fn fields(&self, type_field: u32) -> [PbField<'_>; 3] {
        [Bytes(1, b"b"), Bytes(2, self.key.as_bytes()), Bytes(type_field, self.bucket_type.as_bytes())]
    }
}

impl FaceObject {
    pub(crate) fn text(value: &str) -> Self {
        Self { value: value.into(), content_type: "text/plain".into(), ..Self::default() }
    }

    /// The object as clients see it, without what the server adds.
    pub(crate) fn as_seen(&self) -> SeenValue {
        SeenValue {
            value: self.value.clone(),
            content_type: self.content_type.clone(),
            charset: self.charset.clone(),
            encoding: self.encoding.clone(),
            links: self.links.clone(),
            meta: lower(self.meta.clone()),
            terms: lower(self.terms.clone()),
            vtag: String::new(),
            modified: 0,
        }
    }

    fn request(&self, at: FaceAddress<'_>, context: Option<&[u8]>) -> HttpRequest {
        let charset = self.charset.iter().map(|charset| format!("; charset={charset}")).collect::<String>();
        let mut request =
            HttpRequest::new("PUT", &at.path()).header("Content-Type", &format!("{}{charset}", self.content_type));
        if let Some(encoding) = &self.encoding {
            request = request.header("Content-Encoding", encoding);
        }
        if let Some(context) = context {
            request = request.header("X-Riak-Vclock", &STANDARD.encode(context));
        }
        for [bucket, key, tag] in &self.links {
            let [bucket, key] = [bucket, key].map(|name| percent_encode(name.as_bytes(), NON_ALPHANUMERIC));
            request = request.header("Link", &format!("</buckets/{bucket}/keys/{key}>; riaktag=\"{tag}\""));
        }
        for (name, value) in &self.meta {
            request = request.header(name, value);
        }
        for (field, value) in &self.terms {
            request = request.header(&format!("X-Riak-Index-{field}"), value);
        }
        request.body(self.value.clone())
    }

    /// The object as an `RpbContent`.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut out = message(&[Bytes(1, &self.value), Bytes(2, self.content_type.as_bytes())]);
        for (number, text) in [(3, &self.charset), (4, &self.encoding)] {
            out.extend(text.iter().flat_map(|text| message(&[Bytes(number, text.as_bytes())])));
        }
        for [bucket, key, tag] in &self.links {
            let link = message(&[Bytes(1, bucket.as_bytes()), Bytes(2, key.as_bytes()), Bytes(3, tag.as_bytes())]);
            out.extend(message(&[Bytes(6, &link)]));
        }
        for (number, (name, value)) in
            self.meta.iter().map(|pair| (9, pair)).chain(self.terms.iter().map(|pair| (10, pair)))
        {
            let pair = message(&[Bytes(1, name.as_bytes()), Bytes(2, value.as_bytes())]);
            out.extend(message(&[Bytes(number, &pair)]));
        }
        out
    }
}

impl Faces {
    /// Writes through one face.
    #[track_caller]
    pub(crate) fn put(&mut self, face: Face, at: FaceAddress<'_>, object: &FaceObject, context: Option<&[u8]>) {
        match face {
            Face::Http => {
                let answer = self.http.send(&object.request(at, context));
                assert_eq!(answer.status, 204, "{at:?} {answer:?}");
            }
            Face::Pb => {
                let content = object.content();
                let mut fields = [&at.fields(16)[..], &[Bytes(4, &content)]].concat();
                fields.extend(context.map(|context| Bytes(3, context)));
                assert_eq!(self.pb.ask(11, &fields), (12, PbMessage::default()), "{at:?}");
            }
        }
    }

    /// Deletes through one face.
    #[track_caller]
    pub(crate) fn delete(&mut self, face: Face, at: FaceAddress<'_>, context: Option<&[u8]>) {
        match face {
            Face::Http => {
                let mut request = HttpRequest::new("DELETE", &at.path());
                if let Some(context) = context {
                    request = request.header("X-Riak-Vclock", &STANDARD.encode(context));
                }
                let answer = self.http.send(&request);
                assert!([204, 404].contains(&answer.status), "{answer:?}");
            }
            Face::Pb => {
                let mut fields = at.fields(13).to_vec();
                fields.extend(context.map(|context| Bytes(4, context)));
                assert_eq!(self.pb.ask(13, &fields), (14, PbMessage::default()), "{at:?}");
            }
        }
    }

    /// The key as both faces show it, which is the same.
    #[track_caller]
    pub(crate) fn see(&mut self, at: FaceAddress<'_>) -> SeenObject {
        let (http, pb) = (self.see_over_http(at), self.see_over_pb(at));
        assert_eq!(http, pb, "{at:?}: HTTP shows the first, protocol buffers the second");
        pb
    }

    fn see_over_pb(&mut self, at: FaceAddress<'_>) -> SeenObject {
        let (code, found) = self.pb.ask(9, &[&at.fields(13)[..], &[Number(9, 1)]].concat());
        assert_eq!(code, 10, "{found:?}");
        let mut values: Vec<_> = found.all(1).map(|content| pb_value(&PbMessage::decode(content))).collect();
        values.sort();
        SeenObject { values, context: found.bytes(2).map(<[u8]>::to_vec) }
    }

    fn see_over_http(&mut self, at: FaceAddress<'_>) -> SeenObject {
        let answer = self.http.send(&HttpRequest::get(&at.path()).header("Accept", "multipart/mixed, */*;q=0.5"));
        let context = answer.header("X-Riak-Vclock").map(|text| STANDARD.decode(text).unwrap());
        let mut values = match answer.status {
            200 => vec![http_value(&answer.headers, &answer.body)],
            300 => http_parts(&answer),
            404 => Vec::new(),
            _ => panic!("{answer:?}"),
        };
        values.sort();
        SeenObject { values, context }
    }
}

fn lower(mut pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    pairs.iter_mut().for_each(|(name, _)| *name = name.to_lowercase());
    pairs.sort();
    pairs
}

fn pb_value(content: &PbMessage) -> SeenValue {
    let optional = |field| content.bytes(field).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let pairs = |field| {
        let pair = |pair: PbMessage| (pair.text(1), pair.text(2));
        lower(content.all(field).map(|bytes| pair(PbMessage::decode(bytes))).collect())
    };
    let link = |bytes: &[u8]| {
        let link = PbMessage::decode(bytes);
        [link.text(1), link.text(2), link.text(3)]
    };
    SeenValue {
        value: content.bytes(1).unwrap().to_vec(),
        // HTTP has to name a type.
        content_type: optional(2).unwrap_or_else(|| "application/octet-stream".into()),
        charset: optional(3),
        encoding: optional(4),
        links: content.all(6).map(link).collect(),
        meta: pairs(9),
        terms: pairs(10),
        vtag: content.text(5),
        modified: content.number(7).unwrap(),
    }
}

fn http_value(headers: &[(String, String)], body: &[u8]) -> SeenValue {
    let all = |name: &str| {
        let lines = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let one = |name: &str| all(name).into_iter().next();
    let media = one("Content-Type").unwrap();
    let (content_type, charset) = match media.split_once("; charset=") {
        Some((media, charset)) => (media.to_owned(), Some(charset.to_owned())),
        None => (media, None),
    };
    let prefixed = |prefix: &str, keep: bool| {
        let lines = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
        let lines = lines.filter(|(name, _)| name.starts_with(prefix));
        lines
            .map(|(name, value)| (if keep { name } else { name[prefix.len()..].to_owned() }, value))
            .collect::<Vec<_>>()
    };
    let terms = prefixed("x-riak-index-", false).into_iter();
    let terms = terms.flat_map(|(field, values)| {
        values.split(", ").map(|value| (field.clone(), value.to_owned())).collect::<Vec<_>>()
    });
    let modified = httpdate::parse_http_date(&one("Last-Modified").unwrap()).unwrap();
    SeenValue {
        value: body.to_vec(),
        content_type,
        charset,
        encoding: one("Content-Encoding"),
        links: all("Link").iter().flat_map(|line| links(line)).collect(),
        meta: lower(prefixed("x-riak-meta-", true)),
        terms: lower(terms.collect()),
        vtag: one("ETag").unwrap().trim_matches('"').to_owned(),
        modified: modified.duration_since(UNIX_EPOCH).unwrap().as_secs(),
    }
}

/// The links of a header, without the one to the bucket.
fn links(line: &str) -> Vec<[String; 3]> {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8().unwrap().into_owned();
    let one = |link: &str| {
        let (path, tag) = link.trim_start_matches('<').split_once(">; riaktag=\"")?;
        let (bucket, key) = path.strip_prefix("/buckets/")?.split_once("/keys/")?;
        Some([decoded(bucket), decoded(key), decoded(tag.trim_end_matches('"'))])
    };
    line.split(", <").filter_map(one).collect()
}

fn http_parts(answer: &HttpResponse) -> Vec<SeenValue> {
    let boundary = answer.header("Content-Type").unwrap().split_once("boundary=").unwrap().1;
    let line = format!("\r\n--{boundary}");
    let find = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).position(|window| window == wanted);
    let (mut rest, mut values) =
        (&answer.body[find(&answer.body, line.as_bytes()).unwrap() + line.len()..], Vec::new());
    while let Some(end) = find(rest, line.as_bytes()) {
        let part = &rest[2..end];
        let head = find(part, b"\r\n\r\n").unwrap();
        let lines = std::str::from_utf8(&part[..head]).unwrap().split("\r\n");
        let headers: Vec<_> =
            lines.map(|line| line.split_once(": ").unwrap()).map(|(name, value)| (name.into(), value.into())).collect();
        values.push(http_value(&headers, &part[head + 4..]));
        rest = &rest[end + line.len()..];
    }
    values
}
