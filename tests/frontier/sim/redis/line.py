"""The workers of `history` and how they reach the server: calls and answers are lost, late and repeated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis as real_redis
from redis.exceptions import ConnectionError as Lost

from lycosa.frontier.core.model import Lease
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session
from tests.frontier.sim.redis.model import Effect, Record
from tests.frontier.sim.redis.turns import Transfer

if TYPE_CHECKING:
    from tests.frontier.sim.redis.history import History

CALL_S = 0.8
SELF_EXPLAINING = {
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
"""Verbs whose own arguments are those of their effect."""

COMMIT_VERBS = {"prepare", "commit_prepared", "commit"}
"""Of these only the number counts."""


@dataclass(eq=False)
class Worker:
    """A slot: its processes come one after the other. `held` are leases that it works on, `acked` what it reported;
    `visits` are callbacks that fetch inline."""

    slot: str
    number: int
    frontier: Any = None
    held: list[tuple[Lease, Transfer]] = field(default_factory=list)
    visits: dict[asyncio.Task[None], None] = field(default_factory=dict)
    acked: list[Record] = field(default_factory=list)
    still_until: float = 0.0
    life: asyncio.Task[None] | None = None
    finished: bool = False

    @property
    def session(self) -> Session:
        """What it has with the crawl."""
        session: Session = self.frontier.session
        return session

    @property
    def name(self) -> str:
        """The name that it has now."""
        return self.session.partitions[0].worker


class Line:
    """The way of one process to the server: a client. `effects` are what its waiting verbs mean, for each partition."""

    def __init__(self, history: History, worker: Worker) -> None:
        self.history, self.worker = history, worker
        self.effects: dict[int, list[Effect]] = {}
        self.sent: dict[tuple[int, int], list[Effect]] = {}
        self.is_cut = False

    def listen(self, partition: Partition) -> None:
        """Hear of the verbs that say what they mean."""
        add = partition.add

        def heard(verb: str, *arguments: Any) -> None:
            if verb in SELF_EXPLAINING:
                self.mean(partition.number, Effect(verb, arguments[:1] if verb in COMMIT_VERBS else arguments))
            add(verb, *arguments)

        partition.add = heard  # type: ignore[method-assign]

    def mean(self, partition: int, effect: Effect) -> None:
        """Note what the next verb to a partition means."""
        self.effects.setdefault(partition, []).append(effect)

    async def execute_command(self, *command: Any) -> Any:
        """Send a call, and wait for its answer. Raises `Lost` when there is none."""
        loop, history = asyncio.get_running_loop(), self.history
        answer: asyncio.Future[Any] = loop.create_future()
        if self.is_cut:  # the process is gone, and so are its tasks
            return await answer
        _, _, _, key, _, _, name, worker, *arguments = command
        number = history.numbers[key]
        if name == "exchange" and (number, arguments[0]) not in self.sent:
            self.sent[number, arguments[0]] = self.effects.pop(number, [])
        call = Call(self, number, name, worker, arguments, command)

        def arrives() -> None:
            if not history.is_away(number):
                said = history.execute(call)
                for seconds in history.ways(self.worker):
                    loop.call_later(seconds, answers, said)

        def answers(said: Any) -> None:
            if loop.time() < self.worker.still_until:
                loop.call_later(self.worker.still_until - loop.time(), answers, said)
            elif not answer.done():
                answer.set_exception(said) if isinstance(said, Exception) else answer.set_result(said)

        for seconds in history.ways(self.worker):
            loop.call_later(seconds, arrives)
        nothing = loop.call_later(CALL_S, answers, Lost("no answer"))
        try:
            return await answer
        finally:
            nothing.cancel()

    async def hget(self, key: str, field: str) -> Any:
        """Look something up, at once."""
        return self.history.direct.ask("HGET", key, field)


class Direct:
    """A connection of redis-py without its client, which takes a third of the time of a call."""

    def __init__(self, url: str) -> None:
        self._connection = real_redis.ConnectionPool.from_url(url).make_connection()

    def ask(self, *command: Any) -> Any:
        """Run a command."""
        self._connection.send_command(*command)
        return self._connection.read_response()

    def close(self) -> None:
        """Close."""
        self._connection.disconnect()


@dataclass(frozen=True)
class Call:
    """One call of a script."""

    line: Line
    partition: int
    name: str
    worker: str
    arguments: list[Any]
    command: tuple[Any, ...]
