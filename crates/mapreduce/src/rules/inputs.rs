//! The inputs of a job.

use bytes::Bytes;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use serde_json::{Map, Value};

use super::key_filter::KeyFilter;
use super::refusal::{JobRefusal, shown};
use super::value::JobInput;

/// The inputs of a job.
#[derive(Debug, Clone)]
pub enum JobInputs {
    /// All keys of a bucket.
    Bucket(BucketAddress),
    /// These keys.
    Keys(Vec<JobInput>),
    /// The keys of a bucket that pass a filter.
    Filtered(BucketAddress, KeyFilter),
    /// The keys with terms of an index in this range, both ends included.
    Index(IndexInputs),
}

/// The keys of an index query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexInputs {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The field, or `$key` or `$bucket`.
    pub field: Bytes,
    /// The first term.
    pub start: Bytes,
    /// The last term; the same as the first for one term.
    pub end: Bytes,
}

/// Inputs whose filters are not compiled.
#[derive(Debug)]
pub(super) enum UncompiledInputs {
    Ready(JobInputs),
    Filtered(BucketAddress, Vec<Value>),
}

impl UncompiledInputs {
    /// The inputs with their filter.
    ///
    /// # Errors
    /// [`JobRefusal::BadFilter`].
    pub(super) fn compile(self) -> Result<JobInputs, JobRefusal> {
        match self {
            Self::Ready(inputs) => Ok(inputs),
            Self::Filtered(bucket, filters) => {
                let filter = KeyFilter::compile(&filters).map_err(JobRefusal::BadFilter)?;
                Ok(JobInputs::Filtered(bucket, filter))
            }
        }
    }
}

/// Reads the member `inputs`.
///
/// # Errors
/// [`JobRefusal::Inputs`], [`JobRefusal::Search`].
pub(super) fn parse(inputs: Value) -> Result<UncompiledInputs, JobRefusal> {
    let ready = UncompiledInputs::Ready;
    match inputs {
        Value::String(bucket) => Ok(ready(JobInputs::Bucket(untyped(&bucket)?))),
        Value::Array(list) => match list.as_slice() {
            // Two texts are a type and a bucket, not two keys.
            [Value::String(of_type), Value::String(bucket)] => {
                Ok(ready(JobInputs::Bucket(address(of_type.as_str(), bucket)?)))
            }
            [] => Err(JobRefusal::Inputs("No inputs were given.\n".to_owned())),
            _ => list.into_iter().map(key).collect::<Result<_, _>>().map(|keys| ready(JobInputs::Keys(keys))),
        },
        Value::Object(members) => object(members),
        invalid => Err(unrecognised(&invalid)),
    }
}

fn object(members: Map<String, Value>) -> Result<UncompiledInputs, JobRefusal> {
    let has = |name: &str| members.contains_key(name);
    if has("module") && has("function") && has("arg") {
        return Err(JobRefusal::Inputs(NO_FUNCTION.to_owned()));
    }
    if has("query") && (has("bucket") || has("index")) {
        return Err(JobRefusal::Search);
    }
    let Some(bucket) = members.get("bucket") else { return Err(unrecognised(&Value::Object(members))) };
    let bucket = match bucket {
        Value::String(bucket) => untyped(bucket)?,
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(of_type), Value::String(bucket)] => address(of_type.as_str(), bucket)?,
            _ => return Err(unrecognised(&Value::Object(members))),
        },
        _ => return Err(unrecognised(&Value::Object(members))),
    };
    check_members(&members)?;
    if let Some(index) = index(&bucket, &members)? {
        return Ok(UncompiledInputs::Ready(JobInputs::Index(index)));
    }
    match members.get("key_filters") {
        Some(Value::Array(filters)) if !filters.is_empty() => Ok(UncompiledInputs::Filtered(bucket, filters.clone())),
        _ => Err(unrecognised(&Value::Object(members))),
    }
}

/// The members of each form of an object.
const FORMS: [&[&str]; 3] =
    [&["bucket", "key_filters"], &["bucket", "index", "key"], &["bucket", "index", "start", "end"]];

/// Refuses a member that the form of an object does not have: the job would take other keys than its client asked for.
fn check_members(members: &Map<String, Value>) -> Result<(), JobRefusal> {
    let is_whole = |form: &&&[&str]| form.iter().all(|name| members.contains_key(*name));
    // An object of no form gets the list of forms.
    let Some(form) = FORMS.iter().find(is_whole) else { return Ok(()) };
    match members.keys().find(|name| !form.contains(&name.as_str())) {
        Some(name) => {
            let (form, name) = (form.join(", "), shown(&Value::from(name.as_str())));
            Err(JobRefusal::Inputs(format!("Inputs with {form} take no member {name}.\n")))
        }
        None => Ok(()),
    }
}

/// The index query of an object, if it is one.
fn index(bucket: &BucketAddress, members: &Map<String, Value>) -> Result<Option<IndexInputs>, JobRefusal> {
    let Some(field) = members.get("index") else { return Ok(None) };
    let range = match (members.get("key"), members.get("start"), members.get("end")) {
        (Some(key), ..) => (key, key),
        (None, Some(start), Some(end)) => (start, end),
        _ => return Ok(None),
    };
    let refused = || unrecognised(&Value::Object(members.clone()));
    let field = field.as_str().ok_or_else(refused)?.to_ascii_lowercase();
    let term = |value: &Value| -> Result<Bytes, JobRefusal> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(refused()),
        };
        check_term(&field.clone().into(), text.into())
    };
    let (start, end) = (term(range.0)?, term(range.1)?);
    Ok(Some(IndexInputs { bucket: bucket.clone(), field: field.clone().into(), start, end }))
}

/// A term in the form in which the field stores it.
pub(super) fn check_term(field: &Bytes, term: Bytes) -> Result<Bytes, JobRefusal> {
    match larder_kv::rules::terms::parse(field, &term) {
        Ok(term) => Ok(term.value),
        Err(error) => Err(JobRefusal::Inputs(format!("[{}]", error.erlang()))),
    }
}

/// One key of a list: `[bucket, key]`, with key data, with key data and type.
fn key(item: Value) -> Result<JobInput, JobRefusal> {
    match JobInput::from_json(&item) {
        Some(Ok(input)) => Ok(input),
        Some(Err(error)) => Err(bad_address(&error)),
        None => Err(unrecognised(&item)),
    }
}

impl JobInput {
    /// The input that a list of texts names; `None`: it names none.
    pub(super) fn from_json(item: &Value) -> Option<Result<Self, larder_rows::address::AddressError>> {
        let Value::Array(parts) = item else { return None };
        let (bucket, key, key_data, of_type) = match parts.as_slice() {
            [Value::String(bucket), Value::String(key)] => (bucket, key, None, None),
            [Value::String(bucket), Value::String(key), data] => (bucket, key, Some(data), None),
            [Value::String(bucket), Value::String(key), data, Value::String(of_type)] => {
                (bucket, key, Some(data), Some(of_type))
            }
            _ => return None,
        };
        let of_type = of_type.map_or(Bytes::from_static(DEFAULT_TYPE), |name| name.clone().into());
        // A missing key datum of a typed key is written as null.
        let key_data = key_data.filter(|data| !data.is_null()).cloned();
        let bucket = BucketAddress::new(of_type, bucket.clone().into());
        let address = bucket.and_then(|bucket| Address::new(bucket, key.clone().into()));
        Some(address.map(|address| Self { address, key_data }))
    }
}

fn untyped(bucket: &str) -> Result<BucketAddress, JobRefusal> {
    address(Bytes::from_static(DEFAULT_TYPE), bucket)
}

fn address(of_type: impl AsRef<[u8]>, bucket: &str) -> Result<BucketAddress, JobRefusal> {
    let of_type = Bytes::copy_from_slice(of_type.as_ref());
    BucketAddress::new(of_type, bucket.to_owned().into()).map_err(|error| bad_address(&error))
}

/// The refusal of an invalid address.
pub(super) fn bad_address(error: &larder_rows::address::AddressError) -> JobRefusal {
    JobRefusal::Inputs(format!("{error}\n"))
}

/// The refusal of inputs by a function of Erlang.
pub(super) const NO_FUNCTION: &str = "The inputs name an Erlang function, and there is none.\n";

/// The forms of inputs, after inputs that have none of them.
const FORMATS: &str = r#"
Valid formats are:
  "BUCKET" or ["TYPE","BUCKET"]
  [["BUCKET","KEY"],["BUCKET","KEY",DATA],["BUCKET","KEY",DATA,"TYPE"]]
  {"bucket":"BUCKET","key_filters":[["matches","foo.*"]]}
  {"bucket":"BUCKET","index":"NAME_bin","key":"TERM"}
  {"bucket":"BUCKET","index":"NAME_int","start":1,"end":9}
"#;

fn unrecognised(inputs: &Value) -> JobRefusal {
    JobRefusal::Inputs(format!("Unrecognized format of \"inputs\" field: {}{FORMATS}", shown(inputs)))
}
