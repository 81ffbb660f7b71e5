"""A user with a password, over TLS: what it was granted, and what it was not."""

import sys

from larder import refused, run


def test_a_user_stores_reads_and_lists(client):
    bucket = client.bucket("b")
    bucket.new("k", data="v").store()
    assert bucket.get("k").data == "v"
    assert bucket.get_keys() == ["k"]


def test_what_was_not_granted_is_refused(client):
    pbc = "Permission denied: User 'clients' does not have 'riak_core.get_bucket' on default/b"
    refused(client, client.bucket("b").get_properties, "Error getting bucket properties.", pbc)


run(sys.modules[__name__])
