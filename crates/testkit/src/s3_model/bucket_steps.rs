//! Buckets and their settings.

use std::collections::BTreeMap;

use super::answers::{differs, elements, same};
use super::asks::{Faults, ModelRequest};
use super::metadata_steps::{parse_tags, tagging};
use super::state::{ModelBucket, ModelDefault, ModelRule, ModelVersioning};
use super::{Checked, S3Model};
use crate::http::element;

impl S3Model<'_> {
    pub(super) fn create_bucket(&mut self) -> Checked {
        let (bucket, has_lock) = (self.dice.below(3), self.dice.chance(500));
        if self.bucket(bucket).is_some() {
            return Ok(());
        }
        let request = ModelRequest::new("PUT", format!("/{}", self.bucket_name(bucket)));
        let request = if has_lock { request.header("x-amz-bucket-object-lock-enabled", "true") } else { request };
        if self.expect(&request, &[], &[200])?.is_some() {
            self.state.buckets[bucket] = Some(ModelBucket::new(has_lock));
        }
        Ok(())
    }

    pub(super) fn delete_bucket(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let mut faults = self.no_bucket(bucket);
        if self.bucket(bucket).is_some_and(|bucket| !bucket.keys.is_empty()) {
            faults.push("BucketNotEmpty");
        }
        let request = ModelRequest::new("DELETE", format!("/{}", self.bucket_name(bucket)));
        if self.expect(&request, &faults, &[204])?.is_some() {
            self.state.buckets[bucket] = None;
        }
        Ok(())
    }

    fn no_bucket(&self, bucket: usize) -> Faults {
        if self.bucket(bucket).is_none() { vec!["NoSuchBucket"] } else { vec![] }
    }

    fn setting(&self, bucket: usize, name: &str) -> String {
        format!("/{}?{name}", self.bucket_name(bucket))
    }

    pub(super) fn put_versioning(&mut self) -> Checked {
        let (bucket, enables) = (self.any_bucket(), self.dice.chance(600));
        let mut faults = self.no_bucket(bucket);
        if !enables && self.bucket(bucket).is_some_and(|bucket| bucket.lock.is_some()) {
            faults.push("InvalidBucketState");
        }
        let status = if enables { "Enabled" } else { "Suspended" };
        let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        let request = ModelRequest::new("PUT", self.setting(bucket, "versioning")).document(&document);
        if self.expect(&request, &faults, &[200])?.is_some() {
            self.bucket_mut(bucket).versioning =
                if enables { ModelVersioning::Enabled } else { ModelVersioning::Suspended };
        }
        Ok(())
    }

    pub(super) fn put_bucket_lock(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let mut faults = self.no_bucket(bucket);
        if self.bucket(bucket).is_some_and(|bucket| bucket.versioning != ModelVersioning::Enabled) {
            faults.push("InvalidBucketState");
        }
        let default = self
            .dice
            .chance(500)
            .then(|| ModelDefault { is_compliance: self.dice.chance(300), days: 1 + self.dice.number_below(3) });
        let rule = default.map(|default| {
            let mode = if default.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" };
            let days = if self.dice.chance(60) {
                faults.push("InvalidRetentionPeriod");
                0
            } else {
                default.days
            };
            format!("<Rule><DefaultRetention><Mode>{mode}</Mode><Days>{days}</Days></DefaultRetention></Rule>")
        });
        let document = format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{}</ObjectLockConfiguration>",
            rule.unwrap_or_default()
        );
        let request = ModelRequest::new("PUT", self.setting(bucket, "object-lock")).document(&document);
        if self.expect(&request, &faults, &[200])?.is_some() {
            self.bucket_mut(bucket).lock = Some(default);
        }
        Ok(())
    }

    pub(super) fn put_bucket_encryption(&mut self) -> Checked {
        let (bucket, encrypts) = (self.any_bucket(), self.dice.chance(600));
        let faults = self.no_bucket(bucket);
        let target = self.setting(bucket, "encryption");
        let request = match encrypts {
            true => ModelRequest::new("PUT", target).document(
                "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256\
                 </SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>",
            ),
            false => ModelRequest::new("DELETE", target),
        };
        if self.expect(&request, &faults, &[if encrypts { 200 } else { 204 }])?.is_some() {
            self.bucket_mut(bucket).encrypts = encrypts;
        }
        Ok(())
    }

    pub(super) fn put_bucket_tags(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let faults = self.no_bucket(bucket);
        let tags: BTreeMap<String, String> =
            (0..self.dice.below(3)).map(|number| (format!("b{number}"), self.dice.below(9).to_string())).collect();
        let target = self.setting(bucket, "tagging");
        let request = match tags.is_empty() {
            true => ModelRequest::new("DELETE", target),
            false => ModelRequest::new("PUT", target).document(&tagging(&tags)),
        };
        if self.expect(&request, &faults, &[204])?.is_some() {
            self.bucket_mut(bucket).tags = tags;
        }
        Ok(())
    }

    pub(super) fn put_lifecycle(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let faults = self.no_bucket(bucket);
        let target = self.setting(bucket, "lifecycle");
        if self.dice.chance(250) {
            if self.expect(&ModelRequest::new("DELETE", target), &faults, &[204])?.is_some() {
                self.bucket_mut(bucket).rules.clear();
            }
            return Ok(());
        }
        let rules: Vec<ModelRule> = (0..1 + self.dice.below(2)).map(|_| self.new_rule()).collect();
        let document = rules.iter().enumerate().map(|(number, rule)| rule_document(number, rule)).collect::<String>();
        let document = format!("<LifecycleConfiguration>{document}</LifecycleConfiguration>");
        if self.expect(&ModelRequest::new("PUT", target).document(&document), &faults, &[200])?.is_some() {
            self.bucket_mut(bucket).rules = rules;
        }
        Ok(())
    }

    fn new_rule(&mut self) -> ModelRule {
        let mut rule = ModelRule {
            prefix: self.dice.pick::<&str>(&["", "a/", "b"]),
            days: None,
            expires_markers: false,
            noncurrent_days: None,
            abort_days: None,
        };
        match self.dice.below(4) {
            0 => rule.days = Some(1 + self.dice.number_below(2)),
            1 => rule.expires_markers = true,
            2 => rule.noncurrent_days = Some(1 + self.dice.number_below(2)),
            _ => rule.abort_days = Some(1 + self.dice.number_below(2)),
        }
        if rule.days.is_none() && !rule.expires_markers && self.dice.chance(400) {
            rule.days = Some(1);
        }
        rule
    }

    pub(super) fn get_bucket_settings(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let Some(found) = self.bucket(bucket).cloned() else {
            let request = ModelRequest::new("HEAD", format!("/{}", self.bucket_name(bucket)));
            return self.expect(&request, &["NoSuchBucket"], &[]).map(drop);
        };
        let versioning = match found.versioning {
            ModelVersioning::Never => None,
            ModelVersioning::Enabled => Some("Enabled"),
            ModelVersioning::Suspended => Some("Suspended"),
        };
        if let Some(text) = self.read_setting(bucket, "versioning", true, "")? {
            same("versioning", versioning, element(&text, "Status"))?;
        }
        let lock = found.lock.is_some();
        if let Some(text) = self.read_setting(bucket, "object-lock", lock, "ObjectLockConfigurationNotFoundError")? {
            let days = found.lock.flatten().map(|default| default.days.to_string());
            same("days", days.as_deref(), element(&text, "Days"))?;
        }
        let none = "ServerSideEncryptionConfigurationNotFoundError";
        if let Some(text) = self.read_setting(bucket, "encryption", found.encrypts, none)? {
            same("algorithm", Some("AES256"), element(&text, "SSEAlgorithm"))?;
        }
        if let Some(text) = self.read_setting(bucket, "tagging", !found.tags.is_empty(), "NoSuchTagSet")? {
            same("tags", found.tags, parse_tags(&text))?;
        }
        let has_rules = !found.rules.is_empty();
        if let Some(text) = self.read_setting(bucket, "lifecycle", has_rules, "NoSuchLifecycleConfiguration")? {
            same("rules", found.rules.len(), elements(&text, "Rule").len())?;
        }
        Ok(())
    }

    /// The text of a setting that there is; otherwise the code that says so.
    fn read_setting(
        &mut self,
        bucket: usize,
        name: &str,
        is_set: bool,
        none: &'static str,
    ) -> Result<Option<String>, String> {
        let request = ModelRequest::new("GET", self.setting(bucket, name));
        let faults = if is_set { vec![] } else { vec![none] };
        let answer = self.expect(&request, &faults, &[200])?;
        if is_set && answer.is_none() {
            return differs(name, "a setting", "none");
        }
        Ok(answer.map(|answer| answer.text()))
    }
}

fn rule_document(number: usize, rule: &ModelRule) -> String {
    let days = |element: &str, name: &str, days: Option<u64>| {
        days.map(|days| format!("<{element}><{name}>{days}</{name}></{element}>")).unwrap_or_default()
    };
    let expiration = match rule.expires_markers {
        true => "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>".to_owned(),
        false => days("Expiration", "Days", rule.days),
    };
    let noncurrent = days("NoncurrentVersionExpiration", "NoncurrentDays", rule.noncurrent_days);
    let abort = days("AbortIncompleteMultipartUpload", "DaysAfterInitiation", rule.abort_days);
    format!(
        "<Rule><ID>r{number}</ID><Status>Enabled</Status><Filter><Prefix>{}</Prefix></Filter>{expiration}{noncurrent}{abort}</Rule>",
        rule.prefix
    )
}
