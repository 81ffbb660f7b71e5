"""What the scripts share: a client of the server under test, and a runner that needs nothing installed."""

import os
import sys
import traceback
import warnings

warnings.simplefilter("ignore")

import riak  # noqa: E402
from riak.security import SecurityCreds  # noqa: E402


def client(user="clients"):
    """A client over the protocol under test, as any program makes one; this user where security is on."""
    proof = credentials(user)
    host = "localhost" if proof else "127.0.0.1"
    return riak.RiakClient(protocol=os.environ["LARDER_PROTOCOL"], credentials=proof, nodes=nodes(host))


def nodes(host):
    """The server under test; where there are two gateways, both: the client sends a request to any of them."""
    ports = [(os.environ["LARDER_HTTP_PORT"], os.environ["LARDER_PB_PORT"])]
    if other_gateway():
        ports.append((os.environ["LARDER_OTHER_HTTP_PORT"], os.environ["LARDER_OTHER_PB_PORT"]))
    return [{"host": host, "http_port": int(http), "pb_port": int(pb)} for http, pb in ports]


def other_gateway():
    """Whether requests go to two gateways."""
    return "LARDER_OTHER_PB_PORT" in os.environ


def credentials(user):
    """The name with the proof of the user `clients`: its certificate where it has one, else its password."""
    authority, certificate = os.environ.get("LARDER_CA"), os.environ.get("LARDER_CERT")
    if not authority or not user:
        return None
    if certificate:
        return SecurityCreds(user, cacert_file=authority, cert_file=certificate, pkey_file=os.environ["LARDER_KEY"])
    return SecurityCreds(user, "Test1234", cacert_file=authority)


def refused(client, call, http, pbc):
    """Fails unless the server refuses the call with this text: over HTTP the client mostly reports its status alone."""
    try:
        answer = call()
    except riak.RiakError as error:
        wanted = http if client.protocol == "http" else pbc
        assert wanted in str(error), str(error)
        assert client.ping()
        return
    raise AssertionError("answered %r" % (answer,))


def run(module):
    """Runs every function of the calling script whose name starts with test_, each with a client of its own."""
    failed = 0
    for name, test in sorted(vars(module).items()):
        if not name.startswith("test_"):
            continue
        try:
            connection = client()
            test(connection)
            connection.close()
            print("ok   ", name)
        except Exception:
            failed += 1
            print("FAIL ", name)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
