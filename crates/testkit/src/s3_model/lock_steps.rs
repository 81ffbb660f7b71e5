//! Retention and legal hold of versions.

use super::answers::{is_near, same};
use super::asks::{Faults, ModelRequest};
use super::dates::{MINUTE, iso, parsed};
use super::object_steps::NamedVersion;
use super::state::{Certainty, ModelLock, ModelRetention};
use super::{Checked, S3Model};
use crate::http::element;

fn mode(retention: ModelRetention) -> &'static str {
    if retention.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" }
}

impl S3Model<'_> {
    /// What is wrong with a request about the lock of a version.
    fn missing_lock(&self, named: &NamedVersion) -> Faults {
        let mut faults = self.missing_metadata(named);
        if self.bucket(named.bucket).is_some_and(|bucket| bucket.lock.is_none()) {
            faults.push("InvalidRequest");
        }
        faults
    }

    fn named_lock(&self, named: &NamedVersion) -> ModelLock {
        self.version(named).map(super::state::ModelVersion::lock).unwrap_or_default()
    }

    /// Whether a retention may take the place of the present one.
    fn refuses(&self, present: Option<ModelRetention>, next: Option<ModelRetention>, bypass: bool) -> Certainty {
        let Some(present) = present else { return Certainty::No };
        let is_close = |next: ModelRetention| next.until.abs_diff(present.until) < 2 * MINUTE;
        match next {
            _ if bypass && !present.is_compliance => Certainty::No,
            Some(next) if next.is_compliance == present.is_compliance && is_close(next) => Certainty::Unsure,
            Some(next) if next.is_compliance == present.is_compliance && next.until > present.until => Certainty::No,
            _ => self.state.holds(present, self.now()),
        }
    }

    pub(super) fn put_retention(&mut self) -> Checked {
        let named = self.any_version();
        let mut faults = self.missing_lock(&named);
        let present = self.named_lock(&named).retention;
        let (request, bypass) = self.ask_bypass(ModelRequest::new("PUT", self.target(&named, "retention")));
        let mut next = self.dice.chance(850).then(|| self.new_retention());
        if let (Some(next), Some(present)) = (&mut next, present)
            && self.dice.chance(500)
        {
            next.is_compliance = present.is_compliance;
        }
        let document = match next {
            None => "<Retention/>".to_owned(),
            Some(next) => {
                let date = if self.dice.chance(60) {
                    faults.push("InvalidArgument");
                    "2001-01-01T00:00:00Z".to_owned()
                } else {
                    iso(next.until)
                };
                format!("<Retention><Mode>{}</Mode><RetainUntilDate>{date}</RetainUntilDate></Retention>", mode(next))
            }
        };
        if self.bucket(named.bucket).is_some_and(|bucket| bucket.lock.is_some()) {
            match self.refuses(present, next, bypass) {
                Certainty::Yes => faults.push("AccessDenied"),
                Certainty::No => {}
                Certainty::Unsure => return Ok(()),
            }
        }
        if self.expect(&request.document(&document), &faults, &[200])?.is_some()
            && let Some(object) = self.object_mut(&named)
        {
            object.lock.retention = next;
        }
        Ok(())
    }

    pub(super) fn put_legal_hold(&mut self) -> Checked {
        let named = self.any_version();
        let mut faults = self.missing_lock(&named);
        let is_on = self.dice.chance(500);
        let status = if self.dice.chance(50) {
            faults.push("MalformedXML");
            "on"
        } else if is_on {
            "ON"
        } else {
            "OFF"
        };
        let request = ModelRequest::new("PUT", self.target(&named, "legal-hold"));
        let request = request.document(&format!("<LegalHold><Status>{status}</Status></LegalHold>"));
        if self.expect(&request, &faults, &[200])?.is_some()
            && let Some(object) = self.object_mut(&named)
        {
            object.lock.hold = Some(is_on);
        }
        Ok(())
    }

    pub(super) fn get_locks(&mut self) -> Checked {
        let named = self.any_version();
        let (faults, lock) = (self.missing_lock(&named), self.named_lock(&named));
        let unset = |is_set: bool| if is_set { vec![] } else { vec!["NoSuchObjectLockConfiguration"] };
        let is_faulty = !faults.is_empty();
        let retention = if is_faulty { faults.clone() } else { unset(lock.retention.is_some()) };
        let request = ModelRequest::new("GET", self.target(&named, "retention"));
        if let Some(answer) = self.expect(&request, &retention, &[200])? {
            let text = answer.text();
            same("mode", lock.retention.map(mode), element(&text, "Mode"))?;
            let until = element(&text, "RetainUntilDate").and_then(parsed);
            is_near("retain until", lock.retention.map(|retention| retention.until), until)?;
        }
        let hold = if is_faulty { faults } else { unset(lock.hold.is_some()) };
        let request = ModelRequest::new("GET", self.target(&named, "legal-hold"));
        if let Some(answer) = self.expect(&request, &hold, &[200])? {
            let expected = lock.hold.map(|is_on| if is_on { "ON" } else { "OFF" });
            same("hold", expected, element(&answer.text(), "Status"))?;
        }
        Ok(())
    }
}
