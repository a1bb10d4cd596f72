"""KRPC messages as values, and their encoding (BEP 5, 32, 33, 42, 43, 51).

`decode_message` reads what real nodes send: unsorted keys, odd values, packets of older drafts. The encoders are
strict. An answer must echo the transaction id byte for byte, so the encoders of answers take it in encoded form.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lycosa.core.errors import LycosaError
from lycosa.dht.core.bencode import BencodeError, Value, decode
from lycosa.dht.core.endpoints import CONTACT_BYTES, ENDPOINT_BYTES, IPV4, IPV6, Contact, split_contacts
from lycosa.dht.core.ids import ID_BYTES

PING = b"ping"
FIND_NODE = b"find_node"
GET_PEERS = b"get_peers"
ANNOUNCE_PEER = b"announce_peer"
SAMPLE_INFOHASHES = b"sample_infohashes"

GENERIC_ERROR = 201
SERVER_ERROR = 202
PROTOCOL_ERROR = 203
METHOD_UNKNOWN = 204

WANT_NODES = 1
WANT_NODES6 = 2
"""Flags of `want` (BEP 32). 0: the query has no `want`."""

VERSION = b"LY\x00\x01"
"""Our `v`: two letters for the client, two bytes for its version (BEP 20)."""

SENT_BYTES_MAX = 1024
"""Maximum size of a payload that is sent (BEP 32)."""
RECEIVED_BYTES_MAX = 4096
"""The largest answers seen have 1,500 bytes."""
RECEIVED_BYTES_MIN = 15
"""Shorter datagrams are dropped unread, as in mldht."""
KRPC_DEPTH_MAX = 10
"""As in libtorrent. The messages of BEP 5 need 3."""
KRPC_TOKENS_MAX = 500
"""As in libtorrent. An answer of 1,500 bytes holds 180 peers."""
TRANSACTION_BYTES_MAX = 64
"""Maximum size of an echoed transaction id: an answer must not carry much data that an attacker chose. BEP 5:
"typically 2 characters are enough"."""
TOKEN_BYTES_MAX = 128
"""Longer tokens are not stored. Most have 4 to 20 bytes."""
MESSAGE_BYTES_MAX = 200
FILTER_BYTES = 256


class KrpcError(LycosaError):
    """A datagram that is not a KRPC message, or a query that cannot be answered.

    `transaction` is in encoded form; None if no error packet is sent.
    """

    def __init__(self, message: str, code: int = PROTOCOL_ERROR, transaction: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.transaction = transaction


class Query(Struct, frozen=True):
    """A query with valid arguments. Arguments that its method does not have keep their defaults."""

    transaction: bytes
    """In its encoded form, such as `2:aa`."""
    method: bytes
    id: bytes
    target: bytes = b""
    """The target or the infohash."""
    want: int = 0
    read_only: bool = False
    scrape: bool = False
    noseed: bool = False
    seed: bool = False
    token: bytes = b""
    port: int = 0
    """The announced port; 0 stands for the source port of the datagram (`implied_port`)."""
    version: bytes = b""


class Reply(Struct, frozen=True):
    """An answer. A missing or invalid field has its default. Incomplete contacts, peers and infohashes are dropped."""

    transaction: bytes
    id: bytes
    nodes: bytes = b""
    nodes6: bytes = b""
    values: Sequence[bytes] = ()
    """Endpoints of peers, of both families (BEP 32)."""
    token: bytes | None = None
    samples: bytes | None = None
    """Concatenated infohashes; None if the node does not support BEP 51."""
    num: int = 0
    interval_s: int = 0
    seed_filter: bytes = b""
    peer_filter: bytes = b""
    own_endpoint: bytes = b""
    """Our IP address, possibly with the port, as the node sees it: 4, 6, 16 or 18 bytes (BEP 42)."""
    version: bytes = b""

    def contacts(self) -> list[Contact]:
        return split_contacts(self.nodes, IPV4) + split_contacts(self.nodes6, IPV6)


class ErrorMessage(Struct, frozen=True):
    """An error packet."""

    transaction: bytes
    code: int
    message: bytes = b""
    own_endpoint: bytes = b""
    version: bytes = b""


Message = Query | Reply | ErrorMessage

INTERVAL_S_MAX = 21_600
"""Maximum interval (BEP 51)."""


def decode_message(data: bytes) -> Message:
    """Return the message in a datagram. Raises `KrpcError`."""
    if not RECEIVED_BYTES_MIN <= len(data) <= RECEIVED_BYTES_MAX:
        raise KrpcError(f"{len(data)} bytes: not a KRPC message")
    if data[:1] != b"d":
        raise KrpcError("not a dictionary")
    try:
        message = decode(data, strict=False, max_depth=KRPC_DEPTH_MAX, max_tokens=KRPC_TOKENS_MAX)
    except BencodeError as error:
        raise KrpcError(str(error)) from None
    assert isinstance(message, dict), "it begins with d"
    kind = message.get(b"y")
    if kind == b"q":
        return _query(message)
    if kind == b"r":
        return _reply(message)
    if kind == b"e":
        return _error(message)
    raise KrpcError("neither query nor reply nor error")


def _query(message: dict[bytes, Value]) -> Query:
    transaction = _echo(message.get(b"t"))
    method, arguments = message.get(b"q"), message.get(b"a")
    if not isinstance(method, bytes):
        raise KrpcError("missing 'q'", PROTOCOL_ERROR, transaction)
    if not isinstance(arguments, dict):
        raise KrpcError("missing 'a'", PROTOCOL_ERROR, transaction)
    node_id = _id_argument(arguments, b"id", transaction)
    read_only = message.get(b"ro") == 1
    version = _bytes(message.get(b"v"))[:TRANSACTION_BYTES_MAX]
    if method == PING:
        return Query(transaction, PING, node_id, b"", 0, read_only, version=version)
    if method == ANNOUNCE_PEER:
        return _announce(arguments, transaction, node_id, read_only, version)
    if method == GET_PEERS:
        key = b"info_hash"
    elif method in (FIND_NODE, SAMPLE_INFOHASHES):
        key = b"target"
    else:
        method, key = FIND_NODE, _target_of_unknown(method, arguments, transaction)
    return Query(
        transaction,
        method,
        node_id,
        _id_argument(arguments, key, transaction),
        _want(arguments.get(b"want")),
        read_only,
        arguments.get(b"scrape") == 1,
        arguments.get(b"noseed") == 1,
        version=version,
    )


def _target_of_unknown(method: bytes, arguments: dict[bytes, Value], transaction: bytes) -> bytes:
    """Return the name of the argument that holds the target in a query with an unknown method. Raises `KrpcError`.

    As in libtorrent, such a query is answered like find_node, so that future methods work with older nodes. Exception:
    `announce_peers`, a misspelling in old articles.
    """
    if method != b"announce_peers":
        for key in (b"target", b"info_hash"):
            if key in arguments:
                return key
    raise KrpcError("Method Unknown", METHOD_UNKNOWN, transaction)


def _announce(
    arguments: dict[bytes, Value], transaction: bytes, node_id: bytes, read_only: bool, version: bytes
) -> Query:
    infohash = _id_argument(arguments, b"info_hash", transaction)
    token, port = arguments.get(b"token"), arguments.get(b"port")
    if not isinstance(token, bytes):
        raise KrpcError("missing 'token'", PROTOCOL_ERROR, transaction)
    if arguments.get(b"implied_port", 0) != 0:
        port = 0
    elif not isinstance(port, int) or not 0 < port < 65_536:
        raise KrpcError("invalid value for 'port'", PROTOCOL_ERROR, transaction)
    seed = arguments.get(b"seed") == 1
    return Query(transaction, ANNOUNCE_PEER, node_id, infohash, 0, read_only, False, False, seed, token, port, version)


def _reply(message: dict[bytes, Value]) -> Reply | ErrorMessage:
    values = message.get(b"r")
    if not isinstance(values, dict):
        if b"e" in message:
            return _error(message)  # bitmagnet sends its errors with y = r
        raise KrpcError("a reply without 'r'")
    node_id = values.get(b"id")
    if not isinstance(node_id, bytes) or len(node_id) != ID_BYTES:
        raise KrpcError("a reply without a node id")
    token, samples = values.get(b"token"), values.get(b"samples")
    return Reply(
        _transaction(message),
        node_id,
        _whole(values.get(b"nodes"), CONTACT_BYTES[IPV4]),
        _whole(values.get(b"nodes6"), CONTACT_BYTES[IPV6]),
        _peers(values.get(b"values")),
        token if isinstance(token, bytes) and len(token) <= TOKEN_BYTES_MAX else None,
        _whole(samples, ID_BYTES) if isinstance(samples, bytes) else None,
        max(_int(values.get(b"num")), 0),
        min(max(_int(values.get(b"interval")), 0), INTERVAL_S_MAX),
        _filter(values.get(b"BFsd")),
        _filter(values.get(b"BFpe")),
        _own_endpoint(message),
        _bytes(message.get(b"v"))[:TRANSACTION_BYTES_MAX],
    )


def _error(message: dict[bytes, Value]) -> ErrorMessage:
    found = message.get(b"e")
    parts = found if isinstance(found, list) else [found]
    code = next((each for each in parts if isinstance(each, int)), GENERIC_ERROR)
    text = next((each for each in parts if isinstance(each, bytes)), b"")
    version = _bytes(message.get(b"v"))[:TRANSACTION_BYTES_MAX]
    return ErrorMessage(_transaction(message), code, text[:MESSAGE_BYTES_MAX], _own_endpoint(message), version)


def _echo(transaction: Value | None) -> bytes:
    """Return the transaction of a query in encoded form. In old drafts it is an integer."""
    if isinstance(transaction, bytes) and len(transaction) <= TRANSACTION_BYTES_MAX:
        return b"%d:%b" % (len(transaction), transaction)
    if isinstance(transaction, int):
        return b"i%de" % transaction
    raise KrpcError("missing 't'")


def _transaction(message: dict[bytes, Value]) -> bytes:
    transaction = message.get(b"t")
    if not isinstance(transaction, bytes):
        raise KrpcError("missing 't'")
    return transaction


def _id_argument(arguments: dict[bytes, Value], key: bytes, transaction: bytes) -> bytes:
    value = arguments.get(key)
    if isinstance(value, bytes) and len(value) == ID_BYTES:
        return value
    problem = "invalid value for" if key in arguments else "missing"
    raise KrpcError(f"{problem} '{key.decode()}'", PROTOCOL_ERROR, transaction)


def _want(flags: Value | None) -> int:
    if not isinstance(flags, list):
        return 0
    return WANT_NODES * (b"n4" in flags) | WANT_NODES6 * (b"n6" in flags)


def _peers(values: Value | None) -> list[bytes]:
    if not isinstance(values, list):
        return []
    return [each for each in values if isinstance(each, bytes) and len(each) in ENDPOINT_BYTES.values()]


def _whole(value: Value | None, size: int) -> bytes:
    if not isinstance(value, bytes):
        return b""
    return value[: len(value) - len(value) % size]


def _filter(value: Value | None) -> bytes:
    return value if isinstance(value, bytes) and len(value) == FILTER_BYTES else b""


def _own_endpoint(message: dict[bytes, Value]) -> bytes:
    value = message.get(b"ip")
    return value if isinstance(value, bytes) and len(value) in (4, 6, 16, 18) else b""


def _bytes(value: Value | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _int(value: Value | None) -> int:
    return value if isinstance(value, int) else 0


def encode_query(
    transaction: bytes,
    method: bytes,
    node_id: bytes,
    arguments: bytes = b"",
    *,
    read_only: bool = False,
    version: bytes = VERSION,
) -> bytes:
    """Return a query packet. `arguments` must be encoded and sorted, and all their keys must sort after `id`."""
    return b"d1:ad2:id20:%be1:q%d:%b%b1:t%d:%b1:v%d:%b1:y1:qe" % (
        node_id + arguments,
        len(method),
        method,
        b"2:roi1e" if read_only else b"",
        len(transaction),
        transaction,
        len(version),
        version,
    )


def find_node_arguments(target: bytes, want: int = 0) -> bytes:
    """Return the arguments of find_node and sample_infohashes."""
    return b"6:target20:" + target + WANT_ARGUMENT[want]


def get_peers_arguments(infohash: bytes, want: int = 0, *, scrape: bool = False, noseed: bool = False) -> bytes:
    """Return the arguments of get_peers."""
    return b"9:info_hash20:%b%b%b%b" % (
        infohash,
        b"6:noseedi1e" if noseed else b"",
        b"6:scrapei1e" if scrape else b"",
        WANT_ARGUMENT[want],
    )


def announce_arguments(
    infohash: bytes, token: bytes, port: int | None, *, seed: bool = False, local_port: int = 0
) -> bytes:
    """Return the arguments of announce_peer.

    Without a port, the source port of the datagram is announced (`implied_port`). `local_port` should be this port,
    because aria2 refuses port 0 even with `implied_port`.
    """
    return b"%b9:info_hash20:%b4:porti%de%b5:token%d:%b" % (
        b"12:implied_porti1e" if port is None else b"",
        infohash,
        port or local_port,
        b"4:seedi1e" if seed else b"",
        len(token),
        token,
    )


WANT_ARGUMENT = (b"", b"4:wantl2:n4e", b"4:wantl2:n6e", b"4:wantl2:n42:n6e")


def encode_reply(
    transaction: bytes,
    node_id: bytes,
    requester: bytes,
    values: bytes = b"",
    before_id: bytes = b"",
    version: bytes = VERSION,
) -> bytes:
    """Return a reply packet. `transaction` is encoded. `requester` is the endpoint that sent the query (BEP 42).

    `values` must be encoded and sorted, and all their keys must sort after `id`. `before_id` has the encoded filters
    of BEP 33, whose keys sort before `id`.
    """
    return b"d2:ip%d:%b1:rd%b2:id20:%b%be1:t%b1:v%d:%b1:y1:re" % (
        len(requester),
        requester,
        before_id,
        node_id,
        values,
        transaction,
        len(version),
        version,
    )


def return_values(
    *,
    nodes: bytes | None = None,
    nodes6: bytes | None = None,
    token: bytes | None = None,
    values: Sequence[bytes] = (),
) -> bytes:
    """Return the values of find_node and get_peers for `encode_reply`."""
    parts = []
    if nodes is not None:
        parts.append(b"5:nodes%d:%b" % (len(nodes), nodes))
    if nodes6 is not None:
        parts.append(b"6:nodes6%d:%b" % (len(nodes6), nodes6))
    if token is not None:
        parts.append(b"5:token%d:%b" % (len(token), token))
    if values:
        parts.append(b"6:valuesl%be" % b"".join([b"%d:%b" % (len(each), each) for each in values]))
    return b"".join(parts)


def sample_values(
    samples: bytes, num: int, interval_s: int, *, nodes: bytes | None = None, nodes6: bytes | None = None
) -> bytes:
    """Return the values of sample_infohashes for `encode_reply` (BEP 51)."""
    return b"8:intervali%de%b%b3:numi%de7:samples%d:%b" % (
        interval_s,
        b"" if nodes is None else b"5:nodes%d:%b" % (len(nodes), nodes),
        b"" if nodes6 is None else b"6:nodes6%d:%b" % (len(nodes6), nodes6),
        num,
        len(samples),
        samples,
    )


def filter_values(seed_filter: bytes, peer_filter: bytes) -> bytes:
    """Return the filters of BEP 33 for `encode_reply`."""
    return b"4:BFpe256:%b4:BFsd256:%b" % (peer_filter, seed_filter)


def encode_error(
    transaction: bytes, code: int, message: bytes, requester: bytes = b"", *, version: bytes = VERSION
) -> bytes:
    """Return an error packet. `transaction` is encoded."""
    return b"d1:eli%de%d:%be%b1:t%b1:v%d:%b1:y1:ee" % (
        code,
        len(message),
        message,
        b"2:ip%d:%b" % (len(requester), requester) if requester else b"",
        transaction,
        len(version),
        version,
    )
