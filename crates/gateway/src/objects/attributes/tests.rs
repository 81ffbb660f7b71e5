//! Parts of an object, page by page, and who may ask. Tags are in the model of deletes.

use super::super::commit::testing::{BUCKET, Desk, bytes, get_of, run};
use super::*;

#[test]
fn parts_come_page_by_page() {
    run(async {
        let desk = Desk::new().await;
        let parts: Vec<Bytes> = (0..300).map(|at| bytes(at, 3)).collect();
        desk.put_parts("key", &parts).await;
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = desk.objects.object_attributes(&desk.owner, &get_of("key"), after, 70).await.unwrap();
            let (found, parts, more) = page;
            assert_eq!(found.window, 0..900);
            seen.extend(parts.iter().map(|part| part.number));
            after = u32::from(*seen.last().unwrap());
            if !more {
                break;
            }
            assert_eq!(parts.len(), 70);
        }
        assert_eq!(seen, (1..=300).collect::<Vec<_>>());
        desk.put("simple", &bytes(1, 10)).await;
        let (_, parts, more) = desk.objects.object_attributes(&desk.owner, &get_of("simple"), 0, 10).await.unwrap();
        assert!(parts.is_empty() && !more);
    });
}

#[test]
fn only_who_may_reads_and_replaces_tags() {
    run(async {
        let desk = Desk::new().await;
        desk.put("key", &bytes(1, 10)).await;
        let (key, nobody, current) = (Bytes::from_static(b"key"), Caller::default(), VersionSpec::Current);
        let objects = &desk.objects;
        assert!(matches!(objects.object_tags(&nobody, BUCKET, &key, &current).await, Err(Error::AccessDenied)));
        let put = objects.put_object_tags(&nobody, BUCKET, &key, &current, Vec::new()).await;
        assert!(matches!(put, Err(Error::AccessDenied)));
        let missing = Bytes::from_static(b"missing");
        let put = objects.put_object_tags(&desk.owner, BUCKET, &missing, &current, Vec::new()).await;
        assert!(matches!(put, Err(Error::NoSuchKey)));
        assert_eq!(objects.object_tags(&desk.owner, BUCKET, &key, &current).await.unwrap(), (Vec::new(), None));
    });
}
