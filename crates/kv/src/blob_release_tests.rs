//! Blob removals on the key-value side, and the state that a power cut would leave.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_core::blobs::sweep::BlobSweep;
use larder_core::body::{GetBody, PutBody};
use larder_core::rules::props::Quorum;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_testkit::VolatileStore;

use crate::rules::causality::Conditions;
use crate::testing::gateway_over;
use crate::{Gateway, KvDelete, KvGet, KvPut, Quorums};

/// Longer than removals are collected for one barrier.
const LATER: Duration = Duration::from_secs(3);

const TYPES: [(&str, &str); 4] = [
    ("sib", "{}"),
    ("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#),
    ("once", r#"{"write_once":true}"#),
    ("cas", r#"{"consistent":true}"#),
];

async fn world(durable: bool) -> (Arc<VolatileStore>, Arc<Gateway>) {
    let store = VolatileStore::new(durable);
    let gateway = gateway_over(&store).await;
    for (name, props) in TYPES {
        let props: serde_json::Value = serde_json::from_str(props).unwrap();
        let name = Bytes::from_static(name.as_bytes());
        gateway.types().create(&name, props.as_object().unwrap()).await.unwrap();
        while gateway.types().activate(&name).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    (store, gateway)
}

fn address(kind: &'static str) -> Address {
    let bucket = BucketAddress::new(Bytes::from_static(kind.as_bytes()), Bytes::from_static(b"b")).unwrap();
    Address::new(bucket, Bytes::from_static(b"k")).unwrap()
}

/// Replica counts of a write that does not wait for the disk.
fn buffered() -> Quorums {
    Quorums { dw: Some(Quorum::Count(0)), ..Quorums::default() }
}

fn put_request(kind: &'static str, body: &Bytes, quorums: Quorums, context: Option<Bytes>) -> KvPut {
    KvPut {
        address: address(kind),
        context,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent::default(),
        upload: PutBody::Bytes(body.clone()),
        quorums,
        return_body: false,
        timeout: None,
    }
}

async fn delete(gateway: &Gateway, kind: &'static str, quorums: Quorums) {
    let conditions = Conditions::default();
    let request = KvDelete { address: address(kind), context: None, conditions, quorums, timeout: None };
    gateway.kv.delete(request).await.unwrap();
}

/// The only body of a key, and the context.
async fn get(gateway: &Gateway, kind: &'static str) -> Result<(Bytes, Option<Bytes>), Error> {
    let request = KvGet { address: address(kind), quorums: Quorums::default(), bodies: true, timeout: None };
    let mut object = gateway.kv.get(request).await?;
    assert_eq!(object.bodies.len(), 1);
    let mut body = object.bodies.remove(0);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < body.length() {
        bytes.extend_from_slice(&GetBody::piece(&mut body, bytes.len() as u64, 1 << 16).await?);
    }
    Ok((bytes.into(), object.context))
}

fn large(text: u8) -> Bytes {
    vec![text; 5_000].into()
}

fn small() -> Bytes {
    Bytes::from_static(b"small")
}

#[tokio::test(start_paused = true)]
async fn a_blob_is_not_removed_before_the_row_that_replaced_it_is_synced() {
    let (store, gateway) = world(true).await;
    gateway.kv.put(put_request("lww", &large(1), Quorums::default(), None)).await.unwrap();
    gateway.kv.put(put_request("lww", &small(), buffered(), None)).await.unwrap();
    gateway.kv.put(put_request("once", &large(2), Quorums::default(), None)).await.unwrap();
    delete(&gateway, "once", buffered()).await;
    assert_eq!(store.state().removed, 0, "a blind overwrite leaves its blob to the sweeper");
    assert_eq!(gateway.kv.sweep_blobs().await.unwrap(), BlobSweep { removed: 2, failed: 0 });
    let state = store.state();
    assert_eq!((state.removed, state.removed_too_early, state.barriers), (2, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_blob_is_not_removed_before_the_row_that_replaced_it_is_synced_where_answers_do_not_wait_for_the_disk() {
    let (store, gateway) = world(false).await;
    for kind in ["sib", "cas"] {
        let before = store.state().barriers;
        gateway.kv.put(put_request(kind, &large(1), Quorums::default(), None)).await.unwrap();
        let context = get(&gateway, kind).await.unwrap().1;
        gateway.kv.put(put_request(kind, &large(2), Quorums::default(), context)).await.unwrap();
        assert_eq!(
            (store.state().barriers, store.blobs().await.unwrap()),
            (before, 2),
            "{kind}: the answer does not wait"
        );
        tokio::time::sleep(LATER).await;
        assert_eq!((store.state().removed_too_early, store.blobs().await.unwrap()), (0, 1), "{kind}");
        assert_eq!(get(&gateway, kind).await.unwrap().0, large(2));
        delete(&gateway, kind, Quorums::default()).await;
        assert_eq!(store.blobs().await.unwrap(), 1, "{kind}: the answer to a delete does not wait");
        tokio::time::sleep(LATER).await;
        assert_eq!((store.state().removed_too_early, store.blobs().await.unwrap()), (0, 0), "{kind}");
        assert_eq!(store.state().barriers, before + 2, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blob_is_not_removed_because_of_a_head_that_was_only_read_back() {
    let (store, gateway) = world(true).await;
    gateway.kv.put(put_request("cas", &large(1), Quorums::default(), None)).await.unwrap();
    let context = get(&gateway, "cas").await.unwrap().1;
    store.stall_next_swap();
    gateway.kv.put(put_request("cas", &large(2), Quorums::default(), context)).await.unwrap();
    assert_eq!((store.state().removed, store.state().removed_too_early, store.state().barriers), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_durable_answer_needs_no_further_barrier() {
    let (store, gateway) = world(true).await;
    for kind in ["sib", "cas"] {
        gateway.kv.put(put_request(kind, &large(1), Quorums::default(), None)).await.unwrap();
        let context = get(&gateway, kind).await.unwrap().1;
        // A write that removes bytes waits for the disk, whatever it asks for.
        gateway.kv.put(put_request(kind, &large(2), buffered(), context)).await.unwrap();
        assert_eq!(store.blobs().await.unwrap(), 1, "{kind}");
        delete(&gateway, kind, buffered()).await;
        assert_eq!(store.blobs().await.unwrap(), 0, "{kind}");
    }
    assert_eq!((store.state().removed_too_early, store.state().barriers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_removes_no_bytes() {
    for durable in [true, false] {
        let (store, gateway) = world(durable).await;
        gateway.kv.put(put_request("lww", &large(1), Quorums::default(), None)).await.unwrap();
        gateway.kv.put(put_request("lww", &small(), buffered(), None)).await.unwrap();
        gateway.kv.put(put_request("sib", &large(2), Quorums::default(), None)).await.unwrap();
        let context = get(&gateway, "sib").await.unwrap().1;
        store.fail_syncs();
        let put = gateway.kv.put(put_request("sib", &small(), Quorums::default(), context)).await;
        assert_eq!(put.is_err(), durable);
        tokio::time::sleep(LATER).await;
        assert_eq!(gateway.kv.sweep_blobs().await.unwrap(), BlobSweep { removed: 0, failed: 1 });
        assert_eq!((store.state().removed, store.blobs().await.unwrap()), (0, 2));
        assert!(store.state().barriers > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_the_store_carries_out_after_its_client_left_keeps_its_bytes() {
    for kind in ["sib", "lww"] {
        let (store, gateway) = world(true).await;
        let arrived = store.hold();
        let put = put_request(kind, &large(1), Quorums::default(), None);
        let client = tokio::spawn({
            let gateway = Arc::clone(&gateway);
            async move { gateway.kv.put(put).await.map(drop) }
        });
        arrived.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(gateway.kv.sweep_blobs().await.unwrap(), BlobSweep::default());
        store.resume();
        tokio::time::sleep(LATER).await;
        assert_eq!(get(&gateway, kind).await.unwrap().0, large(1), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_put_that_was_never_carried_out_are_swept_after_the_lease() {
    let (store, gateway) = world(true).await;
    let arrived = store.hold();
    let put = put_request("sib", &large(1), Quorums::default(), None);
    tokio::select! {
        _ = gateway.kv.put(put) => panic!("the batch is held"),
        arrived = arrived => arrived.unwrap(),
    }
    assert_eq!(gateway.kv.sweep_blobs().await.unwrap().removed, 0);
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(gateway.kv.sweep_blobs().await.unwrap().removed, 1);
    assert_eq!(store.blobs().await.unwrap(), 0);
}
