//! A child process that never outlives this one.

use std::process::{Child as Process, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::limits::STOP_WAIT_MAX;

/// How often a child is looked at while it is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A child; dropped, it is killed by its id and waited for.
pub(crate) struct Child {
    process: Process,
    name: String,
}

impl Child {
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
    /// When the kernel does not tell.
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
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks it to end by SIGTERM and waits for that.
    ///
    /// # Errors
    ///
    /// When it ends by another way than a clean exit, or not at all.
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

impl Drop for Child {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(Some(_))) {
            // Nothing is left to be done about a child that cannot be killed or waited for.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_is_gone() {
        let child = Child::start(Command::new("sleep").arg("60")).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn an_end_that_does_not_come_is_an_error() {
        let mut child = Child::start(Command::new("sleep").arg("60")).unwrap();
        assert!(child.wait(Duration::from_millis(10)).is_err());
    }
}
