//! Runs tests side by side: each test in a process of its own, with a deadline and a file for its output.
//!
//! A test that hangs, aborts or leaves something behind is named and harms no other one, and every test has its own time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{Result, Shell};
use crate::test_order;
use crate::test_programs::TestProgram;
use crate::test_summary::{TestResult, TestSummary};

/// The folder with the output of each test.
const OUTPUT: &str = "target/test-output";
/// The bounds of the pause between two looks at a running test.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A test that takes longer is shown when it ends.
const SHOWN_AFTER: Duration = Duration::from_secs(5);
/// A part of the last line of a program that ran its test.
const RAN: &str = "test result: ok. 1 passed";
/// The beginning of the line of a test that this machine cannot run, with the cause.
const SKIPPED: &str = "skipped: ";

/// How tests are run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestPace {
    /// How many run at a time.
    pub(crate) at_a_time: usize,
    /// The longest time of a test.
    pub(crate) deadline: Duration,
}

/// One test of a program.
#[derive(Debug, Clone)]
pub(crate) struct TestCase {
    program: TestProgram,
    /// Its path in the program.
    pub(crate) name: String,
}

impl TestCase {
    /// Every test of these programs, but those that only other tests start.
    ///
    /// # Errors
    /// A program does not list its tests.
    pub(crate) fn of_programs(shell: &Shell, programs: &[TestProgram]) -> Result<Vec<Self>> {
        let mut cases = Vec::new();
        for program in programs {
            let path = program.path.to_string_lossy();
            let ignored = shell.output(&path, &["--list", "--ignored", "--format", "terse"])?;
            let ignored: Vec<&str> = ignored.lines().collect();
            let listed = shell.output(&path, &["--list", "--format", "terse"])?;
            let names =
                listed.lines().filter(|line| !ignored.contains(line)).filter_map(|line| line.strip_suffix(": test"));
            cases.extend(names.map(|name| Self { program: program.clone(), name: name.to_owned() }));
        }
        Ok(cases)
    }

    /// The name of its program and its own.
    pub(crate) fn full_name(&self) -> String {
        format!("{} {}", self.program.short_name(), self.name)
    }
}

/// Runs the tests, the long ones first. Those that disturb each other run one at a time, beside the others.
///
/// # Errors
/// The names of the tests that failed; their output is printed.
pub(crate) fn run(shell: &Shell, cases: Vec<TestCase>, pace: TestPace) -> Result<TestSummary> {
    let begun = Instant::now();
    let _ = fs::remove_dir_all(shell.path(OUTPUT));
    fs::create_dir_all(shell.path(OUTPUT)).map_err(|error| format!("{OUTPUT}: {error}"))?;
    let (in_turn, mut together): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| test_order::runs_in_turn(&case.full_name()));
    together.sort_by_key(|case| test_order::rank(&case.full_name()));
    let summary = Mutex::new(TestSummary::default());
    thread::scope(|scope| {
        scope.spawn(|| run_all(shell, in_turn, "in-turn", TestPace { at_a_time: 1, ..pace }, &summary));
        run_all(shell, together, "together", pace, &summary);
    });
    let summary = summary.into_inner().unwrap_or_default();
    println!("{} in {:.1} s", summary.line(), begun.elapsed().as_secs_f64());
    match summary.failed.as_slice() {
        [] => Ok(summary),
        failed => Err(format!("{} tests failed:\n  {}", failed.len(), failed.join("\n  "))),
    }
}

/// Runs the tests of one queue; the files of their output begin with its name.
fn run_all(shell: &Shell, cases: Vec<TestCase>, queue_name: &str, pace: TestPace, summary: &Mutex<TestSummary>) {
    let queue = Mutex::new(VecDeque::from(cases));
    thread::scope(|scope| {
        for worker in 0..pace.at_a_time {
            let (queue, output) = (&queue, shell.path(OUTPUT).join(format!("{queue_name}-{worker}.txt")));
            scope.spawn(move || {
                // The lock is released before the test runs.
                let next = || queue.lock().ok()?.pop_front();
                while let Some(case) = next() {
                    let begun = Instant::now();
                    let result = run_one(shell, &case, &output, pace.deadline);
                    note(summary, &case, result, begun.elapsed(), &output);
                }
            });
        }
    });
}

/// Counts a test, and prints one that failed or took long.
fn note(summary: &Mutex<TestSummary>, case: &TestCase, result: TestResult, took: Duration, output: &Path) {
    let (name, seconds) = (case.full_name(), took.as_secs_f64());
    let Ok(mut summary) = summary.lock() else { return };
    match &result {
        TestResult::Failed(how) => {
            let text = fs::read_to_string(output).unwrap_or_default();
            println!("FAILED {name}: {how} after {seconds:.1} s\n{text}");
        }
        TestResult::Skipped(why) => println!("skipped {name}: {why}"),
        TestResult::Passed if took > SHOWN_AFTER => println!("passed {name} in {seconds:.1} s"),
        TestResult::Passed => {}
    }
    summary.add(name, result, took);
}

fn run_one(shell: &Shell, case: &TestCase, output: &Path, deadline: Duration) -> TestResult {
    let ended = start(shell, case, output).and_then(|child| wait(child, deadline));
    match ended {
        Ok(Some(status)) if status.success() => result_of(&fs::read_to_string(output).unwrap_or_default()),
        Ok(Some(status)) => TestResult::Failed(status.to_string()),
        Ok(None) => TestResult::Failed("it did not end".to_owned()),
        Err(error) => TestResult::Failed(format!("{}: {error}", case.program.path.display())),
    }
}

/// The result of a test whose process succeeded, from its output.
fn result_of(output: &str) -> TestResult {
    if !output.contains(RAN) {
        return TestResult::Failed("its program ran no test".to_owned());
    }
    let skipped = output.lines().find_map(|line| line.strip_prefix(SKIPPED));
    skipped.map_or(TestResult::Passed, |why| TestResult::Skipped(why.to_owned()))
}

fn start(shell: &Shell, case: &TestCase, output: &Path) -> io::Result<Child> {
    let file = File::create(output)?;
    let mut command = shell.command(&case.program.path, &["--exact", &case.name, "--nocapture"]);
    // Cargo runs it so, and some libraries find their files by this variable.
    command.current_dir(&case.program.directory).env("CARGO_MANIFEST_DIR", &case.program.directory);
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn()
}

/// Waits for the end; kills the test and everything that it started at the deadline.
pub(crate) fn wait(mut child: Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
    while begun.elapsed() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    for descendant in descendants(child.id()) {
        let _ = rustix::process::kill_process(descendant, rustix::process::Signal::KILL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The processes that a process started, and those that these started.
fn descendants(process: u32) -> Vec<rustix::process::Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect();
    let as_pid = |id: u32| rustix::process::Pid::from_raw(i32::try_from(id).ok()?);
    children.into_iter().flat_map(|id| as_pid(id).into_iter().chain(descendants(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ran_no_test_has_not_passed() {
        let ran = "running 1 test\nskipped: no Java\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(result_of(ran), TestResult::Skipped("no Java".to_owned()));
        assert_eq!(result_of(&ran.replace("skipped: ", "")), TestResult::Passed);
        let none = ran.replace("1 passed", "0 passed");
        assert_eq!(result_of(&none), TestResult::Failed("its program ran no test".to_owned()));
    }

    #[test]
    fn a_test_that_does_not_end_is_killed_with_all_that_it_started() {
        let command = "sleep 600 & echo $!; wait";
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.args(["-c", command]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(wait(child, Duration::from_millis(100)).unwrap(), None);
        let stat = || fs::read_to_string(format!("/proc/{}/stat", line.trim())).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !stat().is_empty() && !stat().contains(") Z ") {
            assert!(Instant::now() < deadline, "{}", stat());
            thread::sleep(PAUSE_MAX);
        }
    }
}
