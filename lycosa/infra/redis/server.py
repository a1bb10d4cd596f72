"""Connect to a Redis server, cluster or group of Sentinels, and repeat calls while it does not answer.

redis-py's retries are off: only the caller knows whether a call that changes data may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from lycosa.core.errors import LycosaError, StorageError, StorageFull, UsageError
from lycosa.core.redis_url import RedisAddress
from lycosa.infra.connections import is_closed
from lycosa.infra.redis.clients import all_masters, asyncio_client, blocking_client, resolve_mode
from lycosa.infra.redis.driver import driver_errors, hides_info, is_resharding, is_transient, translate
from lycosa.infra.shutdown import current_deadline

VERSION_MIN = (7, 0)

CALL_TIMEOUT_S = 10.0
"""Seconds to wait for the answer to a call, for both clients of `RedisServer.clients`."""

BLOCKING_TIMEOUT_S = 5.0
"""Seconds to wait for the answer to a call, for the client of `RedisServer.blocking_client`."""

RECONNECT_MAX_S = 60.0
"""Maximum seconds to wait for a server that does not answer: it may restart, or a replica may take over."""

JOIN_MAX_S = 2.0
"""Maximum seconds to wait for the server at the start, where the address may be wrong. Such short waits are not
reported."""

FULL_MAX_S = 600.0
"""Maximum seconds for which a call that can wait is repeated while the server is at its maxmemory."""

RESHARD_MAX_S = 600.0
"""Maximum seconds to wait while a cluster moves keys to another server."""

PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0
"""Minimum and maximum pause before a call is repeated. The pause doubles with each failure."""

Result = TypeVar("Result")
Report = Callable[[str], None]


class RetryLimits(NamedTuple):
    """Maximum seconds for which one call is repeated, by problem; 0: the call is not repeated."""

    away_s: float
    full_s: float = 0.0
    resharding_s: float = RESHARD_MAX_S


class FailedCall(NamedTuple):
    """A failed try: our error, and the pause before the next try (None: no further try)."""

    error: LycosaError
    is_transient: bool
    pause_s: float | None


class Clients(NamedTuple):
    """A client for the loop, and a blocking one."""

    loop: Any
    blocking: Any


class RedisServer:
    """The server at an address. `report` gets a message when a call has to wait for the server, and when the server
    answers again.

    In messages, `subject` is the kind of our data on the server ("a crawl"), `option` the command-line option that
    names the data ("--crawl-name"), and `text` the server.
    """

    def __init__(
        self, address: RedisAddress, report: Report = lambda _: None, *, subject: str, option: str, text: str = ""
    ) -> None:
        self.address = address
        self.text = text or address.text
        self.report = report
        self._subject = subject
        self._option = option
        self._shutdown = current_deadline()

    async def clients(self, limits: RetryLimits | None = None) -> Clients:
        """Connect. Raises `UsageError`; `StateError` if the server does not answer, is too old, or may drop keys."""
        limits = limits or RetryLimits(JOIN_MAX_S)
        clients = await self.retry(lambda: asyncio.to_thread(self._clients), limits)
        try:
            await self.retry(lambda: self._refuse_unfit_of(clients.loop), limits)
        except BaseException:
            clients.blocking.close()
            await clients.loop.aclose()
            raise
        return clients

    def blocking_client(self, key: str, *, sync_option: str = "") -> Any:
        """Return a connected blocking client. In a cluster, only the server of `key` is checked.

        With `sync_option` ("--sync"), the server must be configured to flush each write to its disk before it answers.
        Raises `UsageError`; `StateError` if the server is too old or may drop keys; `driver_errors`.
        """
        self.address = resolve_mode(self.address, BLOCKING_TIMEOUT_S)
        client = blocking_client(self.address, BLOCKING_TIMEOUT_S)
        try:
            node = {"target_nodes": client.get_node_from_key(key)} if all_masters(client) else {}
            with _hidden_info():
                for section in ("server", "memory"):
                    self.refuse_unfit(client.info(section, **node))
            if sync_option:
                self._refuse_late_fsync(client.config_get("append*", **node), sync_option)
        except BaseException:
            client.close()
            raise
        return client

    def refuse_unfit(self, info: Mapping[str, Any]) -> None:
        """Raise `StorageError` if the server is too old, or would drop keys when its memory is full.

        `info` is a section of the server's INFO; for a cluster, this section of every node.
        """
        for each in info_of_nodes(info):
            version = str(each.get("redis_version", "7.0"))
            if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
                needs = f"{self._subject} needs 7.0 or later, or Valkey"
                raise StorageError(f"{self.text}: the server is Redis {version}; {needs}")
            policy = each.get("maxmemory_policy", "noeviction")
            if policy != "noeviction":  # even without a maxmemory: it may be set at any time
                drops = f"the server would drop parts of {self._subject}; set maxmemory-policy to noeviction"
                raise StorageError(f"{self.text}: with maxmemory-policy {policy} {drops}")

    def translate(self, error: Exception) -> LycosaError:
        return translate(self.text, error, tls=self.address.tls, option=self._option)

    async def retry(self, call: Callable[[], Awaitable[Result]], limits: RetryLimits | None = None) -> Result:
        """Make a call, and repeat it while the server does not answer. Raises `LycosaError` if that takes too long, or
        at once if another try cannot help.

        During a fast shutdown, a failed call is not repeated, and the server is not called again.
        """
        loop = asyncio.get_running_loop()
        retries = _Retries(self, limits or RetryLimits(RECONNECT_MAX_S), loop.time())
        failures: tuple[type[Exception], ...] = (RuntimeError, *driver_errors())
        while True:
            deadline = self._shutdown.begin_call(self.text)
            try:
                async with deadline:
                    result = await call()
                retries.succeeded()
                return result
            except failures as error:
                if isinstance(error, RuntimeError) and not is_closed(error):
                    raise
                cause = TimeoutError("the shutdown does not wait for it") if deadline.expired() else error
                failure = retries.failed(cause, loop.time(), gives_up=self._shutdown.is_started)
                if self._shutdown.is_started and failure.is_transient:
                    self._shutdown.abandon(self.text, str(failure.error))
                if failure.pause_s is None:
                    raise failure.error from error
            finally:
                self._shutdown.end_call(deadline)
            await self._shutdown.sleep(failure.pause_s)

    def retry_blocking(self, call: Callable[[], Result], limits: RetryLimits, stop: Event | None = None) -> Result:
        """Like `retry`, in a thread. Once `stop` is set, a failed call is not repeated."""
        stop = stop or Event()
        retries = _Retries(self, limits, monotonic())
        while True:
            try:
                result = call()
            except driver_errors() as error:
                failure = retries.failed(error, monotonic(), gives_up=stop.is_set())
                if failure.pause_s is None:
                    raise failure.error from error
            else:
                retries.succeeded()
                return result
            stop.wait(failure.pause_s)

    def _clients(self) -> Clients:
        address = resolve_mode(self.address, CALL_TIMEOUT_S)
        blocking = blocking_client(address, CALL_TIMEOUT_S)
        if not all_masters(blocking):
            blocking.ping()  # a client for a cluster has connected already
        return Clients(asyncio_client(address, CALL_TIMEOUT_S), blocking)

    def _refuse_late_fsync(self, config: Mapping[str, Any], sync_option: str) -> None:
        if (config.get("appendonly"), config.get("appendfsync")) != ("yes", "always"):
            needs = "a server with appendonly yes and appendfsync always"
            raise UsageError(f"{self.text}: {sync_option} needs {needs}")

    async def _refuse_unfit_of(self, client: Any) -> None:
        with _hidden_info():
            for section in ("server", "memory"):
                self.refuse_unfit(await client.info(section, **all_masters(client)))


class _Retries:
    """Decides whether a call that began at `now` (monotonic seconds) is repeated. Reports the first failure."""

    def __init__(self, server: RedisServer, limits: RetryLimits, now: float) -> None:
        self._server = server
        self._limits = limits
        self._since = now
        self._last_limit = ""
        self._pause_s = PAUSE_MIN_S
        self._reported = False

    def failed(self, error: Exception, now: float, *, gives_up: bool) -> FailedCall:
        ours, transient = self._server.translate(error), is_transient(error)
        limit = "full_s" if isinstance(ours, StorageFull) else "resharding_s" if is_resharding(error) else "away_s"
        if self._last_limit not in {"", limit}:  # a different problem than before: its time begins now
            self._since = now
        self._last_limit = limit
        max_s = getattr(self._limits, limit) if transient or limit == "full_s" else 0.0
        if gives_up or now - self._since >= max_s:
            return FailedCall(ours, transient, None)
        if not self._reported and max_s > JOIN_MAX_S:
            self._reported = True
            self._server.report(f"{ours}: trying again for at most {max_s:g} s")
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return FailedCall(ours, transient, pause_s)

    def succeeded(self) -> None:
        if self._reported:
            self._server.report(f"{self._server.text}: the server answers again")


def info_of_nodes(info: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the INFO of each node; the reply of a single server is itself an INFO."""
    is_cluster = all(isinstance(value, Mapping) for value in info.values())
    return info.values() if is_cluster else [info]


@contextmanager
def _hidden_info() -> Iterator[None]:
    """Skip the checks in the block if this user may not call INFO."""
    try:
        yield
    except driver_errors() as error:
        if not hides_info(error):
            raise
