"""The calls of tools that this machine cannot run, in their documented order, made with boto3: Terraform's provider for a bucket, and a
backup program with immutable backups as Veeam documents its permissions and calls."""

import datetime
import hashlib
import sys

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

from larder_s3 import KEY, PORT, SECRET, bucket_name, run

s3 = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{PORT}",
    aws_access_key_id=KEY,
    aws_secret_access_key=SECRET,
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
)

# What the provider reads after each creation of a bucket, with the codes that it takes for "there is none". Any other error ends
# `terraform apply`.
READS = [
    ("head_bucket", None),
    ("get_bucket_location", None),
    ("get_bucket_policy", "NoSuchBucketPolicy"),
    ("get_bucket_acl", None),
    ("get_bucket_cors", "NoSuchCORSConfiguration"),
    ("get_bucket_website", "NoSuchWebsiteConfiguration"),
    ("get_bucket_versioning", None),
    ("get_bucket_accelerate_configuration", None),
    ("get_bucket_request_payment", None),
    ("get_bucket_logging", None),
    ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
    ("get_bucket_replication", "ReplicationConfigurationNotFoundError"),
    ("get_bucket_encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    ("get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"),
    ("get_bucket_tagging", "NoSuchTagSet"),
    ("get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
    ("get_bucket_ownership_controls", "OwnershipControlsNotFoundError"),
    ("get_bucket_notification_configuration", None),
    ("list_bucket_analytics_configurations", None),
    ("list_bucket_inventory_configurations", None),
    ("list_bucket_metrics_configurations", None),
    ("list_bucket_intelligent_tiering_configurations", None),
]


def read_all(bucket):
    """Every read of the provider; the settings that there are."""
    found = {}
    for name, none in READS:
        try:
            found[name] = getattr(s3, name)(Bucket=bucket)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            assert none and code == none, f"{name}: {error.response}"
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 404, f"{name}: {error.response}"
    return found


def test_terraform_creates_changes_and_destroys_a_bucket():
    bucket = bucket_name("terraform")
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=False)
    assert "get_bucket_policy" not in read_all(bucket)
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "managed-by", "Value": "terraform"}]})
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    switches = {name: True for name in ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=switches)
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
    expire = {"ID": "r", "Filter": {"Prefix": "tmp/"}, "Status": "Enabled", "Expiration": {"Days": 7}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [expire]})
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}}
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=lock)
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]})
    s3.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "BucketOwner"})
    s3.put_bucket_accelerate_configuration(Bucket=bucket, AccelerateConfiguration={"Status": "Suspended"})
    found = read_all(bucket)
    assert found["get_bucket_versioning"]["Status"] == "Enabled"
    assert found["get_bucket_encryption"]["ServerSideEncryptionConfiguration"]["Rules"] == [rule], found
    assert found["get_public_access_block"]["PublicAccessBlockConfiguration"] == switches
    assert found["get_object_lock_configuration"]["ObjectLockConfiguration"] == lock
    assert found["get_bucket_lifecycle_configuration"]["Rules"][0]["Expiration"] == {"Days": 7}
    # `terraform destroy`.
    for name in ("delete_bucket_lifecycle", "delete_bucket_cors", "delete_bucket_encryption", "delete_public_access_block"):
        getattr(s3, name)(Bucket=bucket)
    for name in ("delete_bucket_ownership_controls", "delete_bucket_tagging", "delete_bucket_policy", "delete_bucket_website"):
        getattr(s3, name)(Bucket=bucket)
    s3.delete_bucket_replication(Bucket=bucket)
    s3.delete_bucket(Bucket=bucket)


def test_terraform_manages_an_object():
    bucket = bucket_name("terraform-object")
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    until = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(hours=1)
    put = s3.put_object(
        Bucket=bucket,
        Key="state",
        Body=b"{}",
        ServerSideEncryption="AES256",
        Tagging="a=b",
        ObjectLockMode="GOVERNANCE",
        ObjectLockRetainUntilDate=until,
        ObjectLockLegalHoldStatus="OFF",
    )
    head = s3.head_object(Bucket=bucket, Key="state", ChecksumMode="ENABLED")
    assert head["ObjectLockRetainUntilDate"] == until and head["ObjectLockLegalHoldStatus"] == "OFF", head
    assert head["ServerSideEncryption"] == "AES256" and head["VersionId"] == put["VersionId"]
    assert s3.get_object_tagging(Bucket=bucket, Key="state")["TagSet"] == [{"Key": "a", "Value": "b"}]
    s3.put_object_legal_hold(Bucket=bucket, Key="state", LegalHold={"Status": "ON"})
    # `force_destroy`: holds go, then every version by its id, with a bypass.
    for version in s3.list_object_versions(Bucket=bucket)["Versions"]:
        which = {"Bucket": bucket, "Key": version["Key"], "VersionId": version["VersionId"]}
        s3.put_object_legal_hold(**which, LegalHold={"Status": "OFF"})
        s3.delete_object(**which, BypassGovernanceRetention=True)
    s3.delete_bucket(Bucket=bucket)


def refused(call, code):
    try:
        call()
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error.response
        return
    raise AssertionError(f"not refused with {code}")


def test_a_backup_program_keeps_immutable_backups():
    """A repository with immutability: the program checks the bucket, writes blocks with COMPLIANCE, extends their retention with
    each later backup that uses them, and deletes what has ended by its version."""
    bucket = bucket_name("immutable")
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    s3.get_bucket_location(Bucket=bucket)
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    lock = s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"]
    assert lock == {"ObjectLockEnabled": "Enabled"}, "a default retention would be an error of its own"
    folder = "Veeam/Backup/repository/"
    assert s3.list_objects_v2(Bucket=bucket, Prefix=folder, Delimiter="/")["KeyCount"] == 0
    s3.put_object(Bucket=bucket, Key=folder + "owner", Body=b"repository")
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    until, later = now + datetime.timedelta(hours=2), now + datetime.timedelta(hours=4)
    blocks = {}
    for number in range(4):
        body = hashlib.sha256(str(number).encode()).digest() * 40_000
        key = f"{folder}blocks/{number}.blk"
        put = s3.put_object(Bucket=bucket, Key=key, Body=body, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until)
        blocks[key] = (put["VersionId"], body)
    checkpoint = s3.create_multipart_upload(
        Bucket=bucket, Key=folder + "checkpoint", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until
    )
    where = {"Bucket": bucket, "Key": folder + "checkpoint", "UploadId": checkpoint["UploadId"]}
    part = s3.upload_part(**where, PartNumber=1, Body=b"all blocks")
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert s3.head_object(Bucket=bucket, Key=folder + "checkpoint")["ObjectLockMode"] == "COMPLIANCE"
    for key, (version, body) in blocks.items():
        which = {"Bucket": bucket, "Key": key, "VersionId": version}
        s3.put_object_retention(**which, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": later})
        shown = s3.get_object_retention(**which)["Retention"]
        assert shown == {"Mode": "COMPLIANCE", "RetainUntilDate": later}, shown
        refused(lambda: s3.put_object_retention(**which, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until}), "AccessDenied")
        refused(lambda: s3.delete_object(**which), "AccessDenied")
        refused(lambda: s3.delete_object(**which, BypassGovernanceRetention=True), "AccessDenied")
        assert s3.get_object(**which)["Body"].read() == body
    # A retired block: its marker hides it, its version stays, and removing the marker brings it back.
    key, (version, body) = next(iter(blocks.items()))
    marker = s3.delete_object(Bucket=bucket, Key=key)
    assert marker["DeleteMarker"]
    refused(lambda: s3.get_object(Bucket=bucket, Key=key), "NoSuchKey")
    listed = s3.list_object_versions(Bucket=bucket, Prefix=key)
    assert [one["VersionId"] for one in listed["Versions"]] == [version], listed
    s3.delete_object(Bucket=bucket, Key=key, VersionId=marker["VersionId"])
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body
    # Several at a time: what is locked is named one by one.
    objects = [{"Key": key, "VersionId": version} for key, (version, _) in blocks.items()]
    outcome = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
    assert sorted(one["Key"] for one in outcome["Errors"]) == sorted(blocks), outcome
    assert {one["Code"] for one in outcome["Errors"]} == {"AccessDenied"}
    # The clean-up of a repository ends where its locks begin.
    s3.delete_object(Bucket=bucket, Key=folder + "owner", VersionId=s3.head_object(Bucket=bucket, Key=folder + "owner")["VersionId"])
    refused(lambda: s3.delete_bucket(Bucket=bucket), "BucketNotEmpty")


if __name__ == "__main__":
    run(sys.modules[__name__])
