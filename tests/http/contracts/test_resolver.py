"""The contract of the `Resolver` port, and of `SystemResolver`: cached answers, bounded look-ups (F8).

No name leaves the machine: the system is asked for `localhost` only. Everything else is answered by a replaced
`getaddrinfo`, when the test allows it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from lycosa.core.errors import BadSetting, ConnectFailed
from lycosa.http import resolver as module
from lycosa.http.ports import Resolver
from lycosa.http.resolver import NUMERIC_TTL_S, SystemResolver, sort_addresses
from tests.http.contracts.fetching import LOOPS
from tests.http.static_resolver import StaticResolver

KINDS: dict[str, Callable[[], Resolver]] = {
    "system": SystemResolver,
    "static": lambda: StaticResolver({"localhost": ["127.0.0.1"]}),
}
TEST_MAX_S = 60.0
Play = Callable[[], Awaitable[Any]]


LOOK_UP = socket.getaddrinfo


@pytest.fixture(params=LOOPS)
def run(request) -> Callable[[Play], Any]:
    def runner(scenario: Play) -> Any:
        async def main() -> Any:
            async with asyncio.timeout(TEST_MAX_S):
                return await scenario()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as loop:
            return loop.run(main())

    return runner


@pytest.fixture(params=KINDS)
def make(request) -> Callable[[], Resolver]:
    return KINDS[request.param]


# --------------------------------------------------------------------------------------------------------- the contract


def test_name_is_resolved(run, make):
    addresses, ttl_s = run(lambda: make().resolve("localhost"))
    assert "127.0.0.1" in addresses
    assert 0 < ttl_s < module.TTL_S + 1


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The names that were looked up; every look-up fails."""
    names: list[bytes] = []

    def refuse(name: bytes | str, *more: Any, **options: Any) -> Any:
        if isinstance(name, str):  # our look-ups pass bytes: text comes from a thread of an earlier test
            return LOOK_UP(name, *more, **options)
        names.append(name)
        raise OSError(name)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return names


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("127.0.0.9", "127.0.0.9"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[2001:db8::ff]", "2001:db8::ff"),
        ("[2001:DB8:0:0::FF]", "2001:db8::ff"),
    ],
)
def test_numeric_name_is_its_own_address(run, make, lookups, name, address):
    assert run(lambda: make().resolve(name)) == ((address,), NUMERIC_TTL_S)
    assert lookups == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", ".a", "x" * 64, "a." * 130, "a b", "a\0b", "a:80", "bücher.invalid", "[::1"]
)
def test_invalid_names_are_not_found(run, make, lookups, name):
    with pytest.raises(ConnectFailed, match=r"^host not found$") as caught:
        run(lambda: make().resolve(name))
    assert caught.value.retry
    assert lookups == []


def test_addresses_are_sorted_and_the_family_of_the_first_one_stays_first():
    dealt = ["192.0.2.10", "2001:db8::2", "192.0.2.9", "2001:db8::1", "192.0.2.10"]
    assert sort_addresses(dealt) == ["192.0.2.9", "192.0.2.10", "2001:db8::1", "2001:db8::2"]
    assert sort_addresses(dealt[1:]) == ["2001:db8::1", "2001:db8::2", "192.0.2.9", "192.0.2.10"]
    assert sort_addresses(["fe80::1%lo", "192.0.2.1"]) == ["192.0.2.1"]
    assert sort_addresses(["fe80::1%lo"]) == []


# ------------------------------------------------------------------------------------------------------------ the table


def test_table_keeps_its_order_and_ttl(run):
    resolver = StaticResolver({"a.example": ["192.0.2.9", "::1", "192.0.2.1"], "empty.example": []}, ttl_s=7)
    assert run(lambda: resolver.resolve("a.example")) == (("192.0.2.9", "::1", "192.0.2.1"), 7)
    for name in ("empty.example", "b.example"):
        with pytest.raises(ConnectFailed, match=r"^host not found$"):
            run(lambda: resolver.resolve(name))  # noqa: B023


@pytest.mark.parametrize("address", ["", "b.example", "127.1", "fe80::1%lo", "192.0.2.1:80"])
def test_table_accepts_only_ip_addresses(address):
    with pytest.raises(BadSetting, match=r"an address of a\.example, is not an IP address"):
        StaticResolver({"a.example": [address]})


# ----------------------------------------------------------------------------------------------------------- the system


class System:
    """A `getaddrinfo` that counts calls, and answers once it is `open`. Names that begin with "no" are unknown."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.names: list[bytes] = []
        self.busy = 0
        self.busy_max = 0
        self._lock = threading.Lock()

    def getaddrinfo(self, name: bytes | str, *more: Any, **options: Any) -> list[Any]:
        if isinstance(name, str):  # not ours, see `lookups`
            return LOOK_UP(name, *more, **options)
        with self._lock:
            self.names.append(name)
            self.busy += 1
            self.busy_max = max(self.busy_max, self.busy)
        assert self.open.wait(TEST_MAX_S)
        with self._lock:
            self.busy -= 1
        if name.startswith(b"no"):
            raise socket.gaierror(socket.EAI_AGAIN if name == b"no-answer" else socket.EAI_NONAME, "as the system says")
        return [(0, 0, 0, "", ("192.0.2.1", 0)), (0, 0, 0, "", ("::1", 0, 0, 0))]


@pytest.fixture
def system(monkeypatch) -> Iterator[System]:
    system = System()
    monkeypatch.setattr(socket, "getaddrinfo", system.getaddrinfo)
    yield system
    system.open.set()
    for thread in threading.enumerate():
        if thread.name.startswith("resolve "):
            thread.join()


async def wait_until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  threads have no event for it
        await asyncio.sleep(0.001)


def test_answer_is_cached_for_its_ttl(run, system, monkeypatch):
    system.open.set()
    monkeypatch.setattr(module, "TTL_S", 60.0)

    async def scenario() -> None:
        resolver = SystemResolver()
        first, ttl_s = await resolver.resolve("a")
        second, less_s = await resolver.resolve("a")
        assert first == second == ["192.0.2.1", "::1"]
        assert 0 <= less_s <= ttl_s <= 60
        assert system.names == [b"a"]
        monkeypatch.setattr(module, "TTL_S", 0.0)
        for _ in range(2):
            await resolver.resolve("b")
        assert system.names == [b"a", b"b", b"b"]

    run(scenario)


@pytest.mark.parametrize(("name", "reason"), [("no", "host not found"), ("no-answer", "name server does not answer")])
def test_failure_is_cached(run, system, monkeypatch, name, reason):
    system.open.set()

    async def scenario() -> None:
        resolver = SystemResolver()
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=reason):
                await resolver.resolve(name)
        assert len(system.names) == 1
        monkeypatch.setattr(module, "FAILURE_TTL_S" if name == "no" else "UNANSWERED_TTL_S", 0.0)
        fresh = SystemResolver()
        for _ in range(2):
            with pytest.raises(ConnectFailed):
                await fresh.resolve(name)
        assert len(system.names) == 3

    run(scenario)


def test_cache_of_answers_is_bounded(run, system, monkeypatch):
    system.open.set()
    monkeypatch.setattr(module, "ANSWERS_MAX", 2)

    async def scenario() -> None:
        resolver = SystemResolver()
        for name in ("a", "b", "a", "c", "a", "b"):
            await resolver.resolve(name)

    run(scenario)
    assert system.names == [b"a", b"b", b"c", b"b"]


def test_concurrent_look_ups_of_a_name_are_shared(run, system):
    async def scenario() -> None:
        resolver = SystemResolver()
        tasks = [asyncio.create_task(resolver.resolve("a")) for _ in range(20)]
        await wait_until(lambda: system.busy == 1)
        tasks[0].cancel()  # cancelling the first call does not affect the others
        await asyncio.sleep(0)
        system.open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert all(addresses == ["192.0.2.1", "::1"] for addresses, _ in results[1:])

    run(scenario)
    assert system.names == [b"a"]


def test_concurrent_look_ups_are_bounded(run, system, monkeypatch):
    monkeypatch.setattr(module, "THREADS_MAX", 3)
    monkeypatch.setattr(module, "LOOKUPS_MAX", 20)

    async def scenario() -> None:
        resolver = SystemResolver()
        tasks = [asyncio.create_task(resolver.resolve(f"host{number}")) for number in range(20)]
        await wait_until(lambda: system.busy == 3)
        with pytest.raises(ConnectFailed, match="too many"):
            await resolver.resolve("one-more")
        system.open.set()
        await asyncio.gather(*tasks)

    run(scenario)
    assert (system.busy_max, len(system.names)) == (3, 20)


def test_look_up_times_out_and_its_late_answer_is_cached(run, system):
    async def scenario() -> None:
        resolver = SystemResolver(timeout_s=0.05)
        with pytest.raises(ConnectFailed, match=r"^host not found within 0\.05 s$"):
            await resolver.resolve("a")
        system.open.set()
        await wait_until(lambda: not resolver._lookups)
        assert (await resolver.resolve("a"))[0] == ["192.0.2.1", "::1"]

    run(scenario)
    assert system.names == [b"a"]


def test_hanging_look_up_does_not_block_the_end_of_the_loop(run, system):
    async def scenario() -> None:
        with pytest.raises(ConnectFailed):
            await SystemResolver(timeout_s=0.01).resolve("a")
        await wait_until(lambda: system.busy == 1)

    run(scenario)
    assert system.busy == 1
