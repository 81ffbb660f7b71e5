"""MapReduce by the functions that Riak has built in, by their Erlang and JavaScript names."""

import sys

import riak
from larder import refused, run

VALUE = ["riak_kv_mapreduce", "map_object_value"]


def fill(bucket):
    for number in range(30):
        bucket.new("k-%02d" % number, data=number).store()
    return bucket


def test_a_bucket_is_counted_and_summed(client):
    for bucket in (fill(client.bucket("mapred")), fill(client.bucket_type("many").bucket("mapred"))):
        query = client.add(bucket.name, bucket_type=bucket.bucket_type.name)
        assert query.reduce(["riak_kv_mapreduce", "reduce_count_inputs"]).run() == [30]
        query = client.add(bucket.name, bucket_type=bucket.bucket_type.name)
        query.map(VALUE).reduce(["riak_kv_mapreduce", "reduce_string_to_integer"])
        assert query.reduce(["riak_kv_mapreduce", "reduce_sum"]).run(timeout=20000) == [435]


def test_helpers_of_the_client(client):
    fill(client.bucket("helpers"))

    def values():
        return client.add("helpers").map_values_json()

    assert sorted(values().run()) == list(range(30))
    assert values().reduce_sum().run() == [435]
    assert values().reduce_min().run() == [0]
    assert values().reduce_max().run() == [29]
    assert values().reduce_numeric_sort().run() == list(range(30))
    assert values().reduce_numeric_sort().reduce_slice(3, 6).run() == [3, 4, 5]
    assert sorted(client.add("helpers").map_values().run()) == sorted(str(number) for number in range(30))
    assert sorted(values().reduce_sort().run()) == list(range(30))


def test_keys_with_data_and_missing_ones(client):
    fill(client.bucket("keys"))
    query = client.add("keys", "k-01").add("keys", ["k-02", "none"])
    assert sorted(query.map_values_json().filter_not_found().run()) == [1, 2]
    data = riak.RiakMapReduce(client).add_bucket_key_data("keys", "none", {"a": 1})
    found = data.map(VALUE, {"arg": "include_keydata"}).run()
    assert found == [{"a": 1}], found


def test_key_filters(client):
    fill(client.bucket("filtered"))
    filters = riak.key_filter.tokenize("-", 2) + riak.key_filter.string_to_int().between(5, 7)
    query = client.add("filtered").add_key_filters(filters)
    assert sorted(query.map_values_json().run()) == [5, 6, 7]
    either = riak.key_filter.ends_with("1") | riak.key_filter.eq("k-02")
    assert sorted(client.add("filtered").add_key_filters(either).map_values_json().run()) == [1, 2, 11, 21]


def test_index_inputs(client):
    bucket = client.bucket("indexed")
    for number in range(10):
        entry = bucket.new("k-%d" % number, data=number)
        entry.add_index("n_int", number)
        entry.store()
    assert sorted(client.index("indexed", "n_int", 3, 5).map_values_json().run()) == [3, 4, 5]
    assert client.index("indexed", "n_int", 7).map_values_json().run() == [7]
    assert client.index("indexed", "$key", "k-1", "k-2").map_values_json().run() == [1, 2]


def test_links(client):
    bucket = client.bucket("linked")
    bucket.new("end", data="reached").store()
    start = bucket.new("start", data="begun")
    start.add_link(bucket.get("end"), tag="next")
    start.store()
    assert client.add("linked", "start").link("linked", "next").run() == [("linked", "end", "next")]
    assert client.add("linked", "start").link(tag="other").run() == []
    assert client.add("linked", "start").link().map_values_json().run() == ["reached"]


def test_streams(client):
    fill(client.bucket("streamed"))
    found = []
    for phase, values in client.add("streamed").map_values_json().stream():
        assert phase == 0
        found.extend(values)
    assert sorted(found) == list(range(30))
    kept = client.add("streamed").map_values_json({"keep": True}).reduce_sum({"keep": True})
    phases = {}
    for phase, values in kept.stream():
        phases.setdefault(phase, []).extend(values)
    assert sorted(phases[0]) == list(range(30)) and phases[1] == [435]


def test_what_is_refused(client):
    query = client.add("b").map(["nosuch", "f"])
    pbc = "Phase 0: invalid module named in PhaseSpec function"
    refused(client, query.run, "invalid module named in PhaseSpec function", pbc)
    fill(client.bucket("refused"))
    query = client.add("refused").map(VALUE).reduce(["riak_kv_mapreduce", "reduce_sum"])
    refused(client, query.run, "badarith", "badarith")
    query = client.add("refused").map(VALUE)
    query._inputs = {"bucket": "refused", "key_filters": [["nosuch"]]}
    refused(client, query.run, "bad_filter", "bad_filter")


run(sys.modules[__name__])
