"""Keys and buckets, listed and streamed."""

import sys

from larder import run


def test_keys(client):
    for bucket in (client.bucket("listed"), client.bucket_type("many").bucket("listed")):
        for number in range(30):
            bucket.new("key-%d" % number, data=number).store()
        bucket.delete("key-7")
        expected = sorted("key-%d" % number for number in range(30) if number != 7)
        assert sorted(bucket.get_keys()) == expected
        assert sorted(client.get_keys(bucket, timeout=10000)) == expected
        streamed = []
        for keys in bucket.stream_keys():
            streamed.extend(keys)
        assert sorted(streamed) == expected


def test_buckets(client):
    client.bucket("one").new("k", data=1).store()
    client.bucket_type("many").bucket("two").new("k", data=1).store()
    names = [bucket.name for bucket in client.get_buckets()]
    assert "one" in names and "two" not in names
    assert "two" in [bucket.name for bucket in client.bucket_type("many").get_buckets()]
    streamed = []
    for buckets in client.stream_buckets():
        streamed.extend(bucket.name for bucket in buckets)
    assert "one" in streamed and "two" not in streamed


def test_keys_of_an_empty_bucket(client):
    assert client.bucket("empty").get_keys() == []


run(sys.modules[__name__])
