//! `tls`: the cost of encryption: requests and new connections over HTTPS beside HTTP, of one server in one run.
//!
//! ```text
//! run        the order of a run, its server, its report     pair   the certificate of the server
//! handshakes new connections, each with one request
//! ```

mod handshakes;
pub(crate) mod pair;
mod run;

pub(crate) use run::{TlsBenchArgs, run};
