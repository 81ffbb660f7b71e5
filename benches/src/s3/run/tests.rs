//! Tests of a run without a real S3 server: the texts, and the measurements against a fake one.

use clap::Parser as _;

use super::*;
use crate::s3::report_style::size;

#[test]
fn sizes_are_powers_of_two() {
    assert_eq!(VALUE_BYTES.map(size), ["4 KiB", "1 MiB", "64 MiB"]);
    assert_eq!(BenchSection::Cells(VALUE_BYTES[0]).name(), "4kib");
}

#[test]
fn keys_are_not_published() {
    let shown = |text: &str| without_keys(text.split(' ').map(str::to_owned));
    assert_eq!(shown("s3 --key A --secret B --quick"), "s3 --key … --secret … --quick");
    assert_eq!(shown("s3 --secret=B --url=u"), "s3 --secret=… --url=u");
    assert_eq!(shown("s3 --key --secret --secret B"), "s3 --key … --secret …");
}

#[test]
fn an_account_is_made_of_letters() {
    let account = own_account();
    assert_eq!((account.key.len(), account.secret.len()), (20, 40));
    assert!(account.secret.bytes().all(|byte| byte.is_ascii_alphanumeric()));
}

#[test]
fn the_report_names_its_command() {
    let mut report = BenchReport { style: STYLE, ..BenchReport::default() };
    let text = report.markdown();
    assert!(text.contains("cargo xtask bench s3") && !text.contains("bench kv"), "{text}");
    assert!(text.contains("| MB/s |"), "{text}");
}

#[tokio::test]
async fn targets_are_measured_and_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let plan = S3Plan { parts: [10, 11, 30], pages: 3, keys: 1_500, uploads: 2, ..S3Plan::new(true, None) };
    let values = Arc::new(ValuePool::new(100_000));
    let report = BenchReport { style: STYLE, ..BenchReport::default() };
    let mut run = S3Run { plan, values, report, scratch: scratch.path().to_owned() };
    for section in [BenchSection::Paging, BenchSection::Listing, BenchSection::Uploads] {
        let mut subject = crate::s3::fake::start().await.with_bucket(section.name());
        subject.pid = None;
        subject.make().await.unwrap();
        run.section(&subject, section).await.unwrap();
    }
    let measured: Vec<bool> = run.report.targets.iter().map(|target| target.measured.is_some()).collect();
    assert_eq!(measured, [true, true, false], "memory needs the server's process");
    let text = run.report.markdown();
    assert!(text.contains("1,500 keys in 2 pages") && text.contains("| sending 30 parts of 16 B"), "{text}");
}

#[tokio::test]
async fn a_run_against_a_url_needs_a_key() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path().to_str().unwrap();
    let cli = crate::GeneratorArgs::parse_from(["x", "s3", "--url", "http://127.0.0.1:1", "--scratch", scratch]);
    let crate::GeneratorCommand::S3(mut options) = cli.command else { panic!("another command") };
    (options.key, options.secret) = (None, None);
    let refused = super::run(options).await.unwrap_err().to_string();
    assert!(refused.contains("--key and --secret, or AWS_ACCESS_KEY_ID"), "{refused}");
}
