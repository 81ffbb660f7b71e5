//! One request with its session, for the pages.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use larder_kv::Gateway;
use larder_net::ArrivingBody;
use larder_s3::{Caller, Objects};
use larder_s3_rules::{S3Action, User};
use parking_lot::Mutex;

use crate::access::ConsoleSession;
use crate::faults::ConsoleFault;
use crate::file_form::FileForm;
use crate::live::LiveFeed;
use crate::reply::ConsoleFields;
use crate::routes::ConsoleRoute;
use crate::settings::ConsoleSettings;

/// The arguments of a page.
pub(crate) struct ConsoleCall<'a> {
    /// The gateway.
    pub(crate) gateway: &'a Arc<Gateway>,
    /// The S3 side over its core.
    pub(crate) objects: &'a Arc<Objects>,
    /// The settings of the console.
    pub(crate) settings: &'a ConsoleSettings,
    /// The figures of the overview.
    pub(crate) feed: &'a Arc<LiveFeed>,
    /// The route.
    pub(crate) route: &'static ConsoleRoute,
    /// The session.
    pub(crate) session: &'a ConsoleSession,
    /// The value of its cookie.
    pub(crate) cookie: &'a [u8],
    /// The parameters of the link.
    pub(crate) query: ConsoleFields,
    /// The fields of the form; none for a page, and for a form with a file.
    pub(crate) form: ConsoleFields,
    /// The headers.
    pub(crate) headers: &'a HeaderMap,
    /// The body of a form with a file, until it is read.
    pub(crate) body: Mutex<Option<ArrivingBody<'a>>>,
}

impl ConsoleCall<'_> {
    /// The gateway.
    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        self.gateway
    }

    /// Whether pages have forms that change something.
    pub(crate) fn may_change(&self) -> bool {
        !self.settings.read_only
    }

    /// The form with a file that the browser sends, read up to the file.
    ///
    /// # Errors
    /// As [`FileForm::open`].
    pub(crate) async fn file_form(&self) -> Result<FileForm, ConsoleFault> {
        let body = self.body.lock().take();
        let body = body.ok_or_else(|| ConsoleFault::bad("The request has no form."))?;
        FileForm::open(self.headers, body, self.session).await
    }

    /// The S3 administrator as a caller: an operator sees what that user sees.
    ///
    /// # Errors
    /// There is none before the S3 interface was first served.
    pub(crate) async fn s3_caller(&self, action: S3Action) -> Result<Caller, ConsoleFault> {
        let user = self.s3_admin().await?;
        Ok(Caller { user: Some(user), action: Some(action), ..Caller::default() })
    }

    /// The S3 administrator.
    ///
    /// # Errors
    /// As [`Self::s3_caller`].
    pub(crate) async fn s3_admin(&self) -> Result<Arc<User>, ConsoleFault> {
        let missing = "There is no S3 administrator: the S3 interface was never served from this store.";
        let admin = self.objects.users.admin().await?.ok_or_else(|| ConsoleFault::not_found(missing))?;
        if admin.enabled {
            Ok(admin)
        } else {
            let disabled = "The S3 administrator is disabled: the command `kv-admin s3 user enable` enables it.";
            Err(ConsoleFault::new(StatusCode::FORBIDDEN, disabled))
        }
    }
}
