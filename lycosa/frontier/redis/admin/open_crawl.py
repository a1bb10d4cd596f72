"""Opens crawls in Redis from outside, without a worker, a policy or leases.

The names of all crawls on a server are in one set. A listing removes names without keys: their crawls have expired, or
their deletion was interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from difflib import get_close_matches
from secrets import token_hex
from typing import Any, NamedTuple

from lycosa.core.errors import StateError, UsageError
from lycosa.frontier.ports import FrontierOperations, SharedCrawl
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.admin.watcher import Watcher
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.shared_crawl import RedisCrawl
from lycosa.frontier.redis.worker.calls import Retry
from lycosa.frontier.redis.worker.session import CRAWLS, Session, key_of
from lycosa.infra.clock import Clock

SHOWN_MAX = 10

FORGOTTEN_MAX = 1_000
"""Maximum number of names of expired crawls that one listing removes."""


class CrawlForm(NamedTuple):
    """The properties fixed at the creation of a crawl."""

    partitions: int
    keep_done: bool


class OpenCrawl(NamedTuple):
    """`created` is a message if the crawl has just been created, else ""."""

    session: Session
    name: str
    server_url: str
    created: str

    @property
    def crawl(self) -> SharedCrawl:
        return RedisCrawl(self.session)

    def operations(self, *, runs: bool) -> FrontierOperations:
        """`runs`: the crawl has workers."""
        return RedisOperations(self.session, runs=runs)

    def watcher(self) -> Watcher:
        return Watcher(self.session)


@asynccontextmanager
async def open_crawl(
    url: str, name: str, report: Callable[[str], None], create: CrawlForm | None = None
) -> AsyncIterator[OpenCrawl]:
    """Open the crawl with this name; "" opens the only crawl on the server. With `create`, create a missing one.

    Raises `UsageError` for a bad URL, or if no or several crawls match; `StateError` if the server is down or refuses.
    """
    server = crawl_server(url, report)
    client, blocking = await server.clients()
    blocking.close()
    try:
        found = await stored_crawls(client, server.retry)
        is_new = create is not None and bool(name) and name not in found
        name = name if is_new else only_name(name, found, server.text, creates=create is not None)
        form = found.get(name)
        if form is None and create is not None:
            form = await _create(client, name, server.retry, create)
            # A worker may have created the crawl meanwhile, and stored its description.
            is_new = not await server.retry(lambda: client.exists(key_of(name, 0) + Key.DESCRIPTION))
        assert form is not None
        partitions, keep_done = form
        session = Session(client, name, "", server.retry, partitions, callers_clock=False, keep_done=keep_done)
        session.now = Clock().now()
        await session.status()
        yield OpenCrawl(session, name, server.text, await created_message(session, server.text) if is_new else "")
    finally:
        await client.aclose()


async def created_message(session: Session, server_url: str) -> str:
    """Return a message that also names other crawls, in case the user meant one of them."""
    client, retry = session.calls.client, session.calls.retry
    names = {each.decode() for each in await retry(lambda: client.smembers(CRAWLS))} - {session.crawl}
    near = get_close_matches(session.crawl, names, 1)
    shown = dict.fromkeys([*near, *sorted(names)[: SHOWN_MAX + 1]])
    others = [each for each in shown if await retry(lambda: client.exists(key_of(each, 0) + Key.META))]  # noqa: B023
    message = f"Started crawl {session.crawl!r} in {server_url}; workers can join."
    hint = f": did you mean {near[0]!r}?" if near and near[0] in others else ""
    return f"{message} Other crawls there: {_listed(others)}{hint}" if others else message


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")


async def _create(client: Any, name: str, retry: Retry, form: CrawlForm) -> CrawlForm:
    """Create a crawl in all partitions. Return its form, which another process may have set meanwhile."""
    first = Session(client, name, "", retry, 1, callers_clock=False)
    begin = (token_hex(8), form.partitions, 0, int(form.keep_done), "")
    _, crawl, partitions, *_, keep_done = await first.operate(first.partitions[0], "begin", *begin)
    session = Session(client, name, "", retry, int(partitions), callers_clock=False)
    for partition in session.partitions[1:]:
        await session.operate(partition, "begin", crawl, partitions, partition.number, keep_done, "")
    await retry(lambda: client.sadd(CRAWLS, name))
    return CrawlForm(int(partitions), keep_done == b"1")


async def stored_crawls(client: Any, retry: Retry) -> dict[str, CrawlForm]:
    """Return the form of each crawl, by name."""
    found, gone = {}, []
    for each in await retry(lambda: client.smembers(CRAWLS)):
        meta = key_of(name := each.decode(), 0) + Key.META
        partitions, keep_done = await retry(lambda: client.hmget(meta, "partitions", "keep_done"))  # noqa: B023
        if partitions:
            found[name] = CrawlForm(int(partitions), keep_done == b"1")
        else:
            gone.append(name)
    with suppress(StateError):  # the names only take space
        await _forget_names(client, retry, gone[:FORGOTTEN_MAX])
    return found


async def _forget_names(client: Any, retry: Retry, names: Sequence[str]) -> None:
    if names:
        await retry(lambda: client.srem(CRAWLS, *names))
    for name in names:  # a worker that has just started such a crawl may have added its name before we removed it
        if await retry(lambda: client.exists(key_of(name, 0) + Key.META)):  # noqa: B023
            await retry(lambda: client.sadd(CRAWLS, name))  # noqa: B023


def only_name(name: str, found: dict[str, CrawlForm], server_url: str, *, creates: bool) -> str:
    """Return the name of the crawl to open; "" stands for the only crawl of the server. Raises `UsageError`."""
    if name and name not in found:
        hint = f"; did you mean {near[0]!r}?" if (near := get_close_matches(name, found, 1)) else ""
        others = f"; the server has {_listed(found)}" if found else ""
        raise UsageError(f"there is no crawl {name!r} in {server_url}{others}{hint}")
    if not name and len(found) > 1:
        raise UsageError(f"which crawl? Give --crawl-name with one of {_listed(found)}")
    if not name and not found:
        advice = "give --crawl-name NAME to start one" if creates else "lycosa crawl ... --frontier starts one"
        raise UsageError(f"there is no crawl in {server_url}: {advice}")
    return name or next(iter(found))
