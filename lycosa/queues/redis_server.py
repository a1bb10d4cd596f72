"""A Redis server or cluster for queues: its URL, what it must be like, scripts that are run there, errors made ours.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]?queue=NAME         rediss:// with TLS; &ca=FILE trusts another authority
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST...?queue=NAME   rediss+cluster:// with TLS

Scripts are run again when the connection is lost, for a bounded time: they know a call that they have answered before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from lycosa.core.errors import ForeignState, LycosaError, StateError, StorageError, StorageFull, UsageError

if TYPE_CHECKING:
    import redis

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")
DEFAULT_PORT = 6379
VERSION_MIN = (7, 0)
NAME_MAX = 200
ANSWER_MAX_S = 5.0
"""A server that says nothing for so long is taken for gone, and the call is made again."""
RETRY_PAUSE_S = 0.05
# As lua/common.lua names them.
KEYS = ["state", "waiting", "values", "attempts", "leased", "members", "got", "replies", "gone"]
KEYS += ["items", "room", "done", "bell"]
MISSING = "a queue on Redis needs the packages redis and hiredis: pip install 'lycosa[redis]'"


class Address(NamedTuple):
    """A URL, read. `text` is the URL without its secrets, for messages."""

    text: str
    nodes: list[tuple[str, int]]
    username: str | None
    password: str | None
    database: int
    tls: bool
    cluster: bool
    ca: str | None
    queue: str


def is_address(path: object) -> bool:
    """Tell whether this names a queue on Redis, and no folder."""
    return isinstance(path, str) and path.partition("://")[0] in SCHEMES and "://" in path


def read_address(url: str) -> Address:
    """Return what a URL says. Raises `UsageError`."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    text = f"{parts.scheme}://{hosts}{parts.path}"
    options = dict(parse_qsl(parts.query))
    name = options.pop("queue", "")
    if not name or len(name) > NAME_MAX or not name.isprintable() or set(name) & set("{}"):
        raise UsageError(f"{text}: say which queue, {text}?queue=NAME (without braces, at most {NAME_MAX} characters)")
    ca = options.pop("ca", None)
    if options:
        raise UsageError(f"{text}: there is no option {next(iter(options))!r}; write queue= and ca= only")
    if ca and not Path(ca).is_file():
        raise UsageError(f"{text}: ca={ca} is no file")
    cluster = parts.scheme.endswith("+cluster")
    return Address(
        f"{text}?queue={name}",
        [_node(text, host) for host in hosts.split(",")] if cluster else [_node(text, hosts)],
        unquote(user) or None,
        unquote(password) or None,
        _database(text, parts, cluster),
        parts.scheme.startswith("rediss"),
        cluster,
        ca,
        name,
    )


def _node(text: str, host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname:
            return parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        pass
    raise UsageError(f"{text}: {host!r} is no host; write HOST or HOST:PORT")


def _database(text: str, parts: SplitResult, cluster: bool) -> int:
    number = parts.path.strip("/")
    if not number:
        return 0
    if cluster or not (number.isascii() and number.isdigit()):
        raise UsageError(f"{text}: /{number} is no database; write {'none' if cluster else 'a number'}")
    return int(number)


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
        where = {"target_nodes": client.get_node_from_key(self._keys[0])} if self.address.cluster else {}
        try:
            for section in ("server", "memory"):
                refuse_unfit(self.address.text, client.info(section, **where))
            if sync:
                found = client.config_get("append*", **where)
                if (found.get("appendonly"), found.get("appendfsync")) != ("yes", "always"):
                    raise UsageError(
                        f"{self.address.text}: sync=True needs a server with appendonly yes and appendfsync always"
                    )
        except _errors() as error:
            raise _ours(self.address, error) from error

    def run(self, script: str, *arguments: Any, patience_s: float | None = None) -> list[Any]:
        """Return what a script replies. While the server is away, try again for `patience_s`."""
        ends = 0.0
        while True:
            try:
                return self._evaluate(script, arguments)
            except _errors() as error:
                ours = _ours(self.address, error)
                ends = ends or monotonic() + (self.patience_s if patience_s is None else patience_s)
                if not _passes(error) or monotonic() >= ends:
                    raise ours from error
            sleep(RETRY_PAUSE_S)

    def listen(self, member: str, timeout_s: float) -> bool:
        """Wait for the bell of a member, and tell whether it rang."""
        try:
            return self._connected().blpop([self._keys[-1] + member], timeout_s) is not None
        except _errors() as error:
            raise _ours(self.address, error) from error

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()

    def forget(self) -> None:
        """Let go of the connections in a forked child: they belong to the parent."""
        self._client = None

    def _evaluate(self, script: str, arguments: Sequence[Any]) -> list[Any]:
        source, digest = _script(script)
        client = self._connected()
        given = (len(self._keys), *self._keys, *arguments)
        try:
            reply = client.evalsha(digest, *given)
        except _redis().exceptions.NoScriptError:
            reply = client.eval(source, *given)
        return [reply[0].decode(), *reply[1:]]

    def _connected(self) -> Any:
        if self._client is None:
            try:
                self._client = _client(self.address)
            except _errors() as error:
                raise _ours(self.address, error) from error
        return self._client


def refuse_unfit(text: str, info: dict[str, Any]) -> None:
    """Refuse a server that is too old, or would drop keys when its memory is full. Raises `StorageError`."""
    version = str(info.get("redis_version", "7.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
        raise StorageError(f"{text}: the server is Redis {version}; a queue needs 7.0 or later, or Valkey")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", 0) and policy != "noeviction":
        raise StorageError(f"{text}: with maxmemory-policy {policy} the server would drop items; set it to noeviction")


def _redis() -> Any:
    try:
        import redis
    except ImportError as error:
        raise UsageError(MISSING) from error
    return redis


def _client(address: Address) -> redis.Redis | redis.RedisCluster:
    package = _redis()
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "protocol": 2,
        "socket_timeout": ANSWER_MAX_S,
        "socket_connect_timeout": ANSWER_MAX_S,
        "socket_keepalive": True,
        "retry": package.retry.Retry(package.backoff.NoBackoff(), 0),
    }
    if address.tls:
        options |= {"ssl": True, "ssl_ca_certs": address.ca}
    if address.cluster:
        nodes = [package.cluster.ClusterNode(host, port) for host, port in address.nodes]
        return package.RedisCluster(startup_nodes=nodes, **options)  # type: ignore[no-any-return]
    ((host, port),) = address.nodes
    return package.Redis(host=host, port=port, db=address.database, **options)  # type: ignore[no-any-return]


@cache
def _script(name: str) -> tuple[bytes, str]:
    """Return a script and its digest. Only the first line may say what the script needs."""
    folder = files("lycosa.queues") / "lua"
    head, _, body = (folder / f"{name}.lua").read_bytes().partition(b"\n")
    source = b"\n".join([head, (folder / "common.lua").read_bytes(), body])
    return source, sha1(source, usedforsecurity=False).hexdigest()


def _errors() -> tuple[type[Exception], ...]:
    exceptions = _redis().exceptions
    return (exceptions.RedisError, exceptions.RedisClusterException, OSError)


def _passes(error: Exception) -> bool:
    """Tell whether trying again can help."""
    exceptions = _redis().exceptions
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return False
    if isinstance(error, exceptions.ResponseError):
        away = (exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.TryAgainError, exceptions.AskError)
        return isinstance(error, away) or str(error).startswith(("BUSY", "NOREPLICAS", "MASTERDOWN", "UNBLOCKED"))
    return not isinstance(error, exceptions.DataError)


def _ours(address: Address, error: Exception) -> LycosaError:
    """Return what a driver's error means, in one line."""
    exceptions = _redis().exceptions
    said = " ".join(str(error).split())
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError) or _is_any(
        said, "NOAUTH", "WRONGPASS", "Authentication required", "invalid username-password"
    ):
        return UsageError(f"{address.text}: the server refuses this user and password, or none ({said})")
    if isinstance(error, exceptions.OutOfMemoryError) or said.startswith(
        ("OOM", "command not allowed when used memory")
    ):
        return StorageFull(
            f"{address.text}: the server has reached its maxmemory; nothing is lost, give it more and go on"
        )
    if _is_any(said, "CERTIFICATE_VERIFY_FAILED"):
        return UsageError(
            f"{address.text}: the certificate of the server is not trusted; name its authority with ca=FILE"
        )
    if _is_any(said, "SSL", "[TLS"):
        return UsageError(f"{address.text}: no TLS with this server ({said}); without TLS write redis://")
    if said.startswith("WRONGTYPE"):
        return ForeignState(f"{address.text}: the server holds something else under this name; give another queue=")
    if isinstance(error, exceptions.InvalidResponse) or _is_any(said, "Connection closed by server", "reset by peer"):
        return StorageError(f"{address.text}: the server ended the connection ({said}); does it want TLS, rediss://?")
    if isinstance(error, exceptions.ResponseError):
        return StorageError(f"{address.text}: the server refuses the call ({said})")
    hint = "; without TLS write redis://" if address.tls else ""
    return StorageError(f"{address.text}: no answer from the server ({said}){hint}")


def _is_any(said: str, *parts: str) -> bool:
    return any(part in said for part in parts)


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
