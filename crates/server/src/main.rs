//! `larder`: the allocator of the program, and the program of the library.

use std::process::ExitCode;

/// Small rows are allocated and freed by the hundred thousand a second: the system's allocator takes a fifth of a durable put.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    larder_server::run()
}
