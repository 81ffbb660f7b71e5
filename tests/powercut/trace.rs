//! Parses the output of strace into calls.
//!
//! ```text
//! 12 1700000000.000001 write(9, "\x61\x62", 2) = 2               begins and ends here
//! 12 1700000000.000002 fsync(9 <unfinished ...>                  begins here
//! 13 1700000000.000003 write(10, "\x63", 1) = 1                  a call of another thread
//! 12 1700000000.000004 <... fsync resumed>) = 0                  ends here
//! ```
//! A call takes effect between the line of its beginning and the line of its end. Every string is hexadecimal (`-xx`), so no
//! bracket, quote or comma of the text belongs to data.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Calls that may change files, directories or descriptors, and those that the model must refuse. strace skips a name with
/// `?` that the machine does not have.
pub const CALLS: &str = "?open,openat,?openat2,?creat,read,readv,write,writev,pwrite64,pwritev,pwritev2,lseek,\
    ?truncate,ftruncate,fallocate,fsync,fdatasync,sync,syncfs,?rename,renameat,renameat2,?unlink,unlinkat,?rmdir,?link,\
    linkat,?mkdir,mkdirat,close,dup,?dup2,dup3,fcntl,copy_file_range,sendfile,splice,mmap,io_uring_setup,?symlink,symlinkat";

/// The longest string that strace shows. A longer one fails the test.
pub const STRING_MAX: usize = 32 << 20;

/// A line of the trace: the clock of the model.
pub type TraceLine = usize;

/// A call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syscall {
    /// The line where it begins.
    pub begun: TraceLine,
    /// The line where it ends.
    pub ended: TraceLine,
    /// The time of its beginning, in microseconds of the wall clock.
    pub at: u64,
    /// The time of its end.
    pub until: u64,
    /// The name of the call.
    pub name: String,
    /// Its arguments. Strings are empty here, see `strings`.
    pub args: Vec<String>,
    /// The strings among its arguments, in order.
    pub strings: Vec<Vec<u8>>,
    /// Its return value.
    pub result: u64,
}

impl Syscall {
    /// An argument as a number.
    pub fn number(&self, at: usize) -> Option<u64> {
        let text = self.args.get(at)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Whether an argument has this flag.
    pub fn has(&self, at: usize, flag: &str) -> bool {
        self.args.get(at).is_some_and(|arg| arg.split('|').any(|word| word == flag))
    }
}

/// A call whose end is not parsed yet.
struct UnfinishedCall {
    begun: TraceLine,
    at: u64,
    text: Vec<u8>,
}

/// Reads the successful calls of a trace in the order of their beginnings, and the number of lines.
pub fn read(path: &Path) -> (Vec<Syscall>, TraceLine) {
    parse(&mut BufReader::with_capacity(1 << 20, File::open(path).expect("strace made a file")))
}

fn parse(from: &mut impl BufRead) -> (Vec<Syscall>, TraceLine) {
    let mut calls = Vec::new();
    let mut unfinished: HashMap<u64, UnfinishedCall> = HashMap::new();
    let mut text = Vec::new();
    let mut line = 0;
    while next_line(from, &mut text) {
        let (thread, at, rest) = head(&text);
        if rest.starts_with(b"<... ") {
            let start = position(rest, b"resumed>").expect("a call is resumed") + "resumed>".len();
            let begun = unfinished.remove(&thread).expect("a call that is resumed was begun");
            let whole = [&begun.text[..], &rest[start..]].concat();
            calls.extend(call(&whole, (begun.begun, line), (begun.at, at)));
        } else if let Some(text) = rest.strip_suffix(b" <unfinished ...>") {
            unfinished.insert(thread, UnfinishedCall { begun: line, at, text: text.to_vec() });
        } else if !rest.starts_with(b"+++") && !rest.starts_with(b"---") {
            calls.extend(call(rest, (line, line), (at, at)));
        }
        line += 1;
    }
    calls.sort_by_key(|call: &Syscall| call.begun);
    (calls, line)
}

/// Whether strace wrote the end of the process.
pub fn has_ended(path: &Path, process: u32) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.metadata().map_or(0, |found| found.len());
    let mut tail = Vec::new();
    let from = length.saturating_sub(4096);
    let read = std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut tail));
    let tail = String::from_utf8_lossy(&tail);
    let is_end = |line: &str| line.contains(" +++ ") && line.starts_with(&format!("{process} "));
    read.is_ok() && tail.ends_with('\n') && tail.lines().any(is_end)
}

fn next_line(from: &mut impl BufRead, into: &mut Vec<u8>) -> bool {
    into.clear();
    let count = from.read_until(b'\n', into).expect("the trace can be read");
    if into.last() == Some(&b'\n') {
        into.pop();
    }
    count > 0
}

/// The thread, the time in microseconds, and the rest of a line.
fn head(line: &[u8]) -> (u64, u64, &[u8]) {
    let text = std::str::from_utf8(line).expect("a trace is text");
    let (thread, rest) = text.split_once(' ').expect("a thread");
    let (time, rest) = rest.trim_start().split_once(' ').expect("a time");
    let (seconds, micros) = time.split_once('.').expect("a time with microseconds");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    (number(thread), number(seconds) * 1_000_000 + number(micros), rest.trim_start().as_bytes())
}

/// A call from its text; `None` when it failed or did not return.
fn call(text: &[u8], (begun, ended): (TraceLine, TraceLine), (at, until): (u64, u64)) -> Option<Syscall> {
    let text = std::str::from_utf8(text).expect("a trace is text");
    let (strings, plain) = take_strings(text);
    let (name, rest) = plain.split_once('(')?;
    let (args, result) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(") "))?;
    let result = result.trim_start_matches(['=', ' ']).split(' ').next()?;
    let result = match result.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => result.parse().ok()?, // A failure is negative.
    };
    let args = args.split(", ").map(str::to_owned).collect();
    Some(Syscall { begun, ended, at, until, name: name.to_owned(), args, strings, result })
}

/// The strings of a text, and the text with empty strings.
fn take_strings(text: &str) -> (Vec<Vec<u8>>, String) {
    let (mut strings, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, after)) = rest.split_once('"') {
        let (hex, after) = after.split_once('"').expect("a string ends");
        assert!(!after.starts_with("..."), "a string of more than {STRING_MAX} bytes: {before}");
        strings.push(unhex(hex));
        plain.push_str(before);
        plain.push_str("\"\"");
        rest = after;
    }
    plain.push_str(rest);
    (strings, plain)
}

/// The value of each hexadecimal digit; [`NO_DIGIT`] for any other byte.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};
const NO_DIGIT: u8 = 0xff;

/// The bytes of `\x61\x62`. A plain loop: a trace has megabytes of them, and tests are compiled without optimization.
fn unhex(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at + 4 <= text.len() {
        let (high, low) = (DIGITS[text[at + 2] as usize], DIGITS[text[at + 3] as usize]);
        assert!(high | low < 16, "strace does not write strings in hexadecimal");
        bytes.push(high << 4 | low);
        at += 4;
    }
    bytes
}

fn position(text: &[u8], of: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.find(std::str::from_utf8(of).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<Syscall> {
        parse(&mut text.as_bytes()).0
    }

    #[test]
    fn a_call_is_read_with_its_strings_and_flags() {
        let text = "7 1700000000.000001 openat(AT_FDCWD, \"\\x2f\\x61\", O_WRONLY|O_CREAT, 0666) = 3\n\
                    7  1700000000.000009 writev(3, [{iov_base=\"\\x61\\x62\", iov_len=2}, {iov_base=\"\\x63\", iov_len=1}], 2) = 3\n";
        let calls = calls(text);
        assert_eq!(calls[0].strings, [b"/a".to_vec()]);
        assert!(calls[0].has(2, "O_CREAT") && !calls[0].has(2, "O_TRUNC"));
        assert_eq!((calls[0].begun, calls[0].ended, calls[0].at, calls[0].result), (0, 0, 1_700_000_000_000_001, 3));
        assert_eq!(calls[1].strings.concat(), b"abc");
    }

    #[test]
    fn a_call_that_is_resumed_spans_its_lines() {
        let text =
            "1 1.000001 fsync(9 <unfinished ...>\n2 1.000002 close(4) = 0\n1 1.000003 <... fsync resumed>) = 0\n";
        let calls = calls(text);
        assert_eq!((calls[0].name.as_str(), calls[0].begun, calls[0].ended), ("fsync", 0, 2));
        assert_eq!((calls[0].at, calls[0].until, calls[0].number(0)), (1_000_001, 1_000_003, Some(9)));
        assert_eq!((calls[1].name.as_str(), calls[1].begun), ("close", 1));
    }

    #[test]
    fn failed_and_unfinished_calls_are_left_out() {
        let text = "1 1.000001 mkdir(\"\\x61\", 0777) = -1 EEXIST (File exists)\n1 1.000002 close(3) = ?\n\
                    1 1.000003 --- SIGTERM {si_signo=SIGTERM} ---\n1 1.000004 +++ killed by SIGKILL +++\n";
        assert_eq!(calls(text), []);
    }
}
