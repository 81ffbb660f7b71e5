//! The harness of the whole-product tests: real `larder` and `kv-admin` processes, and the clients of the testkit.
//!
//! ```text
//! LarderNode    a server on its own directory and ports, started, killed and started again
//! KvAdmin       runs of kv-admin, with their output and exit code
//! TestEngine    the engine of the servers under test: their own directory, or keyspaces of a cluster
//! TestCluster   nodes of Cassandra for one test, killed and paused, and gateways over them
//! FreshAccount  an account without rights, which runs a server and the commands of a page
//! client_place  the place of a published client
//! stored_zip    a zip archive
//! Tmpfs         a small disk
//! TestAuthority an authority of certificates, and what it signs and revokes
//! WebhookReceiver   a receiver of webhooks that fails or is down
//! ```
//!
//! Every wait has a deadline, and a child process does not outlive the value that started it.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    unreachable_pub,
    reason = "a harness runs in real time, reads the environment, prints its measurements, and fails a test by panicking"
)]

mod account;
mod admin;
mod authority;
mod client_place;
mod engine;
mod home;
mod node;
mod process;
mod stored_zip;
mod test_cluster;
mod tmpfs;
mod wait;
mod web_browser;
mod webhook_receiver;

pub use account::FreshAccount;
pub use admin::KvAdmin;
pub use authority::{SignedFiles, TestAuthority, client_trusting};
pub use client_place::client_place;
pub use engine::{NamedKeyspaces, TestEngine};
pub use home::Home;
pub use node::{LarderNode, S3_KEY, S3_SECRET};
pub use process::{Process, ProcessEnd, raise_own_limit};
pub use stored_zip::stored_zip;
pub use test_cluster::TestCluster;
pub use tmpfs::Tmpfs;
pub use wait::{wait, wait_for};
pub use web_browser::WebBrowser;
pub use webhook_receiver::WebhookReceiver;

pub use larder_testkit::http::{HttpClient, HttpConnection, HttpRequest, HttpResponse, connect, element};
pub use larder_testkit::s3::{S3Client, complete_body};
pub use larder_testkit::{Scale, SplitMix64, figure};
