//! Replays calls on the disk model.
//!
//! A change takes effect when its call begins: a later cut may find it. A sync takes effect when its call ends, and covers the
//! calls that had ended when it began. A descriptor exists from the end of the call that makes it to the beginning of the call
//! that closes it: from then on its number may be used again.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::powercut::disk::{DiskModel, EntryName, FileWrite, InodeNumber};
use crate::powercut::image::DirImage;
use crate::powercut::trace::{Syscall, TraceLine};

/// A step of a replay: the beginning or the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayStep {
    /// The line of the trace, in all lives of the record.
    pub line: TraceLine,
    /// Its time, in microseconds of the wall clock.
    pub at: u64,
    /// The index of the call.
    pub call: usize,
    /// Whether the call ends here.
    pub is_end: bool,
}

/// A disk, and the open files of the process.
#[derive(Debug, Clone)]
pub struct DiskReplay {
    /// The disk.
    pub disk: DiskModel,
    root: Rc<[u8]>,
    open: HashMap<u64, usize>,
    descriptions: Vec<FileDescription>,
}

/// An open file description, which duplicated descriptors share.
#[derive(Debug, Clone)]
struct FileDescription {
    inode: InodeNumber,
    position: u64,
    appends: bool,
    /// The path that opened it.
    path: EntryName,
}

/// The name of the call for the end of the process.
pub const EXIT: &str = "exit";

/// All steps of calls, in the order of the trace.
pub fn steps(calls: &[Syscall]) -> Vec<ReplayStep> {
    let ends = |(call, found): (usize, &Syscall)| {
        let begin = ReplayStep { line: found.begun, at: found.at, call, is_end: false };
        [begin, ReplayStep { line: found.ended, at: found.until, call, is_end: true }]
    };
    let mut steps: Vec<ReplayStep> = calls.iter().enumerate().flat_map(ends).collect();
    steps.sort_by_key(|step| (step.line, step.is_end));
    steps
}

impl DiskReplay {
    /// Begins with the files of `image`, which are below the path `root`.
    pub fn new(image: &DirImage, root: &[u8]) -> Self {
        Self { disk: DiskModel::new(image), root: root.into(), open: HashMap::new(), descriptions: Vec::new() }
    }

    /// Replays one step; returns whether it affects the disk.
    ///
    /// # Panics
    /// When the model does not know the call: its change would be missed.
    pub fn step(&mut self, call: &Syscall, is_end: bool) -> bool {
        if is_end { self.end(call) } else { self.begin(call) }
    }

    fn begin(&mut self, call: &Syscall) -> bool {
        match call.name.as_str() {
            "open" | "openat" | "creat" => self.begin_open(call),
            EXIT => {
                self.open.clear();
                false
            }
            "close" => {
                call.number(0).map(|fd| self.open.remove(&fd));
                false
            }
            "read" | "readv" => {
                if let Some(at) = self.described(call, 0) {
                    self.descriptions[at].position += call.result;
                }
                false
            }
            "write" | "writev" => self.described(call, 0).is_some_and(|at| self.append(call, at)),
            "pwrite64" => self.inode(call, 0).is_some_and(|inode| self.bytes(call, inode, call.number(3))),
            "pwritev" | "pwritev2" => {
                self.inode(call, 0).is_some_and(|inode| self.bytes(call, inode, call.number(call.args.len() - 1)))
            }
            "ftruncate" => self.inode(call, 0).is_some_and(|inode| {
                let length = call.number(1).expect("a length");
                self.write(call, inode, FileWrite::Length(length))
            }),
            "truncate" => self.place(call, None, 0).is_some_and(|(dir, name)| {
                let length = call.number(1).expect("a length");
                self.disk.find(dir, &name).is_some_and(|inode| self.write(call, inode, FileWrite::Length(length)))
            }),
            "fallocate" => self.inode(call, 0).is_some_and(|inode| self.allocate(call, inode)),
            name if name.starts_with("rename") => self.rename(call),
            "unlink" | "rmdir" => self.unlink(call, None),
            "unlinkat" => self.unlink(call, Some(0)),
            "mkdir" => self.make_dir(call, None),
            "mkdirat" => self.make_dir(call, Some(0)),
            "link" => self.link(call, None, None),
            "linkat" => self.link(call, Some(0), Some(2)),
            _ => self.refuse_unknown(call),
        }
    }

    fn end(&mut self, call: &Syscall) -> bool {
        match call.name.as_str() {
            "open" | "openat" | "creat" => self.end_open(call),
            "dup" | "dup2" | "dup3" => self.duplicate(call),
            "fcntl" if call.args[1].starts_with("F_DUPFD") => self.duplicate(call),
            "fsync" | "fdatasync" => {
                let Some(inode) = self.inode(call, 0) else { return false };
                self.disk.sync(inode, call.begun);
                return true;
            }
            "sync" | "syncfs" => {
                self.disk.sync_all(call.begun);
                return true;
            }
            "lseek" => {
                if let Some(at) = self.described(call, 0) {
                    self.descriptions[at].position = call.result;
                }
            }
            _ => {}
        }
        false
    }

    /// The index of the flags among the arguments of open.
    fn flags(call: &Syscall) -> usize {
        if call.name == "openat" { 2 } else { 1 }
    }

    fn opened(&self, call: &Syscall) -> Option<(InodeNumber, EntryName)> {
        self.place(call, (call.name == "openat").then_some(0), 0)
    }

    fn begin_open(&mut self, call: &Syscall) -> bool {
        let Some((dir, name)) = self.opened(call) else { return false };
        let flags = Self::flags(call);
        assert!(!call.has(flags, "O_TMPFILE"), "a file without a name: {call:?}");
        let has = |flag: &str| call.name == "creat" || call.has(flags, flag);
        match self.disk.find(dir, &name) {
            Some(inode) if has("O_TRUNC") && !self.disk.is_dir(inode) => self.write(call, inode, FileWrite::Length(0)),
            None if has("O_CREAT") => {
                self.disk.make_file(dir, &name, call.ended);
                true
            }
            _ => false,
        }
    }

    fn end_open(&mut self, call: &Syscall) {
        self.open.remove(&call.result);
        let Some((dir, name)) = self.opened(call) else { return };
        let inode = if name.is_empty() { Some(dir) } else { self.disk.find(dir, &name) };
        let Some(inode) = inode else { return };
        let appends = call.has(Self::flags(call), "O_APPEND");
        self.descriptions.push(FileDescription { inode, position: 0, appends, path: call.strings[0].clone() });
        self.open.insert(call.result, self.descriptions.len() - 1);
    }

    fn duplicate(&mut self, call: &Syscall) {
        match self.described(call, 0) {
            Some(at) => drop(self.open.insert(call.result, at)),
            None => drop(self.open.remove(&call.result)),
        }
    }

    fn append(&mut self, call: &Syscall, at: usize) -> bool {
        let FileDescription { inode, position, appends, .. } = self.descriptions[at];
        let place = if appends { self.disk.length(inode) } else { position };
        self.descriptions[at].position = place + call.result;
        self.bytes(call, inode, Some(place))
    }

    fn bytes(&mut self, call: &Syscall, inode: InodeNumber, place: Option<u64>) -> bool {
        let mut bytes = call.strings.concat();
        assert!(bytes.len() as u64 >= call.result, "strace does not show all bytes: {} {:?}", call.name, call.args);
        bytes.truncate(call.result as usize);
        self.write(call, inode, FileWrite::Bytes(place.expect("a place"), Arc::new(bytes)))
    }

    fn write(&mut self, call: &Syscall, inode: InodeNumber, write: FileWrite) -> bool {
        self.disk.write(inode, write, call.ended);
        true
    }

    fn allocate(&mut self, call: &Syscall, inode: InodeNumber) -> bool {
        let (at, count) = (call.number(2).expect("a place"), call.number(3).expect("a length"));
        let (keeps, punches) = (call.has(1, "FALLOC_FL_KEEP_SIZE"), call.has(1, "FALLOC_FL_PUNCH_HOLE"));
        match (call.args[1].as_str(), keeps, punches) {
            ("0", ..) => self.write(call, inode, FileWrite::Grow(at + count)),
            (_, true, true) => self.write(call, inode, FileWrite::Zero(at, count)),
            (_, true, false) => false,
            _ => panic!("the model does not know {call:?}"),
        }
    }

    fn rename(&mut self, call: &Syscall) -> bool {
        let (from, to) = if call.name == "rename" { (None, None) } else { (Some(0), Some(2)) };
        let (from, to) = (self.place(call, from, 0), self.place(call, to, 1));
        match (from, to) {
            (Some((dir, name)), Some((other, new))) => {
                assert!(
                    !call.args.iter().any(|arg| arg.contains("RENAME_EXCHANGE")),
                    "the model does not know {call:?}"
                );
                self.disk.rename((dir, &name), (other, &new), call.ended);
                true
            }
            (None, None) => false,
            _ => panic!("a file moves into the data directory, or out of it: {call:?}"),
        }
    }

    fn unlink(&mut self, call: &Syscall, dir: Option<usize>) -> bool {
        let place = self.place(call, dir, 0);
        // The model has no sockets.
        let Some((dir, name)) = place.filter(|(dir, name)| self.disk.find(*dir, name).is_some()) else { return false };
        self.disk.unlink(dir, &name, call.ended);
        true
    }

    fn make_dir(&mut self, call: &Syscall, dir: Option<usize>) -> bool {
        let Some((dir, name)) = self.place(call, dir, 0) else { return false };
        self.disk.make_dir(dir, &name, call.ended);
        true
    }

    fn link(&mut self, call: &Syscall, from: Option<usize>, to: Option<usize>) -> bool {
        let (from, to) = (self.place(call, from, 0), self.place(call, to, 1));
        let Some(((dir, name), (other, new))) = from.zip(to) else { return false };
        let inode = self.disk.find(dir, &name).expect("a file that gets a name has one");
        self.disk.link(inode, other, &new, call.ended);
        true
    }

    /// Fails on calls that change files without the model's knowledge.
    fn refuse_unknown(&self, call: &Syscall) -> bool {
        let is_ours = |at| self.inode(call, at).is_some();
        let hides = match call.name.as_str() {
            "mmap" => call.has(3, "MAP_SHARED") && call.has(2, "PROT_WRITE") && is_ours(4),
            "copy_file_range" | "splice" => is_ours(2),
            "sendfile" => is_ours(0),
            "symlink" | "symlinkat" => true,
            "io_uring_setup" | "openat2" => true,
            _ => false,
        };
        assert!(!hides, "the model does not see the changes of {call:?}");
        false
    }

    fn described(&self, call: &Syscall, at: usize) -> Option<usize> {
        self.open.get(&call.number(at)?).copied()
    }

    fn inode(&self, call: &Syscall, at: usize) -> Option<InodeNumber> {
        Some(self.descriptions[self.described(call, at)?].inode)
    }

    /// The directory and the name of a path among the strings of a call, if it is below the root. `dir` is the argument with the
    /// directory of a relative path.
    fn place(&self, call: &Syscall, dir: Option<usize>, path: usize) -> Option<(InodeNumber, EntryName)> {
        let path = &call.strings[path];
        match path.strip_prefix(&self.root[..]) {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => self.find(DiskModel::ROOT, rest),
            _ if path.starts_with(b"/") => None,
            // The process runs in the root.
            _ => match dir.filter(|at| call.args[*at] != "AT_FDCWD") {
                Some(at) => self.find(self.inode(call, at)?, path),
                None => self.find(DiskModel::ROOT, path),
            },
        }
    }

    /// The last directory of a path and the name in it; the name is empty when the path has none.
    fn find(&self, mut dir: InodeNumber, path: &[u8]) -> Option<(InodeNumber, EntryName)> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").peekable();
        let mut last: &[u8] = b"";
        while let Some(name) = names.next() {
            assert!(name != b"..", "the model does not know paths with two dots");
            last = name;
            if names.peek().is_some() {
                dir = self.disk.find(dir, name)?;
            }
        }
        Some((dir, last.to_vec()))
    }

    /// A short text of a call, for people: the paths of its descriptors, and the number of bytes.
    pub fn describe(&self, call: &Syscall) -> String {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes.strip_prefix(&self.root[..]).unwrap_or(bytes)).into_owned();
        let of = |at| self.described(call, at).map(|at| text(&self.descriptions[at].path));
        let words: Vec<String> = match call.name.as_str() {
            name if name.starts_with("write") || name.starts_with("pwrite") => {
                let place = if name.starts_with('p') { call.args.last() } else { None };
                [of(0), Some(format!("{} bytes", call.result)), place.map(|at| format!("at {at}"))]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            _ if call.strings.is_empty() => of(0).into_iter().chain(call.args.iter().skip(1).cloned()).collect(),
            _ => call.strings.iter().map(|path| text(path)).collect(),
        };
        format!("{} {}", call.name, words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::SplitMix64;
    use crate::powercut::disk::KeptShare;

    fn call(name: &str, args: &str, strings: &[&str], result: u64, lines: (TraceLine, TraceLine)) -> Syscall {
        Syscall {
            begun: lines.0,
            ended: lines.1,
            at: 0,
            until: 0,
            name: name.to_owned(),
            args: args.split(", ").map(str::to_owned).collect(),
            strings: strings.iter().map(|text| text.as_bytes().to_vec()).collect(),
            result,
        }
    }

    /// The synced files after these calls, and all files.
    fn after(calls: &[Syscall]) -> (String, String) {
        let mut replay = DiskReplay::new(&DirImage::default(), b"/r");
        for step in steps(calls) {
            replay.step(&calls[step.call], step.is_end);
        }
        let cut = replay.disk.cut(KeptShare { writes: 0, names: 0 }, &mut SplitMix64::new(1));
        (cut.listing(), replay.disk.whole().listing())
    }

    #[test]
    fn positions_follow_reads_writes_seeks_and_copies_of_descriptors() {
        let calls = [
            call("openat", "AT_FDCWD, \"\", O_RDWR|O_CREAT, 0666", &["/r/f"], 5, (0, 0)),
            call("write", "5, \"\", 6", &["abcdef"], 6, (1, 1)),
            call("lseek", "5, 1, SEEK_SET", &[], 1, (2, 2)),
            call("read", "5, \"\", 2", &["bc"], 2, (3, 3)),
            call("fcntl", "5, F_DUPFD_CLOEXEC, 3", &[], 6, (4, 4)),
            call("close", "5", &[], 0, (5, 5)),
            call("write", "6, \"\", 1", &["X"], 1, (6, 6)),
            call("pwrite64", "6, \"\", 1, 0", &["Y"], 1, (7, 7)),
            call("openat", "AT_FDCWD, \"\", O_WRONLY|O_APPEND", &["/r/f"], 5, (8, 8)),
            call("writev", "5, [...], 2", &["g", "h"], 2, (9, 9)),
            call("write", "9, \"\", 1", &["elsewhere"], 9, (10, 10)),
        ];
        assert_eq!(after(&calls), (String::new(), "f YbcXefgh\n".to_owned()));
    }

    #[test]
    fn a_sync_covers_no_write_in_flight_of_another_thread() {
        let calls = [
            call("openat", "AT_FDCWD, \"\", O_RDWR|O_CREAT, 0666", &["/r/f"], 5, (0, 0)),
            call("openat", "AT_FDCWD, \"\", O_RDONLY|O_DIRECTORY", &["/r"], 6, (1, 1)),
            call("fsync", "6", &[], 0, (2, 2)),
            call("write", "5, \"\", 1", &["a"], 1, (3, 3)),
            call("write", "5, \"\", 1", &["b"], 1, (4, 6)),
            call("fdatasync", "5", &[], 0, (5, 7)),
        ];
        assert_eq!(after(&calls), ("f a\n".to_owned(), "f ab\n".to_owned()));
    }

    #[test]
    fn names_are_found_below_open_directories() {
        let calls = [
            call("mkdir", "\"\", 0777", &["/r/d"], 0, (0, 0)),
            call("openat", "AT_FDCWD, \"\", O_RDONLY|O_DIRECTORY", &["/r/d"], 6, (1, 1)),
            call("openat", "6, \"\", O_WRONLY|O_CREAT, 0666", &["f"], 7, (2, 2)),
            call("renameat", "6, \"\", AT_FDCWD, \"\"", &["f", "/r/d/g"], 0, (3, 3)),
            call("mkdirat", "6, \"\", 0777", &["e"], 0, (4, 4)),
            call("unlinkat", "6, \"\", AT_REMOVEDIR", &["e"], 0, (5, 5)),
            call("unlink", "\"\"", &["/elsewhere/d/g"], 0, (6, 6)),
        ];
        assert_eq!(after(&calls).1, "d/\nd/g \n");
    }
}
