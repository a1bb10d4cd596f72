"""Cookies by RFC 6265 and its revision (6265bis): a jar takes `Set-Cookie` lines and answers with `Cookie` headers.

    jar.set_from(url, lines, now)    what a response asks for, if browsers would grant it
    jar.set(url, cookies, now)       what the user gives with a request
    jar.header(url, now)             "" or "name=value; name=value": longer paths first, then older ones

A cookie goes to the host that set it, or to its domain and all below when it says so and that is no public suffix.
`Secure` cookies go to https only, and to http on the loopback host: as in browsers, nobody listens in between, and a
site under test behaves as it will. Expired cookies go first when a bound is reached, then those not used for longest.
Nothing here raises on what a server sends. Session cookies are kept: a crawl that resumes is the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Self

import msgspec

from lycosa.core.errors import StorageError
from lycosa.http.core.cookie_header import CONTROL, PAIR_MAX, SESSION, SetCookie, parse_set_cookie
from lycosa.http.core.origin import ORIGINS_MAX, Place, path_of, place_of

DOMAIN_MAX = 50
"""Cookies of one domain."""

JAR_MAX = 3000
"""Cookies of one jar."""

JAR_PURGE = 300
"""Cookies that leave a full jar at once, so that not each new one has to look for the oldest."""

LINES_MAX = 200
"""`Set-Cookie` lines of one response that are read."""

JARS_MAX = 256
"""Jars in memory."""

JAR_VERSION = 1
PREFIXES = ("__secure-", "__host-")


class Cookie(msgspec.Struct, array_like=True, gc=False):
    """One cookie. Times are unix seconds; `set_at` is of its first value, `used_at` when it was set or sent last.

    `host_only`: not for subdomains. `same_site` is kept and means nothing: no other site asks a crawler to fetch.
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


class Jar:
    """The cookies of one session. `is_suffix` tells whether a domain is a public suffix (`co.uk`): nobody's own.

    `changed` is True when cookies were added, replaced or removed; whoever stores the jar sets it back. `tell` hears of
    each that was set or is over, in the form that `merge` takes; not of those that leave a full jar.
    """

    __slots__ = ("_count", "_domains", "_is_suffix", "_sendable", "changed", "tell")

    def __init__(self, is_suffix: Callable[[str], bool]) -> None:
        self._is_suffix = is_suffix
        self._domains: dict[str, dict[tuple[str, str, bool], Cookie]] = {}
        self._count = 0
        self._sendable: dict[str, Sequence[Cookie]] = {}
        self.changed = False
        self.tell: Callable[[Cookie], None] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Cookie]:
        for cookies in self._domains.values():
            yield from cookies.values()

    def clear(self) -> None:
        """Forget all of them."""
        if self._count:
            self._domains.clear()
            self._sendable.clear()
            self._count = 0
            self.changed = True

    def header(self, url: str, now: float) -> str:
        """Return the value of the `Cookie` header for a URL, "" for none."""
        cookies = self.of(url)
        return self._sent(cookies, path_of(url), now) if cookies else ""

    def of(self, url: str) -> Sequence[Cookie]:
        """Return the cookies for the host of a URL, in the order of sending, whatever their path and expiry."""
        if not self._count:
            return ()
        end = url.find("/", 8)  # behind the host
        begin = url[:end] if end > 0 else url
        cookies = self._sendable.get(begin)
        return self._gather(begin) if cookies is None else cookies

    def set_from(self, url: str, lines: Iterable[str], now: float) -> bool:
        """Take what the `Set-Cookie` lines of a response from `url` ask for. True when the jar is another then."""
        place = place_of(url)
        if place is None:
            return False
        changed = False
        for line in islice(lines, LINES_MAX):
            asked = parse_set_cookie(line, now)
            if asked is None or self._forbidden(asked, place, url):
                continue
            cookie, refused = self._cookie(asked, place, url, now)
            if not refused and self._put(cookie, now):
                changed = True
        return changed

    def set(self, url: str, cookies: Mapping[Any, Any] | Sequence[Mapping[str, Any]], now: float) -> list[str]:
        """Take the cookies that a request for `url` was given: {name: value}, or dicts with name, value and perhaps
        domain, path and secure (as in Scrapy; without it, a cookie given for https is secure).

        Return a line for each that cannot be taken.
        """
        place = place_of(url)
        if place is None:
            return []
        if isinstance(cookies, Mapping):
            cookies = [{"name": name, "value": value} for name, value in cookies.items()]
        complaints = []
        for given in cookies:
            asked, wrong = _asked(given, secure=url.startswith("https"))
            if not wrong:
                cookie, wrong = self._cookie(asked, place, url, now)
                if not wrong:
                    self._put(cookie, now)
            if wrong:
                complaints.append(f"the cookie {_named(given)} for {url:.200} is left out: {wrong}")
        return complaints

    def merge(self, cookie: Cookie, now: float) -> None:
        """Take a cookie that another jar of the same name told."""
        told, self.tell = self.tell, None
        self._put(cookie, now)
        self.tell = told

    def to_bytes(self) -> bytes:
        """Return the jar as `from_bytes` reads it."""
        return msgspec.msgpack.encode((JAR_VERSION, list(self)))

    @classmethod
    def from_bytes(cls, data: bytes, is_suffix: Callable[[str], bool]) -> Self:
        """Return a stored jar. Raises `StorageError`."""
        try:
            version, cookies = msgspec.msgpack.decode(data, type=tuple[int, list[Cookie]])
        except msgspec.MsgspecError as error:
            raise StorageError(f"the stored cookies cannot be read: {error}") from error
        if version != JAR_VERSION:
            raise StorageError(f"the stored cookies are of version {version}, this Lycosa reads {JAR_VERSION}")
        jar = cls(is_suffix)
        for cookie in cookies:
            jar._domains.setdefault(cookie.domain, {})[cookie.name, cookie.path, cookie.host_only] = cookie
        jar._count = sum(map(len, jar._domains.values()))
        return jar

    def _gather(self, begin: str) -> Sequence[Cookie]:
        """Return, and remember, what may be sent to URLs that begin so, in the order of sending."""
        place = place_of(begin)
        found = [] if place is None else [each for each in self._above(place) if _takes(place, each)]
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.set_at))
        if len(self._sendable) >= ORIGINS_MAX:
            self._sendable.clear()
        self._sendable[begin] = found
        return found

    def _above(self, place: Place) -> Iterator[Cookie]:
        """Yield the cookies of the host and of every domain above it."""
        for name in place.names():
            if name in self._domains:
                yield from self._domains[name].values()

    def _sent(self, cookies: Sequence[Cookie], path: str, now: float) -> str:
        pairs = []
        for cookie in cookies:
            if cookie.expires > now and (cookie.path == "/" or path_matches(path, cookie.path)):
                cookie.used_at = now
                pairs.append(f"{cookie.name}={cookie.value}" if cookie.name else cookie.value)
        return "; ".join(pairs)

    def _forbidden(self, asked: SetCookie, place: Place, url: str) -> bool:
        """True when the line comes over a connection that must not set a secure cookie, or shadow one."""
        if place.secure:
            return False
        path = asked.path or default_path(url)
        return asked.secure or any(
            each.secure and each.name == asked.name and path_matches(path, each.path) for each in self._above(place)
        )

    def _cookie(self, asked: SetCookie, place: Place, url: str, now: float) -> tuple[Cookie, str]:
        """Return the cookie to store, and why it is refused, "" when it is not."""
        domain, refused = self._domain(asked.domain, place)
        cookie = Cookie(
            asked.name,
            asked.value,
            domain or place.host,
            asked.path or default_path(url),
            asked.expires,
            now,
            now,
            asked.secure,
            asked.http_only,
            not domain,
            asked.same_site,
        )
        return cookie, refused or _broken_promise(asked, cookie)

    def _domain(self, asked: str, place: Place) -> tuple[str, str]:
        """Return the domain that the cookie is for ("" for the host alone), and why it is refused."""
        if not asked or (place.is_ip and asked == place.host):
            return "", ""
        if asked != place.host and (place.is_ip or not place.host.endswith("." + asked)):
            return "", f"its domain {asked:.100} is not {place.host} nor above it"
        if "." not in asked or self._is_suffix(asked):  # without a dot, it is one by the list's last rule
            return "", "" if asked == place.host else f"its domain {asked:.100} is a public suffix: nobody's own"
        return asked, ""

    def _put(self, cookie: Cookie, now: float) -> bool:
        """Store the cookie, or remove it when it is over. True when something changed."""
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
            cookie.set_at = known.set_at  # its age counts when they are put in order
            if msgspec.structs.replace(known, used_at=now) == cookie:
                return False
            cookies[key] = cookie
        self._sendable.clear()
        self.changed = True
        if self.tell is not None:
            self.tell(cookie)
        return True

    def _make_room(self, cookies: Mapping[tuple[str, str, bool], Cookie], now: float) -> None:
        """Keep the bounds: one cookie of the domain leaves, or a good many of the jar."""
        if len(cookies) > DOMAIN_MAX:
            *others, _newest = cookies.values()
            self._remove(min(others, key=lambda each: (each.expires > now, each.secure, each.used_at)))
        if self._count > JAR_MAX:
            over = [each for each in self if each.expires <= now]
            for each in over or sorted(self, key=attrgetter("used_at"))[:JAR_PURGE]:
                self._remove(each)

    def _remove(self, cookie: Cookie) -> None:
        cookies = self._domains[cookie.domain]
        del cookies[cookie.name, cookie.path, cookie.host_only]
        self._count -= 1
        if not cookies:
            del self._domains[cookie.domain]


class Jars:
    """Jars by name, the last `JARS_MAX` that were used. Where the others go is their owner's business."""

    def __init__(self, jars_max: int = JARS_MAX) -> None:
        self._jars: dict[str, Jar] = {}
        self._max = jars_max

    def get(self, name: str) -> Jar | None:
        """Return the jar, which is now the one used last; None when it is not here."""
        jar = self._jars.get(name)
        if jar is not None and len(self._jars) > 1:
            del self._jars[name]
            self._jars[name] = jar
        return jar

    def add(self, name: str, jar: Jar) -> tuple[str, Jar] | None:
        """Add a jar. Return the name and the jar that had to leave, None when there was room."""
        left = next(iter(self._jars.items())) if len(self._jars) >= self._max else None
        if left is not None:
            del self._jars[left[0]]
        self._jars[name] = jar
        return left

    def changed(self) -> list[tuple[str, Jar]]:
        """Return the jars that changed since this was asked last, with their names."""
        changed = [(name, jar) for name, jar in self._jars.items() if jar.changed]
        for _, jar in changed:
            jar.changed = False
        return changed


def _takes(place: Place, cookie: Cookie) -> bool:
    """True for a cookie of the place's host or of a domain above it that may go there, the path aside."""
    return (place.secure or not cookie.secure) and (not cookie.host_only or cookie.domain == place.host)


def default_path(url: str) -> str:
    """Return the path of a cookie that names none: that of its URL up to its last slash (§5.1.4)."""
    path = path_of(url)
    return path[: path.rfind("/")] or "/"


def path_matches(path: str, cookie_path: str) -> bool:
    """True when a request for `path` gets the cookies of `cookie_path` (§5.1.4)."""
    if not path.startswith(cookie_path):
        return False
    return len(path) == len(cookie_path) or cookie_path[-1:] == "/" or path[len(cookie_path)] == "/"


def _broken_promise(asked: SetCookie, cookie: Cookie) -> str:
    """Say what a cookie does not keep of what the prefix of its name promises, "" when it does (6265bis)."""
    promised = (asked.name or asked.value).lower()
    if not promised.startswith(PREFIXES):
        return ""
    if not asked.name:
        return "it has no name, and a value that poses as one"
    if not cookie.secure:
        return "with this prefix it has to be secure"
    if promised.startswith("__host-") and (asked.domain or asked.path != "/"):
        return "with the prefix __Host- it needs the path / and no domain"
    return ""


def _asked(given: object, *, secure: bool) -> tuple[SetCookie, str]:
    """Return what a cookie given by the user asks for, and what is wrong with it, "" for nothing."""
    if not isinstance(given, Mapping):
        return SetCookie("", ""), "write a dict with name and value"
    texts = {}
    for key in ("name", "value", "domain", "path"):
        text = _text(given.get(key))
        if text is None and key in {"name", "value"}:
            return SetCookie("", ""), f"it has no {key}"
        texts[key] = text or ""
    name, value, domain, path = texts.values()
    wrong = ""
    if CONTROL.search(name + value + path) or ";" in name + value + path or "=" in name:
        wrong = "a name cannot hold '=', and nothing ';' or a control character"
    elif len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace")) > PAIR_MAX:
        wrong = f"it is longer than {PAIR_MAX} bytes"
    elif not (name or value):
        wrong = "it is empty"
    host = domain.removeprefix(".").lower()
    secure = bool(given["secure"]) if given.get("secure") is not None else secure
    return SetCookie(name, value, host, path if path.startswith("/") else "", SESSION, secure), wrong


def _text(value: object) -> str | None:
    """Return a name or value as text; None for what cannot be one."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.decode("latin-1")
    if isinstance(value, (str, int, float)):
        return str(value).encode("utf-8", "replace").decode("utf-8")
    return None


def _named(given: object) -> str:
    return f"{given.get('name') if isinstance(given, Mapping) else given!r:.60}"
