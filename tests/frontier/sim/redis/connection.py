"""The workers of `history` and their connections to the server, on which messages are lost, late and repeated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis as real_redis
from redis.exceptions import ConnectionError as Lost

from lycosa.frontier.core.model import Lease
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session
from tests.frontier.sim.redis.host_schedule import Transfer
from tests.frontier.sim.redis.model import Effect, Record

if TYPE_CHECKING:
    from tests.frontier.sim.redis.history import History

CALL_S = 0.8
DIRECT_VERBS = {
    "prepare",
    "commit_prepared",
    "commit",
    "started",
    "transferred",
    "claim",
    "try_start",
    "release_claim",
    "host_facts",
    "address",
}
"""Verbs whose `Effect` has the same arguments as the verb."""

COMMIT_VERBS = {"prepare", "commit_prepared", "commit"}
"""Verbs of which at most the first argument matters: the number of the commit."""


@dataclass(eq=False)
class Worker:
    """A slot, whose processes run one after the other.

    `leases` are in progress, `acked` are reported but not committed, `visits` are callbacks that fetch inline.
    """

    slot: str
    number: int
    frontier: Any = None
    leases: list[tuple[Lease, Transfer]] = field(default_factory=list)
    visits: dict[asyncio.Task[None], None] = field(default_factory=dict)
    acked: list[Record] = field(default_factory=list)
    paused_until: float = 0.0
    task: asyncio.Task[None] | None = None
    finished: bool = False

    @property
    def session(self) -> Session:
        """The session of the current process."""
        session: Session = self.frontier.session
        return session

    @property
    def name(self) -> str:
        """The current name of the worker."""
        return self.session.partitions[0].worker


class WorkerConnection:
    """The client of one process. `effects` are those of its unsent verbs, by partition."""

    def __init__(self, history: History, worker: Worker) -> None:
        self.history, self.worker = history, worker
        self.effects: dict[int, list[Effect]] = {}
        self.sent: dict[tuple[int, int], list[Effect]] = {}
        self.is_closed = False

    def record_effects(self, partition: Partition) -> None:
        """When one of DIRECT_VERBS is added, record its effect, which its arguments describe completely."""
        add = partition.add

        def record_verb(verb: str, *arguments: Any) -> None:
            if verb in DIRECT_VERBS:
                self.expect(partition.number, Effect(verb, arguments[:1] if verb in COMMIT_VERBS else arguments))
            add(verb, *arguments)

        partition.add = record_verb  # type: ignore[method-assign]

    def expect(self, partition: int, effect: Effect) -> None:
        """Record the effect of the next verb for a partition."""
        self.effects.setdefault(partition, []).append(effect)

    async def execute_command(self, *command: Any) -> Any:
        """Send a call and wait for its response. Raises `Lost` if there is none."""
        loop, history = asyncio.get_running_loop(), self.history
        response: asyncio.Future[Any] = loop.create_future()
        if self.is_closed:  # the process and its tasks are dead
            return await response
        _, _, _, key, _, _, name, worker, *arguments = command
        number = history.numbers[key]
        if name == "exchange" and (number, arguments[0]) not in self.sent:
            self.sent[number, arguments[0]] = self.effects.pop(number, [])
        call = Call(self, number, name, worker, arguments, command)

        def arrive() -> None:
            if not history.is_unreachable(number):
                result = history.execute(call)
                for seconds in history.delivery_times(self.worker):
                    loop.call_later(seconds, respond, result)

        def respond(result: Any) -> None:
            if loop.time() < self.worker.paused_until:
                loop.call_later(self.worker.paused_until - loop.time(), respond, result)
            elif not response.done():
                response.set_exception(result) if isinstance(result, Exception) else response.set_result(result)

        for seconds in history.delivery_times(self.worker):
            loop.call_later(seconds, arrive)
        timeout = loop.call_later(CALL_S, respond, Lost("no answer"))
        try:
            return await response
        finally:
            timeout.cancel()

    async def hget(self, key: str, field: str) -> Any:
        """Read a field, without delay."""
        return self.history.direct.execute("HGET", key, field)

    async def hgetall(self, key: str) -> Any:
        """Return that a run began before all segments, so that none is archived: the model has no archive."""
        assert key.endswith(Key.RUN_STARTS)
        return {b"worker": b"0"}


class RawConnection:
    """A plain connection of redis-py: calls take a third of the time that its client needs."""

    def __init__(self, url: str) -> None:
        self._connection = real_redis.ConnectionPool.from_url(url).make_connection()

    def execute(self, *command: Any) -> Any:
        self._connection.send_command(*command)
        return self._connection.read_response()

    def close(self) -> None:
        self._connection.disconnect()


@dataclass(frozen=True)
class Call:
    """One call of a script."""

    connection: WorkerConnection
    partition: int
    name: str
    worker: str
    arguments: list[Any]
    command: tuple[Any, ...]
