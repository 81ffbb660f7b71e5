"""minio-py, unmodified: signed chunks over plain HTTP, multipart, listings, copies."""

import hashlib
import io
import sys

from minio import Minio
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject
from minio.error import S3Error

from larder_s3 import KEY, PORT, SECRET, bucket_name, run

MIB = 1024 * 1024


def test_a_round():
    for host in ("127.0.0.1", "localhost"):
        s3 = Minio(f"{host}:{PORT}", access_key=KEY, secret_key=SECRET, secure=False)
        bucket = bucket_name("minio")
        s3.make_bucket(bucket)
        assert s3.bucket_exists(bucket) and not s3.bucket_exists(bucket_name("none"))
        body = b"0123456789abcdef" * (12 * MIB // 16) + b"tail"
        made = s3.put_object(bucket, "large", io.BytesIO(body), -1, part_size=5 * MIB)
        assert made.etag.endswith("-3"), made.etag
        small = s3.put_object(bucket, "a/small", io.BytesIO(b"small"), 5, content_type="text/x", metadata={"colour": "blue"})
        assert small.etag.strip('"') == hashlib.md5(b"small").hexdigest()
        got = s3.get_object(bucket, "large")
        assert hashlib.sha256(got.read()).digest() == hashlib.sha256(body).digest()
        got.close()
        got = s3.get_object(bucket, "large", offset=5 * MIB - 2, length=4)
        assert got.read() == body[5 * MIB - 2 : 5 * MIB + 2]
        got.close()
        stat = s3.stat_object(bucket, "a/small")
        assert stat.content_type == "text/x" and stat.metadata["x-amz-meta-colour"] == "blue"
        s3.copy_object(bucket, "b/copy", CopySource(bucket, "a/small"))
        assert sorted(one.object_name for one in s3.list_objects(bucket)) == ["a/", "b/", "large"]
        names = [one.object_name for one in s3.list_objects(bucket, recursive=True)]
        assert names == ["a/small", "b/copy", "large"], names
        errors = list(s3.remove_objects(bucket, [DeleteObject(name) for name in names]))
        assert not errors, errors
        try:
            s3.stat_object(bucket, "large")
            raise AssertionError("still there")
        except S3Error as error:
            assert error.code == "NoSuchKey", error
        s3.remove_bucket(bucket)


if __name__ == "__main__":
    run(sys.modules[__name__])
