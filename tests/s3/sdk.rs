//! The Rust SDK, unmodified.

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, RequestChecksumCalculation};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier};
use aws_sdk_s3::{Client, Config};

use larder_tests::{LarderNode, S3_KEY, S3_SECRET, SplitMix64};

const PART: usize = 5 * 1024 * 1024;

fn client(node: &LarderNode) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("us-east-1"))
        .endpoint_url(format!("http://{}", node.s3_at()))
        .credentials_provider(Credentials::new(S3_KEY, S3_SECRET, None, None, "test"))
        .request_checksum_calculation(RequestChecksumCalculation::WhenSupported)
        .force_path_style(true)
        .build();
    Client::from_conf(config)
}

async fn body(stream: ByteStream) -> Vec<u8> {
    stream.collect().await.expect("a whole body").to_vec()
}

#[tokio::test]
async fn objects_are_put_read_listed_and_deleted() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let s3 = client(&node);
    s3.create_bucket().bucket("rust").send().await.expect("a bucket");
    let put = s3.put_object().bucket("rust").key("a/b c").body(ByteStream::from_static(b"small")).send().await.unwrap();
    assert_eq!(put.e_tag(), Some("\"eb5c1399a871211c7e7ed732d15e3a8b\""));
    let got = s3.get_object().bucket("rust").key("a/b c").send().await.unwrap();
    assert_eq!(body(got.body).await, b"small");
    let copy = s3.copy_object().bucket("rust").key("copy").copy_source("rust/a%2Fb%20c").send().await.unwrap();
    assert_eq!(copy.copy_object_result().and_then(|copied| copied.e_tag()), put.e_tag());
    let listed = s3.list_objects_v2().bucket("rust").delimiter("/").send().await.unwrap();
    assert_eq!(listed.contents()[0].key(), Some("copy"));
    assert_eq!(listed.common_prefixes()[0].prefix(), Some("a/"));
    let objects = ["copy", "a/b c"].map(|key| ObjectIdentifier::builder().key(key).build().unwrap());
    let delete = Delete::builder().set_objects(Some(objects.into())).build().unwrap();
    let deleted = s3.delete_objects().bucket("rust").delete(delete).send().await.unwrap();
    assert_eq!(deleted.deleted().len(), 2, "{deleted:?}");
    let missing = s3.get_object().bucket("rust").key("copy").send().await.unwrap_err().into_service_error();
    assert!(missing.is_no_such_key(), "{missing:?}");
    s3.delete_bucket().bucket("rust").send().await.unwrap();
}

#[tokio::test]
async fn parts_with_trailing_checksums_are_stored() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let s3 = client(&node);
    s3.create_bucket().bucket("rust").send().await.unwrap();
    let begun = s3
        .create_multipart_upload()
        .bucket("rust")
        .key("large")
        .checksum_algorithm(ChecksumAlgorithm::Crc32C)
        .send()
        .await
        .unwrap();
    let upload = begun.upload_id().unwrap();
    let bodies = [SplitMix64::new(1).bytes(PART), SplitMix64::new(2).bytes(PART), SplitMix64::new(3).bytes(10)];
    let mut parts = Vec::new();
    for (number, bytes) in (1..).zip(&bodies) {
        let part = s3
            .upload_part()
            .bucket("rust")
            .key("large")
            .upload_id(upload)
            .part_number(number)
            .checksum_algorithm(ChecksumAlgorithm::Crc32C)
            .body(ByteStream::from(bytes.clone()))
            .send()
            .await
            .unwrap();
        assert!(part.checksum_crc32_c().is_some(), "{part:?}");
        parts.push(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(part.e_tag().map(str::to_owned))
                .set_checksum_crc32_c(part.checksum_crc32_c().map(str::to_owned))
                .build(),
        );
    }
    let mut pages = s3.list_parts().bucket("rust").key("large").upload_id(upload).max_parts(2).into_paginator().send();
    let mut numbers = Vec::new();
    while let Some(page) = pages.next().await {
        numbers.extend(page.unwrap().parts().iter().filter_map(|part| part.part_number()));
    }
    assert_eq!(numbers, [1, 2, 3]);
    let list = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let done = s3
        .complete_multipart_upload()
        .bucket("rust")
        .key("large")
        .upload_id(upload)
        .multipart_upload(list)
        .send()
        .await;
    assert!(done.unwrap().checksum_crc32_c().is_some_and(|sum| sum.ends_with("-3")));
    let got = s3.get_object().bucket("rust").key("large").send().await.unwrap();
    assert!(body(got.body).await == bodies.concat());
}
