"""Objects: store, get, delete, JSON, metadata, links, indexes, conditions."""

import sys

import riak
from larder import run


def test_ping_and_version(client):
    assert client.ping()
    stats = client.get_buckets()
    assert isinstance(stats, list)


def test_json_round_trip(client):
    bucket = client.bucket("people")
    stored = bucket.new("ada", data={"name": "Ada", "born": 1815, "langs": ["en", "fr"], "ü": "ñ"})
    stored.store()
    got = bucket.get("ada")
    assert got.exists and got.data == {"name": "Ada", "born": 1815, "langs": ["en", "fr"], "ü": "ñ"}
    assert got.content_type == "application/json"
    assert got.last_modified is not None and got.etag


def test_text_and_bytes(client):
    bucket = client.bucket("raw")
    text = bucket.new("text", data="gr\u00fc\u00dfe", content_type="text/plain")
    text.charset = "utf-8"
    text.store()
    assert bucket.get("text").data == "gr\u00fc\u00dfe"
    blob = bucket.new("blob")
    blob.content_type = "application/octet-stream"
    blob.encoded_data = bytes(range(256)) * 1000
    blob.store()
    assert bucket.get("blob").encoded_data == bytes(range(256)) * 1000


def test_generated_key(client):
    stored = client.bucket("made").new(data={"n": 1})
    stored.store()
    assert stored.key
    assert client.bucket("made").get(stored.key).data == {"n": 1}


def test_missing(client):
    got = client.bucket("people").get("nobody")
    assert not got.exists and got.data is None


def test_delete_and_store_again(client):
    bucket = client.bucket("people")
    bucket.new("temp", data=1).store()
    bucket.get("temp").delete()
    assert not bucket.get("temp").exists
    bucket.delete("temp")
    bucket.new("temp", data=2).store()
    assert bucket.get("temp").data == 2


def test_user_metadata(client):
    bucket = client.bucket("meta")
    stored = bucket.new("k", data="v", content_type="text/plain")
    stored.usermeta = {"colour": "red", "size": "12"}
    stored.store()
    got = bucket.get("k")
    assert got.usermeta == {"colour": "red", "size": "12"}, got.usermeta


def test_links(client):
    bucket = client.bucket("linked")
    bucket.new("b", data=1).store()
    one = bucket.new("a", data=2)
    one.links = [("linked", "b", "friend"), ("other bucket", "c/d", "odd tag")]
    one.store()
    links = sorted(bucket.get("a").links)
    assert links == [("linked", "b", "friend"), ("other bucket", "c/d", "odd tag")], links


def test_indexes_come_back(client):
    bucket = client.bucket("indexed")
    stored = bucket.new("k", data=1)
    stored.add_index("age_int", 42).add_index("name_bin", "ada").add_index("name_bin", "lovelace")
    stored.store()
    got = bucket.get("k")
    assert got.indexes == {("age_int", 42), ("name_bin", "ada"), ("name_bin", "lovelace")}, got.indexes
    got.remove_index("name_bin", "ada")
    got.store()
    assert bucket.get("k").indexes == {("age_int", 42), ("name_bin", "lovelace")}


def test_odd_keys(client):
    bucket = client.bucket("odd/bucket name")
    for key in ["a/b", "a b", "a+b", "ü", "100%", "?q=1", "#"]:
        bucket.new(key, data=key).store()
        assert bucket.get(key).data == key, key


def test_typed_object(client):
    one = client.bucket_type("many").bucket("b")
    two = client.bucket("b")
    one.new("k", data="typed").store()
    two.new("k", data="untyped").store()
    assert one.get("k").data == "typed" and two.get("k").data == "untyped"


def test_if_none_match(client):
    bucket = client.bucket("once")
    bucket.new("k", data=1).store(if_none_match=True)
    try:
        bucket.new("k", data=2).store(if_none_match=True)
    except riak.RiakError:
        pass
    else:
        raise AssertionError("the second store should fail")
    assert bucket.get("k").data == 1


def test_quorums_and_no_body(client):
    bucket = client.bucket("quorums")
    stored = bucket.new("k", data=1)
    stored.store(w="all", dw=1, pw=0, return_body=False)
    assert bucket.get("k", r="one", pr=0, timeout=5000, notfound_ok=True, basic_quorum=False).data == 1
    stored.reload()
    stored.delete(r="quorum", w="quorum", dw=1, timeout=5000)
    assert not bucket.get("k").exists


def test_multi_get_and_put(client):
    bucket = client.bucket("multi")
    client.multiput([bucket.new(str(n), data=n) for n in range(50)], return_body=False)
    got = client.multiget([("default", "multi", str(n)) for n in range(50)])
    assert sorted(one.data for one in got) == list(range(50))


run(sys.modules[__name__])
