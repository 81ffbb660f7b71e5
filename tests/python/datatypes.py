"""Data types: counters, sets, sets that only grow, maps, HyperLogLogs, and the counters of Riak 1.4."""

import json
import sys
import time

from larder import other_gateway, refused, run
from riak.codecs import Msg
from riak.datatypes import Counter, Hll, Map, Set
from riak.pb.messages import MSG_CODE_DT_FETCH_REQ, MSG_CODE_DT_UPDATE_REQ
from riak.pb.riak_dt_pb2 import DtFetchReq, DtFetchResp, DtUpdateReq


def made(client, kind, type_name, key):
    """A value of this type that was not read."""
    return kind(bucket=client.bucket_type(type_name).bucket("data"), key=client.protocol + key)


def is_missing(client, value, empty):
    """Over HTTP the client fails at the answer for a missing key, with a Riak as well."""
    try:
        return value.reload().value == empty
    except TypeError:
        return client.protocol == "http"


def test_counter(client):
    counter = made(client, Counter, "counters", "c")
    counter.increment(5)
    counter.store()
    counter.decrement(7)
    counter.store(return_body=True)
    # Nothing was read in between: the client shows what the server returned.
    assert counter.value == -2, counter.value
    assert made(client, Counter, "counters", "c").reload().value == -2
    assert is_missing(client, made(client, Counter, "counters", "none"), 0)


def test_counter_with_a_key_of_the_server(client):
    counter = Counter(bucket=client.bucket_type("counters").bucket("data"))
    counter.increment(3)
    counter.store()
    # Over protocol buffers the client returns bytes that it does not take back.
    key = counter.key.decode() if isinstance(counter.key, bytes) else counter.key
    assert Counter(bucket=counter.bucket, key=key).reload().value == 3


def test_set(client):
    tags = made(client, Set, "sets", "s")
    for tag in ("tea", "milk", "t\u00e9"):
        tags.add(tag)
    tags.store()
    tags.reload()
    assert tags.value == frozenset(["tea", "milk", "t\u00e9"]), tags.value
    tags.discard("milk")
    tags.add("oats")
    tags.store()
    assert tags.reload().value == frozenset(["tea", "oats", "t\u00e9"])


def test_an_addition_survives_a_removal_that_did_not_see_it(client):
    first = made(client, Set, "sets", "race")
    first.add("x")
    first.store()
    first.reload()
    second = made(client, Set, "sets", "race")
    second.add("x")
    second.store()
    first.discard("x")
    first.store()
    assert first.reload().value == frozenset(["x"])


def test_map(client):
    person = made(client, Map, "maps", "m")
    person.registers["name"].assign("Ann")
    person.counters["visits"].increment(2)
    person.sets["tags"].add("x")
    person.sets["tags"].add("y")
    person.flags["vip"].enable()
    person.maps["address"].registers["zip"].assign("1")
    person.store()
    person.reload()
    assert person.registers["name"].value == "Ann"
    assert person.counters["visits"].value == 2
    assert person.sets["tags"].value == frozenset(["x", "y"])
    assert person.flags["vip"].value is True
    assert person.maps["address"].registers["zip"].value == "1"
    person.sets["tags"].discard("x")
    person.flags["vip"].disable()
    del person.registers["name"]
    del person.maps["address"].registers["zip"]
    person.store()
    person.reload()
    assert person.sets["tags"].value == frozenset(["y"])
    assert person.flags["vip"].value is False
    assert ("name", "register") not in person.value
    assert person.maps["address"].value == {}


def test_hll(client):
    seen = made(client, Hll, "hlls", "h")
    for number in range(1000):
        seen.add("visitor %d" % number)
    seen.store()
    estimate = seen.reload().value
    assert abs(estimate - 1000) < 50, estimate


def send(client, code, request):
    """Sends a message of the client's own, and returns the answer."""
    with client._transport() as transport:
        codec = transport._get_codec(code)
        return transport._request(Msg(code, request.SerializeToString(), code + 1), codec)[1]


def add_to_gset(client, key, elements):
    """Adds to a set that only grows, and returns it. The client has the messages of such sets, and no class."""
    if client.protocol == "http":
        path = "/types/gsets/buckets/data/datatypes/%s?returnbody=true" % key
        with client._transport() as transport:
            headers = {"Content-Type": "application/json"}
            status, _, body = transport._request("POST", path, headers, json.dumps({"add_all": elements}))
        assert status == 200, (status, body)
        return json.loads(body)["value"]
    update = DtUpdateReq(type=b"gsets", bucket=b"data", key=key.encode(), return_body=True)
    update.op.gset_op.adds.extend(element.encode() for element in elements)
    return [element.decode() for element in send(client, MSG_CODE_DT_UPDATE_REQ, update).gset_value]


def test_a_set_that_only_grows(client):
    key = client.protocol + "g"
    assert add_to_gset(client, key, ["b", "a"]) == ["a", "b"]
    assert add_to_gset(client, key, ["t\u00e9", "a"]) == ["a", "b", "t\u00e9"]
    if client.protocol == "pbc":
        found = send(client, MSG_CODE_DT_FETCH_REQ, DtFetchReq(type=b"gsets", bucket=b"data", key=key.encode()))
        assert found.type == DtFetchResp.GSET and not found.HasField("context"), found
        assert list(found.value.gset_value) == [b"a", b"b", "t\u00e9".encode()], found


def test_delete(client):
    tags = made(client, Set, "sets", "gone")
    tags.add("x")
    tags.store()
    tags.delete()
    assert is_missing(client, made(client, Set, "sets", "gone"), frozenset())


def test_an_edit_of_another_type_is_refused(client):
    counter = made(client, Counter, "sets", "other")
    counter.increment()
    refused(client, counter.store, "received 400", "Operation type is `counter` but  bucket type is `set`.")


def test_legacy_counter(client):
    bucket = client.bucket("legacy" + client.protocol)
    bucket.set_property("allow_mult", True)
    if other_gateway():
        # It shows a changed bucket after two seconds.
        time.sleep(3)
    assert not bucket.get_counter("k")
    bucket.update_counter("k", 5)
    assert bucket.update_counter("k", -7, returnvalue=True) == -2
    assert bucket.get_counter("k") == -2


def test_a_legacy_counter_needs_a_bucket_that_keeps_siblings(client):
    bucket = client.bucket("b")
    pbc = "Counters require bucket property"
    refused(client, lambda: bucket.update_counter("k", 1), "received 409", pbc)


run(sys.modules[__name__])
