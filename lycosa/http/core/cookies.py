"""Cookies by RFC 6265 and its revision (6265bis): a jar parses `Set-Cookie` lines and returns `Cookie` headers.

A cookie without a domain is sent to the host that set it. A cookie with a domain that is not a public suffix is sent to
the domain and its subdomains. `Secure` cookies are sent over https and, as in browsers, over http to the loopback host,
where nobody can eavesdrop. At a limit, expired cookies are removed first, then the least recently used ones; within a
domain insecure cookies are removed before secure ones. Server input never raises. Session cookies are stored too: a
resumed crawl continues the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Self

import msgspec

from lycosa.core.errors import StorageError
from lycosa.http.core.cookie_header import CONTROL, PAIR_MAX, SESSION, SetCookie, parse_set_cookie
from lycosa.http.core.origin import ORIGINS_MAX, Origin, origin_of, path_of

DOMAIN_MAX = 50

JAR_MAX = 3000

JAR_PURGE = 300
"""Cookies removed from a full jar at once, so that the search for the least recently used ones is rare."""

LINES_MAX = 200

ONE_AFTER_ANOTHER_S = 1e-6
"""Difference between the creation times of successive cookies of a response: older cookies are sent first."""

JARS_MAX = 256

JAR_VERSION = 1
PREFIXES = ("__secure-", "__host-")


class Cookie(msgspec.Struct, array_like=True, gc=False):
    """One cookie. Times are unix seconds: `set_at` is when it was first set, `used_at` when it was last set or sent.

    `host_only` cookies are not sent to subdomains. `same_site` is stored but has no effect.
    """

    name: str
    value: str
    domain: str
    path: str
    expires: float
    set_at: float
    used_at: float
    secure: bool = False
    http_only: bool = False
    host_only: bool = True
    same_site: str = ""


class CookieJar:
    """The cookies of one session. `is_suffix(domain)`: whether a domain is a public suffix (`co.uk`).

    `changed` becomes True when cookies are added, replaced or removed; the owner resets it when the jar is stored.
    `on_change` is called with each cookie that is set, or deleted by an expiry in the past, so that the caller can
    `merge` it into another jar. It is not called for cookies that are removed from a full jar.
    """

    __slots__ = ("_count", "_domains", "_is_suffix", "_sendable", "changed", "on_change")

    def __init__(self, is_suffix: Callable[[str], bool]) -> None:
        self._is_suffix = is_suffix
        self._domains: dict[str, dict[tuple[str, str, bool], Cookie]] = {}
        self._count = 0
        self._sendable: dict[str, Sequence[Cookie]] = {}
        self.changed = False
        self.on_change: Callable[[Cookie], None] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Cookie]:
        for cookies in self._domains.values():
            yield from cookies.values()

    def clear(self) -> None:
        if self._count:
            self._domains.clear()
            self._sendable.clear()
            self._count = 0
            self.changed = True

    def header(self, url: str, now: float) -> str:
        """Return the value of the `Cookie` header: longer paths first, then older cookies; "" if no cookie matches."""
        cookies = self.of_host(url)
        return self._format(cookies, path_of(url), now) if cookies else ""

    def of_host(self, url: str) -> Sequence[Cookie]:
        """Return the cookies for the host of a URL in the order of sending, regardless of path and expiry."""
        if not self._count:
            return ()
        end = url.find("/", 8)  # `url_prefix`, inlined: this runs for every request
        prefix = url[:end] if end > 0 else url
        cookies = self._sendable.get(prefix)
        return self._gather(prefix) if cookies is None else cookies

    def set_from(self, url: str, lines: Iterable[str], now: float) -> bool:
        """Store the cookies of a response that browsers would accept. Return whether the jar has changed."""
        origin = origin_of(url)
        if origin is None:
            return False
        changed = False
        for number, line in enumerate(islice(lines, LINES_MAX)):  # a hostile server may send thousands
            parsed = parse_set_cookie(line, now)
            if parsed is None or self._is_forbidden(parsed, origin, url):
                continue
            cookie, problem = self._cookie(parsed, origin, url, now)
            cookie.set_at += number * ONE_AFTER_ANOTHER_S
            if not problem and self._put(cookie, now):
                changed = True
        return changed

    def set(self, url: str, cookies: Mapping[Any, Any] | Sequence[Mapping[str, Any]], now: float) -> list[str]:
        """Store the cookies that the user gives with a request for `url`. Return a message for each refused cookie.

        `cookies` is {name: value}, or a list of dicts with name, value and optionally domain, path and secure (as in
        Scrapy). By default the cookies of an https URL are secure.
        """
        origin = origin_of(url)
        if origin is None:
            return []
        if isinstance(cookies, Mapping):
            cookies = [{"name": name, "value": value} for name, value in cookies.items()]
        complaints = []
        for given in cookies:
            parsed, problem = _parse_given(given, secure=url.startswith("https"))
            if not problem:
                cookie, problem = self._cookie(parsed, origin, url, now)
                if not problem:
                    self._put(cookie, now)
            if problem:
                complaints.append(f"the cookie {_shown_name(given)} for {url:.200} is left out: {problem}")
        return complaints

    def merge(self, cookie: Cookie, now: float) -> None:
        """Apply a change that another jar of the same session reported."""
        on_change, self.on_change = self.on_change, None  # otherwise two jars would report to each other forever
        self._put(cookie, now)
        self.on_change = on_change

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode((JAR_VERSION, list(self)))

    @classmethod
    def from_bytes(cls, data: bytes, is_suffix: Callable[[str], bool]) -> Self:
        """Raises `StorageError`."""
        try:
            version, cookies = msgspec.msgpack.decode(data, type=tuple[int, list[Cookie]])
        except msgspec.MsgspecError as error:
            raise StorageError(f"the stored cookies cannot be read: {error}") from error
        if version != JAR_VERSION:
            raise StorageError(f"the stored cookies have version {version}; this Lycosa reads version {JAR_VERSION}")
        jar = cls(is_suffix)
        for cookie in cookies:
            jar._domains.setdefault(cookie.domain, {})[cookie.name, cookie.path, cookie.host_only] = cookie
        jar._count = sum(map(len, jar._domains.values()))
        return jar

    def _gather(self, prefix: str) -> Sequence[Cookie]:
        origin = origin_of(prefix)
        found = [] if origin is None else [each for each in self._at_or_above(origin) if _matches(origin, each)]
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.set_at))
        if len(self._sendable) >= ORIGINS_MAX:
            self._sendable.clear()
        self._sendable[prefix] = found
        return found

    def _at_or_above(self, origin: Origin) -> Iterator[Cookie]:
        for name in origin.names():
            if name in self._domains:
                yield from self._domains[name].values()

    def _format(self, cookies: Sequence[Cookie], path: str, now: float) -> str:
        pairs = []
        for cookie in cookies:
            if cookie.expires > now and (cookie.path == "/" or path_matches(path, cookie.path)):
                cookie.used_at = now
                pairs.append(f"{cookie.name}={cookie.value}" if cookie.name else cookie.value)
        return "; ".join(pairs)

    def _is_forbidden(self, parsed: SetCookie, origin: Origin, url: str) -> bool:
        """Return whether an insecure connection sets a cookie that is secure, or that shadows a secure one."""
        if origin.secure:
            return False
        path = parsed.path or default_path(url)
        return parsed.secure or any(
            each.secure and each.name == parsed.name and path_matches(path, each.path)
            for each in self._at_or_above(origin)
        )

    def _cookie(self, parsed: SetCookie, origin: Origin, url: str, now: float) -> tuple[Cookie, str]:
        """Return the cookie to store, and why it is refused, or ""."""
        domain, problem = self._domain(parsed.domain, origin)
        cookie = Cookie(
            parsed.name,
            parsed.value,
            domain or origin.host,
            parsed.path or default_path(url),
            parsed.expires,
            now,
            now,
            parsed.secure,
            parsed.http_only,
            not domain,
            parsed.same_site,
        )
        return cookie, problem or _broken_prefix(parsed, cookie)

    def _domain(self, domain: str, origin: Origin) -> tuple[str, str]:
        """Return the domain of the cookie ("" for the host alone), and why it is refused, or ""."""
        if not domain or (origin.is_ip and domain == origin.host):
            return "", ""
        if domain != origin.host and (origin.is_ip or not origin.host.endswith("." + domain)):
            return "", f"its domain {domain:.100} is neither {origin.host} nor a parent of it"
        if "." not in domain or self._is_suffix(domain):  # a single label is always a public suffix
            return "", "" if domain == origin.host else f"its domain {domain:.100} is a public suffix"
        return domain, ""

    def _put(self, cookie: Cookie, now: float) -> bool:
        """Store the cookie; if it has expired, remove the stored one instead. Return whether the jar has changed."""
        cookies = self._domains.get(cookie.domain, {})
        key = cookie.name, cookie.path, cookie.host_only
        known = cookies.get(key)
        if cookie.expires <= now:
            if known is None:
                return False
            self._remove(known)
        elif known is None:
            self._domains.setdefault(cookie.domain, cookies)[key] = cookie
            self._count += 1
            self._make_room(cookies, now)
        else:
            cookie.set_at = known.set_at  # a replaced cookie keeps its place in the order of sending
            if msgspec.structs.replace(known, used_at=now) == cookie:
                return False
            cookies[key] = cookie
        self._sendable.clear()  # cheap: cookies change rarely compared with requests
        self.changed = True
        if self.on_change is not None:
            self.on_change(cookie)
        return True

    def _make_room(self, cookies: Mapping[tuple[str, str, bool], Cookie], now: float) -> None:
        """Remove one cookie from a full domain, and several from a full jar."""
        if len(cookies) > DOMAIN_MAX:
            *others, _newest = cookies.values()  # the new cookie stays, even if it is the only insecure one
            self._remove(min(others, key=lambda each: (each.expires > now, each.secure, each.used_at)))
        if self._count > JAR_MAX:
            expired = [each for each in self if each.expires <= now]
            for each in expired or sorted(self, key=attrgetter("used_at"))[:JAR_PURGE]:
                self._remove(each)

    def _remove(self, cookie: Cookie) -> None:
        cookies = self._domains[cookie.domain]
        del cookies[cookie.name, cookie.path, cookie.host_only]
        self._count -= 1
        if not cookies:
            del self._domains[cookie.domain]


class CookieJars:
    """The `jars_max` most recently used jars, by name. The caller of `add` must store the evicted jar."""

    def __init__(self, jars_max: int = JARS_MAX) -> None:
        self._jars: dict[str, CookieJar] = {}
        self._max = jars_max

    def get(self, name: str) -> CookieJar | None:
        jar = self._jars.get(name)
        if jar is not None and len(self._jars) > 1:
            del self._jars[name]
            self._jars[name] = jar
        return jar

    def add(self, name: str, jar: CookieJar) -> tuple[str, CookieJar] | None:
        """Return the jar evicted to make room, with its name, or None."""
        evicted = next(iter(self._jars.items())) if len(self._jars) >= self._max else None
        if evicted is not None:
            del self._jars[evicted[0]]
        self._jars[name] = jar
        return evicted

    def changed(self) -> list[tuple[str, CookieJar]]:
        """Return the jars that have changed since the last call, with their names."""
        changed = [(name, jar) for name, jar in self._jars.items() if jar.changed]
        for _, jar in changed:
            jar.changed = False
        return changed


def _matches(origin: Origin, cookie: Cookie) -> bool:
    """Whether the cookie may be sent to the host, regardless of the path."""
    return (origin.secure or not cookie.secure) and (not cookie.host_only or cookie.domain == origin.host)


def default_path(url: str) -> str:
    """Return the path for a cookie without `Path`: the path of the URL up to the last slash (RFC 6265 §5.1.4)."""
    path = path_of(url)
    return path[: path.rfind("/")] or "/"


def path_matches(path: str, cookie_path: str) -> bool:
    """Whether a request for `path` gets the cookies of `cookie_path` (RFC 6265 §5.1.4)."""
    if not path.startswith(cookie_path):
        return False
    return len(path) == len(cookie_path) or cookie_path[-1:] == "/" or path[len(cookie_path)] == "/"


def _broken_prefix(parsed: SetCookie, cookie: Cookie) -> str:
    """Return which rule about name prefixes (RFC 6265bis) the cookie breaks, or ""."""
    name = (parsed.name or parsed.value).lower()
    if not name.startswith(PREFIXES):
        return ""
    if not parsed.name:
        return "it has no name, and its value begins with __Secure- or __Host-"
    if not cookie.secure:
        return "with this prefix it must be secure"
    if name.startswith("__host-") and (parsed.domain or parsed.path != "/"):
        return "with the prefix __Host- it needs the path / and no domain"
    return ""


def _parse_given(given: object, *, secure: bool) -> tuple[SetCookie, str]:
    """Return the cookie, and what is wrong with it, or ""."""
    if not isinstance(given, Mapping):
        return SetCookie("", ""), "write a dict with name and value"
    texts = {}
    for key in ("name", "value", "domain", "path"):
        text = _text(given.get(key))
        if text is None and key in {"name", "value"}:
            return SetCookie("", ""), f"it has no {key}"
        texts[key] = text or ""
    name, value, domain, path = texts.values()
    problem = ""
    if CONTROL.search(name + value + path) or ";" in name + value + path or "=" in name:
        problem = "its name must not contain '=', and no part may contain ';' or a control character"
    elif len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace")) > PAIR_MAX:
        problem = f"it is longer than {PAIR_MAX} bytes"
    elif not (name or value):
        problem = "it is empty"
    host = domain.removeprefix(".").lower()
    secure = bool(given["secure"]) if given.get("secure") is not None else secure
    return SetCookie(name, value, host, path if path.startswith("/") else "", SESSION, secure), problem


def _shown_name(given: object) -> str:
    return f"{given.get('name') if isinstance(given, Mapping) else given!r:.60}"


def _text(value: object) -> str | None:
    """None for a value of the wrong type."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.decode("latin-1")
    if isinstance(value, (str, int, float)):
        return str(value).encode("utf-8", "replace").decode("utf-8")
    return None
