//! Part listings of object attributes, and permission for tags. The model of deletes tests tags.

use super::super::buckets::testing::anonymous;
use super::super::commit::testing::{BUCKET, BucketFixture, bytes, get_request, run};
use super::*;
use crate::Error;

#[test]
fn attributes_list_parts_in_pages() {
    run(async {
        let fixture = BucketFixture::new().await;
        let parts: Vec<Bytes> = (0..300).map(|at| bytes(at, 3)).collect();
        fixture.put_parts("key", &parts).await;
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = fixture.objects.object_attributes(&fixture.owner, &get_request("key"), after, 70).await.unwrap();
            let (found_object, parts, more) = page;
            assert_eq!(found_object.window, 0..900);
            seen.extend(parts.iter().map(|part| part.number));
            after = u32::from(*seen.last().unwrap());
            if !more {
                break;
            }
            assert_eq!(parts.len(), 70);
        }
        assert_eq!(seen, (1..=300).collect::<Vec<_>>());
        fixture.put("simple", &bytes(1, 10)).await;
        let (_, parts, more) =
            fixture.objects.object_attributes(&fixture.owner, &get_request("simple"), 0, 10).await.unwrap();
        assert!(parts.is_empty() && !more);
    });
}

#[test]
fn tags_need_permission() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.put("key", &bytes(1, 10)).await;
        let (key, current, objects) = (Bytes::from_static(b"key"), VersionSpec::Current, &fixture.objects);
        let reader = anonymous(S3Action::GetObjectTagging);
        assert!(matches!(objects.object_tags(&reader, BUCKET, &key, &current).await, Err(Error::AccessDenied)));
        let put =
            objects.put_object_tags(&anonymous(S3Action::PutObjectTagging), BUCKET, &key, &current, Vec::new()).await;
        assert!(matches!(put, Err(Error::AccessDenied)));
        let missing = Bytes::from_static(b"missing");
        let put = objects.put_object_tags(&fixture.owner, BUCKET, &missing, &current, Vec::new()).await;
        assert!(matches!(put, Err(Error::NoSuchKey)));
        assert_eq!(objects.object_tags(&fixture.owner, BUCKET, &key, &current).await.unwrap(), (Vec::new(), None));
    });
}
