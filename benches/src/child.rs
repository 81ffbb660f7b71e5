//! A child process that ends with its value.

use std::process::{Child as Process, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::limits::STOP_WAIT_MAX;

/// The pause between two checks of a child that is awaited.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// A child process. Its drop kills it by its id and waits for its end.
pub(crate) struct ChildProcess {
    process: Process,
    name: String,
}

impl ChildProcess {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let process = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { process, name })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    ///
    /// When the kernel does not return its status.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it runs longer than `wait_max`.
    pub(crate) fn wait(&mut self, wait_max: Duration) -> Result<ExitStatus> {
        let give_up = Instant::now() + wait_max;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= give_up {
                bail!("{} has not ended within {} s", self.name, wait_max.as_secs());
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Sends SIGTERM and waits for its end.
    ///
    /// # Errors
    ///
    /// When it does not exit with success, or not in time.
    pub(crate) fn terminate(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM).context("sending SIGTERM")?;
        let status = self.wait(STOP_WAIT_MAX)?;
        if !status.success() {
            bail!("{} ended with {status} after SIGTERM", self.name);
        }
        Ok(())
    }

    /// The process itself, for its pipes.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(Some(_))) {
            // A drop cannot report errors of the kill or the wait.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_has_ended() {
        let child = ChildProcess::start(Command::new("sleep").arg("60")).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_that_does_not_end_in_time_is_an_error() {
        let mut child = ChildProcess::start(Command::new("sleep").arg("60")).unwrap();
        assert!(child.wait(Duration::from_millis(10)).is_err());
    }
}
