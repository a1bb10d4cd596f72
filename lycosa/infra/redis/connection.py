"""Connects to Redis, waits while it is away, and says in one line why that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from lycosa.core.errors import LycosaError
from lycosa.core.redis_url import RedisAddress, RedisMode, parse_redis_url
from lycosa.infra.connections import is_closed
from lycosa.infra.redis import server
from lycosa.infra.shutdown import patience_of_this_run

ANSWER_MAX_S = 10.0
RECONNECT_MAX_S = 60.0
"""A server that is away (restarted, or a replica takes over) is waited for so long."""

MOVING_MAX_S = 600.0
"""The servers of a cluster may take so long to hand a partition from one to the other."""

JOIN_MAX_S = 2.0
"""One that is not there when a worker joins may have another address."""

AGAIN_S, AGAIN_MAX_S = 0.05, 1.0

Answer = TypeVar("Answer")


class Clients(NamedTuple):
    """One for the loop, one that blocks."""

    loop: Any
    blocking: Any


class Server:
    """The server, cluster or what Sentinels watch, of an address. `say` hears that it is waited for.

    `what` is kept there, and another `name` (an option) keeps it apart from others.

    Raises `UsageError` for what is no address, and for what the server does not let in.
    """

    def __init__(
        self, url: str, say: Callable[[str], None], *, what: str = "a crawl", name: str = "--crawl-name"
    ) -> None:
        self.address = parse_redis_url(url)
        self.text = self.address.text
        self._say = say
        self._what = what
        self._name = name
        self._patience = patience_of_this_run()

    async def clients(self, max_s: float = JOIN_MAX_S) -> Clients:
        """Connect. Raises `StateError` for a server that is not there, too old, or that may throw keys away."""
        made = await self.patiently(lambda: asyncio.to_thread(_made, self.address), max_s)
        try:
            await self.patiently(lambda: self._refuse_unfit(made.loop), max_s)
        except BaseException:
            made.blocking.close()
            await made.loop.aclose()
            raise
        return made

    async def _refuse_unfit(self, client: Any) -> None:
        try:
            for section in ("server", "memory"):
                server.refuse_unfit(self.text, await client.info(section, **server.everywhere(client)), self._what)
        except server.errors() as error:
            if not server.hides_info(error):
                raise

    async def patiently(self, act: Callable[[], Awaitable[Answer]], max_s: float = RECONNECT_MAX_S) -> Answer:
        """Do it, again and again while the server is away. Raises `StateError` when it stays away, or refuses.

        When the run is told to hurry, nothing is done again.
        What a cluster moves to another server is waited for apart: it is there, and cannot be asked.
        """
        loop = asyncio.get_running_loop()
        began = away = loop.time()
        pause_s, told = AGAIN_S, False
        failures: tuple[type[Exception], ...] = (RuntimeError, *server.errors())
        while True:
            call = self._patience.begun(self.text)
            try:
                async with call:
                    return await act()
            except failures as error:
                if isinstance(error, RuntimeError) and not is_closed(error):
                    raise
                ours, now = self._ours(TimeoutError("none at once") if call.expired() else error), loop.time()
                since, most_s = (began, MOVING_MAX_S) if (moves := server.moves(error)) else (away, max_s)
                if self._patience.hurries and server.passes(error):
                    self._patience.leave(self.text, str(ours))
                    raise ours from error
                if not server.passes(error) or now - since > most_s:
                    raise ours from error
                if not told and most_s > JOIN_MAX_S:
                    self._say(f"{ours}: waiting for it, {most_s:g} s at most")
                    told = True
                away = now if moves else away
            finally:
                self._patience.over(call)
            await self._patience.pause(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)

    def _ours(self, error: Exception) -> LycosaError:
        return server.ours(self.text, error, tls=self.address.tls, what=self._name)


def _made(address: RedisAddress) -> Clients:
    found = server.look(address, ANSWER_MAX_S)
    loop, blocking = server.loop_client(found, ANSWER_MAX_S), server.blocking_client(found, ANSWER_MAX_S)
    if found.mode is not RedisMode.CLUSTER:
        blocking.ping()  # one for a cluster has connected
    return Clients(loop, blocking)
