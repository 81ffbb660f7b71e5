//! Uploads that are given up leave nothing.

use larder_store::Table;

use super::super::buckets::testing::new_caller;
use super::super::commit::testing::{BUCKET, bytes, run};
use super::super::uploads::testing::{Bench, KEY};
use super::*;

#[test]
fn an_upload_that_is_given_up_leaves_nothing() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        for number in 1..=30 {
            bench.part(&upload, number % 20 + 1, &bytes(number.into(), 20)).await;
        }
        bench.part(&upload, 40, &Bytes::new()).await;
        assert_eq!(bench.desk.blobs().await.len(), 30, "replaced ones too");
        bench.abort(&upload).await.unwrap();
        assert!(bench.desk.blobs().await.is_empty());
        for table in [Table::Parts, Table::UploadEntries, Table::Manifests] {
            assert_eq!(bench.partitions(table).await, 0, "{table:?}");
        }
        assert!(matches!(bench.abort(&upload).await, Err(Error::NoSuchUpload)), "once");
        assert!(matches!(bench.parts(&upload, 0, 1).await, Err(Error::NoSuchUpload)));
        tokio::time::sleep(std::time::Duration::from_secs(25 * 3600)).await;
        assert_eq!(bench.state(&upload).await, None, "its head goes after a day");
    });
}

#[test]
fn more_parts_than_a_page_go_too() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        for number in 1..=LISTING_PAGE_ROWS as u16 + 5 {
            bench.part(&upload, number, &Bytes::from_static(b"x")).await;
        }
        bench.abort(&upload).await.unwrap();
        assert!(bench.desk.blobs().await.is_empty());
        assert_eq!(bench.partitions(Table::Parts).await, 0);
    });
}

#[test]
fn an_upload_begun_at_another_time_is_not_given_up() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let (objects, owner, key) = (&bench.desk.objects, &bench.desk.owner, Bytes::from_static(KEY.as_bytes()));
        let begun = bench.upload(&upload).await.unwrap().upload.initiated / 1_000_000;
        let refused = objects.abort(owner, BUCKET, &key, &upload, Some(begun + 1)).await;
        assert!(matches!(refused, Err(Error::PreconditionFailed(_))));
        let stranger = new_caller(objects, "stranger").await;
        for caller in [stranger, Caller::default()] {
            assert!(matches!(objects.abort(&caller, BUCKET, &key, &upload, None).await, Err(Error::AccessDenied)));
        }
        objects.abort(owner, BUCKET, &key, &upload, Some(begun)).await.unwrap();
    });
}
