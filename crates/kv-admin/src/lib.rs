//! The parts of `kv-admin` that the server shares: the frames on the admin socket, and the progress of a long command.

pub mod frame;
pub mod progress_bar;
