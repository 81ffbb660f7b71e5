//! The table of routes: each page and each change of the console has one row. Routing, the rights of a read-only console and
//! the audit log read it.

/// A page, a change or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table names them")]
pub(crate) enum ConsoleAction {
    Style,
    Script,
    Icon,
    SignIn,
    SignOut,
    Overview,
    Live,
    Types,
    Type,
    CreateType,
    ActivateType,
    UpdateType,
    Keys,
    QueryIndex,
    Object,
    ObjectValue,
    CreateObject,
    UpdateDatatype,
    ResolveObject,
    EditObject,
    DeleteObject,
    S3Buckets,
    CreateBucket,
    DeleteBucket,
    S3Bucket,
    S3Settings,
    SetVersioning,
    SetQuota,
    SetPolicy,
    AddLifecycleRule,
    RemoveLifecycleRule,
    S3Object,
    StoreObject,
    DownloadObject,
    PreviewObject,
    ShareObject,
    EditMetadata,
    TagObject,
    DeleteS3Object,
    S3Uploads,
    S3Upload,
    BeginUpload,
    StorePart,
    CompleteUpload,
    AbortUpload,
    S3Users,
    CreateUser,
    SwitchUser,
    RotateKey,
    DeleteUser,
    CreateKey,
    RevokeKey,
    Security,
    SwitchSecurity,
    AddRole,
    AlterPassword,
    DeleteRole,
    AddSource,
    DeleteSource,
    ChangeGrants,
    Log,
    Jobs,
    CancelJob,
    Move,
    PauseMove,
    ResumeMove,
    VerifyMove,
}

/// The right that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleRight {
    /// None: it shows nothing of the store.
    Open,
    /// A session.
    Read,
    /// A session and the token of its forms; a read-only console has it not. The name is its action in the audit log.
    Change(&'static str),
    /// As a change, by a form of several parts: its first field is the token, its last the bytes of a file.
    Store(&'static str),
    /// As a change, but also on a read-only console, and without a line in the audit log.
    Leave,
}

/// One route.
#[derive(Debug)]
pub(crate) struct ConsoleRoute {
    /// The path, as it is written in links.
    pub(crate) path: &'static str,
    /// The action.
    pub(crate) action: ConsoleAction,
    /// The right that it needs. Changes are POST, all others GET.
    pub(crate) right: ConsoleRight,
}

macro_rules! routes {
    ($($path:literal $action:ident $right:expr;)+) => {
        /// All routes.
        pub(crate) static ROUTES: &[ConsoleRoute] =
            &[$(ConsoleRoute { path: $path, action: ConsoleAction::$action, right: $right }),+];
    };
}

use ConsoleRight::{Change, Leave, Open, Read, Store};

routes! {
    "/console.css" Style Open;
    "/console.js" Script Open;
    "/icon.svg" Icon Open;
    "/login" SignIn Open;
    "/logout" SignOut Leave;
    "/" Overview Read;
    "/live" Live Read;
    "/types" Types Read;
    "/type" Type Read;
    "/types/create" CreateType Change("CreateType");
    "/type/activate" ActivateType Change("ActivateType");
    "/type/update" UpdateType Change("UpdateType");
    "/keys" Keys Read;
    "/keys/index" QueryIndex Read;
    "/object" Object Read;
    "/object/value" ObjectValue Read;
    "/object/create" CreateObject Change("CreateObject");
    "/object/update" UpdateDatatype Change("UpdateDatatype");
    "/object/resolve" ResolveObject Change("ResolveObject");
    "/object/edit" EditObject Change("EditObject");
    "/object/delete" DeleteObject Change("DeleteObject");
    "/s3" S3Buckets Read;
    "/s3/create" CreateBucket Change("CreateBucket");
    "/s3/delete" DeleteBucket Change("DeleteBucket");
    "/s3/bucket" S3Bucket Read;
    "/s3/settings" S3Settings Read;
    "/s3/settings/versioning" SetVersioning Change("SetVersioning");
    "/s3/settings/quota" SetQuota Change("SetQuota");
    "/s3/settings/policy" SetPolicy Change("SetPolicy");
    "/s3/settings/lifecycle/add" AddLifecycleRule Change("AddLifecycleRule");
    "/s3/settings/lifecycle/remove" RemoveLifecycleRule Change("RemoveLifecycleRule");
    "/s3/object" S3Object Read;
    "/s3/object/store" StoreObject Store("StoreObject");
    "/s3/object/download" DownloadObject Read;
    "/s3/object/preview" PreviewObject Read;
    "/s3/object/share" ShareObject Change("ShareObject");
    "/s3/object/metadata" EditMetadata Change("EditMetadata");
    "/s3/object/tags" TagObject Change("TagObject");
    "/s3/object/delete" DeleteS3Object Change("DeleteS3Object");
    "/s3/uploads" S3Uploads Read;
    "/s3/upload" S3Upload Read;
    "/s3/upload/begin" BeginUpload Change("BeginUpload");
    "/s3/upload/part" StorePart Store("StorePart");
    "/s3/upload/complete" CompleteUpload Change("CompleteUpload");
    "/s3/upload/abort" AbortUpload Change("AbortUpload");
    "/s3/users" S3Users Read;
    "/s3/users/create" CreateUser Change("CreateUser");
    "/s3/users/switch" SwitchUser Change("SwitchUser");
    "/s3/users/rotate" RotateKey Change("RotateKey");
    "/s3/users/delete" DeleteUser Change("DeleteUser");
    "/s3/keys/create" CreateKey Change("CreateKey");
    "/s3/keys/revoke" RevokeKey Change("RevokeKey");
    "/security" Security Read;
    "/security/switch" SwitchSecurity Change("SwitchSecurity");
    "/security/roles/add" AddRole Change("AddRole");
    "/security/roles/password" AlterPassword Change("AlterPassword");
    "/security/roles/delete" DeleteRole Change("DeleteRole");
    "/security/sources/add" AddSource Change("AddSource");
    "/security/sources/delete" DeleteSource Change("DeleteSource");
    "/security/grants" ChangeGrants Change("ChangeGrants");
    "/log" Log Read;
    "/jobs" Jobs Read;
    "/jobs/cancel" CancelJob Change("CancelJob");
    "/move" Move Read;
    "/move/pause" PauseMove Change("PauseMove");
    "/move/resume" ResumeMove Change("ResumeMove");
    "/move/verify" VerifyMove Change("VerifyMove");
}

impl ConsoleRoute {
    /// The route of a path.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether requests of this route carry a form.
    pub(crate) fn is_post(&self) -> bool {
        matches!(self.right, Change(_) | Store(_) | Leave)
    }

    /// The action in the audit log of a route that changes something.
    pub(crate) fn change(&self) -> Option<&'static str> {
        match self.right {
            Change(action) | Store(action) => Some(action),
            Open | Read | Leave => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_path_has_one_route() {
        let paths: BTreeSet<_> = ROUTES.iter().map(|route| route.path).collect();
        assert_eq!(paths.len(), ROUTES.len());
        assert!(ROUTES.iter().all(|route| std::ptr::eq(ConsoleRoute::find(route.path).unwrap(), route)));
        assert!(ConsoleRoute::find("/types/").is_none() && ConsoleRoute::find("").is_none());
    }
}
