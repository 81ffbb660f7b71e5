"""boto3 against `larder server` with MinIO's variables: buckets of the start, the region auto, and names of a proxy."""

import os
import sys
import urllib.error
import urllib.request

import boto3
from botocore.client import Config

from larder_s3 import KEY, PORT, SECRET, run

HERE = f"http://127.0.0.1:{PORT}"
PUBLIC = os.environ["LARDER_S3_PUBLIC"]


def client(endpoint=HERE):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="auto",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )


def status(url, **headers):
    request = urllib.request.Request(url, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def presigned(endpoint):
    """A link made for one endpoint, sent to the address of the server."""
    link = client(endpoint).generate_presigned_url("get_object", Params={"Bucket": "teas", "Key": "green"})
    assert link.startswith(endpoint), link
    return HERE + link[len(endpoint):]


def test_the_buckets_of_the_start_are_there_and_one_is_public():
    s3 = client()
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["leaflets", "teas"]
    for bucket in ("teas", "leaflets"):
        s3.put_object(Bucket=bucket, Key="green", Body=b"sencha")
        assert s3.get_object(Bucket=bucket, Key="green")["Body"].read() == b"sencha"
    assert status(f"{HERE}/leaflets/green") == 200 and status(f"{HERE}/leaflets?list-type=2") == 200
    assert status(f"{HERE}/teas/green") == 403 and status(f"{HERE}/teas?list-type=2") == 403
    put = urllib.request.Request(f"{HERE}/leaflets/black", data=b"x", method="PUT")
    try:
        urllib.request.urlopen(put, timeout=30)
        raise AssertionError("everyone may write")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error.code


def test_the_region_is_auto():
    s3 = client()
    assert s3.get_bucket_location(Bucket="teas")["LocationConstraint"] == "auto"
    s3.create_bucket(Bucket="third", CreateBucketConfiguration={"LocationConstraint": "auto"})
    s3.delete_bucket(Bucket="third")


def test_a_link_holds_for_the_public_name_and_for_the_name_that_a_trusted_proxy_forwards():
    client().put_object(Bucket="teas", Key="green", Body=b"sencha")
    assert status(presigned(HERE)) == 200
    assert status(presigned(PUBLIC)) == 200
    elsewhere = presigned("http://other.example:81")
    assert status(elsewhere) == 403
    assert status(elsewhere, X_Forwarded_Host="other.example:81") == 200
    assert status(elsewhere, X_Forwarded_Host="other.example") == 403


def test_the_address_of_a_completed_upload_is_public():
    s3 = client()
    upload = s3.create_multipart_upload(Bucket="teas", Key="large")["UploadId"]
    names = {"Bucket": "teas", "Key": "large", "UploadId": upload}
    part = s3.upload_part(PartNumber=1, Body=b"x", **names)
    done = s3.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}, **names)
    assert done["Location"] == f"{PUBLIC}/teas/large", done["Location"]


if __name__ == "__main__":
    run(sys.modules[__name__])
