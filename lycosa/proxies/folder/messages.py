"""What the owner of a pool in a folder and other processes say to each other over the socket of the folder.

In each frame (`infra.unix_socket`) is msgpack. The owner speaks first:

    owner                                       client
    Hello(version, pid)      ---------------->
                             <----------------  Call(number, method, arguments)      many at a time
    Answer(number, value)    ---------------->                                       in any order
    Refusal(number, kind, message)
                             <----------------  Cancel(number)                       the caller waits no more

A method is one of `proxies.ports.ProxyPool`, with its arguments as a tuple. A long list comes in several answers:
`more`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView

VERSION = 2
PART = 1_000
"""Of a list, in one frame."""


class Asked(NamedTuple):
    """A wish."""

    tags: dict[str, str]
    session: str
    avoid: list[str]

    @property
    def request(self) -> ProxyRequest:
        """The wish that is meant."""
        return ProxyRequest(self.tags, self.session, frozenset(self.avoid))


def asked(request: ProxyRequest) -> Asked:
    """Return a wish as it is sent."""
    return Asked(dict(request.tags), request.session, list(request.avoid))


METHODS: dict[str, tuple[Any, Any]] = {
    "add": (tuple[list[Proxy], bool], int),
    "remove": (tuple[list[str]], int),
    "count": (tuple[()], int),
    "forget_dead": (tuple[float], list[str]),
    "acquire": (tuple[str, int, Asked, float | None, float], list[ProxyLease]),
    "renew": (tuple[ProxyLease, float | None], float | None),
    "release": (tuple[ProxyLease, list[Outcome]], bool),
    "ban": (tuple[str, str, float | None, str], bool),
    "unban": (tuple[str, str], bool),
    "report_check": (tuple[str, Outcome, str], bool),
    "proxies": (tuple[str | None], list[ProxyView]),
    "targets": (tuple[()], list[TargetView]),
    "explain": (tuple[str, Asked], list[ProxyExplanation]),
}
"""The types of the arguments and of the answer."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first word of the owner."""

    version: int
    pid: int


class Call(msgspec.Struct, tag="call", frozen=True):
    """A request; its client numbers them."""

    number: int
    method: str
    arguments: msgspec.Raw


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """The answer to a call is not waited for any more."""

    number: int


class Answer(msgspec.Struct, tag="answer", frozen=True):
    """What the method returned; the list goes on in the next one when there is `more`."""

    number: int
    value: msgspec.Raw
    more: bool = False


class Refusal(msgspec.Struct, tag="refusal", frozen=True):
    """The exception that it raised: the name of its class in `core.errors`, and the message."""

    number: int
    kind: str
    message: str


encode = msgspec.msgpack.Encoder().encode
decode_asked = msgspec.msgpack.Decoder(Call | Cancel).decode
decode_said = msgspec.msgpack.Decoder(Hello | Answer | Refusal).decode
