//! The web console: pages for operators, over a gateway and its S3 side.
//!
//! ```text
//! browser ──> server: host ─> route ─> session ─> CSRF ─> pages/<page> ─> gateway
//!             browser_rules   routes   access     access   frame  faults
//!                                       ▲
//! banner, kv-admin ── a link with a one-time token
//! ```
//! `routes` is the table of pages and changes: routing, rights and the audit log read it. The server makes every page, and
//! each works without JavaScript; a script of our own only updates live figures and uploads files with their progress. Nothing is
//! loaded from another host. Names and values are arbitrary bytes: `escaped` shows them, `href` puts them into links. `file_form`
//! reads a form whose file arrives while it is stored.

mod access;
mod call;
mod escaped;
mod faults;
mod file_form;
mod frame;
mod href;
mod json_layout;
mod live;
mod pages;
mod recent_lines;
mod reply;
mod routes;
mod running_commands;
mod server;
mod settings;
mod units;

pub use access::ConsoleAccess;
pub use recent_lines::{RecentLine, RecentLines};
pub use running_commands::{CommandProgress, CommandRun, RunningCommands};
pub use server::serve;
pub use settings::{ConsoleSettings, ShareLink, SharedObject};
