"""Lets the unmodified Python client `riak` 2.7.0 (2016) run on a Python of today.

Python imports this module at its start when this directory is on PYTHONPATH. It only puts back names that newer
versions of the standard library took away; not a byte of the client changes.
"""

import collections
import collections.abc
import inspect
import ssl
import sys
import types

# Removed in 3.10: the abstract classes under their old address.
for name in ("Callable", "Iterable", "Iterator", "Mapping", "MutableMapping", "MutableSet", "Sequence", "Set", "Sized"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

# Removed in 3.7: namedtuple(verbose=...), which only ever printed the class.
_namedtuple = collections.namedtuple


def _namedtuple_verbose(typename, field_names, *, verbose=False, rename=False, defaults=None, module=None):
    if module is None:
        module = sys._getframe(1).f_globals.get("__name__", "__main__")
    return _namedtuple(typename, field_names, rename=rename, defaults=defaults, module=module)


collections.namedtuple = _namedtuple_verbose

# Removed in 3.11.
if not hasattr(inspect, "getargspec"):
    inspect.getargspec = lambda function: inspect.getfullargspec(function)[:4]

# Closed in 3.7: the constructor that took the settings of a context.
_new_socket = ssl.SSLSocket.__new__


def _new_ssl_socket(cls, *args, ca_certs=None, **named):
    if ca_certs is None:
        return _new_socket(cls, *args, **named)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_certs)
    if named["certfile"]:
        context.load_cert_chain(named["certfile"], named["keyfile"])
    return context.wrap_socket(named["sock"], server_hostname=named["server_hostname"])


ssl.SSLSocket.__new__ = _new_ssl_socket
ssl.SSLSocket.__init__ = lambda *_, **__: None

# Removed in 3.12.
if not hasattr(ssl, "match_hostname"):
    ssl.match_hostname = lambda *_: None

# Removed in 3.13: the client uses one function of it.
try:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import cgi  # noqa: F401
except ImportError:
    from email.message import Message

    def _parse_header(line):
        message = Message()
        message["content-type"] = line
        params = message.get_params(unquote=True)
        return params[0][0], dict(params[1:])

    cgi = types.ModuleType("cgi")
    cgi.parse_header = _parse_header
    sys.modules["cgi"] = cgi

# Used for time-series tables only, over protocol buffers, which these tests never open.
try:
    import erlastic  # noqa: F401
except ImportError:
    erlastic = types.ModuleType("erlastic")
    erlastic.encode = erlastic.decode = lambda *_: None
    erlastic_types = types.ModuleType("erlastic.types")
    erlastic_types.Atom = str
    erlastic.types = erlastic_types
    sys.modules["erlastic"] = erlastic
    sys.modules["erlastic.types"] = erlastic_types

# The client's protocol-buffer modules were generated for Python 2 and hand over descriptors as text. They are imported
# even by a client that speaks HTTP only.
try:
    from google.protobuf import descriptor
except ImportError:
    pass
else:
    _parse_options = descriptor._ParseOptions

    def _parse_options_of_text(message, string):
        return _parse_options(message, string.encode("latin-1") if isinstance(string, str) else string)

    descriptor._ParseOptions = _parse_options_of_text
