"""Resolve host names to IP addresses: `SystemResolver` asks the operating system.

A name is the host of a canonical URL: ASCII, with internationalised names as `xn--...` and IPv6 addresses in brackets.
Addresses are in ascending order within each family; the family that the system prefers is first. So the order stays the
same if a name server rotates the addresses.

The system returns no TTL, so answers are cached for fixed times. Look-ups run in daemon threads: the loop's
`getaddrinfo` shares a small thread pool with other work and delays the exit of the program.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import NamedTuple

from lycosa.core.errors import ConnectFailed
from lycosa.core.recent_dict import RecentDict

TTL_S = 300.0
FAILURE_TTL_S = 30.0
UNANSWERED_TTL_S = 1.0
NUMERIC_TTL_S = 86_400.0

TIMEOUT_S = 10.0
ANSWERS_MAX = 10_000
"""Maximum names in the cache; the least recently used is evicted first."""

THREADS_MAX = 32
"""Maximum concurrent look-ups. A look-up that hangs occupies its thread until the system gives up."""

LOOKUPS_MAX = 10_000

NAME = re.compile(r"(?=.{1,254}\Z)(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?", re.ASCII)
NOT_FOUND = "host not found"


class CachedAnswer(NamedTuple):
    """The addresses of a name, or why there are none. Valid until the loop time `until`."""

    addresses: Sequence[str]
    failure: str
    until: float


class SystemResolver:
    """Implements the `Resolver` port with the operating system's resolver, for one event loop.

    `timeout_s` limits one look-up, including the wait for a thread.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._answers: RecentDict[str, CachedAnswer] = RecentDict(ANSWERS_MAX)
        self._lookups: dict[str, asyncio.Future[CachedAnswer]] = {}
        self._waiting: deque[str] = deque()
        self._threads = 0

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        if numeric := numeric_address(name):
            return (numeric,), NUMERIC_TTL_S
        loop = asyncio.get_running_loop()
        answer = self._answers.get(name)
        if answer is None or answer.until <= loop.time():
            answer = await self._look_up(name)
        else:
            self._answers.move_to_end(name)
        if not answer.addresses:
            raise ConnectFailed(answer.failure)
        return answer.addresses, max(0.0, answer.until - loop.time())

    async def _look_up(self, name: str) -> CachedAnswer:
        if not NAME.fullmatch(name):
            raise ConnectFailed(NOT_FOUND)
        lookup = self._lookups.get(name)
        if lookup is None:
            lookup = self._start_lookup(name)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(lookup)  # other tasks may be waiting for it, too
        except TimeoutError:
            raise ConnectFailed(f"host not found within {self._timeout_s:g} s") from None

    def _start_lookup(self, name: str) -> asyncio.Future[CachedAnswer]:
        if len(self._lookups) >= LOOKUPS_MAX:
            raise ConnectFailed("too many host look-ups at once")
        lookup = self._lookups[name] = asyncio.get_running_loop().create_future()
        self._waiting.append(name)
        self._start_threads()
        return lookup

    def _start_threads(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._threads < THREADS_MAX:
            self._threads += 1
            name = self._waiting.popleft()
            Thread(target=self._run_thread, args=(loop, name), name=f"resolve {name}", daemon=True).start()

    def _run_thread(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        answer = _ask_system(name)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._on_answer, name, *answer)

    def _on_answer(self, name: str, addresses: Sequence[str], failure: str, ttl_s: float) -> None:
        self._threads -= 1
        answer = self._answers[name] = CachedAnswer(addresses, failure, asyncio.get_running_loop().time() + ttl_s)
        lookup = self._lookups.pop(name)  # the answer is cached even if every waiting task has timed out
        if not lookup.done():
            lookup.set_result(answer)
        self._start_threads()


def numeric_address(name: str) -> str:
    """Return a numeric name as an IP address without brackets; "" for other names."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    with suppress(ValueError):
        return "" if "%" in bare else str(ip_address(bare))
    return ""


def sort_addresses(addresses: Iterable[str]) -> list[str]:
    """Return the distinct addresses, sorted within IPv4 and IPv6. The family of the first address stays first."""
    # An address with a zone ("%") is link-local and cannot be crawled.
    found = [ip_address(address) for address in addresses if "%" not in address]
    return [
        str(address) for address in sorted(set(found), key=lambda each: (each.version != found[0].version, int(each)))
    ]


def _ask_system(name: str) -> tuple[Sequence[str], str, float]:
    """Return the addresses, or why there are none, and the TTL in seconds."""
    try:
        # As bytes, since Python would encode text as IDNA a second time.
        found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            return (), "name server does not answer", UNANSWERED_TTL_S
        return (), NOT_FOUND, FAILURE_TTL_S
    addresses = sort_addresses(str(sockaddr[0]) for *_, sockaddr in found)
    return addresses, NOT_FOUND, TTL_S if addresses else FAILURE_TTL_S
