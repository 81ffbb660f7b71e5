//! Takes from the worker process what scripts must not have.
//!
//! The filter of system calls: machine code that a defect of the engine lets run can compute, answer and end, and nothing else.
//!
//! Limits of the kernel bind scripts already. The calls that they leave to machine code, such as `execve`, `unlink`, `kill`, `ptrace` or
//! executable memory, fails here with `EPERM`.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::{fs, io};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::WorkerSetup;
use crate::worker_process::ADDRESS_SPACE_EXTRA;

/// Seconds of CPU beyond a call's own before the kernel ends the process.
const CPU_GRACE: u64 = 2;

/// Has the kernel kill this process when the server ends: a stopped process cannot end by itself.
///
/// The kernel watches the thread of the server that started the process. The threads of its runtime end with it.
pub(super) fn end_with_server() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Closes what the process inherited besides its pipes and standard error. The server's own descriptors close by themselves;
/// these are of the program that started the server.
pub(super) fn close_inherited() -> io::Result<()> {
    let names: Vec<_> = fs::read_dir("/proc/self/fd")?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    for number in names.iter().filter_map(|name| name.to_str()?.parse::<i32>().ok()).filter(|number| *number > 2) {
        // The one that read the folder is closed already.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Blocks the signals that end a service, in all threads that start from here: a server that ends lets its requests
/// end first, and they need their scripts. The worker ends with its pipe.
pub(super) fn ignore_signals() -> io::Result<()> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    Ok(signals.thread_block()?)
}

/// Forbids new files, sockets, processes and core dumps, and bounds the address space and the CPU time.
pub(super) fn confine(setup: &WorkerSetup) -> io::Result<()> {
    let address_space = address_space()? + 2 * setup.heap as u64 + buffers(setup) + ADDRESS_SPACE_EXTRA;
    limit(Resource::As, address_space)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nproc, 0)?;
    // Opening anything fails from here on: 0 to 2 are taken. A lower limit would make `poll` fail as well.
    limit(Resource::Nofile, 3)?;
    allow_cpu(setup.cpu_seconds)
}

/// Lets the process use this much CPU time from now on. The kernel kills it then, even when the server hangs.
pub(super) fn allow_cpu(seconds: u64) -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let cpu_limit = used + seconds + CPU_GRACE;
    let current = Some(maximum.map_or(cpu_limit, |maximum| cpu_limit.min(maximum)));
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

/// Returns when the other end of the pipe is closed.
pub(super) fn wait_for_hangup(pipe: &impl AsFd) {
    loop {
        // No event is asked for: the end of the pipe is always reported, and bytes that arrive are not.
        let mut polled = [PollFd::new(pipe, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) if !polled[0].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
}

/// Bytes of the buffers that hold frames: the arguments and the result, each with its copies.
fn buffers(setup: &WorkerSetup) -> u64 {
    4 * (setup.arguments + setup.result) as u64
}

/// The address space of this process now, in bytes: the program itself and the arenas of its allocators.
fn address_space() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmSize in /proc/self/status"))
}

/// Calls that may have any arguments: memory, the open pipes, waits, signals to the process itself, time, its end.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Takes all other calls from every thread of the process, for ever.
///
/// # Errors
/// The kernel has no filters, or this architecture has none.
pub(super) fn forbid() -> io::Result<()> {
    seccompiler::apply_filter_all_threads(&program().map_err(io::Error::other)?).map_err(io::Error::other)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Memory that can be run is what machine code would need next.
    let not_executable = || is_equal(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![not_executable()?])?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![not_executable()?])?]);
    // The worker raises its own limit of CPU time with each call; other processes of the user have limits, too.
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![is_equal(0, SeccompCmpOp::Eq, 0)?])?]);
    // `abort` sends a signal to its own process.
    let process_id = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is_equal(0, SeccompCmpOp::Eq, process_id)?])?]);
    let (refused, allowed) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    SeccompFilter::new(rules, refused, allowed, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn is_equal(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    use nix::errno::Errno;

    /// Runs code on a thread with the filter.
    fn filtered<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                seccompiler::apply_filter(&program().unwrap()).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn machine_code_in_a_worker_reaches_neither_files_nor_processes_nor_the_network() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let refused = filtered(|| {
            let open = std::fs::File::open(path).unwrap_err();
            let remove = std::fs::remove_file(path).unwrap_err();
            let listen = TcpListener::bind("127.0.0.1:0").unwrap_err();
            let start = Command::new("/bin/true").spawn().unwrap_err();
            [open, remove, listen, start].map(|error| error.raw_os_error())
        });
        assert_eq!(refused, [Some(libc::EPERM); 4]);
        assert!(path.exists());
        let parent = nix::unistd::getppid();
        let kill = filtered(|| nix::sys::signal::kill(parent, None));
        assert_eq!(kill, Err(Errno::EPERM));
    }

    #[test]
    fn a_worker_still_computes_answers_and_ends() {
        let (mut answers, mut answer) = std::io::pipe().unwrap();
        let total = filtered(move || {
            let values: Vec<u64> = (0..1 << 20).collect();
            answer.write_all(b"answer").unwrap();
            let grown: Vec<u64> = values.iter().chain(&values).copied().collect();
            std::thread::yield_now();
            grown.iter().sum::<u64>()
        });
        assert_eq!(total, ((1 << 20) - 1) << 20);
        let mut text = String::new();
        answers.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer");
    }
}
