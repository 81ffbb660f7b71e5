"""boto3 over HTTPS, unmodified: it sends bodies without signed chunks there, with checksums behind them."""

import io
import os
import sys

import boto3
from botocore.client import Config
from botocore.exceptions import SSLError

from larder_s3 import KEY, PORT, SECRET, bucket_name, run

MIB = 1024 * 1024


def client(**more):
    return boto3.client(
        "s3",
        endpoint_url=f"https://127.0.0.1:{PORT}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        **more,
    )


def test_objects_are_read_back():
    s3, bucket = client(), bucket_name("https")
    s3.create_bucket(Bucket=bucket)
    for length in (0, 1, 70_000, 20 * MIB):
        body = os.urandom(length)
        s3.upload_fileobj(io.BytesIO(body), bucket, "k")
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body
    for algorithm in ("CRC32", "SHA256"):
        s3.put_object(Bucket=bucket, Key="k", Body=io.BytesIO(b"summed"), ChecksumAlgorithm=algorithm)
        found = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
        assert found["Body"].read() == b"summed" and found["Checksum" + algorithm], found
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)


def test_a_server_of_another_authority_is_refused():
    try:
        client(verify=True).list_buckets()
    except SSLError:
        return
    raise AssertionError("it was trusted")


run(sys.modules[__name__])
