"""Looks into crawls in Redis without taking part: no worker, no policy, nothing lent.

All crawls of a Redis are in one set, by name; a name without its keys is that of a crawl that was deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from difflib import get_close_matches
from secrets import token_hex
from typing import Any, NamedTuple

from lycosa.core.errors import UsageError
from lycosa.frontier.ports import FrontierOperations, SharedCrawl
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.admin.watcher import Watcher
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.shared_crawl import RedisCrawl
from lycosa.frontier.redis.worker.session import CRAWLS, Session, key_of
from lycosa.frontier.redis.worker.wire import Patiently
from lycosa.infra.clock import Clock

SHOWN_MAX = 10
"""Names of crawls in a message."""


class Beginning(NamedTuple):
    """How a crawl is begun where there is none."""

    partitions: int
    keep_done: bool


class Visit(NamedTuple):
    """A crawl that is looked into: its name, where it is, and, when it was begun just now, what is to be said then."""

    session: Session
    name: str
    where: str
    begun: str

    @property
    def crawl(self) -> SharedCrawl:
        """What is stored of the crawl besides its records."""
        return RedisCrawl(self.session)

    def operations(self, *, runs: bool) -> FrontierOperations:
        """Return the operations on its frontier; `runs` says that it has workers."""
        return RedisOperations(self.session, runs=runs)

    def watcher(self) -> Watcher:
        """Return what watches it."""
        return Watcher(self.session)


@asynccontextmanager
async def visiting(
    url: str, name: str, say: Callable[[str], None], beginning: Beginning | None = None
) -> AsyncIterator[Visit]:
    """Look into the crawl of this name, "" for the only one there. With a `beginning`, begin it if it is not there.

    Raises `UsageError` for what is no address, and for no or several crawls; `StateError` for a server that is not
    there, or refuses.
    """
    server = crawl_server(url, say)
    where, patient = server.text, server.retry
    client, blocking = await server.clients()
    blocking.close()
    try:
        there = await _crawls(client, patient)
        begins = beginning is not None and bool(name) and name not in there
        name = name if begins else _meant(name, there, where, begins=beginning is not None)
        begun = there.get(name)
        if begun is None and beginning is not None:
            begun = await _begin(client, name, patient, beginning)
            begins = not await patient(lambda: client.hexists(key_of(name, 0) + "m", "described"))
        assert begun is not None
        partitions, keeps = begun
        session = Session(client, name, "", patient, partitions, callers_clock=False, keeps_done=keeps)
        session.now = Clock().now()
        await session.outlook()
        yield Visit(session, name, where, await told_of_beginning(session, where) if begins else "")
    finally:
        await client.aclose()


async def told_of_beginning(session: Session, where: str) -> str:
    """Return what whoever has begun a crawl is to know, since he may have meant another one."""
    client, patient = session.wire.client, session.wire.patiently
    names = {each.decode() for each in await patient(lambda: client.smembers(CRAWLS))} - {session.crawl}
    near = get_close_matches(session.crawl, names, 1)
    shown = dict.fromkeys([*near, *sorted(names)[: SHOWN_MAX + 1]])
    others = [each for each in shown if await patient(lambda: client.exists(key_of(each, 0) + "m"))]  # noqa: B023
    said = f"the crawl {session.crawl!r} was begun in {where}, since there was none of this name"
    meant = f": did you mean {near[0]!r}?" if near and near[0] in others else ""
    return f"{said}; others there are {_listed(others)}{meant}" if others else said


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")


async def _begin(client: Any, name: str, patient: Patiently, wanted: Beginning) -> Beginning:
    """Begin a crawl. One that somebody else has begun meanwhile, or half, is gone on with."""
    first = Session(client, name, "", patient, 1, callers_clock=False)
    told = (token_hex(8), wanted.partitions, 0, int(wanted.keep_done), "")
    _, crawl, partitions, *_, keeps = await first.read(first.partitions[0], "begin", *told)
    session = Session(client, name, "", patient, int(partitions), callers_clock=False)
    for partition in session.partitions[1:]:
        await session.read(partition, "begin", crawl, partitions, partition.number, keeps, "")
    await patient(lambda: client.sadd(CRAWLS, name))
    return Beginning(int(partitions), keeps == b"1")


async def _crawls(client: Any, patient: Patiently) -> dict[str, Beginning]:
    """Return how each crawl was begun, by name."""
    found = {}
    for each in await patient(lambda: client.smembers(CRAWLS)):
        name = each.decode()
        told = await patient(lambda: client.hmget(key_of(name, 0) + "m", "partitions", "keep_done"))  # noqa: B023
        if told[0]:
            found[name] = Beginning(int(told[0]), told[1] == b"1")
    return found


def _meant(name: str, there: dict[str, Beginning], where: str, *, begins: bool) -> str:
    names = _listed(there)
    if name and name not in there:
        meant = f"; did you mean {near[0]!r}?" if (near := get_close_matches(name, there, 1)) else ""
        raise UsageError(f"there is no crawl {name!r} in {where}" + (f": there is {names}" if there else "") + meant)
    if not name and len(there) > 1:
        raise UsageError(f"which crawl? Give --crawl-name with one of {names}")
    if not name and not there:
        what = "give --crawl-name NAME to begin one" if begins else "lycosa crawl ... --frontier begins one"
        raise UsageError(f"there is no crawl in {where}: {what}")
    return name or next(iter(there))
