"""Host names to IP addresses: `SystemResolver` asks the operating system, `StaticResolver` a table.

A name is a host as it stands in a canonical URL: ASCII, internationalised names as `xn--...`, an IPv6 address in
brackets. Numeric names are answered at once. The order of the addresses is the same whenever the set is the same: IPv6
or IPv4 first as the system prefers, ascending within each, so that a name server that deals its answers in turns does
not make one host look like several.

The system tells no TTL: answers are trusted for `TTL_S`, failures for `FAILURE_TTL_S`, or for `AGAIN_TTL_S` when no
name server answered. It is asked in threads of our own, because a loop's `getaddrinfo` shares its few threads with
other work, and keeps the program from ending.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Thread
from typing import NamedTuple

from lycosa.core.errors import BadSetting, ConnectFailed

TTL_S = 300.0
FAILURE_TTL_S = 30.0
AGAIN_TTL_S = 1.0
NUMERIC_TTL_S = 86_400.0
"""How long an address may be taken for the one of a host whose name is that address."""

TIMEOUT_S = 10.0
ANSWERS_MAX = 10_000
"""Names whose answers are kept; the one that was asked for least recently goes first."""

THREADS_MAX = 32
"""Questions to the system at a time; one that hangs keeps its place until the system gives up."""

QUESTIONS_MAX = 10_000
"""Questions that wait for a thread or an answer."""

NAME = re.compile(r"(?=.{1,254}\Z)(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?", re.ASCII)
NOT_FOUND = "host not found"


class _Answer(NamedTuple):
    """The addresses, or why there are none; `until` is in the loop's time."""

    addresses: Sequence[str]
    why: str
    until: float


class SystemResolver:
    """See `http.ports.Resolver`. `timeout_s` is for one question, with its wait for a thread. Belongs to one loop."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._asked: dict[str, asyncio.Future[_Answer]] = {}
        self._waiting: deque[str] = deque()
        self._threads = 0

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        """Return what the system says, or said not long ago."""
        if numeric := numeric_address(name):
            return (numeric,), NUMERIC_TTL_S
        loop = asyncio.get_running_loop()
        answer = self._answers.get(name)
        if answer is None or answer.until <= loop.time():
            answer = await self._ask(name)
        else:
            self._answers.move_to_end(name)
        if not answer.addresses:
            raise ConnectFailed(answer.why)
        return answer.addresses, max(0.0, answer.until - loop.time())

    async def _ask(self, name: str) -> _Answer:
        if not NAME.fullmatch(name):
            raise ConnectFailed(NOT_FOUND)
        question = self._asked.get(name)
        if question is None:
            question = self._question(name)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(question)  # others may wait for it too
        except TimeoutError:
            raise ConnectFailed(f"host not found within {self._timeout_s:g} s") from None

    def _question(self, name: str) -> asyncio.Future[_Answer]:
        if len(self._asked) >= QUESTIONS_MAX:
            raise ConnectFailed("too many hosts to be found at once")
        question = self._asked[name] = asyncio.get_running_loop().create_future()
        self._waiting.append(name)
        self._start_threads()
        return question

    def _start_threads(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._threads < THREADS_MAX:
            self._threads += 1
            name = self._waiting.popleft()
            Thread(target=self._look_up, args=(loop, name), name=f"resolve {name}", daemon=True).start()

    def _look_up(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        """Ask the system; runs in a thread."""
        said = _ask_system(name)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._answered, name, *said)

    def _answered(self, name: str, addresses: Sequence[str], why: str, ttl_s: float) -> None:
        self._threads -= 1
        answer = self._answers[name] = _Answer(addresses, why, asyncio.get_running_loop().time() + ttl_s)
        self._answers.move_to_end(name)
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        question = self._asked.pop(name)
        if not question.done():
            question.set_result(answer)
        self._start_threads()


class StaticResolver:
    """See `http.ports.Resolver`. Knows the names of a table, and numeric ones; no other. Raises `BadSetting`."""

    def __init__(self, table: Mapping[str, Sequence[str]], ttl_s: float = TTL_S) -> None:
        for name, addresses in table.items():
            for address in addresses:
                if not numeric_address(address):
                    raise BadSetting(f"{address!r}, an address of {name}, is no IP address: write one like 192.0.2.1")
        self._table = {name: tuple(map(numeric_address, addresses)) for name, addresses in table.items()}
        self._ttl_s = ttl_s

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        """Return what the table says, in its order."""
        if numeric := numeric_address(name):
            return (numeric,), NUMERIC_TTL_S
        addresses = self._table.get(name, ())
        if not addresses:
            raise ConnectFailed(NOT_FOUND)
        return addresses, self._ttl_s


def numeric_address(name: str) -> str:
    """Return the address that a numeric name is, without brackets; "" for any other name."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    with suppress(ValueError):
        return "" if "%" in bare else str(ip_address(bare))
    return ""


def in_order(addresses: Iterable[str]) -> list[str]:
    """Return each address once, the family that came first in front, ascending within a family."""
    found = [ip_address(address) for address in addresses if "%" not in address]  # link-local: no host of a crawl
    return [str(address) for address in sorted(set(found), key=lambda each: _rank(each, found[0]))]


def _rank(address: IPv4Address | IPv6Address, first: IPv4Address | IPv6Address) -> tuple[bool, int]:
    return address.version != first.version, int(address)


def _ask_system(name: str) -> tuple[Sequence[str], str, float]:
    """Return addresses, or why there are none, and for how long that holds."""
    try:
        # As bytes: Python would check and encode text as IDNA, which it is already.
        found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            return (), "name server does not answer", AGAIN_TTL_S
        return (), NOT_FOUND, FAILURE_TTL_S
    addresses = in_order(str(sockaddr[0]) for *_, sockaddr in found)
    return addresses, NOT_FOUND, TTL_S if addresses else FAILURE_TTL_S
