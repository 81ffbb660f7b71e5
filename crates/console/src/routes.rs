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
    Object,
    ResolveObject,
    EditObject,
    DeleteObject,
    S3Buckets,
    S3Bucket,
    S3Object,
    S3Uploads,
    S3Upload,
    AbortUpload,
    S3Users,
    Jobs,
    CancelJob,
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

use ConsoleRight::{Change, Leave, Open, Read};

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
    "/object" Object Read;
    "/object/resolve" ResolveObject Change("ResolveObject");
    "/object/edit" EditObject Change("EditObject");
    "/object/delete" DeleteObject Change("DeleteObject");
    "/s3" S3Buckets Read;
    "/s3/bucket" S3Bucket Read;
    "/s3/object" S3Object Read;
    "/s3/uploads" S3Uploads Read;
    "/s3/upload" S3Upload Read;
    "/s3/upload/abort" AbortUpload Change("AbortUpload");
    "/s3/users" S3Users Read;
    "/jobs" Jobs Read;
    "/jobs/cancel" CancelJob Change("CancelJob");
}

impl ConsoleRoute {
    /// The route of a path.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether requests of this route carry a form.
    pub(crate) fn is_post(&self) -> bool {
        matches!(self.right, Change(_) | Leave)
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
