"""A user with a password or a certificate, over TLS: what it was granted, and what it was not."""

import sys

import larder
from larder import refused, run
from riak import RiakError


def refused_at_once(user, wanted):
    """Fails unless the server takes no request of this user."""
    connection = larder.client(user)
    try:
        answer = connection.bucket("b").get("k")
    except RiakError as error:
        assert wanted in str(error), str(error)
        return
    finally:
        connection.close()
    raise AssertionError("answered %r" % (answer,))


def test_a_user_stores_reads_and_lists(client):
    bucket = client.bucket("b")
    bucket.new("k", data="v").store()
    assert bucket.get("k").data == "v"
    assert bucket.get_keys() == ["k"]


def test_what_was_not_granted_is_refused(client):
    pbc = "Permission denied: User 'clients' does not have 'riak_core.get_bucket' on default/b"
    refused(client, client.bucket("b").get_properties, "Error getting bucket properties.", pbc)


def test_another_user_is_refused_with_this_proof(client):
    http, pbc = "received 401", "Could not authorize connection"
    refused_at_once("others", http if client.protocol == "http" else pbc)


def test_a_client_in_clear_is_refused(client):
    if client.protocol == "pbc":
        refused_at_once(None, "Security is enabled, please STARTTLS first")


run(sys.modules[__name__])
