//! Aborts of uploads.

use larder_store::Table;

use super::super::buckets::testing::new_caller;
use super::super::commit::testing::{BUCKET, bytes, run};
use super::super::uploads::testing::{KEY, UploadSetup};
use super::*;
use crate::rules::S3Action;

#[test]
fn an_abort_leaves_no_parts_and_no_blobs() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        for number in 1..=30 {
            setup.part(&upload, number % 20 + 1, &bytes(number.into(), 20)).await;
        }
        setup.part(&upload, 40, &Bytes::new()).await;
        assert_eq!(setup.fixture.blobs().await.len(), 30, "replaced ones too");
        setup.abort(&upload).await.unwrap();
        assert!(setup.fixture.blobs().await.is_empty());
        for table in [Table::Parts, Table::UploadEntries, Table::Manifests] {
            assert_eq!(setup.partitions(table).await, 0, "{table:?}");
        }
        assert!(matches!(setup.abort(&upload).await, Err(Error::NoSuchUpload)), "once");
        assert!(matches!(setup.parts(&upload, 0, 1).await, Err(Error::NoSuchUpload)));
        tokio::time::sleep(std::time::Duration::from_secs(25 * 3600)).await;
        assert_eq!(setup.state(&upload).await, None, "its head goes after a day");
    });
}

#[test]
fn an_abort_removes_more_parts_than_one_page() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        for number in 1..=LISTING_PAGE_ROWS as u16 + 5 {
            setup.part(&upload, number, &Bytes::from_static(b"x")).await;
        }
        setup.abort(&upload).await.unwrap();
        assert!(setup.fixture.blobs().await.is_empty());
        assert_eq!(setup.partitions(Table::Parts).await, 0);
    });
}

#[test]
fn an_abort_with_another_initiated_time_is_refused() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let (objects, owner, key) = (&setup.fixture.objects, &setup.fixture.owner, Bytes::from_static(KEY.as_bytes()));
        let begun = setup.upload(&upload).await.unwrap().upload.initiated.as_secs();
        let refused = objects.uploads.abort(owner, BUCKET, &key, &upload, Some(begun + 1)).await;
        assert!(matches!(refused, Err(Error::OtherInitiationTime)));
        let stranger = new_caller(objects, "stranger").await;
        for caller in [stranger, Caller::default()] {
            let caller = caller.with_action(S3Action::AbortMultipartUpload);
            assert!(matches!(
                objects.uploads.abort(&caller, BUCKET, &key, &upload, None).await,
                Err(Error::AccessDenied)
            ));
        }
        objects.uploads.abort(owner, BUCKET, &key, &upload, Some(begun)).await.unwrap();
    });
}
