//! What can be tried without an S3 server: the text, and the reads against the bare one.

use super::*;

#[test]
fn sizes_are_powers_of_two() {
    assert_eq!(VALUE_BYTES.map(size), ["4 KiB", "1 MiB", "64 MiB"]);
    assert_eq!(Section::Cells(VALUE_BYTES[0]).name(), "4kib");
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
fn the_report_says_what_it_is() {
    let mut report = Report { face: FACE, ..Report::default() };
    let text = report.markdown();
    assert!(text.contains("cargo xtask bench s3") && !text.contains("bench kv"), "{text}");
    assert!(text.contains("| MB/s |"), "{text}");
}
