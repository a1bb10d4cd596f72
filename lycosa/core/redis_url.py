"""The URL of a Redis, read. Pure: files that it names may not be there.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]                          one server, or any node of a cluster
    unix://[USER:PASSWORD@]/PATH.sock[?db=N]                          the same through a socket
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST...               a cluster, by some of its nodes
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST.../NAME[/DB]    what Sentinels, at these hosts, watch as NAME

With rediss instead of redis it is TLS; then ?ca=FILE trusts another authority, ?cert=FILE&key=FILE is who we are.
?sentinel_user=USER&sentinel_password=PASSWORD is for the Sentinels themselves. An adapter may take options of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from lycosa.core.errors import UsageError

PORT, SENTINEL_PORT = 6379, 26379
DIGITS_MAX = 9
"""Of the number of a database."""

FILES = ("ca", "cert", "key")
SENTINEL_OPTIONS = ("sentinel_user", "sentinel_password")


class Form(Enum):
    """What is behind an address."""

    SERVER = "server"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


FORMS = {
    "redis": Form.SERVER, "rediss": Form.SERVER, "unix": Form.SERVER,
    "redis+cluster": Form.CLUSTER, "rediss+cluster": Form.CLUSTER,
    "redis+sentinel": Form.SENTINEL, "rediss+sentinel": Form.SENTINEL,
}  # fmt: skip


class Address(NamedTuple):
    """`text` is the URL without its secrets, for messages. `own` are the options of whoever connects."""

    text: str
    form: Form
    nodes: list[tuple[str, int]]
    socket: str
    database: int
    master: str
    login: tuple[str | None, str | None]
    sentinel_login: tuple[str | None, str | None]
    tls: bool
    files: dict[str, str]
    own: dict[str, str]


def is_address(path: object) -> bool:
    """Tell whether this names a Redis, and no folder."""
    return isinstance(path, str) and "://" in path and path.partition("://")[0] in FORMS


def read_address(url: str, own: Collection[str] = ()) -> Address:
    """Return what a URL says; `own` names the options that the caller takes. Raises `UsageError`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError("this is no address of a Redis: write redis://host:6379/0") from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    text = f"{parts.scheme}://{hosts}{parts.path}"
    form = FORMS.get(parts.scheme)
    if form is None:
        shown = url.rpartition("@")[2].partition("?")[0]
        raise UsageError(f"{shown} is no address of a Redis: write redis://host:6379/0")
    if parts.scheme != "unix" and any(
        "@" in rest for rest in (parts.path, parts.fragment, parts.query.partition("=")[0])
    ):
        raise UsageError("in the password of a Redis, write %2F for /, %3F for ?, %23 for #, %40 for @")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    socket = unquote(parts.path) if parts.scheme == "unix" else ""
    tls = parts.scheme.startswith("rediss")
    master, database = _within(text, parts, form, options)
    files = {name: options.pop(name) for name in FILES if tls and name in options}
    if "key" in files and "cert" not in files:
        raise UsageError(f"{text}: key= is that of a certificate; write cert=FILE, too")
    sentinel = [options.pop(name, "") if form is Form.SENTINEL else "" for name in SENTINEL_OPTIONS]
    mine = {name: options.pop(name) for name in own if name in options}
    if options:
        known = [*own, *(FILES if tls else ()), *(SENTINEL_OPTIONS if form is Form.SENTINEL else ())]
        instead = f"write {', '.join(f'{name}=' for name in known)} only" if known else "write none"
        raise UsageError(f"{text}: there is no option {next(iter(options))!r}; {instead}")
    port = SENTINEL_PORT if form is Form.SENTINEL else PORT
    nodes = [] if socket else [_node(text, host, port) for host in _hosts(form, hosts)]
    return Address(
        text, form, nodes, socket, database, master, (unquote(user) or None, unquote(password) or None),
        (sentinel[0] or None, sentinel[1] or None), tls, files, mine,
    )  # fmt: skip


def _hosts(form: Form, hosts: str) -> list[str]:
    return [hosts] if form is Form.SERVER else hosts.split(",")


def _node(text: str, host: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname and "," not in host:
            parts.hostname.encode("idna")  # as whoever looks it up does
            return parts.hostname, parts.port or port
    except ValueError:
        pass
    raise UsageError(f"{text}: {host!r} is no host; write HOST or HOST:PORT (several with redis+cluster://)")


def _within(text: str, parts: SplitResult, form: Form, options: dict[str, str]) -> tuple[str, int]:
    """Return the name under which Sentinels know it, "" without them, and the number of the database."""
    path = parts.path.strip("/")
    if parts.scheme == "unix":
        if not path:
            raise UsageError(f"{text} names no socket; write unix:///run/redis/redis.sock")
        path = options.pop("db", "")
    master = ""
    if form is Form.SENTINEL:
        master, _, path = path.partition("/")
        if not master:
            raise UsageError(f"{text}: say what the Sentinels watch, {text.rstrip('/')}/NAME")
    if not path:
        return unquote(master), 0
    if form is Form.CLUSTER or not (path.isascii() and path.isdigit() and len(path) <= DIGITS_MAX):
        what = "none: a cluster has one" if form is Form.CLUSTER else "a number"
        raise UsageError(f"{text}: /{path} is no database; write {what}")
    return unquote(master), int(path)
