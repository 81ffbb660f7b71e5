//! A worker as a program of its own, for tests and benchmarks; the product runs `larder script-worker`.

fn main() -> std::process::ExitCode {
    larder_script::run_worker()
}
