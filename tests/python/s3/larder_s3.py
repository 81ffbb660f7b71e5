"""What the S3 scripts share: endpoints, keys, names of `*.localhost`, and a runner that needs nothing installed."""

import os
import socket
import sys
import traceback
import uuid

PORT = int(os.environ["LARDER_S3_PORT"])
HTTP_PORT = os.environ.get("LARDER_HTTP_PORT")
KEY = os.environ["LARDER_S3_KEY"]
SECRET = os.environ["LARDER_S3_SECRET"]

_resolve = socket.getaddrinfo


def _resolve_localhost(host, *args, **kwargs):
    """Every name below localhost is this machine (RFC 6761), also where the system's resolver does not know it."""
    if isinstance(host, str) and host.endswith(".localhost"):
        host = "127.0.0.1"
    return _resolve(host, *args, **kwargs)


socket.getaddrinfo = _resolve_localhost


def bucket_name(word):
    return f"{word}-{uuid.uuid4().hex[:12]}"


def run(module):
    """Runs every function of the calling script whose name starts with test_."""
    failed = 0
    for name, test in sorted(vars(module).items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("ok   ", name, flush=True)
        except Exception:
            failed += 1
            print("FAIL ", name, flush=True)
            traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)
