//! One request with its session, for the pages.

use std::sync::Arc;

use larder_gateway::Gateway;
use larder_gateway::objects::Objects;

use crate::access::ConsoleSession;
use crate::fields::ConsoleFields;
use crate::live::LiveFeed;
use crate::routes::ConsoleRoute;
use crate::settings::ConsoleSettings;

/// The arguments of a page.
pub(crate) struct ConsoleCall<'a> {
    /// The S3 side of the gateway, and through it the gateway.
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
    /// The fields of the form; none for a page.
    pub(crate) form: ConsoleFields,
}

impl ConsoleCall<'_> {
    /// The gateway.
    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.objects.gateway
    }

    /// Whether pages have forms that change something.
    pub(crate) fn may_change(&self) -> bool {
        !self.settings.read_only
    }
}
