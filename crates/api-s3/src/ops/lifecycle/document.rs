//! The document of lifecycle rules.

use std::collections::HashSet;

use bytes::Bytes;
use larder_model::limits::LIFECYCLE_RULES_MAX;
use larder_model::objects::lifecycle::{Expiration, Filter, Lifecycle, LifecycleRule, Noncurrent};

use super::super::dates as written;
use super::super::tagging::{tag, write_tag};
use crate::dates;
use crate::errors::{Code, Fault};
use crate::xml::{Reader, Xml};

/// Reads the rules; whether they hold is checked elsewhere.
///
/// # Errors
/// 400 `MalformedXML`, 501 for rules that move objects elsewhere.
pub(super) fn read(document: &[u8]) -> Result<Lifecycle, Fault> {
    let mut xml = Reader::open(document, "LifecycleConfiguration")?;
    let mut rules = Vec::new();
    while let Some(name) = xml.child()? {
        match name {
            // One more than there may be is enough to be refused for.
            "Rule" if rules.len() > LIFECYCLE_RULES_MAX => xml.skip()?,
            "Rule" => rules.push(rule(&mut xml)?),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    name_those_without(&mut rules);
    Ok(Lifecycle { rules })
}

/// Names come from the place in the document: the same document gives the same rules again.
fn name_those_without(rules: &mut [LifecycleRule]) {
    let mut taken: HashSet<String> = rules.iter().map(|rule| rule.id.clone()).collect();
    for (at, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.id.is_empty()) {
        let name = (at + 1..).map(|number| format!("rule-{number}")).find(|name| !taken.contains(name));
        rule.id = name.unwrap_or_default();
        taken.insert(rule.id.clone());
    }
}

fn rule(xml: &mut Reader<'_>) -> Result<LifecycleRule, Fault> {
    let mut rule = LifecycleRule::default();
    let (mut status, mut found, mut legacy) = (None, None, None);
    while let Some(name) = xml.child()? {
        match name {
            "ID" => rule.id = xml.text()?,
            "Status" => status = Some(xml.text()?),
            "Filter" => once(&mut found, filter(xml)?)?,
            "Prefix" => once(&mut legacy, xml.text()?)?,
            "Expiration" => once(&mut rule.expiration, expiration(xml)?)?,
            "NoncurrentVersionExpiration" => once(&mut rule.noncurrent, noncurrent(xml)?)?,
            "AbortIncompleteMultipartUpload" => once(&mut rule.abort_uploads_days, abort(xml)?)?,
            "Transition" | "NoncurrentVersionTransition" => return Err(Code::NotImplemented.into()),
            _ => xml.skip()?,
        }
    }
    rule.enabled = match status.as_deref() {
        Some("Enabled") => true,
        Some("Disabled") => false,
        _ => return Err(Code::MalformedXML.into()),
    };
    (rule.filter, rule.legacy_prefix) = match (found, legacy) {
        (Some(filter), None) => (filter, false),
        (None, Some(prefix)) => (Filter { prefix: Some(prefix), ..Filter::default() }, true),
        _ => return Err(Code::MalformedXML.into()),
    };
    Ok(rule)
}

/// The conditions of a filter, within `And` or alone.
fn filter(xml: &mut Reader<'_>) -> Result<Filter, Fault> {
    let mut filter = Filter::default();
    while let Some(name) = xml.child()? {
        match name {
            "And" => filter = self::filter(xml)?,
            "Prefix" => once(&mut filter.prefix, xml.text()?)?,
            "Tag" => filter.tags.push(tag(xml)?),
            "ObjectSizeGreaterThan" => filter.larger_than = Some(xml.parsed()?),
            "ObjectSizeLessThan" => filter.smaller_than = Some(xml.parsed()?),
            _ => xml.skip()?,
        }
    }
    Ok(filter)
}

fn expiration(xml: &mut Reader<'_>) -> Result<Expiration, Fault> {
    let mut found = None;
    while let Some(name) = xml.child()? {
        match name {
            "Days" => once(&mut found, Expiration::Days(days(xml)?))?,
            "Date" => once(&mut found, Expiration::Date(written::iso(&xml.text()?).ok_or(Code::MalformedXML)?))?,
            "ExpiredObjectDeleteMarker" if xml.text()?.trim() == "true" => once(&mut found, Expiration::MarkersLeft)?,
            "ExpiredObjectDeleteMarker" => {}
            _ => xml.skip()?,
        }
    }
    found.ok_or_else(|| Code::MalformedXML.into())
}

fn noncurrent(xml: &mut Reader<'_>) -> Result<Noncurrent, Fault> {
    let (mut after, mut keep) = (None, None);
    while let Some(name) = xml.child()? {
        match name {
            "NoncurrentDays" => after = Some(days(xml)?),
            "NewerNoncurrentVersions" => keep = Some(days(xml)?),
            _ => xml.skip()?,
        }
    }
    Ok(Noncurrent { days: after.ok_or(Code::MalformedXML)?, keep })
}

fn abort(xml: &mut Reader<'_>) -> Result<u32, Fault> {
    let mut after = None;
    while let Some(name) = xml.child()? {
        match name {
            "DaysAfterInitiation" => after = Some(days(xml)?),
            _ => xml.skip()?,
        }
    }
    after.ok_or_else(|| Code::MalformedXML.into())
}

/// A number of days; a negative one is none, like 0, and refused with the words for it.
fn days(xml: &mut Reader<'_>) -> Result<u32, Fault> {
    let days: i64 = xml.parsed()?;
    Ok(u32::try_from(days.max(0)).unwrap_or(u32::MAX))
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Fault> {
    if place.replace(value).is_some() { Err(Code::MalformedXML.into()) } else { Ok(()) }
}

/// Writes the rules.
pub(super) fn write(rules: &Lifecycle) -> Bytes {
    let mut xml = Xml::new("LifecycleConfiguration");
    for rule in &rules.rules {
        xml.within("Rule", |xml| write_rule(xml, rule));
    }
    xml.finish()
}

fn write_rule(xml: &mut Xml, rule: &LifecycleRule) {
    xml.text("ID", &rule.id);
    if rule.legacy_prefix {
        xml.text("Prefix", rule.filter.prefix.as_deref().unwrap_or_default());
    } else {
        write_filter(xml, &rule.filter);
    }
    xml.text("Status", if rule.enabled { "Enabled" } else { "Disabled" });
    if let Some(expiration) = rule.expiration {
        xml.within("Expiration", |xml| match expiration {
            Expiration::Days(days) => drop(xml.value("Days", days)),
            Expiration::Date(date) => drop(xml.text("Date", dates::iso(date))),
            Expiration::MarkersLeft => drop(xml.value("ExpiredObjectDeleteMarker", true)),
        });
    }
    if let Some(noncurrent) = rule.noncurrent {
        xml.within("NoncurrentVersionExpiration", |xml| {
            xml.value("NoncurrentDays", noncurrent.days);
            if let Some(keep) = noncurrent.keep {
                xml.value("NewerNoncurrentVersions", keep);
            }
        });
    }
    if let Some(days) = rule.abort_uploads_days {
        xml.within("AbortIncompleteMultipartUpload", |xml| {
            xml.value("DaysAfterInitiation", days);
        });
    }
}

fn write_filter(xml: &mut Xml, filter: &Filter) {
    let sizes = usize::from(filter.larger_than.is_some()) + usize::from(filter.smaller_than.is_some());
    let conditions = usize::from(filter.prefix.is_some()) + filter.tags.len() + sizes;
    match conditions {
        0 => drop(xml.empty("Filter")),
        1 => drop(xml.within("Filter", |xml| write_conditions(xml, filter))),
        _ => {
            xml.within("Filter", |xml| {
                xml.within("And", |xml| write_conditions(xml, filter));
            });
        }
    }
}

fn write_conditions(xml: &mut Xml, filter: &Filter) {
    xml.maybe("Prefix", filter.prefix.as_ref());
    filter.tags.iter().for_each(|tag| write_tag(xml, tag));
    if let Some(bytes) = filter.larger_than {
        xml.value("ObjectSizeGreaterThan", bytes);
    }
    if let Some(bytes) = filter.smaller_than {
        xml.value("ObjectSizeLessThan", bytes);
    }
}
