"""Requests that are refused: the client reports the error at once, and goes on."""

import sys

import riak
from larder import refused, run


def test_unknown_types(client):
    for name in ("nosuch", "sleeping"):
        bucket = client.bucket_type(name).bucket("b")
        http, pbc = "Error getting bucket-type properties.", 'Invalid bucket type: <<"%s">>' % name
        refused(client, lambda: bucket.get("k"), http, pbc)
        refused(client, lambda: bucket.new("k", data=1).store(), http, pbc)
        pbc = "No bucket-type named '%s'" % name
        refused(client, bucket.get_properties, "Error getting bucket properties.", pbc)
        refused(client, bucket.get_keys, "Error listing keys.", pbc)


def test_data_types(client):
    bucket = client.bucket_type("many").bucket("b")
    refused(client, lambda: client.fetch_datatype(bucket, "k"), "received 403", "`undefined` is not a supported type")
    counter = riak.datatypes.Counter(bucket=bucket, key="k")
    counter.increment()
    pbc = "Bucket datatype `undefined` is not a supported type"
    refused(client, lambda: client.update_datatype(counter), "received 403", pbc)


def test_long_keys_and_large_objects(client):
    bucket = client.bucket("b")
    long = bucket.new("k" * (12 * 1024 + 1), data=1)
    refused(client, long.store, "received 400", "The key is longer than 12288 bytes")
    for mebibytes in (17, 60):
        large = bucket.new("k", encoded_data=b"x" * (mebibytes << 20), content_type="a/b")
        refused(client, large.store, "received 413", "{too_large,")


run(sys.modules[__name__])
