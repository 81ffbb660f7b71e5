//! A program that runs beside the stages at the lowest priority.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::shell::{Result, Shell, cargo_path};

/// A running program; it ends with its value. Its stage runs the same again, and then finds it done, or says what failed.
pub(crate) struct BackgroundJob(Child);

impl BackgroundJob {
    /// Runs cargo without output.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn cargo(shell: &Shell, args: &[&str]) -> Result<Self> {
        println!("$ cargo {} (goes on beside the next stages)", args.join(" "));
        // The lowest priority: tests beside it keep their times.
        let mut command = shell.command(Path::new("nice"), &["-n", "19"]);
        command.arg(cargo_path()).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.process_group(0).spawn();
        started.map(Self).map_err(|error| format!("nice cargo: {error}"))
    }
}

impl Drop for BackgroundJob {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}
