//! A completion that stops, dies or loses an answer at any of its calls, and what others do meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_model::objects::{ObjectBody, Part};
use larder_store::Table;

use super::super::ObjectsConfig;
use super::super::commit::testing::{BUCKET, bytes, run};
use super::super::get::VersionSpec;
use super::super::uploads::testing::{Bench, KEY, Trap, complete_of, settings};
use super::*;
use crate::Rules;

/// What somebody else does while a completion does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Complete,
    Abort,
    Put,
    PutAndComplete,
    DeleteAndComplete,
    PutPart,
    PutPartAndAbort,
    Nothing,
}

const ALL: [Meanwhile; 8] = [
    Meanwhile::Complete,
    Meanwhile::Abort,
    Meanwhile::Put,
    Meanwhile::PutAndComplete,
    Meanwhile::DeleteAndComplete,
    Meanwhile::PutPart,
    Meanwhile::PutPartAndAbort,
    Meanwhile::Nothing,
];

/// How a completion does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hitch {
    /// It goes on when the others are done.
    Stops,
    /// Its process dies.
    Dies,
    /// An answer is lost, and it goes on at once.
    LosesAnswer,
}

struct Schedule {
    rules: Rules,
    hitch: Hitch,
    step: usize,
    meanwhile: Meanwhile,
    /// Whether the completion looks left behind to the others.
    late: bool,
}

struct Outcome {
    /// Whether the completion was through before the hitch.
    untouched: bool,
    /// What is wrong afterwards.
    wrong: Vec<String>,
}

impl Schedule {
    async fn run(&self) -> Outcome {
        let bench = Bench::with(self.rules).await;
        let upload = bench.begin().await;
        let replaced = bench.part(&upload, 1, &bytes(1, 50)).await;
        let last = bench.part(&upload, 2, &bytes(2, 5)).await;
        let unlisted = bench.part(&upload, 7, &bytes(3, 20)).await;
        assert!(unlisted.blob.is_some());
        let listed = [&replaced, &last];
        bench.slow.bucket(BUCKET).await.unwrap();
        bench.gate.set(if self.hitch == Hitch::LosesAnswer { Trap::LoseAnswer } else { Trap::Stop }, self.step);
        let owner = bench.desk.owner.clone();
        let slow = bench.slow.complete(&owner, complete_of(&upload, &listed));
        let mut slow = Box::pin(slow);
        let mut answer = tokio::select! {
            biased;
            answer = &mut slow => Some(answer),
            () = bench.gate.reached(), if self.hitch != Hitch::LosesAnswer => None,
        };
        let untouched = bench.gate.clear();
        let mut slow = Some(slow);
        if self.hitch == Hitch::Dies {
            slow = None;
        }
        if self.late {
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let did = self.others(&bench, &upload, &listed).await;
        bench.gate.open();
        if let (None, Some(slow)) = (&answer, slow) {
            answer = Some(slow.await);
        }
        let mut wrong = self.look(&bench, &upload).await;
        if let Some(Ok(done)) = &answer {
            let etag = larder_model::objects::Etag::of_parts(&[replaced.md5, last.md5]);
            if done.etag != etag {
                wrong.push(format!("answered {done:?}"));
            }
            if self.meanwhile == Meanwhile::Nothing && bench.desk.get(KEY, VersionSpec::Current).await.is_err() {
                wrong.push("an acknowledged object is not there".into());
            }
        }
        wrong.extend(did);
        Outcome { untouched, wrong }
    }

    async fn others(&self, bench: &Bench, upload: &str, listed: &[&Part]) -> Vec<String> {
        let mut wrong = Vec::new();
        let complete = async |wrong: &mut Vec<String>| {
            match bench.complete(upload, listed).await {
                Ok(_) => {}
                // Somebody who is not late is waited for as long as a request may last.
                Err(Error::OperationAborted) if !self.late => {}
                Err(error) => wrong.push(format!("a repeat answered {error:?}")),
            }
        };
        match self.meanwhile {
            Meanwhile::Complete => complete(&mut wrong).await,
            Meanwhile::Abort => match bench.abort(upload).await {
                Ok(()) | Err(Error::NoSuchUpload) => {}
                Err(error) => wrong.push(format!("an abort answered {error:?}")),
            },
            Meanwhile::Put => drop(bench.desk.put(KEY, &other()).await),
            Meanwhile::PutAndComplete => {
                bench.desk.put(KEY, &other()).await;
                complete(&mut wrong).await;
            }
            Meanwhile::DeleteAndComplete => {
                bench.desk.delete(KEY, &VersionSpec::Current).await;
                complete(&mut wrong).await;
            }
            Meanwhile::PutPart | Meanwhile::PutPartAndAbort => {
                let body = bytes(4, 60);
                let put =
                    super::super::uploads::testing::put_part(&bench.desk.objects, &bench.desk.owner, upload, 1, &body);
                match put.await {
                    Ok(_) | Err(Error::NoSuchUpload) => {}
                    Err(error) => wrong.push(format!("a part answered {error:?}")),
                }
                if self.meanwhile == Meanwhile::PutPartAndAbort {
                    let _ = bench.abort(upload).await;
                }
            }
            Meanwhile::Nothing => {}
        }
        wrong
    }

    /// What is not as it has to be when everybody is done.
    async fn look(&self, bench: &Bench, upload: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        match bench.desk.get(KEY, VersionSpec::Current).await {
            Ok(body) if body == other() || body == whole() => {}
            Err(Error::NoSuchKey) => {}
            torn => wrong.push(format!("the key reads {torn:?}")),
        }
        let head = bench.desk.head(KEY).await;
        let body = head.current.and_then(|version| version.object).map(|object| object.body);
        let mut manifests = 0;
        let mut blobs = BTreeSet::new();
        match body {
            Some(ObjectBody::Parts { manifest, .. }) => {
                manifests += 1;
                blobs.extend(bench.desk.objects.manifest_blobs(manifest).await.unwrap());
            }
            Some(ObjectBody::Blob { id, .. }) => drop(blobs.insert(id)),
            _ => {}
        }
        let state = bench.state(upload).await;
        // What died leaves the rest to the sweeper.
        let settled = !state.as_ref().is_some_and(UploadState::is_alive);
        if settled && bench.partitions(Table::UploadEntries).await != 0 {
            wrong.push("an ended upload is listed".into());
        }
        let found = bench.desk.blobs().await;
        if !blobs.is_subset(&found) {
            wrong.push("bytes of the object are gone".into());
        }
        if settled && self.hitch == Hitch::Stops {
            if found != blobs {
                wrong.push(format!("{} blobs for {}", found.len(), blobs.len()));
            }
            let manifests_found = bench.partitions(Table::Manifests).await;
            if manifests_found != manifests {
                wrong.push(format!("{manifests_found} manifests for {manifests} objects"));
            }
            if bench.partitions(Table::Parts).await != 0 {
                wrong.push("parts of an ended upload are left".into());
            }
        }
        wrong
    }
}

/// What the listed parts make.
fn whole() -> Bytes {
    [bytes(1, 50), bytes(2, 5)].concat().into()
}

/// What others put.
fn other() -> Bytes {
    bytes(8, 3000)
}

/// Every step of a completion with this hitch; answers what was wrong where.
fn every_step(rules: Rules, hitch: Hitch, meanwhile: Meanwhile, late: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in 0.. {
        let schedule = Schedule { rules, hitch, step, meanwhile, late };
        let outcome = run(schedule.run());
        wrong.extend(outcome.wrong.into_iter().map(|what| format!("{hitch:?} {step} {meanwhile:?} {late}: {what}")));
        if outcome.untouched {
            assert!(step > 8, "a completion of {step} calls");
            return wrong;
        }
    }
    wrong
}

#[test]
fn a_completion_that_stops_anywhere_leaves_everything_whole() {
    for meanwhile in ALL {
        for late in [true, false] {
            // Who is not late is waited for, and here would wait for the others itself.
            let waits = [Meanwhile::Nothing, Meanwhile::Put, Meanwhile::PutPart];
            if late || waits.contains(&meanwhile) {
                assert_eq!(every_step(Rules::default(), Hitch::Stops, meanwhile, late), [""; 0]);
            }
        }
    }
}

#[test]
fn a_completion_that_dies_anywhere_is_taken_back_or_was_done() {
    for meanwhile in ALL {
        assert_eq!(every_step(Rules::default(), Hitch::Dies, meanwhile, true), [""; 0]);
    }
}

#[test]
fn a_completion_that_loses_any_answer_finds_out() {
    for meanwhile in ALL {
        for late in [true, false] {
            assert_eq!(every_step(Rules::default(), Hitch::LosesAnswer, meanwhile, late), [""; 0]);
        }
    }
}

#[cfg(feature = "rules")]
#[test]
fn each_rule_of_completions_is_needed() {
    let cases = [
        (Rule::FenceCompleting, Hitch::Stops, Meanwhile::Abort),
        (Rule::ManifestFirst, Hitch::Dies, Meanwhile::Nothing),
        (Rule::KeepPartsUntilEnd, Hitch::Stops, Meanwhile::PutPart),
    ];
    for (rule, hitch, meanwhile) in cases {
        let wrong = every_step(Rules::without(rule), hitch, meanwhile, true);
        assert_ne!(wrong, [""; 0], "nothing goes wrong without {rule:?}");
    }
}

#[test]
fn a_live_completion_is_waited_for_and_a_dead_one_taken_back() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        let open = bench.upload(&upload).await.unwrap();
        let version = VersionId::new(bench.desk.objects.gateway.issue().await.unwrap(), 77);
        let since = bench.desk.objects.gateway.now();
        let state = UploadState::Completing { version, list: [0; 20], since };
        bench.desk.objects.swap_upload(&open, state).await.unwrap().unwrap();
        assert!(matches!(bench.complete(&upload, &[&part]).await, Err(Error::OperationAborted)), "60 s are not 90 s");
        assert_eq!(bench.parts(&upload, 0, 9).await.unwrap().parts.len(), 1, "it is listed meanwhile");
        assert!(matches!(bench.state(&upload).await, Some(UploadState::Completing { .. })));
        bench.complete(&upload, &[&part]).await.unwrap();
        assert!(matches!(bench.state(&upload).await, Some(UploadState::Done { .. })));
    });
}

#[test]
fn what_the_run_before_was_completing_is_not_waited_for() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        let alone = bench.desk.world.gateway_of(Rules::default(), ObjectsConfig { alone: true, ..settings() }).await;
        for (actor, waits) in [(alone.gateway.actor, true), (77, false)] {
            let open = bench.upload(&upload).await.unwrap();
            let version = VersionId::new(alone.gateway.issue().await.unwrap(), actor);
            let state = UploadState::Completing { version, list: [0; 20], since: alone.gateway.now() };
            alone.swap_upload(&open, state).await.unwrap().unwrap();
            let begun = Instant::now();
            let done = alone.complete(&bench.desk.owner, complete_of(&upload, &[&part])).await;
            assert_eq!(matches!(done, Err(Error::OperationAborted)), waits, "{done:?}");
            assert_eq!(begun.elapsed() > Duration::from_secs(1), waits);
            if waits {
                let seen = bench.upload(&upload).await.unwrap();
                alone.take_back(&seen).await.unwrap();
            }
        }
        assert_eq!(bench.desk.get(KEY, VersionSpec::Current).await.unwrap(), bytes(1, 50));
    });
}

#[test]
fn a_version_leaves_its_key_after_its_upload_is_done() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        let done = bench.complete(&upload, &[&part]).await.unwrap();
        // As if the completing writer had died before it could say so.
        let head = bench.upload(&upload).await.unwrap();
        let UploadState::Done { version, list, .. } = head.upload.state else { panic!("{head:?}") };
        let state = UploadState::Completing { version, list, since: 1 };
        bench.desk.objects.swap_upload(&head, state).await.unwrap().unwrap();
        bench.desk.delete(KEY, &VersionSpec::Current).await;
        assert_eq!(bench.complete(&upload, &[&part]).await.unwrap(), done);
        assert!(matches!(bench.desk.get(KEY, VersionSpec::Current).await, Err(Error::NoSuchKey)));
    });
}
