"""Bucket and type properties: read, set, cleared."""

import sys

import riak
from larder import run


def shows_all(client):
    """Whether the protocol has a field for every property: messages have none for the name, and for whether a type is active."""
    return client.protocol == "http"


def test_defaults(client):
    props = client.bucket("fresh").get_properties()
    assert props["allow_mult"] is False and props["n_val"] == 3 and props["r"] == "quorum"
    assert "name" not in props or props["name"] == "fresh"
    assert ("name" in props) == shows_all(client)


def test_set_and_clear(client):
    bucket = client.bucket("changed")
    bucket.n_val = 2
    bucket.allow_mult = True
    bucket.set_properties({"r": 1, "w": "all"})
    props = bucket.get_properties()
    assert (props["n_val"], props["allow_mult"], props["r"], props["w"]) == (2, True, 1, "all")
    assert bucket.n_val == 2 and bucket.allow_mult is True
    bucket.clear_properties()
    assert bucket.n_val == 3 and bucket.allow_mult is False


def test_everything_read_may_be_set(client):
    for bucket in (client.bucket("echo"), client.bucket_type("many").bucket("echo")):
        bucket.set_properties(bucket.get_properties())


def test_bad_value(client):
    try:
        client.bucket("bad").set_property("n_val", 0)
    except riak.RiakError:
        return
    raise AssertionError("n_val 0 was accepted")


def test_type_properties(client):
    kind = client.bucket_type("many")
    props = kind.get_properties()
    assert props["allow_mult"] is True and props["n_val"] == 1
    assert props.get("active") is (True if shows_all(client) else None)
    kind.set_property("r", 1)
    assert kind.get_property("r") == 1
    assert client.bucket_type("many").bucket("b").get_property("r") == 1
    kind.set_property("r", "quorum")


def test_unknown_type(client):
    try:
        client.bucket_type("nosuch").get_properties()
    except riak.RiakError:
        return
    raise AssertionError("an unknown type has properties")


run(sys.modules[__name__])
