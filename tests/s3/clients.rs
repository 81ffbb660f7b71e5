//! Published S3 clients, unmodified. `cargo xtask test` installs them and passes their paths; the test of a client that is not
//! installed prints that it is skipped.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use md5::Digest as _;

use crate::harness::{LarderNode, Process, S3_KEY, S3_SECRET, SplitMix64, client_place};

const TIME: Duration = Duration::from_secs(300);
const MIB: usize = 1024 * 1024;

/// A program of the Python environment.
pub(super) fn python_program(name: &str) -> Option<PathBuf> {
    client_place("LARDER_S3_PYTHON", name).map(|bin| bin.join(name))
}

/// Runs a command, which must succeed, and returns its stdout.
#[track_caller]
pub(super) fn run(node: &LarderNode, program: &Path, args: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(node.home().path());
    // Variables of this machine that name other servers must not reach the client.
    let foreign = |name: &str| name.starts_with("AWS_") || name.to_ascii_lowercase().ends_with("_proxy");
    std::env::vars().map(|(name, _)| name).filter(|name| foreign(name)).for_each(|name| {
        command.env_remove(name);
    });
    command.env("HOME", node.home().path());
    command.envs(environment.iter().copied());
    let ended = Process::start(&mut command).wait_for_end(TIME);
    let output = format!("{} {args:?}\n{}\n{}\nserver: {}", program.display(), ended.stdout, ended.stderr, node.log());
    assert_eq!(ended.code, Some(0), "{output}");
    ended.stdout
}

fn script(name: &str) {
    let Some(python) = python_program("python") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/s3");
    let (port, http) = (node.s3_at().port().to_string(), node.http().port().to_string());
    let environment = [
        ("LARDER_S3_PORT", port.as_str()),
        ("LARDER_HTTP_PORT", http.as_str()),
        ("LARDER_S3_KEY", S3_KEY),
        ("LARDER_S3_SECRET", S3_SECRET),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let file = here.join(name);
    run(&node, &python, &[file.to_str().expect("a path of this repository")], &environment);
}

#[test]
fn boto3() {
    script("boto3_round.py");
}

#[test]
fn every_operation_of_the_service_model_answers_as_the_table_says() {
    script("service_model.py");
}

#[test]
fn terraform_and_a_backup_program_by_their_calls() {
    script("call_orders.py");
}

#[test]
fn minio_py() {
    script("minio_round.py");
}

/// A file of random bytes beside the data.
pub(super) fn file(node: &LarderNode, name: &str, length: usize) -> String {
    let path = node.home().path().join(name);
    fs::write(&path, SplitMix64::new(length as u64).bytes(length)).expect("a file can be written");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[track_caller]
pub(super) fn same(one: &str, other: &str) {
    assert!(fs::read(one).expect("it is there") == fs::read(other).expect("it is there"), "{one} and {other} differ");
}

#[test]
fn aws_command_line() {
    let Some(aws) = python_program("aws") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let endpoint = format!("http://{}", node.s3_at());
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];
    let aws = |args: &[&str]| run(&node, &aws, args, &environment);
    aws(&["s3", "mb", "s3://cli"]);
    let (large, back) = (file(&node, "large", 20 * MIB), node.home().path().join("back"));
    let back = back.to_str().unwrap();
    aws(&["s3", "cp", &large, "s3://cli/dir/large", "--no-progress"]);
    aws(&["s3", "cp", "s3://cli/dir/large", back, "--no-progress"]);
    same(&large, back);
    aws(&["s3", "cp", "s3://cli/dir/large", "s3://cli/dir/copy", "--no-progress"]);
    assert!(aws(&["s3", "ls", "s3://cli/dir/"]).contains("20971520 copy"));
    aws(&["s3", "cp", &large, "s3://cli/sealed", "--sse", "AES256", "--no-progress"]);
    aws(&["s3", "cp", "s3://cli/sealed", "s3://cli/sealed-again", "--sse", "AES256", "--no-progress"]);
    let head = aws(&["s3api", "head-object", "--bucket", "cli", "--key", "sealed-again"]);
    assert!(head.contains("\"ServerSideEncryption\": \"AES256\""), "{head}");
    aws(&["s3", "cp", "s3://cli/sealed-again", back, "--no-progress"]);
    same(&large, back);
    let begun = aws(&["s3api", "create-multipart-upload", "--bucket", "cli", "--key", "parts", "--query", "UploadId"]);
    let upload = begun.trim().trim_matches('"');
    let names = ["--bucket", "cli", "--key", "parts", "--upload-id", upload];
    for number in ["1", "2", "3"] {
        let part = file(&node, "part", 1000);
        aws(&[&["s3api", "upload-part", "--part-number", number, "--body", &part], &names[..]].concat());
    }
    let query = ["--page-size", "2", "--query", "Parts[].PartNumber", "--output", "text"];
    let listed = aws(&[&["s3api", "list-parts"], &names[..], &query[..]].concat());
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["1", "2", "3"]);
    aws(&[&["s3api", "abort-multipart-upload"], &names[..]].concat());
    aws(&["s3", "rm", "s3://cli", "--recursive"]);
    aws(&["s3", "rb", "s3://cli"]);
}

#[test]
fn s3cmd_with_both_signatures() {
    let Some(s3cmd) = python_program("s3cmd") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let host = node.s3_at().to_string();
    let large = file(&node, "large", 20 * MIB);
    let back = node.home().path().join("back");
    let back = back.to_str().unwrap();
    for (version, bucket, extra) in
        [("2", "s3://cmd-two", "--signature-v2"), ("4", "s3://cmd-four", "--region=us-east-1")]
    {
        let common = [
            "--no-ssl",
            "--host",
            &host,
            "--host-bucket",
            &host,
            "--access_key",
            S3_KEY,
            "--secret_key",
            S3_SECRET,
            "--no-progress",
            extra,
            "--config",
            "/dev/null",
        ];
        let s3cmd = |args: &[&str]| run(&node, &s3cmd, &[&common[..], args].concat(), &[]);
        s3cmd(&["mb", bucket]);
        let object = format!("{bucket}/a b/large");
        s3cmd(&["put", "--multipart-chunk-size-mb=5", "--add-header=x-amz-meta-colour:blue", &large, &object]);
        s3cmd(&["get", "--force", &object, back]);
        same(&large, back);
        assert!(s3cmd(&["info", &object]).contains("x-amz-meta-colour: blue"), "signature {version}");
        s3cmd(&["cp", &object, &format!("{bucket}/copy")]);
        let listed = s3cmd(&["ls", "--recursive", bucket]);
        assert!(listed.contains("/copy") && listed.contains("/a b/large"), "{listed}");
        s3cmd(&["setacl", "--acl-public", &object]);
        s3cmd(&["del", "--recursive", "--force", bucket]);
        s3cmd(&["rb", bucket]);
    }
}

/// The settings of rclone for a remote `L` at this address, and one more. Bodies above 10 MiB go in parts.
pub(super) fn rclone_environment<'a>(endpoint: &'a str, more: (&'a str, &'a str)) -> [(&'a str, &'a str); 10] {
    [
        ("RCLONE_CONFIG", "/dev/null"),
        ("RCLONE_CONFIG_L_TYPE", "s3"),
        ("RCLONE_CONFIG_L_PROVIDER", "Other"),
        ("RCLONE_CONFIG_L_ENDPOINT", endpoint),
        ("RCLONE_CONFIG_L_ACCESS_KEY_ID", S3_KEY),
        ("RCLONE_CONFIG_L_SECRET_ACCESS_KEY", S3_SECRET),
        ("RCLONE_CONFIG_L_FORCE_PATH_STYLE", "true"),
        ("RCLONE_S3_UPLOAD_CUTOFF", "10M"),
        ("RCLONE_S3_CHUNK_SIZE", "5M"),
        more,
    ]
}

#[test]
fn rclone_with_both_signatures() {
    let Some(rclone) = client_place("LARDER_RCLONE", "rclone") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let endpoint = format!("http://{}", node.s3_at());
    let tree = node.home().path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for (name, length) in [("one", 0), ("sub/two", 100), ("sub/with blank", 70_000), ("large", 30 * MIB)] {
        fs::write(tree.join(name), SplitMix64::new(length as u64).bytes(length)).unwrap();
    }
    let tree = tree.to_str().unwrap();
    for v2 in ["false", "true"] {
        let environment = rclone_environment(&endpoint, ("RCLONE_CONFIG_L_V2_AUTH", v2));
        let rclone = |args: &[&str]| run(&node, &rclone, args, &environment);
        let bucket = format!("L:clone-{v2}");
        rclone(&["mkdir", &bucket]);
        rclone(&["copy", tree, &bucket]);
        rclone(&["check", "--download", tree, &bucket]);
        let listed = rclone(&["lsf", "-R", &bucket]);
        assert!(listed.contains("sub/with blank") && listed.contains("large"), "{listed}");
        let (from, to) = (format!("{bucket}/sub/two"), format!("{bucket}/moved"));
        rclone(&["moveto", &from, &to]);
        rclone(&["purge", &bucket]);
    }
}

#[test]
fn restic() {
    let Some(restic) = client_place("LARDER_RESTIC", "restic") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let repository = format!("s3:http://{}/backups/nightly", node.s3_at());
    let environment = [
        ("RESTIC_REPOSITORY", repository.as_str()),
        ("RESTIC_PASSWORD", "not a secret"),
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
        ("RESTIC_CACHE_DIR", "cache"),
    ];
    let restic = |args: &[&str]| run(&node, &restic, args, &environment);
    let large = file(&node, "precious", 12 * MIB);
    restic(&["init"]);
    restic(&["backup", &large]);
    restic(&["check", "--read-data"]);
    restic(&["restore", "latest", "--target", "restored"]);
    let restored = format!("{}/restored{large}", node.home().path().display());
    same(&large, &restored);
    restic(&["forget", "--prune", "--keep-last", "1"]);
}

/// restic deletes by names alone: in a bucket with object lock its deletes leave markers, and every version stays.
#[test]
fn restic_where_nothing_can_be_deleted() {
    let Some(restic) = client_place("LARDER_RESTIC", "restic") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.call("PUT", "/vault", &[("x-amz-bucket-object-lock-enabled", "true")], "").expect(200);
    let lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                <Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    let digest = base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(lock));
    s3.call("PUT", "/vault?object-lock", &[("content-md5", &digest)], lock).expect(200);
    let repository = format!("s3:http://{}/vault/nightly", node.s3_at());
    let environment = [
        ("RESTIC_REPOSITORY", repository.as_str()),
        ("RESTIC_PASSWORD", "not a secret"),
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
        ("RESTIC_CACHE_DIR", "cache"),
    ];
    let restic = |args: &[&str]| run(&node, &restic, args, &environment);
    let precious = file(&node, "precious", MIB);
    restic(&["init"]);
    restic(&["backup", &precious]);
    restic(&["backup", "--force", "--tag", "again", &precious]);
    restic(&["forget", "--prune", "--keep-last", "1", "--group-by", ""]);
    restic(&["check", "--read-data"]);
    restic(&["restore", "latest", "--target", "restored"]);
    same(&precious, &format!("{}/restored{precious}", node.home().path().display()));
    s3.delete("/vault").expect(409);
}

#[test]
fn variables_of_the_clients_are_paths() {
    for variable in ["LARDER_S3_PYTHON", "LARDER_RCLONE", "LARDER_RESTIC"] {
        let path: OsString = std::env::var_os(variable).unwrap_or_else(|| "/".into());
        assert!(Path::new(&path).exists(), "{variable} is {path:?}");
    }
}
