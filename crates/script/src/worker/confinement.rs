//! Takes from the worker process what scripts must not have.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::WorkerSetup;
use crate::limits::ADDRESS_SPACE_EXTRA;

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
    let wanted = used + seconds + CPU_GRACE;
    let current = Some(maximum.map_or(wanted, |maximum| wanted.min(maximum)));
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
