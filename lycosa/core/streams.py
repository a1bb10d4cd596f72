"""The address of a stream in Redis as an output, and the key of an item in it. Pure.

redis://[USER:PASSWORD@]HOST[:PORT][/DB]?stream=NAME[&maxlen=N]    rediss:// with TLS; &ca=FILE trusts an authority
redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST...?stream=NAME    rediss+cluster:// with TLS
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from lycosa.core.errors import UsageError
from lycosa.core.model import UrlRecord

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")
DEFAULT_PORT = 6379
NAME_MAX = 200
LENGTH_MAX = 10**15
OPTIONS = {"stream", "maxlen", "ca"}
OURS = "lycosa:"


class StreamAddress(NamedTuple):
    """An address, read. `place` is the stream without secrets and options: for messages, and as its identity."""

    place: str
    nodes: list[tuple[str, int]]
    username: str | None
    password: str | None
    database: int
    tls: bool
    cluster: bool
    ca: str | None
    stream: str
    maxlen: int


def is_address(output: object) -> bool:
    """Tell whether an output is an address, and no file."""
    return isinstance(output, str) and "://" in output


def read_address(url: str) -> StreamAddress:
    """Return what an address says. Raises `UsageError`, without the password."""
    scheme, _, rest = url.partition("://")
    shown = f"{scheme}://{rest.rpartition('@')[2]}"
    if scheme not in SCHEMES:
        raise UsageError(f"{shown}: items go to a file, or to a stream in Redis: redis://HOST:6379/0?stream=NAME")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}; write redis://HOST:6379/0?stream=NAME") from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    server = f"{scheme}://{hosts}{parts.path}"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - OPTIONS):
        raise UsageError(f"{server}: there is no option {unknown[0]!r}; write stream=, maxlen= and ca= only")
    cluster = scheme.endswith("+cluster")
    name = _name(server, parts, options.get("stream", ""))
    return StreamAddress(
        f"{server}?stream={name}",
        [_node(server, host) for host in (hosts.split(",") if cluster else [hosts])],
        unquote(user) or None,
        unquote(password) or None,
        _database(server, parts, name, cluster=cluster),
        scheme.startswith("rediss"),
        cluster,
        options.get("ca") or None,
        name,
        _length(server, options.get("maxlen")),
    )


def item_key(crawl: str, record: UrlRecord, number: int) -> str:
    """Return what identifies the item of this number (from 0) of a page: the same when the page is fetched again."""
    segment = f"{record.segment}/" if record.segment else ""
    return f"{crawl}/{segment}{record.fingerprint:016x}/{number}"


def _name(server: str, parts: SplitResult, name: str) -> str:
    if name.startswith(OURS):
        raise UsageError(f"{server}: names that begin with {OURS} are for crawls: give the stream another one")
    if name and len(name) <= NAME_MAX and name.isprintable() and not set(name) & set("{}"):
        return name
    base, meant = server, parts.path.rpartition("/")[2]
    if meant and not meant.isdigit():
        base = server.removesuffix(parts.path) + "/0"
    else:
        meant = "NAME"
    raise UsageError(f"{server}: say which stream, {base}?stream={meant} (no braces, at most {NAME_MAX} characters)")


def _node(server: str, host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname and "," not in host:
            return parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        pass
    raise UsageError(f"{server}: {host!r} is no host; write HOST or HOST:PORT (several with redis+cluster://)")


def _database(server: str, parts: SplitResult, name: str, *, cluster: bool) -> int:
    number = parts.path.strip("/")
    if not number:
        return 0
    if cluster or not (number.isascii() and number.isdigit() and len(number) < 10):
        what = "none: a cluster has one" if cluster else f"a number, and the stream as ?stream={name}"
        raise UsageError(f"{server}: /{number} is no database; write {what}")
    return int(number)


def _length(server: str, text: str | None) -> int:
    """Return most entries, 0 for no limit."""
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= LENGTH_MAX:
        return int(text)
    raise UsageError(f"{server}: maxlen={text:.40} is no number of entries; write maxlen=1000000")
