//! The commands of `kv-admin` that run on this node and report their progress: exports, imports, checks of indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Least part that is done, in percent, before the rest is estimated from it.
const ESTIMATED_FROM: u8 = 5;

/// The running commands, in the order of their begin. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct RunningCommands(Arc<Mutex<CommandList>>);

#[derive(Debug, Default)]
struct CommandList {
    next: u64,
    running: BTreeMap<u64, ListedCommand>,
}

/// The progress of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandProgress {
    /// Seconds since the command began.
    pub seconds: f64,
    /// The part that is done, from 0 to 100, where the total is known.
    pub percent: Option<u8>,
    /// The current step, on one line.
    pub text: String,
}

/// A command and its last report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedCommand {
    /// Its words with its arguments.
    pub(crate) command: String,
    /// Its last report; the default before the first.
    pub(crate) progress: CommandProgress,
}

/// A running command: it is listed until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct CommandRun {
    commands: RunningCommands,
    id: u64,
}

impl RunningCommands {
    /// Lists a command that begins.
    pub fn begin(&self, command: String) -> CommandRun {
        let mut list = self.0.lock();
        let id = list.next;
        list.next += 1;
        list.running.insert(id, ListedCommand { command, progress: CommandProgress::default() });
        CommandRun { commands: self.clone(), id }
    }

    /// The commands that run now.
    pub(crate) fn list(&self) -> Vec<ListedCommand> {
        self.0.lock().running.values().cloned().collect()
    }
}

impl CommandRun {
    /// Shows this report from now on.
    pub fn report(&self, progress: CommandProgress) {
        if let Some(listed) = self.commands.0.lock().running.get_mut(&self.id) {
            listed.progress = progress;
        }
    }
}

impl Drop for CommandRun {
    fn drop(&mut self) {
        self.commands.0.lock().running.remove(&self.id);
    }
}

impl ListedCommand {
    /// The seconds that the rest takes if it goes on as before; `None` where little is done, or the total is not known.
    pub(crate) fn seconds_left(&self) -> Option<u64> {
        let percent = self.progress.percent.filter(|percent| (ESTIMATED_FROM..=100).contains(percent))?;
        let rest = f64::from(100 - percent) / f64::from(percent);
        Some((self.progress.seconds * rest).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, percent: Option<u8>) -> CommandProgress {
        CommandProgress { seconds, percent, text: String::new() }
    }

    #[test]
    fn commands_are_listed_while_they_run() {
        let commands = RunningCommands::default();
        let (export, check) = (commands.begin("export /b".to_owned()), commands.begin("index check".to_owned()));
        export.report(at(2.0, Some(50)));
        let listed = commands.list();
        let names: Vec<&str> = listed.iter().map(|listed| listed.command.as_str()).collect();
        assert_eq!((names, listed[0].progress.percent), (vec!["export /b", "index check"], Some(50)));
        drop(export);
        assert_eq!(commands.list().len(), 1);
        drop(check);
        assert_eq!(commands.list(), []);
    }

    #[test]
    fn the_rest_is_estimated_once_enough_is_done() {
        let left =
            |seconds, percent| ListedCommand { command: String::new(), progress: at(seconds, percent) }.seconds_left();
        assert_eq!((left(10.0, None), left(10.0, Some(4)), left(10.0, Some(255))), (None, None, None));
        assert_eq!((left(10.0, Some(5)), left(10.0, Some(50)), left(10.0, Some(100))), (Some(190), Some(10), Some(0)));
    }
}
