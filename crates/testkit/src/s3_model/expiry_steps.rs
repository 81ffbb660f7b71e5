//! Time that passes, gateways that end, and the lifecycle.

use std::time::Duration;

use super::dates::{DAY, MINUTE, midnight_after};
use super::state::{Certainty, ModelBucket, ModelRule, ModelUpload, ModelVersion, ModelVersioning};
use super::{Checked, S3Model};

/// A due change of a key.
enum DueChange {
    /// The current object expires.
    Expire,
    /// The version at this place goes.
    Remove(usize),
}

/// How much faster than time itself the clock of locks catches up, at the least.
const CATCH_UP: u64 = 50;

impl S3Model<'_> {
    /// Days end at midnight: near it, the model would have to know the time of a write to the millisecond.
    pub(super) fn leave_midnight(&mut self) {
        let near = |now: u64| (now + MINUTE) % DAY < 2 * MINUTE;
        while near(self.now()) {
            self.pass(MINUTE);
        }
    }

    fn pass(&mut self, micros: u64) {
        self.server.wait(Duration::from_micros(micros));
        self.state.lag = self.state.lag.saturating_sub(CATCH_UP * micros);
    }

    pub(super) fn wait(&mut self) -> Checked {
        let minutes = 1 + self.dice.number_below(15);
        self.trace.push(format!("{minutes} minutes pass"));
        self.pass(minutes * MINUTE);
        Ok(())
    }

    pub(super) fn standstill(&mut self) -> Checked {
        let hours = 1 + self.dice.number_below(50);
        self.trace.push(format!("no gateway runs for {hours} hours"));
        self.server.restart(Duration::from_secs(hours * 3600));
        self.state.lag += hours * 60 * MINUTE;
        self.compare_all()?;
        // A pass soon after days have gone by is the one with most to do.
        if self.dice.chance(700) { self.expire() } else { Ok(()) }
    }

    pub(super) fn kill(&mut self) -> Checked {
        self.trace.push("the gateways are killed".to_owned());
        self.server.restart(Duration::ZERO);
        self.compare_all()
    }

    fn compare_all(&mut self) -> Checked {
        let present: Vec<usize> = (0..self.state.buckets.len()).filter(|at| self.bucket(*at).is_some()).collect();
        present.into_iter().try_for_each(|bucket| self.compare_versions(bucket))
    }

    pub(super) fn expire(&mut self) -> Checked {
        let now = self.now();
        let mut buckets = self.state.buckets.clone();
        for bucket in buckets.iter_mut().flatten() {
            for key in bucket.keys.keys().cloned().collect::<Vec<_>>() {
                // The clock of locks may or may not have come so far: such a pass has no known outcome.
                if !self.expire_key(bucket, &key, now) {
                    return Ok(());
                }
            }
            abort_uploads(bucket, now);
        }
        self.trace.push("the lifecycle is carried out".to_owned());
        self.server.expire();
        self.state.buckets = buckets;
        self.compare_all()
    }

    /// Carries out the rules on a key, until nothing more is due; `false` if a lock makes that unsure.
    fn expire_key(&self, bucket: &mut ModelBucket, key: &str, now: u64) -> bool {
        let rules: Vec<ModelRule> = bucket.rules.iter().filter(|rule| key.starts_with(rule.prefix)).cloned().collect();
        loop {
            let mut is_unsure = false;
            let change = due_change(bucket.versions(key), &rules, now, |version| {
                match self.state.protects(version.lock(), now, false) {
                    Certainty::Yes => true,
                    Certainty::No => false,
                    Certainty::Unsure => {
                        is_unsure = true;
                        true
                    }
                }
            });
            if is_unsure {
                return false;
            }
            match change {
                None => return true,
                Some(DueChange::Remove(at)) => bucket.remove(key, at),
                Some(DueChange::Expire) if bucket.versioning == ModelVersioning::Never => bucket.remove(key, 0),
                Some(DueChange::Expire) => {
                    let id = (bucket.versioning == ModelVersioning::Suspended).then(|| "null".to_owned());
                    bucket.add(key, ModelVersion { id, modified: now, object: None });
                }
            }
        }
    }
}

/// The next change that a rule makes to the versions of a key.
fn due_change(
    versions: &[ModelVersion],
    rules: &[ModelRule],
    now: u64,
    mut is_protected: impl FnMut(&ModelVersion) -> bool,
) -> Option<DueChange> {
    let is_due = |since: u64, days: Option<u64>| days.is_some_and(|days| midnight_after(since, days) <= now);
    let current = versions.first()?;
    let expires = rules.iter().any(|rule| is_due(current.modified, rule.days));
    if current.object.is_some() && expires {
        return Some(DueChange::Expire);
    }
    for at in 1..versions.len() {
        // A version is noncurrent since the next newer one was made.
        let since = versions[at - 1].modified;
        if rules.iter().any(|rule| is_due(since, rule.noncurrent_days)) && !is_protected(&versions[at]) {
            return Some(DueChange::Remove(at));
        }
    }
    let is_alone = versions.len() == 1 && current.object.is_none();
    (is_alone && (expires || rules.iter().any(|rule| rule.expires_markers))).then_some(DueChange::Remove(0))
}

fn abort_uploads(bucket: &mut ModelBucket, now: u64) {
    let rules = &bucket.rules;
    let is_due = |begun: u64, rule: &ModelRule| rule.abort_days.is_some_and(|days| midnight_after(begun, days) <= now);
    let (due, left): (Vec<ModelUpload>, _) = std::mem::take(&mut bucket.uploads)
        .into_iter()
        .partition(|upload| rules.iter().any(|rule| upload.key.starts_with(rule.prefix) && is_due(upload.begun, rule)));
    bucket.uploads = left;
    bucket.gone_uploads.extend(due.into_iter().map(|upload| upload.id));
}
