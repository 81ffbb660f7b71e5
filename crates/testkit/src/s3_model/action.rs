//! The kinds of steps, and how often each is taken.

use crate::SplitMix64;

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident $weight:literal $needs:ident;)*) => {
        /// A kind of request, or of an event around the gateways.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ModelAction {
            $($(#[$doc])* $action,)*
        }

        /// Every action with its weight in a plan.
        const TABLE: &[(ModelAction, u64, Needs)] = &[$((ModelAction::$action, $weight, Needs::$needs),)*];
    };
}

/// What a server must be able to do for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Time that can be moved.
    Time,
}

actions! {
    /// A bucket, with object lock or without.
    CreateBucket 12 Nothing;
    /// A bucket goes, if it is empty.
    DeleteBucket 4 Nothing;
    /// Versioning on, or suspended.
    PutVersioning 10 Nothing;
    /// Object lock on, with a default retention or without.
    PutBucketLock 8 Nothing;
    /// Default encryption set or deleted.
    PutBucketEncryption 8 Nothing;
    /// Tags of a bucket set or deleted.
    PutBucketTags 5 Nothing;
    /// Lifecycle rules set or deleted.
    PutLifecycle 10 Time;
    /// All settings of a bucket.
    GetBucketSettings 10 Nothing;
    /// An object, with any headers.
    PutObject 150 Nothing;
    /// An object read: versions, ranges, conditions, keys.
    GetObject 150 Nothing;
    /// An object read without a signature.
    GetAnonymous 25 Nothing;
    /// An object or a version deleted.
    DeleteObject 80 Nothing;
    /// Several deleted.
    DeleteObjects 20 Nothing;
    /// An object copied.
    CopyObject 70 Nothing;
    /// Tags of a version set or deleted.
    PutTags 25 Nothing;
    /// Tags of a version read.
    GetTags 20 Nothing;
    /// The ACL of a version set.
    PutAcl 20 Nothing;
    /// Attributes of a version.
    GetAttributes 15 Nothing;
    /// The retention of a version set or removed.
    PutRetention 50 Nothing;
    /// The legal hold of a version set.
    PutLegalHold 30 Nothing;
    /// The retention and the hold of a version read.
    GetLocks 25 Nothing;
    /// An upload begun.
    CreateUpload 35 Nothing;
    /// A part put.
    UploadPart 60 Nothing;
    /// A part copied.
    CopyPart 20 Nothing;
    /// The parts of an upload.
    ListParts 15 Nothing;
    /// An upload completed.
    CompleteUpload 40 Nothing;
    /// An upload aborted.
    AbortUpload 8 Nothing;
    /// The uploads of a bucket.
    ListUploads 10 Nothing;
    /// The objects of a bucket, page by page.
    ListObjects 25 Nothing;
    /// The versions of a bucket, page by page.
    ListVersions 25 Nothing;
    /// Minutes pass.
    Wait 12 Time;
    /// The gateways are down for hours or days.
    Standstill 3 Time;
    /// The gateways are killed, and start again at once.
    Kill 3 Nothing;
    /// The lifecycle is carried out.
    Expire 6 Time;
}

/// One step: what, and the seed of its choices.
#[derive(Debug, Clone, Copy)]
pub struct S3ModelStep {
    /// What is done.
    pub action: ModelAction,
    /// The seed of all its choices.
    pub seed: u64,
}

/// A choice of steps.
#[derive(Debug, Clone, Copy)]
pub struct ModelPlan {
    /// How many steps.
    pub steps: usize,
    /// Whether the time of the gateways can be moved.
    pub moves_time: bool,
    /// Whether the gateways can be killed; a process takes long to start.
    pub kills: bool,
}

impl ModelPlan {
    /// The steps of a seed. The first make a bucket with object lock and one without.
    #[must_use]
    pub fn steps(self, seed: u64) -> Vec<S3ModelStep> {
        let mut dice = SplitMix64::new(seed);
        let begin = [ModelAction::CreateBucket; 4].into_iter();
        let actions: Vec<ModelAction> = begin.chain((0..self.steps).map(|_| self.action(&mut dice))).collect();
        actions.into_iter().map(|action| S3ModelStep { action, seed: dice.number() }).collect()
    }

    /// The actions that it takes from, but those that are no requests.
    pub(super) fn actions(self) -> impl Iterator<Item = ModelAction> {
        let events = [ModelAction::Wait, ModelAction::Standstill, ModelAction::Kill, ModelAction::Expire];
        let rows = TABLE.iter().filter(move |(_, _, needs)| self.moves_time || *needs == Needs::Nothing);
        rows.map(|(action, ..)| *action).filter(move |action| !events.contains(action))
    }

    fn action(self, dice: &mut SplitMix64) -> ModelAction {
        let can = |(action, _, needs): &&(ModelAction, u64, Needs)| {
            (self.moves_time || *needs == Needs::Nothing) && (self.kills || *action != ModelAction::Kill)
        };
        let all: u64 = TABLE.iter().filter(can).map(|(_, weight, _)| weight).sum();
        let mut at = dice.number_below(all);
        for (action, weight, _) in TABLE.iter().filter(can) {
            if at < *weight {
                return *action;
            }
            at -= weight;
        }
        ModelAction::GetObject
    }
}
