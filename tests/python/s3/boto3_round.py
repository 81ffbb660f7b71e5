"""boto3, unmodified: both signatures, both ways to name a bucket, and every operation an application uses."""

import base64
import hashlib
import io
import json
import sys
import urllib.request
import uuid

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

from larder_s3 import KEY, PORT, SECRET, bucket_name, run

MIB = 1024 * 1024


def client(signature="s3v4", style="path", host="127.0.0.1", key=KEY, secret=SECRET, token=None, **config):
    return boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{PORT}",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name="us-east-1",
        config=Config(signature_version=signature, s3={"addressing_style": style}, retries={"max_attempts": 1}, **config),
    )


def every_client():
    for signature in ("s3v4", "s3"):
        yield client(signature)
        yield client(signature, "virtual", "localhost")
        yield client(signature, "virtual", "s3.localhost")


def refused(call, code, status=None):
    try:
        call()
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error.response
        if status:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == status, error.response
        return error.response
    raise AssertionError(f"not refused with {code}")


def bytes_of(seed, length):
    """Bytes that no two calls with different seeds share."""
    block = hashlib.sha256(str(seed).encode()).digest()
    return (block * (length // 32 + 1))[:length]


def empty_and_delete(s3, bucket):
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for one in page.get("Versions", []) + page.get("DeleteMarkers", []):
            s3.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
    s3.delete_bucket(Bucket=bucket)


def test_a_round_with_every_signature_and_every_address():
    for s3 in every_client():
        bucket = bucket_name("round")
        s3.create_bucket(Bucket=bucket)
        s3.head_bucket(Bucket=bucket)
        assert bucket in [one["Name"] for one in s3.list_buckets()["Buckets"]]
        for key in ["plain", "with blank", "a/b/c", "ünï=cödé*(+)&?#%25", "dots/../x", "//double"]:
            body = key.encode() * 3
            put = s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType="text/x-test; charset=utf-8", Metadata={"Colour": "blue"})
            assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"', put
            got = s3.get_object(Bucket=bucket, Key=key)
            assert got["Body"].read() == body and got["ContentType"] == "text/x-test; charset=utf-8", got
            assert got["Metadata"] == {"colour": "blue"}, got
            head = s3.head_object(Bucket=bucket, Key=key)
            assert head["ContentLength"] == len(body) and head["ETag"] == put["ETag"]
            assert abs((head["LastModified"] - got["LastModified"]).total_seconds()) < 1
        listed = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
        assert listed == sorted(listed, key=lambda key: key.encode()), listed
        assert listed == [one["Key"] for one in s3.list_objects(Bucket=bucket)["Contents"]]
        refused(lambda: s3.delete_bucket(Bucket=bucket), "BucketNotEmpty", 409)
        deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in listed]})
        assert sorted(one["Key"] for one in deleted["Deleted"]) == sorted(listed), deleted
        refused(lambda: s3.get_object(Bucket=bucket, Key="plain"), "NoSuchKey", 404)
        s3.delete_bucket(Bucket=bucket)
        refused(lambda: s3.list_objects_v2(Bucket=bucket), "NoSuchBucket", 404)


def test_multipart_with_parts_listed_page_by_page():
    for s3 in every_client():
        bucket = bucket_name("parts")
        s3.create_bucket(Bucket=bucket)
        upload = s3.create_multipart_upload(Bucket=bucket, Key="large/object", ContentType="text/plain", Metadata={"a": "b"})
        uid = upload["UploadId"]
        names = {"Bucket": bucket, "Key": "large/object", "UploadId": uid}
        numbers = [1, 2, 3, 7, 10000]
        parts = {}
        for number in numbers:
            body = bytes_of(number, 5 * MIB if number != 10000 else 1234)
            parts[number] = s3.upload_part(**names, PartNumber=number, Body=body)["ETag"]
        again = bytes_of("again", 5 * MIB)
        parts[2] = s3.upload_part(**names, PartNumber=2, Body=again)["ETag"]
        listed, marker = [], 0
        while True:
            page = s3.list_parts(**names, MaxParts=2, PartNumberMarker=marker)
            assert page["MaxParts"] == 2 and page["PartNumberMarker"] == marker, page
            assert page["StorageClass"] == "STANDARD" and page["Initiator"]["ID"] == page["Owner"]["ID"], page
            listed += page.get("Parts", [])
            if not page["IsTruncated"]:
                break
            marker = page["NextPartNumberMarker"]
        assert [one["PartNumber"] for one in listed] == numbers, listed
        assert {one["PartNumber"]: one["ETag"] for one in listed} == parts, listed
        paged = [one for page in s3.get_paginator("list_parts").paginate(**names, PaginationConfig={"PageSize": 1}) for one in page.get("Parts", [])]
        assert [one["PartNumber"] for one in paged] == numbers
        assert uid in [one["UploadId"] for one in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]]
        whole = b"".join([bytes_of(1, 5 * MIB), again, bytes_of(3, 5 * MIB), bytes_of(7, 5 * MIB), bytes_of(10000, 1234)])
        complete = {"Parts": [{"PartNumber": number, "ETag": parts[number]} for number in numbers]}
        done = s3.complete_multipart_upload(**names, MultipartUpload=complete)
        digests = b"".join(bytes.fromhex(parts[number].strip('"')) for number in numbers)
        assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-5"', done
        assert s3.complete_multipart_upload(**names, MultipartUpload=complete)["ETag"] == done["ETag"], "a repeat"
        got = s3.get_object(Bucket=bucket, Key="large/object")
        assert got["Body"].read() == whole and got["Metadata"] == {"a": "b"} and got["ContentType"] == "text/plain"
        ranged = s3.get_object(Bucket=bucket, Key="large/object", Range=f"bytes={5 * MIB - 3}-{5 * MIB + 2}")
        assert ranged["Body"].read() == whole[5 * MIB - 3 : 5 * MIB + 3]
        third = s3.get_object(Bucket=bucket, Key="large/object", PartNumber=3)
        assert third["Body"].read() == bytes_of(3, 5 * MIB) and third["PartsCount"] == 5, third
        refused(lambda: s3.list_parts(**names), "NoSuchUpload", 404)
        gone = s3.create_multipart_upload(Bucket=bucket, Key="gone")["UploadId"]
        s3.upload_part(Bucket=bucket, Key="gone", UploadId=gone, PartNumber=1, Body=b"x")
        s3.abort_multipart_upload(Bucket=bucket, Key="gone", UploadId=gone)
        refused(lambda: s3.list_parts(Bucket=bucket, Key="gone", UploadId=gone), "NoSuchUpload", 404)
        copied = s3.create_multipart_upload(Bucket=bucket, Key="copied")["UploadId"]
        source = {"Bucket": bucket, "Key": "large/object"}
        part = s3.upload_part_copy(Bucket=bucket, Key="copied", UploadId=copied, PartNumber=1, CopySource=source, CopySourceRange="bytes=0-99")
        s3.complete_multipart_upload(Bucket=bucket, Key="copied", UploadId=copied, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]})
        assert s3.get_object(Bucket=bucket, Key="copied")["Body"].read() == whole[:100]
        empty_and_delete(s3, bucket)


def test_managed_transfers():
    s3 = client()
    bucket = bucket_name("managed")
    s3.create_bucket(Bucket=bucket)
    body = bytes_of("managed", 20 * MIB + 17)
    s3.upload_fileobj(io.BytesIO(body), bucket, "file")
    back = io.BytesIO()
    s3.download_fileobj(bucket, "file", back)
    assert back.getvalue() == body
    empty_and_delete(s3, bucket)


def test_every_checksum_in_header_trailer_and_parts():
    s3 = client()
    bucket = bucket_name("sums")
    s3.create_bucket(Bucket=bucket)
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put = s3.put_object(Bucket=bucket, Key=algorithm, Body=b"hello", ChecksumAlgorithm=algorithm)
        field = f"Checksum{algorithm}"
        got = s3.get_object(Bucket=bucket, Key=algorithm, ChecksumMode="ENABLED")
        assert got[field] == put[field] and got["Body"].read() == b"hello", got
        upload = s3.create_multipart_upload(Bucket=bucket, Key="mp" + algorithm, ChecksumAlgorithm=algorithm)["UploadId"]
        names = {"Bucket": bucket, "Key": "mp" + algorithm, "UploadId": upload}
        part = s3.upload_part(**names, PartNumber=1, Body=b"part", ChecksumAlgorithm=algorithm)
        listed = s3.list_parts(**names)
        assert listed["Parts"][0][field] == part[field] and listed["ChecksumAlgorithm"] == algorithm, listed
        done = s3.complete_multipart_upload(**names, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"], field: part[field]}]})
        assert done[field].endswith("-1"), done
    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    refused(lambda: s3.put_object(Bucket=bucket, Key="wrong", Body=b"hello", ChecksumSHA256=wrong), "BadDigest", 400)
    md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    refused(lambda: s3.put_object(Bucket=bucket, Key="wrong", Body=b"hello", ContentMD5=md5), "BadDigest", 400)
    refused(lambda: s3.get_object(Bucket=bucket, Key="wrong"), "NoSuchKey")
    empty_and_delete(s3, bucket)


def test_copies():
    for s3 in (client(), client("s3")):
        bucket, other = bucket_name("from"), bucket_name("to")
        s3.create_bucket(Bucket=bucket)
        s3.create_bucket(Bucket=other)
        s3.put_object(Bucket=bucket, Key="a b/ü", Body=b"body", Metadata={"x": "1"}, ContentType="text/x")
        s3.copy_object(Bucket=other, Key="b", CopySource={"Bucket": bucket, "Key": "a b/ü"})
        got = s3.get_object(Bucket=other, Key="b")
        assert got["Body"].read() == b"body" and got["Metadata"] == {"x": "1"} and got["ContentType"] == "text/x"
        s3.copy_object(Bucket=other, Key="b", CopySource={"Bucket": other, "Key": "b"}, MetadataDirective="REPLACE", Metadata={"x": "2"})
        assert s3.head_object(Bucket=other, Key="b")["Metadata"] == {"x": "2"}
        refused(lambda: s3.copy_object(Bucket=other, Key="b", CopySource={"Bucket": other, "Key": "b"}), "InvalidRequest", 400)
        refused(lambda: s3.copy_object(Bucket=other, Key="c", CopySource={"Bucket": other, "Key": "none"}), "NoSuchKey", 404)
        empty_and_delete(s3, bucket)
        empty_and_delete(s3, other)


def test_ranges_and_conditions():
    s3 = client()
    bucket = bucket_name("cond")
    s3.create_bucket(Bucket=bucket)
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")["ETag"]
    get = lambda **how: s3.get_object(Bucket=bucket, Key="k", **how)
    for asked, expected in [("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=5-100", b"56789")]:
        got = get(Range=asked)
        assert got["Body"].read() == expected and got["ResponseMetadata"]["HTTPStatusCode"] == 206, asked
    refused(lambda: get(Range="bytes=10-"), "InvalidRange", 416)
    refused(lambda: get(IfMatch='"other"'), "PreconditionFailed", 412)
    refused(lambda: get(IfNoneMatch=etag), "304", 304)
    assert get(IfMatch=etag)["Body"].read() == b"0123456789"
    refused(lambda: s3.put_object(Bucket=bucket, Key="k", Body=b"x", IfNoneMatch="*"), "PreconditionFailed", 412)
    s3.put_object(Bucket=bucket, Key="k", Body=b"new", IfMatch=etag)
    refused(lambda: s3.put_object(Bucket=bucket, Key="k", Body=b"x", IfMatch=etag), "PreconditionFailed", 412)
    shown = get(ResponseContentType="text/override", ResponseContentDisposition="attachment")
    assert shown["ContentType"] == "text/override" and shown["ContentDisposition"] == "attachment"
    empty_and_delete(s3, bucket)


def test_listing_pages_prefixes_and_delimiters():
    s3 = client()
    bucket = bucket_name("list")
    s3.create_bucket(Bucket=bucket)
    keys = sorted(f"{a}/{b}/{c}" for a in "xyz" for b in "12" for c in "pqr") + ["zz"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for size in (1, 2, 5, 1000):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": size})
        assert [one["Key"] for page in pages for one in page.get("Contents", [])] == keys, size
        pages = s3.get_paginator("list_objects").paginate(Bucket=bucket, Prefix="y/", Delimiter="/", PaginationConfig={"PageSize": size})
        assert [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])] == ["y/1/", "y/2/"], size
    page = s3.list_objects_v2(Bucket=bucket, StartAfter="y/2/q", FetchOwner=True)
    assert page["Contents"][0]["Key"] == "y/2/r" and "ID" in page["Contents"][0]["Owner"], page
    empty_and_delete(s3, bucket)


def test_versions():
    s3 = client()
    bucket = bucket_name("vers")
    s3.create_bucket(Bucket=bucket)
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=b"null")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    second = s3.put_object(Bucket=bucket, Key="k", Body=b"2")["VersionId"]
    assert s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"null"
    assert s3.get_object(Bucket=bucket, Key="k", VersionId=first)["Body"].read() == b"1"
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"] and marker["VersionId"], marker
    refused(lambda: s3.get_object(Bucket=bucket, Key="k"), "NoSuchKey", 404)
    refused(lambda: s3.get_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"]), "MethodNotAllowed", 405)
    listed = s3.list_object_versions(Bucket=bucket)
    assert [one["VersionId"] for one in listed["Versions"]] == [second, first, "null"], listed
    assert listed["DeleteMarkers"][0]["IsLatest"], listed
    s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"
    s3.delete_object(Bucket=bucket, Key="k", VersionId=second)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert s3.put_object(Bucket=bucket, Key="k", Body=b"null again").get("VersionId") in (None, "null")
    assert len(s3.list_object_versions(Bucket=bucket)["Versions"]) == 2
    refused(lambda: s3.get_object(Bucket=bucket, Key="k", VersionId="nonsense"), "NoSuchVersion", 404)
    refused(lambda: s3.delete_bucket(Bucket=bucket), "BucketNotEmpty", 409)
    empty_and_delete(s3, bucket)


def test_configurations():
    s3 = client()
    bucket = bucket_name("conf")
    s3.create_bucket(Bucket=bucket)
    refused(lambda: s3.get_bucket_policy(Bucket=bucket), "NoSuchBucketPolicy", 404)
    refused(lambda: s3.get_bucket_cors(Bucket=bucket), "NoSuchCORSConfiguration", 404)
    refused(lambda: s3.get_bucket_lifecycle_configuration(Bucket=bucket), "NoSuchLifecycleConfiguration", 404)
    refused(lambda: s3.get_bucket_tagging(Bucket=bucket), "NoSuchTagSet", 404)
    refused(lambda: s3.get_public_access_block(Bucket=bucket), "NoSuchPublicAccessBlockConfiguration", 404)
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == [{"Key": "a", "Value": "b"}]
    cors = {"CORSRules": [{"AllowedOrigins": ["http://*.example.com"], "AllowedMethods": ["GET", "PUT"], "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}]}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration=cors)
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == cors["CORSRules"]
    asked = urllib.request.Request(f"http://127.0.0.1:{PORT}/{bucket}/k", method="OPTIONS", headers={"Origin": "http://a.example.com", "Access-Control-Request-Method": "PUT"})
    with urllib.request.urlopen(asked) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "http://a.example.com", answer.headers
    rules = [{"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}}]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == rules
    s3.put_object(Bucket=bucket, Key="logs/x", Body=b"", Tagging="k=v")
    assert "old" in s3.head_object(Bucket=bucket, Key="logs/x")["Expiration"]
    assert s3.get_object_tagging(Bucket=bucket, Key="logs/x")["TagSet"] == [{"Key": "k", "Value": "v"}]
    s3.put_object_tagging(Bucket=bucket, Key="logs/x", Tagging={"TagSet": [{"Key": "n", "Value": "1"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="logs/x")["TagSet"] == [{"Key": "n", "Value": "1"}]
    s3.delete_object_tagging(Bucket=bucket, Key="logs/x")
    assert s3.get_object_tagging(Bucket=bucket, Key="logs/x")["TagSet"] == []
    attributes = s3.get_object_attributes(Bucket=bucket, Key="logs/x", ObjectAttributes=["ETag", "ObjectSize"])
    assert attributes["ObjectSize"] == 0 and attributes["ETag"] == hashlib.md5(b"").hexdigest(), attributes
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration={"IndexDocument": {"Suffix": "i"}})
    assert s3.get_bucket_website(Bucket=bucket)["IndexDocument"] == {"Suffix": "i"}
    s3.delete_bucket_website(Bucket=bucket)
    refused(lambda: s3.get_bucket_website(Bucket=bucket), "NoSuchWebsiteConfiguration", 404)
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
    refused(lambda: s3.put_object_acl(Bucket=bucket, Key="logs/x", ACL="private"), "AccessControlListNotSupported", 400)
    s3.delete_bucket_ownership_controls(Bucket=bucket)
    refused(lambda: s3.get_object_torrent(Bucket=bucket, Key="logs/x"), "NotImplemented", 501)
    for drop in (s3.delete_bucket_cors, s3.delete_bucket_lifecycle, s3.delete_bucket_tagging):
        drop(Bucket=bucket)
    refused(lambda: s3.get_bucket_cors(Bucket=bucket), "NoSuchCORSConfiguration", 404)
    empty_and_delete(s3, bucket)


def test_encryption():
    s3 = client()
    bucket = bucket_name("sealed")
    s3.create_bucket(Bucket=bucket)
    body = bytes(range(256)) * 1024
    assert s3.put_object(Bucket=bucket, Key="k", Body=body, ServerSideEncryption="AES256")["ServerSideEncryption"] == "AES256"
    whole = s3.get_object(Bucket=bucket, Key="k")
    assert whole["Body"].read() == body and whole["ServerSideEncryption"] == "AES256" and whole["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    assert s3.get_object(Bucket=bucket, Key="k", Range="bytes=65530-65545")["Body"].read() == body[65530:65546]
    refused(lambda: s3.put_object(Bucket=bucket, Key="k", Body=body, ServerSideEncryption="aws:kms"), "NotImplemented", 501)
    refused(lambda: s3.put_object(Bucket=bucket, Key="k", Body=body, SSECustomerAlgorithm="AES256", SSECustomerKey="k" * 32), "InvalidRequest", 400)
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    assert s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"] == [rule]
    made = s3.create_multipart_upload(Bucket=bucket, Key="parts")
    assert made["ServerSideEncryption"] == "AES256", made
    pieces = [body * 21, b"the end"]
    sent = [s3.upload_part(Bucket=bucket, Key="parts", UploadId=made["UploadId"], PartNumber=at, Body=piece) for at, piece in enumerate(pieces, 1)]
    parts = [{"PartNumber": at, "ETag": part["ETag"]} for at, part in enumerate(sent, 1)]
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=made["UploadId"], MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket=bucket, Key="parts")["Body"].read() == b"".join(pieces)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "parts"})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == b"".join(pieces)
    empty_and_delete(s3, bucket)


def test_object_lock():
    s3 = client()
    bucket = bucket_name("vault")
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule})
    version = s3.put_object(Bucket=bucket, Key="k", Body=b"ledger")["VersionId"]
    assert s3.head_object(Bucket=bucket, Key="k")["ObjectLockMode"] == "GOVERNANCE"
    refused(lambda: s3.delete_object(Bucket=bucket, Key="k", VersionId=version), "AccessDenied", 403)
    refused(lambda: s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"}), "InvalidBucketState", 409)
    s3.put_object_legal_hold(Bucket=bucket, Key="k", LegalHold={"Status": "ON"})
    refused(lambda: s3.delete_object(Bucket=bucket, Key="k", VersionId=version, BypassGovernanceRetention=True), "AccessDenied", 403)
    s3.put_object_legal_hold(Bucket=bucket, Key="k", LegalHold={"Status": "OFF"})
    marker = s3.delete_object(Bucket=bucket, Key="k")["VersionId"]
    errors = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", "VersionId": marker}, {"Key": "k", "VersionId": version}]})["Errors"]
    assert [(error["VersionId"], error["Code"]) for error in errors] == [(version, "AccessDenied")], errors
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"ledger"
    refused(lambda: s3.delete_bucket(Bucket=bucket), "BucketNotEmpty", 409)
    s3.delete_object(Bucket=bucket, Key="k", VersionId=version, BypassGovernanceRetention=True)
    s3.delete_bucket(Bucket=bucket)


def anonymous(path, method="GET", data=None):
    asked = urllib.request.Request(f"http://127.0.0.1:{PORT}/{path}", method=method, data=data)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def user(name):
    """A new user, made by the admin API as Riak CS's tools make one."""
    from botocore.auth import HmacV1Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    body = json.dumps({"email": f"{name}-{uuid.uuid4().hex}@example.com", "name": name}).encode()
    url = f"http://127.0.0.1:{PORT}/riak-cs/user"
    asked = AWSRequest("POST", url, data=body, headers={"Content-Type": "application/json", "Accept": "application/json"})
    HmacV1Auth(Credentials(KEY, SECRET)).add_auth(asked)
    plain = urllib.request.Request(url, data=body, method="POST", headers=dict(asked.headers.items()))
    with urllib.request.urlopen(plain) as answer:
        assert answer.status == 201, answer.status
        made = json.loads(answer.read())
    assert made["key_id"] and made["key_secret"] and made["status"] == "enabled", made
    return made


def test_anonymous_and_others_only_where_allowed():
    s3 = client()
    bucket = bucket_name("public")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="secret", Body=b"s")
    s3.put_object(Bucket=bucket, Key="open", Body=b"o", ACL="public-read")
    assert anonymous(f"{bucket}/open") == (200, b"o")
    assert anonymous(f"{bucket}/secret")[0] == 403
    assert anonymous(bucket)[0] == 403
    grants = s3.get_object_acl(Bucket=bucket, Key="open")["Grants"]
    assert {"READ", "FULL_CONTROL"} == {grant["Permission"] for grant in grants}, grants
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    assert anonymous(bucket)[0] == 200
    allow = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/sec*"}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allow]}))
    assert anonymous(f"{bucket}/secret") == (200, b"s")
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"]
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/open"}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allow, deny]}))
    assert anonymous(f"{bucket}/open")[0] == 403
    s3.delete_bucket_policy(Bucket=bucket)
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={"IgnorePublicAcls": True, "BlockPublicAcls": False, "BlockPublicPolicy": False, "RestrictPublicBuckets": False})
    assert anonymous(f"{bucket}/open")[0] == 403
    s3.delete_public_access_block(Bucket=bucket)
    assert anonymous(f"{bucket}/up", "PUT", b"x")[0] == 403
    other = user("other")
    theirs = client(key=other["key_id"], secret=other["key_secret"])
    refused(lambda: theirs.get_object(Bucket=bucket, Key="secret"), "AccessDenied", 403)
    refused(lambda: theirs.put_object(Bucket=bucket, Key="x", Body=b""), "AccessDenied", 403)
    s3.put_bucket_acl(Bucket=bucket, GrantWrite=f'id="{other["id"]}"')
    theirs.put_object(Bucket=bucket, Key="x", Body=b"theirs")
    refused(lambda: theirs.list_objects_v2(Bucket=bucket), "AccessDenied", 403)
    refused(lambda: theirs.create_bucket(Bucket=bucket), "BucketAlreadyExists", 409)
    refused(lambda: client(key="NOSUCHKEY").list_buckets(), "InvalidAccessKeyId", 403)
    refused(lambda: client(secret="wrong").list_buckets(), "SignatureDoesNotMatch", 403)
    refused(lambda: client("s3", secret="wrong").list_buckets(), "SignatureDoesNotMatch", 403)
    empty_and_delete(s3, bucket)


def test_presigned_urls_of_both_signatures():
    for signature in ("s3v4", "s3"):
        for style, host in (("path", "127.0.0.1"), ("virtual", "localhost")):
            s3 = client(signature, style, host)
            bucket = bucket_name("signed")
            s3.create_bucket(Bucket=bucket)
            put = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "a b+c", "ContentType": "text/x"}, ExpiresIn=60)
            asked = urllib.request.Request(put, data=b"presigned", method="PUT", headers={"Content-Type": "text/x"})
            with urllib.request.urlopen(asked) as answer:
                assert answer.status == 200
            get = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b+c", "ResponseContentType": "text/y"}, ExpiresIn=60)
            with urllib.request.urlopen(get) as answer:
                assert answer.read() == b"presigned" and answer.headers["Content-Type"] == "text/y"
            for broken in (get.replace("text%2Fy", "text%2Fz"), s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b+c"}, ExpiresIn=-10)):
                try:
                    urllib.request.urlopen(broken)
                    raise AssertionError(f"taken: {broken}")
                except urllib.error.HTTPError as error:
                    assert error.code in (400, 403), error.read()
            empty_and_delete(s3, bucket)


def test_post_forms_of_both_signatures():
    for signature in ("s3v4", "s3"):
        s3 = client(signature)
        bucket = bucket_name("form")
        s3.create_bucket(Bucket=bucket)
        conditions = [["content-length-range", 1, 100], {"acl": "private"}, {"success_action_status": "201"}]
        fields = {"acl": "private", "success_action_status": "201"}
        form = s3.generate_presigned_post(bucket, "up/${filename}", Fields=fields, Conditions=conditions, ExpiresIn=60)

        def post(body):
            boundary = uuid.uuid4().hex
            parts = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in form["fields"].items())
            parts += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\nContent-Type: text/plain\r\n\r\n'
            data = parts.encode() + body + f"\r\n--{boundary}--\r\n".encode()
            asked = urllib.request.Request(form["url"], data=data, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
            try:
                with urllib.request.urlopen(asked) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        status, text = post(b"form body")
        assert status == 201 and b"<Key>up/f.txt</Key>" in text, (status, text)
        assert s3.get_object(Bucket=bucket, Key="up/f.txt")["Body"].read() == b"form body"
        status, text = post(b"x" * 101)
        assert status == 400 and b"EntityTooLarge" in text, (status, text)
        empty_and_delete(s3, bucket)


def test_sessions_of_assume_role():
    def sts(key=KEY, secret=SECRET, token=None):
        return boto3.client(
            "sts",
            endpoint_url=f"http://127.0.0.1:{PORT}",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}),
        )

    bucket = bucket_name("session")
    owner = client()
    owner.create_bucket(Bucket=bucket)
    owner.put_object(Bucket=bucket, Key="shut/k", Body=b"shut")
    narrow = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "Resource": f"arn:aws:s3:::{bucket}/open/*"},
            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}", "Condition": {"StringLike": {"s3:prefix": "open/*"}}},
        ],
    }
    role = {"RoleArn": "arn:xxx:xxx:xxx:xxxx", "RoleSessionName": "boto3"}
    answer = sts().assume_role(**role, DurationSeconds=900, Policy=json.dumps(narrow))
    assumed = answer["Credentials"]
    assert answer["AssumedRoleUser"]["Arn"].endswith("/boto3"), answer
    given = {"key": assumed["AccessKeyId"], "secret": assumed["SecretAccessKey"]}
    for signature in ("s3v4", "s3"):
        s3 = client(signature, token=assumed["SessionToken"], **given)
        s3.put_object(Bucket=bucket, Key="open/k", Body=b"open")
        s3.upload_fileobj(io.BytesIO(bytes_of("parts", 9 * MIB)), bucket, "open/parts")
        assert s3.get_object(Bucket=bucket, Key="open/k")["Body"].read() == b"open"
        assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket, Prefix="open/")["Contents"]] == ["open/k", "open/parts"]
        refused(lambda: s3.get_object(Bucket=bucket, Key="shut/k"), "AccessDenied", 403)
        refused(lambda: s3.list_objects_v2(Bucket=bucket), "AccessDenied", 403)
        refused(lambda: s3.copy_object(Bucket=bucket, Key="open/copy", CopySource=f"{bucket}/shut/k"), "AccessDenied", 403)
        refused(s3.list_buckets, "AccessDenied", 403)
        link = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "open/k"}, ExpiresIn=60)
        with urllib.request.urlopen(link) as read:
            assert read.read() == b"open"
        form = s3.generate_presigned_post(bucket, "open/form", ExpiresIn=60)
        assert "x-amz-security-token" in form["fields"]
        boundary = uuid.uuid4().hex
        parts = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in form["fields"].items())
        data = f'{parts}--{boundary}\r\nContent-Disposition: form-data; name="file"\r\n\r\nform\r\n--{boundary}--\r\n'.encode()
        asked = urllib.request.Request(form["url"], data=data, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
        with urllib.request.urlopen(asked) as stored:
            assert stored.status == 204
        deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in ("shut/k", "open/k", "open/parts", "open/form")]})
        assert [one["Key"] for one in deleted["Errors"]] == ["shut/k"] and len(deleted["Deleted"]) == 3, deleted
        refused(client(signature, token="nonsense", **given).list_buckets, "InvalidToken", 400)
        refused(client(signature, **given).list_buckets, "InvalidAccessKeyId", 403)
    refused(lambda: sts(given["key"], given["secret"], assumed["SessionToken"]).assume_role(**role), "AccessDenied", 403)
    refused(lambda: sts(secret="wrong").assume_role(**role), "SignatureDoesNotMatch", 403)
    refused(lambda: sts("nobody").assume_role(**role), "InvalidClientTokenId", 403)
    refused(lambda: sts().assume_role(**role, DurationSeconds=604801), "ValidationError", 400)
    refused(lambda: sts().assume_role(**role, Policy='{"Statement": []}'), "MalformedPolicyDocument", 400)
    refused(sts().get_caller_identity, "NotImplemented", 501)
    empty_and_delete(owner, bucket)


if __name__ == "__main__":
    run(sys.modules[__name__])
