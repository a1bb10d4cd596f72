"""The server of a queue on Redis: its address, its keys and its scripts."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lycosa.core import redis_url
from lycosa.core.errors import NewerState, StateError, StorageError, UsageError
from lycosa.infra.redis.driver import driver_errors
from lycosa.infra.redis.scripts import LuaScript
from lycosa.infra.redis.server import RedisServer, RetryLimits

NAME_MAX = 200

KEYS = {
    "STATE": "state", "WAITING": "waiting", "VALUES": "values", "ATTEMPTS": "attempts", "LEASED": "leased",
    "MEMBERS": "members", "GOT": "got", "REPLIES": "replies", "LEFT": "gone",
    "WAIT_ITEMS": "items", "WAIT_ROOM": "room", "WAIT_DONE": "done", "WAKEUPS": "bell",
}  # fmt: skip
"""The keys of a queue, by their names in the scripts: see lua/common.lua."""


class QueueAddress(NamedTuple):
    """`text` is the URL of the queue without its secrets, for messages."""

    text: str
    server: redis_url.RedisAddress
    queue: str


def read_queue_address(url: str) -> QueueAddress:
    """Parse a URL with ?queue=NAME. Raises `UsageError`."""
    server = redis_url.parse_redis_url(url, extra=("queue",))
    name = server.extra.get("queue", "")
    if not name or len(name) > NAME_MAX or not name.isprintable() or set(name) & set("{}"):
        text = server.text
        limit = f"without braces, at most {NAME_MAX} characters"
        raise UsageError(f"{text}: name the queue, as in {text}?queue=NAME ({limit})")
    return QueueAddress(f"{server.text}?queue={name}", server, name)


class QueueServer(RedisServer):
    """The server of one queue. Raises `UsageError`, `ForeignState`, `StorageFull` or `StorageError`.

    While the server is unreachable, a call is repeated for at most `reconnect_max_s`.
    """

    def __init__(self, address: QueueAddress, *, reconnect_max_s: float) -> None:
        super().__init__(address.server, subject="a queue", option="queue=", text=address.text)
        self.queue = address.queue
        self._reconnect_max_s = reconnect_max_s
        # The braces are a hash tag: all keys of a queue are in one slot of a cluster.
        self._keys = [f"lycosa:queue:{{{address.queue}}}:{key}" for key in KEYS.values()]
        self._client: Any = None

    def check(self, *, sync: bool) -> None:
        """Raise an error if the server cannot store a queue."""
        sync_option = "sync=True" if sync else ""
        self._client = self.retry_blocking(
            lambda: self.blocking_client(self._keys[0], sync_option=sync_option), RetryLimits(0.0, 0.0, 0.0)
        )

    def run(self, script: str, *arguments: Any, reconnect_max_s: float | None = None) -> list[Any]:
        """Return the reply of the script. Its first value, the status, is decoded."""
        max_s = self._reconnect_max_s if reconnect_max_s is None else reconnect_max_s
        limits = RetryLimits(max_s, resharding_s=max_s)
        reply = self.retry_blocking(lambda: _script(script).run(self._connected(), self._keys, arguments), limits)
        return [reply[0].decode(), *reply[1:]]

    def wait_for_wakeup(self, member: str, timeout_s: float) -> bool:
        """Return False on a timeout."""
        try:
            return self._connected().blpop([self._keys[-1] + member], timeout_s) is not None
        except driver_errors() as error:
            raise self.translate(error) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def forget_connections(self) -> None:
        """Called in a forked child: the connections belong to its parent."""
        self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self.blocking_client(self._keys[0])
        return self._client


@cache
def _script(name: str) -> LuaScript:
    return LuaScript("lycosa.queues.redis", ("common", name), key_names=tuple(KEYS))


def refusal(text: str, reply: list[Any]) -> StateError | UsageError:
    """Return the error for a reply that refuses a call."""
    status, detail = reply[0], reply[1].decode() if len(reply) > 1 and isinstance(reply[1], bytes) else ""
    match status:
        case "missing":
            return StorageError(f"{text}: the queue is gone: the server was emptied, or started without its data")
        case "newer":
            return NewerState(f"{text}: written by a newer Lycosa (format {detail})")
        case "other order":
            return UsageError(f"{text} was made as a {detail}; open it as one")
        case "other codec":
            return UsageError(f"{text} was made with serializer {detail}; use the same")
        case "too many":
            return StateError(f"{text}: too many queue objects have this queue open; close some of them")
    return StorageError(f"{text}: the queue is damaged ({status})")
