"""Every operation of the service model that the SDK for Python carries, sent with the fewest parameters that it allows. Each
answers as the table of docs/differences.md says, and none is taken for another: the server's own metric names the operation."""

import re
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from larder_s3 import HTTP_PORT, KEY, PORT, SECRET, bucket_name, run

PAGE = Path(__file__).parents[3] / "docs/differences.md"
ROW = re.compile(r"^\| (\w+) \| `(?:GET|HEAD|PUT|POST|DELETE) /[^`]*` \| (.*) \|$", re.M)
SAMPLE = re.compile(r'^larder_s3_requests_total\{op="(\w+)",outcome="(\w+)"\} (\d+)', re.M)
# An operation that reads a configuration may say that there is none.
NONE_SET = re.compile(r"^(NoSuch\w+|\w+NotFoundError)$")

s3 = boto3.client(
    "s3",
    endpoint_url=f"http://localhost:{PORT}",
    aws_access_key_id=KEY,
    aws_secret_access_key=SECRET,
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
)
MODEL = s3.meta.service_model
# Values that a server checks, by the path of their members.
VALUES = {
    "Key": "k",
    "CopySource": "{bucket}/source",
    "UploadId": "{upload}",
    "PartNumber": 1,
    "Policy": '{{"Version":"2012-10-17","Statement":[{{"Effect":"Deny","Principal":"*","Action":"s3:GetObject",'
    '"Resource":"arn:aws:s3:::{bucket}/none"}}]}}',
    "ObjectAttributes": ["ETag"],
    "Delete.Objects.Key": "none",
    "ACL": "private",
    "OwnershipControls.Rules.ObjectOwnership": "ObjectWriter",
    "LifecycleConfiguration.Rules.Expiration": {"Days": 1},
    "LifecycleConfiguration.Rules.Filter": {"Prefix": ""},
    "ServerSideEncryptionConfiguration.Rules.ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"},
    "CORSConfiguration.CORSRules.AllowedMethods": ["GET"],
    "CORSConfiguration.CORSRules.AllowedOrigins": ["*"],
    "WebsiteConfiguration.IndexDocument": {"Suffix": "index.html"},
    "VersioningConfiguration.Status": "Enabled",
    "PublicAccessBlockConfiguration.BlockPublicAcls": True,
    "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "{etag}"}]},
    "ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"},
    "Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": "2140-01-01T00:00:00Z"},
    "LegalHold": {"Status": "ON"},
    "AccelerateConfiguration": {"Status": "Suspended"},
}
# Members that the model does not require and the operation does.
NEEDED = {
    "PutBucketAcl": ["ACL"],
    "PutObjectAcl": ["ACL"],
    "PutBucketLifecycleConfiguration": ["LifecycleConfiguration"],
    "PutBucketLifecycle": ["LifecycleConfiguration"],
    "PutBucketVersioning": ["VersioningConfiguration"],
    "CompleteMultipartUpload": ["MultipartUpload"],
    "PutObjectLockConfiguration": ["ObjectLockConfiguration"],
    "PutObjectRetention": ["Retention"],
    "PutObjectLegalHold": ["LegalHold"],
}
# Members of a structure that the model does not require and its document does.
PARTS = {
    "LifecycleConfiguration.Rules": ["Expiration", "Filter", "Status"],
    "ServerSideEncryptionConfiguration.Rules": ["ApplyServerSideEncryptionByDefault"],
    "WebsiteConfiguration": ["IndexDocument"],
    "VersioningConfiguration": ["Status"],
    "PublicAccessBlockConfiguration": ["BlockPublicAcls"],
}
# These need a bucket with object lock.
LOCKED = {"PutObjectLockConfiguration", "PutObjectRetention", "PutObjectLegalHold", "GetObjectRetention", "GetObjectLegalHold"}


def table():
    """The answer of each operation; that of a former name is the one of its present name."""
    rows = dict(ROW.findall(PAGE.read_text()))
    present = {name: answer.removeprefix("as ") for name, answer in rows.items() if answer.startswith("as ")}
    return {name: (present.get(name, name), rows[present.get(name, name)]) for name in rows}


def counted():
    page = urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}/metrics").read().decode()
    return Counter({(op, outcome): int(count) for op, outcome, count in SAMPLE.findall(page)})


def filled(value, names):
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, list):
        return [filled(one, names) for one in value]
    if isinstance(value, dict):
        return {name: filled(one, names) for name, one in value.items()}
    return value


def sample(shape, path, names):
    """The smallest value of a shape."""
    if path == "Bucket":
        return names["bucket"]
    if path in VALUES:
        return filled(VALUES[path], names)
    kind = shape.type_name
    if kind == "structure":
        parts = [name for name in PARTS.get(path, []) if name in shape.members]
        if shape.is_tagged_union:
            parts = list(shape.members)[:1]
        return {name: sample(shape.members[name], f"{path}.{name}", names) for name in [*shape.required_members, *parts]}
    if kind == "list":
        return [sample(shape.member, path, names)]
    if kind == "string":
        return shape.enum[0] if shape.enum else "text".ljust(shape.metadata.get("min", 0), "-")
    return {"blob": b"x", "boolean": True, "timestamp": "2030-01-01T00:00:00Z", "map": {}}.get(kind, 1)


def parameters(operation, names):
    shape = operation.input_shape
    if shape is None:
        return {}
    members = [*shape.required_members, *NEEDED.get(operation.name, [])]
    return {name: sample(shape.members[name], name, names) for name in dict.fromkeys(members)}


def prepared(name):
    """A bucket with objects and an upload, for one operation."""
    bucket = bucket_name("model")
    if name == "DeleteBucket":
        s3.create_bucket(Bucket=bucket)
        return {"bucket": bucket, "upload": "none", "etag": "none"}
    if name == "CreateBucket":
        return {"bucket": bucket, "upload": "none", "etag": "none"}
    s3.create_bucket(Bucket=bucket, **({"ObjectLockEnabledForBucket": True} if name in LOCKED else {}))
    for key in ("k", "source"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"body")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"part")
    return {"bucket": bucket, "upload": upload, "etag": part["ETag"]}


def sent(operation, names):
    """The status and the error of one request, and the operations that the server counted for it."""
    before = counted()
    try:
        answer = s3._make_api_call(operation.name, parameters(operation, names))
        error, status = {}, answer["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as refused:
        error, status = refused.response["Error"], refused.response["ResponseMetadata"]["HTTPStatusCode"]
    return status, error, counted() - before


def fault(operation, row, status, error, seen):
    """What of an answer the row does not say, if anything."""
    present, answer = row
    code, message = error.get("Code"), error.get("Message", "")
    ops = {op for op, _ in seen}
    if ops - {present} and (status != 501 or "ok" in {outcome for _, outcome in seen}):
        return f"it was taken for {ops}"
    if status == 501:
        query = operation.http["requestUri"].partition("?")[2].split("&")[0]
        names = [present, query, "irectory buckets" if "Directory" in present else present]
        is_named = any(name and (name in message or name == error.get("QueryParameter")) for name in names)
        may_be = "501" in answer
        return None if code == "NotImplemented" and is_named and may_be else "it may not be refused so"
    if answer == "served":
        is_none = status == 404 and operation.name.startswith("Get") and NONE_SET.match(code)
        return None if status < 300 or is_none else "it is served"
    if answer in ("there is none", "the owner pays") or answer.startswith("200"):
        return None if status == 200 else "200 was due"
    if answer == "204":
        return None if status == 204 else "204 was due"
    if answer.startswith("`"):
        return None if code == answer.strip("`") and status == 404 else "another code was due"
    return "no row has such an answer"


def test_every_operation_answers_as_the_table_says():
    rows, faults = table(), []
    missing = set(MODEL.operation_names) - set(rows)
    assert not missing, f"operations without a row: {sorted(missing)}"
    for name in MODEL.operation_names:
        operation = MODEL.operation_model(name)
        status, error, seen = sent(operation, prepared(name))
        why = fault(operation, rows[name], status, error, seen)
        if why:
            faults.append(f"{name}: {why}: {rows[name]} answered {status} {error} {dict(seen)}")
    assert not faults, "\n".join(faults)


def test_the_table_has_no_operation_that_is_none():
    assert set(table()) - set(MODEL.operation_names) == {"PostObject", "AssumeRole"}, "of forms and of STS"


if __name__ == "__main__":
    run(sys.modules[__name__])
