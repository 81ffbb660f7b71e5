"""boto3, unmodified: a notification configuration, and the changes that its receiver hears of."""

import sys

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

from larder_s3 import KEY, PORT, SECRET

BUCKET = "told"
ARN = "arn:minio:sqs::T:webhook"
EVENTS = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:Put"]

s3 = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{PORT}",
    aws_access_key_id=KEY,
    aws_secret_access_key=SECRET,
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)


def configure():
    s3.create_bucket(Bucket=BUCKET)
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket=BUCKET)
    rule = {"Id": "all", "QueueArn": ARN, "Events": EVENTS}
    rule["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": ""}]}}
    unknown = {**rule, "QueueArn": "arn:aws:sqs:us-east-1:1:q"}
    try:
        s3.put_bucket_notification_configuration(
            Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [unknown]}
        )
        raise AssertionError("an unknown target was taken")
    except ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidArgument", error.response
    s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [rule]})
    (shown,) = s3.get_bucket_notification_configuration(Bucket=BUCKET)["QueueConfigurations"]
    assert shown["QueueArn"] == ARN and shown["Events"] == EVENTS, shown


def change(phase):
    key, copy = f"{phase}/key ü+", f"{phase}/copy"
    s3.put_object(Bucket=BUCKET, Key=key, Body=b"body", Metadata={"color": "red"})
    s3.put_object_tagging(Bucket=BUCKET, Key=key, Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    s3.copy_object(Bucket=BUCKET, Key=copy, CopySource={"Bucket": BUCKET, "Key": key})
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=f"{phase}/large")["UploadId"]
    part = s3.upload_part(Bucket=BUCKET, Key=f"{phase}/large", UploadId=upload, PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(
        Bucket=BUCKET,
        Key=f"{phase}/large",
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": copy}]})
    s3.delete_object(Bucket=BUCKET, Key=key)


if sys.argv[1] == "first":
    configure()
change(sys.argv[1])
