//! The blobs that stored rows name, for a check that all of them are there.

use bytes::Bytes;
use larder_encryption::at_rest::RowKeys;
use larder_kv::rules::object_row::ObjectRow;
use larder_rows::codec::DecodeError;
use larder_rows::content::KvBody;
use larder_s3_rules::part::decode_manifest_row;
use larder_s3_rules::{ObjectHead, Part, Version};
use larder_store::{BlobReference, RowBlobs, Table};

/// The blobs that rows name, sealed ones under these data keys, too; none for a row that does not open or decode.
pub(crate) fn blob_references(keys: RowKeys) -> RowBlobs {
    Box::new(move |partition, name, value| {
        let value = keys.clear_value(partition, name, value);
        value.and_then(|value| decode(partition.table, name, value).ok()).unwrap_or_default()
    })
}

fn decode(table: Table, name: &[u8], value: Bytes) -> Result<Vec<BlobReference>, DecodeError> {
    match table {
        Table::Objects | Table::Consistent => {
            Ok(body_reference(&ObjectRow::decode(value)?.content.body).into_iter().collect())
        }
        // The head has no name; the others are noncurrent versions.
        Table::Heads if name.is_empty() => {
            Ok(ObjectHead::decode(value)?.current.iter().filter_map(version_reference).collect())
        }
        Table::Heads => Ok(version_reference(&Version::decode(value)?).into_iter().collect()),
        Table::Parts => {
            let Part { blob, length, .. } = Part::decode(name, value)?;
            Ok(blob.map(|id| BlobReference { id, length }).into_iter().collect())
        }
        // The row without a name has the manifest's owner.
        Table::Manifests if name.is_empty() => Ok(Vec::new()),
        Table::Manifests => {
            let (_, _, parts) = decode_manifest_row(name, value)?;
            Ok(parts.iter().filter_map(|part| Some(BlobReference { id: part.blob?, length: part.length })).collect())
        }
        Table::Keys | Table::Buckets | Table::Catalogue | Table::Members | Table::Marks => Ok(Vec::new()),
        Table::Entries | Table::Uploads | Table::UploadEntries | Table::Users | Table::GcMarks => Ok(Vec::new()),
        Table::Usage | Table::DataTypes | Table::Index | Table::Outbox | Table::Moves | Table::DataKeys => {
            Ok(Vec::new())
        }
    }
}

fn body_reference(body: &KvBody) -> Option<BlobReference> {
    match body {
        KvBody::Inline(_) => None,
        KvBody::Blob(blob) => Some(BlobReference { id: blob.id, length: blob.length }),
    }
}

fn version_reference(version: &Version) -> Option<BlobReference> {
    // The parts are named by the rows of the manifest.
    let (id, length) = version.object.as_ref()?.blob()?;
    Some(BlobReference { id, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::content::BlobId;
    use larder_s3_rules::ManifestPart;
    use larder_s3_rules::part::manifest_rows;

    #[test]
    fn each_blob_of_a_manifest_is_named() {
        let part = |number: u16, blob: Option<BlobId>| ManifestPart { number, length: 7, blob, checksum: None };
        let rows = manifest_rows(&[part(1, Some(BlobId([1; 24]))), part(2, None), part(3, Some(BlobId([3; 24])))]);
        let named = rows.into_iter().flat_map(|(name, value)| decode(Table::Manifests, &name, value).unwrap());
        let ids: Vec<u8> = named.map(|blob| blob.id.0[0]).collect();
        assert_eq!(ids, [1, 3]);
        assert!(decode(Table::Manifests, b"", Bytes::new()).unwrap().is_empty(), "the owner of a manifest");
        assert!(decode(Table::Objects, b"", Bytes::from_static(b"\xff")).is_err());
    }
}
