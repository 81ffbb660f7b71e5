//! The filter of system calls: machine code that a defect of the engine lets run can compute, answer and end, and nothing else.
//!
//! Limits of the kernel bind scripts already. The calls that they leave to machine code, such as `execve`, `unlink`, `kill`, `ptrace` or
//! executable memory, fails here with `EPERM`.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

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
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is_equal(0, SeccompCmpOp::Eq, own)?])?]);
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
