"""Parse a Redis URL, without connecting or opening files.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]                          one server, or any node of a cluster
    unix://[USER:PASSWORD@]/PATH.sock[?db=N]                          one server, through a Unix socket
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST...               a cluster; lists some of its nodes
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST.../NAME[/DB]    the master that these Sentinels know as NAME

`rediss` instead of `redis` means TLS, with the options ?ca=FILE (the CA to trust) and ?cert=FILE&key=FILE (our
certificate). ?sentinel_user=USER&sentinel_password=PASSWORD is the login for the Sentinels.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from lycosa.core.errors import UsageError

PORT, SENTINEL_PORT = 6379, 26379
DIGITS_MAX = 9
"""Maximum number of digits of a database number."""

TLS_FILES = ("ca", "cert", "key")
SENTINEL_OPTIONS = ("sentinel_user", "sentinel_password")


class RedisMode(Enum):
    """The kind of server that a URL names."""

    SERVER = "server"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


MODES = {
    "redis": RedisMode.SERVER, "rediss": RedisMode.SERVER, "unix": RedisMode.SERVER,
    "redis+cluster": RedisMode.CLUSTER, "rediss+cluster": RedisMode.CLUSTER,
    "redis+sentinel": RedisMode.SENTINEL, "rediss+sentinel": RedisMode.SENTINEL,
}  # fmt: skip


class RedisAddress(NamedTuple):
    """A parsed URL. `text` is the URL without its secrets, for messages; `extra` holds the caller's options."""

    text: str
    mode: RedisMode
    nodes: list[tuple[str, int]]
    socket: str
    database: int
    master: str
    login: tuple[str | None, str | None]
    sentinel_login: tuple[str | None, str | None]
    tls: bool
    files: dict[str, str]
    extra: dict[str, str]


def is_redis_url(path: object) -> bool:
    """Return whether this is a Redis URL rather than a path."""
    return isinstance(path, str) and "://" in path and path.partition("://")[0] in MODES


def parse_redis_url(url: str, extra: Collection[str] = ()) -> RedisAddress:
    """Parse a URL; `extra` names further options to accept. Raises `UsageError`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError("this is not the address of a Redis server: write redis://host:6379/0") from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    text = f"{parts.scheme}://{hosts}{parts.path}"
    mode = MODES.get(parts.scheme)
    if mode is None:
        shown = url.rpartition("@")[2].partition("?")[0]
        raise UsageError(f"{shown} is not the address of a Redis server: write redis://host:6379/0")
    if parts.scheme != "unix" and any(
        "@" in rest for rest in (parts.path, parts.fragment, parts.query.partition("=")[0])
    ):
        raise UsageError("in the password of a Redis URL, write %2F for /, %3F for ?, %23 for #, %40 for @")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    socket = unquote(parts.path) if parts.scheme == "unix" else ""
    tls = parts.scheme.startswith("rediss")
    master, database = _master_and_database(text, parts, mode, options)
    files = {name: options.pop(name) for name in TLS_FILES if tls and name in options}
    if "key" in files and "cert" not in files:
        raise UsageError(f"{text}: key= needs a certificate: add cert=FILE")
    sentinel = [options.pop(name, "") if mode is RedisMode.SENTINEL else "" for name in SENTINEL_OPTIONS]
    accepted = {name: options.pop(name) for name in extra if name in options}
    if options:
        known = [*extra, *(TLS_FILES if tls else ()), *(SENTINEL_OPTIONS if mode is RedisMode.SENTINEL else ())]
        instead = f"write {', '.join(f'{name}=' for name in known)} only" if known else "this URL takes no options"
        raise UsageError(f"{text}: unknown option {next(iter(options))!r}; {instead}")
    port = SENTINEL_PORT if mode is RedisMode.SENTINEL else PORT
    listed = [] if socket else [hosts] if mode is RedisMode.SERVER else hosts.split(",")
    nodes = [_node(text, host, port) for host in listed]
    return RedisAddress(
        text, mode, nodes, socket, database, master, (unquote(user) or None, unquote(password) or None),
        (sentinel[0] or None, sentinel[1] or None), tls, files, accepted,
    )  # fmt: skip


def _node(text: str, host: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname and "," not in host:
            parts.hostname.encode("idna")  # the resolver would raise a less clear error later
            return parts.hostname, parts.port or port
    except ValueError:
        pass
    raise UsageError(f"{text}: {host!r} is not a host; write HOST or HOST:PORT (several with redis+cluster://)")


def _master_and_database(text: str, parts: SplitResult, mode: RedisMode, options: dict[str, str]) -> tuple[str, int]:
    path = parts.path.strip("/")
    if parts.scheme == "unix":
        if not path:
            raise UsageError(f"{text} names no socket; write unix:///run/redis/redis.sock")
        path = options.pop("db", "")
    master = ""
    if mode is RedisMode.SENTINEL:
        master, _, path = path.partition("/")
        if not master:
            raise UsageError(f"{text}: name the master that the Sentinels watch: {text.rstrip('/')}/NAME")
    if not path:
        return unquote(master), 0
    if mode is RedisMode.CLUSTER or not (path.isascii() and path.isdigit() and len(path) <= DIGITS_MAX):
        if mode is RedisMode.CLUSTER:
            raise UsageError(f"{text}: a cluster has only one database; leave out /{path}")
        raise UsageError(f"{text}: /{path} is not a database; write a number")
    return unquote(master), int(path)
