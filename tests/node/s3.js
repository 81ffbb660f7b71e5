'use strict';
// The S3 SDK for JavaScript, unmodified: objects, and a multipart upload with trailing checksums.

const assert = require('assert');
const s3 = require('@aws-sdk/client-s3');

const PART = 5 * 1024 * 1024;

const client = new s3.S3({
  endpoint: `http://127.0.0.1:${process.env.LARDER_S3_PORT}`,
  region: 'us-east-1',
  credentials: { accessKeyId: process.env.LARDER_S3_KEY, secretAccessKey: process.env.LARDER_S3_SECRET },
  forcePathStyle: true,
  maxAttempts: 1,
});

async function bytes(body) {
  return Buffer.from(await body.transformToByteArray());
}

/** Bytes that differ from part to part. */
function part(number, length) {
  return Buffer.from(Uint8Array.from({ length }, (_, at) => (at * 31 + at / 251 + number) % 256));
}

const tests = {
  async objects_are_put_read_copied_listed_and_deleted() {
    await client.createBucket({ Bucket: 'sdk-js' });
    const put = await client.putObject({ Bucket: 'sdk-js', Key: 'a/b c', Body: 'small' });
    assert.strictEqual(put.ETag, '"eb5c1399a871211c7e7ed732d15e3a8b"');
    assert.ok(put.ChecksumCRC32, JSON.stringify(put));
    const got = await client.getObject({ Bucket: 'sdk-js', Key: 'a/b c' });
    assert.strictEqual((await bytes(got.Body)).toString(), 'small');
    const copy = await client.copyObject({ Bucket: 'sdk-js', Key: 'copy', CopySource: 'sdk-js/a%2Fb%20c' });
    assert.strictEqual(copy.CopyObjectResult.ETag, put.ETag);
    const listed = await client.listObjectsV2({ Bucket: 'sdk-js', Delimiter: '/' });
    assert.deepStrictEqual(listed.Contents.map(({ Key }) => Key), ['copy']);
    assert.deepStrictEqual(listed.CommonPrefixes.map(({ Prefix }) => Prefix), ['a/']);
    const Objects = [{ Key: 'copy' }, { Key: 'a/b c' }];
    const deleted = await client.deleteObjects({ Bucket: 'sdk-js', Delete: { Objects } });
    assert.strictEqual(deleted.Deleted.length, 2);
    await assert.rejects(client.getObject({ Bucket: 'sdk-js', Key: 'copy' }), s3.NoSuchKey);
    await client.deleteBucket({ Bucket: 'sdk-js' });
  },

  async objects_are_encrypted_and_locked() {
    const at = { Bucket: 'sdk-js-locked', Key: 'ledger' };
    await client.createBucket({ Bucket: at.Bucket, ObjectLockEnabledForBucket: true });
    const ObjectLockRetainUntilDate = new Date(Math.ceil(Date.now() / 1000) * 1000 + 3600000);
    const lock = { ObjectLockMode: 'GOVERNANCE', ObjectLockRetainUntilDate };
    const { VersionId } = await client.putObject({ ...at, Body: 'gold', ServerSideEncryption: 'AES256', ...lock });
    const head = await client.headObject({ ...at, VersionId });
    assert.strictEqual(head.ServerSideEncryption, 'AES256');
    assert.strictEqual(head.ObjectLockMode, 'GOVERNANCE');
    assert.strictEqual(head.ObjectLockRetainUntilDate.getTime(), ObjectLockRetainUntilDate.getTime());
    await assert.rejects(client.deleteObject({ ...at, VersionId }), { name: 'AccessDenied' });
    await client.putObjectLegalHold({ ...at, LegalHold: { Status: 'ON' } });
    const { LegalHold } = await client.getObjectLegalHold(at);
    assert.strictEqual(LegalHold.Status, 'ON');
    const bypass = { ...at, VersionId, BypassGovernanceRetention: true };
    await assert.rejects(client.deleteObject(bypass), { name: 'AccessDenied' });
    await client.putObjectLegalHold({ ...at, LegalHold: { Status: 'OFF' } });
    await client.deleteObject(bypass);
    await client.deleteBucket({ Bucket: at.Bucket });
  },

  async parts_with_trailing_checksums_are_stored() {
    const at = { Bucket: 'sdk-js-parts', Key: 'large' };
    await client.createBucket({ Bucket: at.Bucket });
    const { UploadId } = await client.createMultipartUpload({ ...at, ChecksumAlgorithm: 'CRC32C' });
    const bodies = [part(1, PART), part(2, PART), part(3, 10)];
    const Parts = [];
    for (const [index, Body] of bodies.entries()) {
      const PartNumber = index + 1;
      const sent = await client.uploadPart({ ...at, UploadId, PartNumber, Body, ChecksumAlgorithm: 'CRC32C' });
      assert.ok(sent.ChecksumCRC32C, JSON.stringify(sent));
      Parts.push({ PartNumber, ETag: sent.ETag, ChecksumCRC32C: sent.ChecksumCRC32C });
    }
    const pages = [];
    // The SDK's own paginator asks on while a marker comes back, which the last page has too, as on AWS.
    for (let page = {}, more = true; more; more = page.IsTruncated) {
      const PartNumberMarker = page.NextPartNumberMarker;
      page = await client.listParts({ ...at, UploadId, MaxParts: 2, PartNumberMarker });
      pages.push(page.Parts.map(({ PartNumber }) => PartNumber));
    }
    assert.deepStrictEqual(pages, [[1, 2], [3]]);
    const done = await client.completeMultipartUpload({ ...at, UploadId, MultipartUpload: { Parts } });
    assert.ok(done.ChecksumCRC32C.endsWith('-3'), JSON.stringify(done));
    const got = await client.getObject(at);
    assert.ok((await bytes(got.Body)).equals(Buffer.concat(bodies)));
  },
};

(async () => {
  for (const [name, test] of Object.entries(tests)) {
    await test();
    console.log('ok   ', name);
  }
})().catch((error) => {
  console.log('FAIL ', error.stack);
  process.exit(1);
});
