"""A Redis server or cluster for queues: what it must be like, scripts that are run there, errors made ours.

Scripts are run again when the connection is lost, for a bounded time: they know a call that they have answered before.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any, NamedTuple

from lycosa.core import redis_url
from lycosa.core.errors import LycosaError, StateError, StorageError, UsageError
from lycosa.core.redis_url import RedisMode
from lycosa.infra.redis import server as redis

NAME_MAX = 200
ANSWER_MAX_S = 5.0
"""A server that says nothing for so long is taken for gone, and the call is made again."""
RETRY_PAUSE_S = 0.05
# As lua/common.lua names them.
KEYS = ["state", "waiting", "values", "attempts", "leased", "members", "got", "replies", "gone"]
KEYS += ["items", "room", "done", "bell"]


class Address(NamedTuple):
    """Where a queue is. `text` is its URL without its secrets, for messages."""

    text: str
    server: redis_url.RedisAddress
    queue: str


def read_address(url: str) -> Address:
    """Return what a URL with ?queue=NAME says. Raises `UsageError`."""
    server = redis_url.parse_redis_url(url, extra=("queue",))
    name = server.extra.get("queue", "")
    if not name or len(name) > NAME_MAX or not name.isprintable() or set(name) & set("{}"):
        text = server.text
        raise UsageError(f"{text}: say which queue, {text}?queue=NAME (without braces, at most {NAME_MAX} characters)")
    return Address(f"{server.text}?queue={name}", server, name)


class Server:
    """The server of one queue. Raises `UsageError`, `ForeignState`, `StorageFull` or `StorageError`."""

    def __init__(self, address: Address, *, patience_s: float) -> None:
        self.address = address
        self.patience_s = patience_s
        tag = f"lycosa:queue:{{{address.queue}}}:"
        self._keys = [tag + key for key in KEYS]
        self._client: Any = None

    def check(self, *, sync: bool) -> None:
        """Connect, and refuse a server that cannot keep a queue."""
        client = self._connected()
        is_cluster = self.address.server.mode is RedisMode.CLUSTER
        where = {"target_nodes": client.get_node_from_key(self._keys[0])} if is_cluster else {}
        try:
            for section in ("server", "memory"):
                redis.refuse_unfit(self.address.text, client.info(section, **where), "a queue")
            if sync and not redis.keeps_at_once(client, where):
                raise UsageError(
                    f"{self.address.text}: sync=True needs a server with appendonly yes and appendfsync always"
                )
        except redis.errors() as error:
            raise self._ours(error) from error

    def run(self, script: str, *arguments: Any, patience_s: float | None = None) -> list[Any]:
        """Return what a script replies. While the server is away, try again for `patience_s`."""
        ends = 0.0
        while True:
            try:
                return redis.evaluate(self._connected(), "lycosa.queues.redis", script, self._keys, arguments)
            except redis.errors() as error:
                ours = self._ours(error)
                ends = ends or monotonic() + (self.patience_s if patience_s is None else patience_s)
                if not redis.passes(error) or monotonic() >= ends:
                    raise ours from error
            sleep(RETRY_PAUSE_S)

    def listen(self, member: str, timeout_s: float) -> bool:
        """Wait for the bell of a member, and tell whether it rang."""
        try:
            return self._connected().blpop([self._keys[-1] + member], timeout_s) is not None
        except redis.errors() as error:
            raise self._ours(error) from error

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()

    def forget(self) -> None:
        """Let go of the connections in a forked child: they belong to the parent."""
        self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            try:
                self._client = redis.blocking_client(self.address.server, ANSWER_MAX_S)
            except redis.errors() as error:
                raise self._ours(error) from error
        return self._client

    def _ours(self, error: Exception) -> LycosaError:
        return redis.ours(self.address.text, error, tls=self.address.server.tls, what="queue=")


def refusal(text: str, reply: list[Any]) -> StateError | UsageError:
    """Return the error for a reply that is no answer."""
    status, detail = reply[0], reply[1].decode() if len(reply) > 1 and isinstance(reply[1], bytes) else ""
    match status:
        case "gone":
            return StorageError(f"{text}: the queue is gone: the server was emptied, or started without its data")
        case "newer":
            return StateError(f"{text}: written by a newer Lycosa (format {detail})")
        case "order":
            return UsageError(f"{text} was made as a {detail}; open it as one")
        case "packing":
            return UsageError(f"{text} was made with serializer {detail}; open it as it was made")
        case "crowd":
            return StateError(f"{text}: the queue is open too often; close some")
    return StorageError(f"{text}: the queue is damaged ({status})")
