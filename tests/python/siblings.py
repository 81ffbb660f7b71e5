"""Siblings: seen, chosen among, resolved by hand and by a resolver."""

import sys

import riak
from riak.resolver import last_written_resolver
from larder import run


def conflicting(client, key, *values):
    """An object with these siblings, written without a look at each other."""
    bucket = client.bucket_type("many").bucket("siblings")
    for value in values:
        bucket.new(key, data=value).store(return_body=False)
    return bucket


def test_both_are_seen(client):
    bucket = conflicting(client, "seen", {"v": 1}, {"v": 2})
    got = bucket.get("seen")
    assert len(got.siblings) == 2
    assert sorted(one.data["v"] for one in got.siblings) == [1, 2]
    try:
        got.data
    except riak.ConflictError:
        pass
    else:
        raise AssertionError("data of a conflicting object")


def test_resolved_by_hand(client):
    bucket = conflicting(client, "hand", "a", "b", "c")
    got = bucket.get("hand")
    got.siblings = [max(got.siblings, key=lambda one: one.data)]
    got.store()
    again = bucket.get("hand")
    assert len(again.siblings) == 1 and again.data == "c"


def test_resolved_by_a_resolver(client):
    bucket = conflicting(client, "merge", ["milk"], ["tea"])

    def merge(robj):
        everything = sorted({item for one in robj.siblings for item in one.data})
        keep = robj.siblings[0]
        keep.data = everything
        robj.siblings = [keep]

    bucket.resolver = merge
    got = bucket.get("merge")
    assert got.data == ["milk", "tea"]
    got.store()
    bucket.resolver = None
    assert bucket.get("merge").data == ["milk", "tea"]


def test_resolved_by_time(client):
    bucket = conflicting(client, "late", "first", "second")
    bucket.resolver = last_written_resolver
    assert len(bucket.get("late").siblings) == 1


def test_store_shows_the_conflict(client):
    bucket = conflicting(client, "shown", "first")
    second = bucket.new("shown", data="second")
    second.store(return_body=True)
    assert len(second.siblings) == 2


def test_read_modify_write_never_conflicts(client):
    bucket = conflicting(client, "rmw", 0)
    for _ in range(20):
        got = bucket.get("rmw")
        got.data = got.data + 1
        got.store()
    got = bucket.get("rmw")
    assert len(got.siblings) == 1 and got.data == 20


def test_allow_mult_false_keeps_one(client):
    bucket = client.bucket_type("single").bucket("b")
    bucket.new("k", data=1).store()
    bucket.new("k", data=2).store()
    assert bucket.get("k").data == 2


def test_siblings_of_siblings_metadata(client):
    bucket = client.bucket_type("many").bucket("meta")
    for number in (1, 2):
        one = bucket.new("k", data=number)
        one.usermeta = {"writer": str(number)}
        one.add_index("n_int", number)
        one.store(return_body=False)
    got = bucket.get("k")
    seen = sorted((one.data, one.usermeta["writer"], sorted(one.indexes)) for one in got.siblings)
    assert seen == [(1, "1", [("n_int", 1)]), (2, "2", [("n_int", 2)])], seen


run(sys.modules[__name__])
