//! The XML document of lifecycle rules.

use std::collections::HashSet;

use bytes::Bytes;
use larder_rows::limits::LIFECYCLE_RULES_MAX;
use larder_s3_rules::dates;
use larder_s3_rules::lifecycle::{Expiration, Lifecycle, LifecycleFilter, LifecycleRule, NoncurrentExpiration};

use super::super::tagging::{tag, write_tag};
use crate::errors::{Code, S3Error};
use crate::xml::{XmlReader, XmlWriter};

/// Parses the rules; the caller validates them.
///
/// # Errors
/// 400 `MalformedXML`, 501 for transition rules.
pub(super) fn read(document: &[u8]) -> Result<Lifecycle, S3Error> {
    let mut xml = XmlReader::open(document, "LifecycleConfiguration")?;
    let mut rules = Vec::new();
    while let Some(name) = xml.next_child()? {
        match name {
            // One rule above the limit is enough for the validation to refuse the document.
            "Rule" if rules.len() > LIFECYCLE_RULES_MAX => drop(xml.set_aside()?),
            "Rule" => rules.push(rule(&mut xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    assign_missing_ids(&mut rules);
    Ok(Lifecycle { rules })
}

/// Assigns ids by position in the document, so that the same document yields the same rules again.
fn assign_missing_ids(rules: &mut [LifecycleRule]) {
    let mut taken: HashSet<String> = rules.iter().map(|rule| rule.id.clone()).collect();
    for (at, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.id.is_empty()) {
        let name = (at + 1..).map(|number| format!("rule-{number}")).find(|name| !taken.contains(name));
        rule.id = name.unwrap_or_default();
        taken.insert(rule.id.clone());
    }
}

fn rule(xml: &mut XmlReader<'_>) -> Result<LifecycleRule, S3Error> {
    let mut rule = LifecycleRule::default();
    let (mut status, mut rule_filter, mut legacy) = (None, None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "ID" => rule.id = xml.text()?,
            "Status" => status = Some(xml.text()?),
            "Filter" => once(&mut rule_filter, filter(xml)?)?,
            "Prefix" => once(&mut legacy, xml.text()?)?,
            "Expiration" => once(&mut rule.expiration, expiration(xml)?)?,
            "NoncurrentVersionExpiration" => once(&mut rule.noncurrent, noncurrent(xml)?)?,
            "AbortIncompleteMultipartUpload" => once(&mut rule.abort_uploads_days, abort(xml)?)?,
            // Without an element that narrows it, a rule would delete more than it says.
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    rule.enabled = match status.as_deref() {
        Some("Enabled") => true,
        Some("Disabled") => false,
        _ => return Err(Code::MalformedXML.into()),
    };
    (rule.filter, rule.legacy_prefix) = match (rule_filter, legacy) {
        (Some(filter), None) => (filter, false),
        (None, Some(prefix)) => (LifecycleFilter { prefix: Some(prefix), ..LifecycleFilter::default() }, true),
        _ => return Err(Code::MalformedXML.into()),
    };
    Ok(rule)
}

/// Parses the conditions of a filter, within `And` or alone.
fn filter(xml: &mut XmlReader<'_>) -> Result<LifecycleFilter, S3Error> {
    let mut filter = LifecycleFilter::default();
    while let Some(name) = xml.next_child()? {
        match name {
            "And" => filter = self::filter(xml)?,
            "Prefix" => once(&mut filter.prefix, xml.text()?)?,
            "Tag" => filter.tags.push(tag(xml)?),
            "ObjectSizeGreaterThan" => filter.larger_than = Some(xml.parse_text()?),
            "ObjectSizeLessThan" => filter.smaller_than = Some(xml.parse_text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(filter)
}

fn expiration(xml: &mut XmlReader<'_>) -> Result<Expiration, S3Error> {
    let mut expiry = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Days" => once(&mut expiry, Expiration::Days(days(xml)?))?,
            "Date" => once(
                &mut expiry,
                Expiration::Date(dates::parse_document_date(&xml.text()?).ok_or(Code::MalformedXML)?),
            )?,
            "ExpiredObjectDeleteMarker" if xml.text()?.trim() == "true" => {
                once(&mut expiry, Expiration::ExpiredDeleteMarkers)?
            }
            "ExpiredObjectDeleteMarker" => {}
            // MinIO's.
            "ExpiredObjectAllVersions" if xml.text()?.trim() == "false" => {}
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    expiry.ok_or_else(|| Code::MalformedXML.into())
}

fn noncurrent(xml: &mut XmlReader<'_>) -> Result<NoncurrentExpiration, S3Error> {
    let (mut after, mut keep) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "NoncurrentDays" => after = Some(days(xml)?),
            "NewerNoncurrentVersions" => keep = Some(days(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(NoncurrentExpiration { days: after.ok_or(Code::MalformedXML)?, keep })
}

fn abort(xml: &mut XmlReader<'_>) -> Result<u32, S3Error> {
    let mut after = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "DaysAfterInitiation" => after = Some(days(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    after.ok_or_else(|| Code::MalformedXML.into())
}

/// Parses a number of days. A negative number is read as 0, which the validation refuses.
fn days(xml: &mut XmlReader<'_>) -> Result<u32, S3Error> {
    let days: i64 = xml.parse_text()?;
    Ok(u32::try_from(days.max(0)).unwrap_or(u32::MAX))
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), S3Error> {
    if place.replace(value).is_some() { Err(Code::MalformedXML.into()) } else { Ok(()) }
}

/// Writes the rules.
pub(super) fn write(rules: &Lifecycle) -> Bytes {
    let mut xml = XmlWriter::new("LifecycleConfiguration");
    for rule in &rules.rules {
        xml.element("Rule", |xml| write_rule(xml, rule));
    }
    xml.finish()
}

fn write_rule(xml: &mut XmlWriter, rule: &LifecycleRule) {
    xml.text("ID", &rule.id);
    if rule.legacy_prefix {
        xml.text("Prefix", rule.filter.prefix.as_deref().unwrap_or_default());
    } else {
        write_filter(xml, &rule.filter);
    }
    xml.text("Status", if rule.enabled { "Enabled" } else { "Disabled" });
    if let Some(expiration) = rule.expiration {
        xml.element("Expiration", |xml| match expiration {
            Expiration::Days(days) => drop(xml.value("Days", days)),
            Expiration::Date(date) => drop(xml.text("Date", dates::iso(date))),
            Expiration::ExpiredDeleteMarkers => drop(xml.value("ExpiredObjectDeleteMarker", true)),
        });
    }
    if let Some(noncurrent) = rule.noncurrent {
        xml.element("NoncurrentVersionExpiration", |xml| {
            xml.value("NoncurrentDays", noncurrent.days);
            if let Some(keep) = noncurrent.keep {
                xml.value("NewerNoncurrentVersions", keep);
            }
        });
    }
    if let Some(days) = rule.abort_uploads_days {
        xml.element("AbortIncompleteMultipartUpload", |xml| {
            xml.value("DaysAfterInitiation", days);
        });
    }
}

fn write_filter(xml: &mut XmlWriter, filter: &LifecycleFilter) {
    let sizes = usize::from(filter.larger_than.is_some()) + usize::from(filter.smaller_than.is_some());
    let conditions = usize::from(filter.prefix.is_some()) + filter.tags.len() + sizes;
    match conditions {
        0 => drop(xml.empty("Filter")),
        1 => drop(xml.element("Filter", |xml| write_conditions(xml, filter))),
        _ => {
            xml.element("Filter", |xml| {
                xml.element("And", |xml| write_conditions(xml, filter));
            });
        }
    }
}

fn write_conditions(xml: &mut XmlWriter, filter: &LifecycleFilter) {
    xml.optional_text("Prefix", filter.prefix.as_ref());
    filter.tags.iter().for_each(|tag| write_tag(xml, tag));
    if let Some(bytes) = filter.larger_than {
        xml.value("ObjectSizeGreaterThan", bytes);
    }
    if let Some(bytes) = filter.smaller_than {
        xml.value("ObjectSizeLessThan", bytes);
    }
}
