//! The Java client `com.basho.riak:riak-client`, over protocol buffers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Process, client_place};

use crate::riak_clients::secured::{check_with_certificate, check_with_password};
use crate::riak_clients::{TIME, scripts};

/// Flags for a client that is older than Java's modules.
const OPEN: &[&str] = &["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"];
/// Flags for programs that run for a second.
const SHORT: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"];

/// Runs one of the programs of `tests/java`.
#[track_caller]
fn check(program: &str) {
    check_with(crate::riak_clients::check, program);
}

/// Runs one of the programs with this function.
#[track_caller]
fn check_with(run: fn(&str, &mut Command), program: &str) {
    let Some(arguments) = arguments(program) else { return };
    let mut command = Command::new("java");
    command.args(OPEN).args(arguments);
    run(program, &mut command);
}

/// The arguments of `java` for one of the programs; `None` where the clients are not installed.
pub(crate) fn arguments(program: &str) -> Option<Vec<String>> {
    let jars = client_place("LARDER_JAVA_CLIENT", "Java clients")?;
    let classes = format!("{}:{}/*", classes(&jars).display(), jars.display());
    let own = ["-classpath", &classes, program];
    Some(SHORT.iter().copied().chain(own).map(str::to_owned).collect())
}

/// The folder of the compiled programs: the first of the tests, which are processes, compiles them all.
fn classes(jars: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-client");
    let lock = File::create(folder.with_extension("lock")).expect("a lock file");
    lock.lock().expect("the lock of the classes");
    let texts: String = sources().iter().map(|path| fs::read_to_string(path).expect("a source")).collect();
    let stamp = folder.join("sources");
    if fs::read_to_string(&stamp).is_ok_and(|compiled| compiled == texts) {
        return folder;
    }
    // Classes of programs that are gone would still run.
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new("javac");
    command.args(["-encoding", "UTF-8", "-Xlint:all", "-Xlint:-processing", "-Werror", "-classpath"]);
    command.arg(format!("{}/*", jars.display())).arg("-d").arg(&folder).args(sources());
    let ended = Process::start(&mut command).wait_for_end(TIME);
    assert_eq!(ended.code, Some(0), "javac\n{}\n{}", ended.stdout, ended.stderr);
    fs::write(stamp, texts).expect("a stamp");
    folder
}

fn sources() -> Vec<PathBuf> {
    let files = fs::read_dir(scripts("java")).expect("a folder of the repository");
    let paths = files.map(|file| file.expect("an entry of a folder").path());
    let mut sources: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "java")).collect();
    sources.sort();
    sources
}

#[test]
fn it_stores_reads_and_deletes_objects() {
    check("ObjectsTest");
}

#[test]
fn it_sees_and_resolves_siblings() {
    check("SiblingsTest");
}

#[test]
fn it_reads_sets_and_resets_properties() {
    check("PropsTest");
}

#[test]
fn it_lists_keys_and_buckets() {
    check("ListingTest");
}

#[test]
fn it_shares_a_pool_of_connections() {
    check("PoolTest");
}

#[test]
fn it_updates_and_reads_data_types() {
    check("DatatypesTest");
}

#[test]
fn it_queries_indexes() {
    check("IndexesTest");
}

#[test]
fn it_runs_map_reduce_jobs() {
    check("MapReduceTest");
}

#[test]
fn it_logs_in_with_a_password() {
    check_with(check_with_password, "SecurityTest");
}

#[test]
fn it_logs_in_with_a_certificate() {
    check_with(check_with_certificate, "SecurityTest");
}

#[test]
fn it_reports_what_is_refused() {
    check("RefusedTest");
}
