//! A completion that pauses, dies or loses an answer at any of its calls, next to concurrent requests.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::ActorId;
use larder_store::Table;

use super::super::ObjectsConfig;
use super::super::commit::testing::{BUCKET, bytes, run};
use super::super::get::VersionSpec;
use super::super::uploads::testing::{KEY, Trap, UploadSetup, complete_request, settings};
use super::*;
use crate::rules::{ObjectBody, Part};

/// The concurrent request during a stalled completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConcurrentCall {
    Complete,
    Abort,
    Put,
    PutAndComplete,
    DeleteAndComplete,
    PutPart,
    PutPartAndAbort,
    Nothing,
}

const ALL: [ConcurrentCall; 8] = [
    ConcurrentCall::Complete,
    ConcurrentCall::Abort,
    ConcurrentCall::Put,
    ConcurrentCall::PutAndComplete,
    ConcurrentCall::DeleteAndComplete,
    ConcurrentCall::PutPart,
    ConcurrentCall::PutPartAndAbort,
    ConcurrentCall::Nothing,
];

/// The fault of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompletionFault {
    /// It resumes after the concurrent requests.
    Stops,
    /// Its process dies.
    Dies,
    /// It loses an answer and continues at once.
    LosesAnswer,
}

struct CompletionSchedule {
    hitch: CompletionFault,
    step: usize,
    concurrent: ConcurrentCall,
    /// Whether the completion looks abandoned to the others.
    late: bool,
}

struct CompletionOutcome {
    /// Whether the completion finished before the fault.
    untouched: bool,
    /// Violations found afterwards.
    wrong: Vec<String>,
}

impl CompletionSchedule {
    async fn run(&self) -> CompletionOutcome {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let replaced = setup.part(&upload, 1, &bytes(1, 50)).await;
        let last = setup.part(&upload, 2, &bytes(2, 5)).await;
        let unlisted = setup.part(&upload, 7, &bytes(3, 20)).await;
        assert!(unlisted.blob.is_some());
        let listed = [&replaced, &last];
        setup.slow.buckets.find(BUCKET).await.unwrap();
        setup
            .gate
            .set(if self.hitch == CompletionFault::LosesAnswer { Trap::LoseAnswer } else { Trap::Stop }, self.step);
        let owner = setup.fixture.owner.clone();
        let slow = setup.slow.uploads.complete(&owner, complete_request(&upload, &listed));
        let mut slow = Box::pin(slow);
        let mut answer = tokio::select! {
            biased;
            answer = &mut slow => Some(answer),
            () = setup.gate.reached(), if self.hitch != CompletionFault::LosesAnswer => None,
        };
        let untouched = setup.gate.clear();
        let mut slow = Some(slow);
        if self.hitch == CompletionFault::Dies {
            slow = None;
        }
        if self.late {
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let did = self.others(&setup, &upload, &listed).await;
        setup.gate.open();
        if let (None, Some(slow)) = (&answer, slow) {
            answer = Some(slow.await);
        }
        let mut wrong = self.look(&setup, &upload).await;
        if let Some(Ok(done)) = &answer {
            let etag = crate::rules::Etag::from_parts(&[replaced.md5, last.md5]);
            if done.etag != etag {
                wrong.push(format!("answered {done:?}"));
            }
            if self.concurrent == ConcurrentCall::Nothing && setup.fixture.get(KEY, VersionSpec::Current).await.is_err()
            {
                wrong.push("an acknowledged object is not there".into());
            }
        }
        wrong.extend(did);
        CompletionOutcome { untouched, wrong }
    }

    async fn others(&self, setup: &UploadSetup, upload: &str, listed: &[&Part]) -> Vec<String> {
        let mut wrong = Vec::new();
        let complete = async |wrong: &mut Vec<String>| {
            match setup.complete(upload, listed).await {
                Ok(_) => {}
                // A request waits for a completion that is not late until its deadline.
                Err(Error::OperationAborted) if !self.late => {}
                Err(error) => wrong.push(format!("a repeat answered {error:?}")),
            }
        };
        match self.concurrent {
            ConcurrentCall::Complete => complete(&mut wrong).await,
            ConcurrentCall::Abort => match setup.abort(upload).await {
                Ok(()) | Err(Error::NoSuchUpload) => {}
                Err(error) => wrong.push(format!("an abort answered {error:?}")),
            },
            ConcurrentCall::Put => drop(setup.fixture.put(KEY, &other()).await),
            ConcurrentCall::PutAndComplete => {
                setup.fixture.put(KEY, &other()).await;
                complete(&mut wrong).await;
            }
            ConcurrentCall::DeleteAndComplete => {
                setup.fixture.delete(KEY, &VersionSpec::Current).await;
                complete(&mut wrong).await;
            }
            ConcurrentCall::PutPart | ConcurrentCall::PutPartAndAbort => {
                let body = bytes(4, 60);
                let put = super::super::uploads::testing::put_part(
                    &setup.fixture.objects,
                    &setup.fixture.owner,
                    upload,
                    1,
                    &body,
                );
                match put.await {
                    Ok(_) | Err(Error::NoSuchUpload) => {}
                    Err(error) => wrong.push(format!("a part answered {error:?}")),
                }
                if self.concurrent == ConcurrentCall::PutPartAndAbort {
                    let _ = setup.abort(upload).await;
                }
            }
            ConcurrentCall::Nothing => {}
        }
        wrong
    }

    /// Violations in the final state.
    async fn look(&self, setup: &UploadSetup, upload: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        match setup.fixture.get(KEY, VersionSpec::Current).await {
            Ok(body) if body == other() || body == whole() => {}
            Err(Error::NoSuchKey) => {}
            torn => wrong.push(format!("the key reads {torn:?}")),
        }
        let head = setup.fixture.head(KEY).await;
        let body = head.current.and_then(|version| version.object).map(|object| object.body);
        let mut manifests = 0;
        let mut blobs = BTreeSet::new();
        match body {
            Some(ObjectBody::Parts { manifest, .. }) => {
                manifests += 1;
                blobs.extend(setup.fixture.objects.uploads.manifest_blobs(manifest).await.unwrap());
            }
            Some(ObjectBody::Blob { id, .. }) => drop(blobs.insert(id)),
            _ => {}
        }
        let state = setup.state(upload).await;
        // A dead completion leaves cleanup to the sweeper.
        let settled = !state.as_ref().is_some_and(UploadState::is_alive);
        if settled && setup.partitions(Table::UploadEntries).await != 0 {
            wrong.push("an ended upload is listed".into());
        }
        let stored_blobs = setup.fixture.blobs().await;
        if !blobs.is_subset(&stored_blobs) {
            wrong.push("bytes of the object are gone".into());
        }
        if settled && self.hitch == CompletionFault::Stops {
            if stored_blobs != blobs {
                wrong.push(format!("{} blobs for {}", stored_blobs.len(), blobs.len()));
            }
            let manifests_found = setup.partitions(Table::Manifests).await;
            if manifests_found != manifests {
                wrong.push(format!("{manifests_found} manifests for {manifests} objects"));
            }
            if setup.partitions(Table::Parts).await != 0 {
                wrong.push("parts of an ended upload are left".into());
            }
        }
        wrong
    }
}

/// The body of the listed parts.
fn whole() -> Bytes {
    [bytes(1, 50), bytes(2, 5)].concat().into()
}

/// The body of the concurrent put.
fn other() -> Bytes {
    bytes(8, 3000)
}

/// Runs the fault at every step of a completion; returns the violations with their step.
fn every_step(hitch: CompletionFault, concurrent: ConcurrentCall, late: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in 0.. {
        let schedule = CompletionSchedule { hitch, step, concurrent, late };
        let outcome = run(schedule.run());
        wrong.extend(outcome.wrong.into_iter().map(|what| format!("{hitch:?} {step} {concurrent:?} {late}: {what}")));
        if outcome.untouched {
            assert!(step > 8, "a completion of {step} calls");
            return wrong;
        }
    }
    wrong
}

#[test]
fn a_completion_paused_at_any_call_leaves_consistent_state() {
    for concurrent in ALL {
        for late in [true, false] {
            // The others wait for a completion that is not late, and here it waits for them.
            let waits = [ConcurrentCall::Nothing, ConcurrentCall::Put, ConcurrentCall::PutPart];
            if late || waits.contains(&concurrent) {
                assert_eq!(every_step(CompletionFault::Stops, concurrent, late), [""; 0]);
            }
        }
    }
}

#[test]
fn a_completion_that_dies_at_any_call_is_taken_back_or_done() {
    for concurrent in ALL {
        assert_eq!(every_step(CompletionFault::Dies, concurrent, true), [""; 0]);
    }
}

#[test]
fn a_completion_that_loses_any_answer_learns_its_outcome() {
    for concurrent in ALL {
        for late in [true, false] {
            assert_eq!(every_step(CompletionFault::LosesAnswer, concurrent, late), [""; 0]);
        }
    }
}

#[test]
fn a_live_completion_is_waited_for_and_a_dead_one_taken_back() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        let open = setup.upload(&upload).await.unwrap();
        let version = VersionId::new(setup.fixture.objects.gateway.issuer().issue().await.unwrap(), ActorId(77));
        let since = setup.fixture.objects.gateway.context().now();
        let state = UploadState::Completing { version, list: [0; 20], since };
        setup.fixture.objects.heads.cas_upload_state(&open, state).await.unwrap().unwrap();
        assert!(matches!(setup.complete(&upload, &[&part]).await, Err(Error::OperationAborted)), "60 s are not 90 s");
        assert_eq!(setup.parts(&upload, 0, 9).await.unwrap().page.parts.len(), 1, "its parts stay listed");
        assert!(matches!(setup.state(&upload).await, Some(UploadState::Completing { .. })));
        setup.complete(&upload, &[&part]).await.unwrap();
        assert!(matches!(setup.state(&upload).await, Some(UploadState::Done { .. })));
    });
}

#[test]
fn a_completion_of_an_earlier_run_is_not_awaited() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        let alone = setup.fixture.stores.gateway_with(ObjectsConfig { single_process: true, ..settings() }).await;
        for (actor, waits) in [(alone.gateway.context().ports.actor, true), (ActorId(77), false)] {
            let open = setup.upload(&upload).await.unwrap();
            let version = VersionId::new(alone.gateway.issuer().issue().await.unwrap(), actor);
            let state = UploadState::Completing { version, list: [0; 20], since: alone.gateway.context().now() };
            alone.heads.cas_upload_state(&open, state).await.unwrap().unwrap();
            let begun = Instant::now();
            let done = alone.uploads.complete(&setup.fixture.owner, complete_request(&upload, &[&part])).await;
            assert_eq!(matches!(done, Err(Error::OperationAborted)), waits, "{done:?}");
            assert_eq!(begun.elapsed() > Duration::from_secs(1), waits);
            if waits {
                let seen = setup.upload(&upload).await.unwrap();
                alone.uploads.resolve_completion(&seen).await.unwrap();
            }
        }
        assert_eq!(setup.fixture.get(KEY, VersionSpec::Current).await.unwrap(), bytes(1, 50));
    });
}

#[test]
fn a_version_leaves_its_key_after_its_upload_is_done() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        let done = setup.complete(&upload, &[&part]).await.unwrap();
        // As if the completing writer had died before its last update.
        let head = setup.upload(&upload).await.unwrap();
        let UploadState::Done { version, list, .. } = head.upload.state else { panic!("{head:?}") };
        let state = UploadState::Completing { version, list, since: Timestamp(1) };
        setup.fixture.objects.heads.cas_upload_state(&head, state).await.unwrap().unwrap();
        setup.fixture.delete(KEY, &VersionSpec::Current).await;
        assert_eq!(setup.complete(&upload, &[&part]).await.unwrap(), done);
        assert!(matches!(setup.fixture.get(KEY, VersionSpec::Current).await, Err(Error::NoSuchKey)));
    });
}
