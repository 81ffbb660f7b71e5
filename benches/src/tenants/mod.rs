//! `tenants`: the requests of one tenant while another one does what a server bears worst, beside the same requests in calm.
//!
//! ```text
//! run     the order of a run, its servers, its report     attack     the table of attacks
//! site    the places of both tenants on a server          attackers  the connections of the hostile tenant
//! calm    the requests of the other tenant
//! ```

mod admin_socket;
mod attack;
mod attackers;
mod calm;
mod certificate;
mod run;
mod site;
mod value_requests;

pub(crate) use run::{TenantsBenchArgs, run};
