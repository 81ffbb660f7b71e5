//! A usage report, in JSON and XML.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_s3::usage::{UsageCounts, UsageSample};
use larder_s3_rules::Storage;
use serde_json::{Map, Value as Json, json};

use super::super::DocumentFormat;
use crate::target::S3Query;
use crate::xml::XmlWriter;
use larder_s3_rules::dates::{self, parse_basic};

/// Length of an access sample, and of a storage sample.
const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;
/// The value of a section that was not requested.
const NOT_REQUESTED: &str = "not_requested";

/// The contents of a report.
pub(super) struct UsageReport {
    /// The user's accesses, if requested.
    pub(super) access: Option<Vec<UsageSample>>,
    /// Storage by bucket, if requested.
    pub(super) storage: Option<BTreeMap<String, Storage>>,
    /// When storage was counted.
    pub(super) now: Timestamp,
    /// End of the report. Storage is counted now only, so reports of past days have none.
    pub(super) to: Timestamp,
}

impl UsageReport {
    /// The report in JSON.
    pub(super) fn json(&self) -> Json {
        let access = self.access.as_ref().map(|samples| {
            let nodes = by_node(samples).into_iter().map(|(node, samples)| {
                let samples: Vec<_> = samples.into_iter().map(sample_json).collect();
                json!({ "Node": node, "Samples": samples })
            });
            json!({ "Nodes": nodes.collect::<Vec<_>>(), "Errors": [] })
        });
        let storage = self.storage.as_ref().map(|buckets| {
            let samples: Vec<_> = self.day().map(|day| self.storage_json(buckets, day)).into_iter().collect();
            json!({ "Samples": samples, "Errors": [] })
        });
        let or_not = |value: Option<Json>| value.unwrap_or_else(|| NOT_REQUESTED.into());
        json!({ "Access": or_not(access), "Storage": or_not(storage) })
    }

    /// The report in XML.
    pub(super) fn xml(&self) -> Bytes {
        let mut xml = XmlWriter::without_namespace("Usage");
        match &self.access {
            None => drop(xml.text("Access", NOT_REQUESTED)),
            Some(samples) => drop(xml.element("Access", |xml| {
                xml.element("Nodes", |xml| {
                    for (node, samples) in by_node(samples) {
                        xml.element_with("Node", &[("name", node)], |xml| {
                            samples.into_iter().for_each(|sample| write_sample(xml, sample))
                        });
                    }
                });
                xml.empty("Errors");
            })),
        }
        match &self.storage {
            None => drop(xml.text("Storage", NOT_REQUESTED)),
            Some(buckets) => drop(xml.element("Storage", |xml| {
                xml.element("Samples", |xml| {
                    if let Some(day) = self.day() {
                        self.write_storage(xml, buckets, day);
                    }
                });
                xml.empty("Errors");
            })),
        }
        xml.finish()
    }

    /// Start of the day of the storage count, if the report includes it.
    fn day(&self) -> Option<Timestamp> {
        let day = self.now - self.now.0 % DAY;
        (self.to >= day).then_some(day)
    }

    fn storage_json(&self, buckets: &BTreeMap<String, Storage>, day: Timestamp) -> Json {
        let mut sample = times(day, self.now);
        for (name, storage) in buckets {
            sample.insert(name.clone(), json!({ "Objects": storage.objects, "Bytes": storage.bytes }));
        }
        Json::Object(sample)
    }

    fn write_storage(&self, xml: &mut XmlWriter, buckets: &BTreeMap<String, Storage>, day: Timestamp) {
        let (start, end) = (dates::basic(day), dates::basic(self.now));
        xml.element_with("Sample", &[("StartTime", &start), ("EndTime", &end)], |xml| {
            for (name, storage) in buckets {
                xml.element_with("Bucket", &[("name", name)], |xml| {
                    xml.value("Objects", storage.objects).value("Bytes", storage.bytes);
                });
            }
        });
    }
}

/// The samples by node, in order.
fn by_node(samples: &[UsageSample]) -> BTreeMap<&str, Vec<&UsageSample>> {
    let mut nodes = BTreeMap::<_, Vec<_>>::new();
    for sample in samples {
        nodes.entry(sample.node.as_str()).or_default().push(sample);
    }
    nodes
}

/// The counts of an operation with their Riak CS names.
fn counted(counts: &UsageCounts) -> [(&'static str, u64); 6] {
    [
        ("Count", counts.count),
        ("UserErrorCount", counts.user_errors),
        ("SystemErrorCount", counts.system_errors),
        ("BytesIn", counts.bytes_in),
        ("BytesOut", counts.bytes_out),
        ("BytesOutIncomplete", counts.bytes_out_incomplete),
    ]
}

fn times(start: Timestamp, end: Timestamp) -> Map<String, Json> {
    let mut sample = Map::new();
    sample.insert("StartTime".into(), dates::basic(start).into());
    sample.insert("EndTime".into(), dates::basic(end).into());
    sample
}

fn sample_json(sample: &UsageSample) -> Json {
    let mut json = times(sample.start, sample.start.saturating_add(HOUR));
    for (operation, counts) in &sample.operations {
        let counts = counted(counts).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
        json.insert(operation.clone(), Json::Object(counts.collect()));
    }
    Json::Object(json)
}

fn write_sample(xml: &mut XmlWriter, sample: &UsageSample) {
    let (start, end) = (dates::basic(sample.start), dates::basic(sample.start.saturating_add(HOUR)));
    xml.element_with("Sample", &[("StartTime", &start), ("EndTime", &end)], |xml| {
        for (operation, counts) in &sample.operations {
            xml.element_with("Operation", &[("type", operation)], |xml| {
                for (name, count) in counted(counts) {
                    xml.value(name, count);
                }
            });
        }
    });
}

/// Most slices of a report.
const SLICES_MAX: u64 = 744;

/// A decoded request for a usage report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UsageRequest {
    /// The access key id of the user.
    pub(super) key_id: String,
    /// Whether accesses are requested.
    pub(super) access: bool,
    /// Whether storage is requested.
    pub(super) storage: bool,
    /// The format of the report.
    pub(super) format: DocumentFormat,
    /// Start of the report.
    pub(super) from: Timestamp,
    /// End of the report.
    pub(super) to: Timestamp,
}

impl UsageRequest {
    /// Parses `/KEY/abj/START/END` or `KEY.abj.START.END`, in which all but the key is optional, and the parameters
    /// `a`, `b`, `j`, `x`, `s`, `e`. `default` is the format when none is named.
    pub(super) fn parse(
        path: &str,
        query: &S3Query,
        default: DocumentFormat,
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let mut segments = path.split(['/', '.']).filter(|segment| !segment.is_empty());
        let key_id = segments.next().unwrap_or_default().to_owned();
        let options = segments.next().unwrap_or_default();
        let is_set = |option: char| options.contains(option) || query.get(&option.to_string()).is_some_and(is_true);
        let time = |segment: Option<&str>, name: &str| match segment.or(query.non_empty(name)) {
            Some(text) => {
                parse_basic(text).map(Some).ok_or("The start or end time is not of the form yyyymmddThhmmssZ")
            }
            None => Ok(None),
        };
        let from = time(segments.next(), "s")?.unwrap_or(now);
        let to = time(segments.next(), "e")?.unwrap_or(from);
        if to < from {
            return Err("The end time is before the start time");
        }
        if to.0 / HOUR - from.0 / HOUR >= SLICES_MAX {
            return Err("Too much time requested");
        }
        let format = match (is_set('j'), is_set('x')) {
            (true, _) => DocumentFormat::Json,
            (false, true) => DocumentFormat::Xml,
            (false, false) => default,
        };
        Ok(Self { key_id, access: is_set('a'), storage: is_set('b'), format, from, to })
    }
}

/// Riak CS accepts several words for true, and a parameter without a value.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "t" | "true" | "1" | "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2010-11-10, 20:48:34.
    const NOW: Timestamp = Timestamp(1_289_422_114_000_000);

    fn report() -> UsageReport {
        let counts = UsageCounts { count: 2, bytes_out: 7, ..UsageCounts::default() };
        let operations = BTreeMap::from([("KeyRead".to_owned(), counts)]);
        let sample = UsageSample { node: "n1".into(), start: NOW - NOW.0 % HOUR, operations };
        let buckets = BTreeMap::from([("b".to_owned(), Storage { objects: 3, bytes: 70 })]);
        UsageReport { access: Some(vec![sample]), storage: Some(buckets), now: NOW, to: NOW }
    }

    #[test]
    fn a_report_in_json() {
        let expected = "{\"Access\":{\"Nodes\":[{\"Node\":\"n1\",\"Samples\":[{\"StartTime\":\"20101110T200000Z\",\
            \"EndTime\":\"20101110T210000Z\",\"KeyRead\":{\"Count\":2,\"UserErrorCount\":0,\"SystemErrorCount\":0,\
            \"BytesIn\":0,\
            \"BytesOut\":7,\"BytesOutIncomplete\":0}}]}],\"Errors\":[]},\"Storage\":{\"Samples\":[{\"StartTime\":\
            \"20101110T000000Z\",\"EndTime\":\"20101110T204834Z\",\"b\":{\"Objects\":3,\"Bytes\":70}}],\"Errors\":[]}}";
        assert_eq!(report().json().to_string(), expected);
        let nothing = UsageReport { access: None, storage: None, ..report() };
        assert_eq!(nothing.json().to_string(), "{\"Access\":\"not_requested\",\"Storage\":\"not_requested\"}");
        let yesterday = UsageReport { access: None, to: NOW - DAY, ..report() };
        assert_eq!(yesterday.json()["Storage"].to_string(), "{\"Samples\":[],\"Errors\":[]}");
    }

    #[test]
    fn a_report_in_xml() {
        let text = |report: UsageReport| String::from_utf8(report.xml().to_vec()).unwrap();
        let expected = "<Usage><Access><Nodes><Node name=\"n1\">\
            <Sample StartTime=\"20101110T200000Z\" EndTime=\"20101110T210000Z\">\
            <Operation type=\"KeyRead\"><Count>2</Count><UserErrorCount>0</UserErrorCount>\
            <SystemErrorCount>0</SystemErrorCount>\
            <BytesIn>0</BytesIn><BytesOut>7</BytesOut><BytesOutIncomplete>0</BytesOutIncomplete></Operation>\
            </Sample></Node>\
            </Nodes><Errors/></Access><Storage><Samples>\
            <Sample StartTime=\"20101110T000000Z\" EndTime=\"20101110T204834Z\">\
            <Bucket name=\"b\"><Objects>3</Objects><Bytes>70</Bytes></Bucket></Sample></Samples><Errors/>\
            </Storage></Usage>";
        assert!(text(report()).ends_with(expected), "{}", text(report()));
        let nothing = text(UsageReport { access: None, storage: None, ..report() });
        assert!(
            nothing.ends_with("<Usage><Access>not_requested</Access><Storage>not_requested</Storage></Usage>"),
            "{nothing}"
        );
    }
}

#[cfg(test)]
mod request_tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_289_422_114_000_000);

    fn parsed(path: &str, query: &str) -> Result<UsageRequest, &'static str> {
        UsageRequest::parse(path, &S3Query::parse(Some(query)), DocumentFormat::Json, NOW)
    }

    #[test]
    fn path_and_query_can_request_the_same_report() {
        let from = parse_basic("20101110T000000Z").unwrap();
        let to = parse_basic("20101110T120000Z").unwrap();
        let expected =
            UsageRequest { key_id: "K-_".into(), access: true, storage: true, format: DocumentFormat::Xml, from, to };
        for (path, query) in [
            ("/K-_/abx/20101110T000000Z/20101110T120000Z", ""),
            ("K-_.abx.20101110T000000Z.20101110T120000Z", ""),
            ("/K-_", "a&b=yes&x=t&s=20101110T000000Z&e=20101110T120000Z"),
        ] {
            assert_eq!(parsed(path, query).unwrap(), expected, "{path} {query}");
        }
    }

    #[test]
    fn defaults_and_refusals() {
        let expected = UsageRequest {
            key_id: "K".into(),
            access: false,
            storage: false,
            format: DocumentFormat::Json,
            from: NOW,
            to: NOW,
        };
        assert_eq!(parsed("/K", "a=no&b=0").unwrap(), expected);
        assert!(parsed("/K/a/soon", "").is_err());
        assert!(parsed("/K", "s=20101110T120000Z&e=20101110T000000Z").is_err());
        assert_eq!(parsed("/K", "s=20101001T000000Z&e=20101101T000000Z"), Err("Too much time requested"));
        assert!(parsed("/K", "s=20101001T000000Z&e=20101031T235959Z").is_ok());
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(path: String, query: String) {
            let _ = parsed(&path, &query);
        }
    }
}
