"""Secondary indexes: stored terms, equality and ranges, pages, streams, the special indexes."""

import sys

from larder import refused, run


def fill(bucket):
    for number in range(20):
        stored = bucket.new("k%02d" % number, data=number)
        stored.add_index("n_int", number - 5)
        stored.add_index("t_bin", "t%d" % (number % 3))
        stored.store()


def keys(numbers):
    return ["k%02d" % number for number in numbers]


def test_terms_come_back_with_their_object(client):
    bucket = client.bucket("py-terms")
    stored = bucket.new("k", data=1)
    stored.add_index("n_int", -7)
    stored.add_index("t_bin", "one")
    stored.add_index("t_bin", "two")
    stored.store()
    assert bucket.get("k").indexes == {("n_int", -7), ("t_bin", "one"), ("t_bin", "two")}


def test_one_value_and_ranges(client):
    for bucket in (client.bucket("py-range"), client.bucket_type("many").bucket("py-range")):
        fill(bucket)
        assert list(bucket.get_index("n_int", -2)) == keys([3])
        assert list(bucket.get_index("n_int", -2, 1)) == keys([3, 4, 5, 6])
        terms = bucket.get_index("n_int", -2, 1, return_terms=True)
        assert [tuple(term) for term in terms] == list(zip([-2, -1, 0, 1], keys([3, 4, 5, 6])))
        assert sorted(bucket.get_index("t_bin", "t1")) == keys(range(1, 20, 3))
        matching = bucket.get_index("t_bin", "t", "u", return_terms=True, term_regex="[02]$")
        assert {term for term, _ in matching} == {"t0", "t2"}
        assert list(bucket.get_index("$key", "k05", "k07")) == keys([5, 6, 7])
        assert list(bucket.get_index("$bucket", bucket.name)) == keys(range(20))


def test_pages(client):
    bucket = client.bucket("py-pages")
    fill(bucket)
    page = bucket.get_index("n_int", -5, 14, max_results=8)
    seen = [list(page)]
    while page.has_next_page():
        page = page.next_page()
        seen.append(list(page))
    assert [len(one) for one in seen] == [8, 8, 4], seen
    assert sum(seen, []) == keys(range(20))
    pages = list(bucket.paginate_index("n_int", -5, 14, max_results=10))
    assert sum((list(one) for one in pages), []) == keys(range(20))
    refused(
        client,
        lambda: bucket.get_index("n_int", -5, 13, max_results=8, continuation=page.continuation or "x"),
        "received 400",
        "continuation",
    )


def streamed(stream):
    """All results of a stream, which comes in parts."""
    return [result for part in stream for result in part]


def test_streams(client):
    bucket = client.bucket("py-streams")
    fill(bucket)
    assert streamed(bucket.stream_index("n_int", 0, 9)) == keys(range(5, 15))
    terms = streamed(bucket.stream_index("n_int", 0, 9, return_terms=True))
    assert [(int(term), key) for term, key in terms] == list(zip(range(10), keys(range(5, 15))))
    pages = [streamed(page) for page in bucket.paginate_stream_index("n_int", 0, 9, max_results=5)]
    assert [len(page) for page in pages][:2] == [5, 5] and sum(pages, []) == keys(range(5, 15)), pages


def test_overwritten_and_deleted_terms_are_gone(client):
    bucket = client.bucket("py-gone")
    fill(bucket)
    changed = bucket.get("k00")
    changed.remove_index("n_int")
    changed.add_index("n_int", 100)
    changed.store()
    bucket.delete("k01")
    assert list(bucket.get_index("n_int", -5, -4)) == []
    assert list(bucket.get_index("n_int", 100)) == keys([0])
    assert "k01" not in list(bucket.get_index("t_bin", "t1"))


def test_refused_queries(client):
    bucket = client.bucket("b")
    pbc = '{field_parsing_failed,{<<"n_int">>,<<"x">>}}'
    refused(client, lambda: bucket.get_index("n_int", "x"), "received 400", pbc)
    refused(client, lambda: bucket.get_index("n", "x"), "received 400", '{unknown_field_type,<<"n">>}')


run(sys.modules[__name__])
