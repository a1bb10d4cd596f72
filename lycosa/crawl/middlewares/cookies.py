"""Sends and stores cookies (`http/core/cookies.py`), in one jar or several, and saves them with the crawl.

| in `meta`               | meaning                                                          |
|-------------------------|------------------------------------------------------------------|
| `cookiejar`             | the jar of this request: a string or number                      |
| `proxy_session`         | without a `cookiejar`, each session of a proxy pool has a jar    |
| `dont_merge_cookies`    | send no cookies of the jar, and store none in it                 |

`Request.cookies` are stored in the jar and sent with every later request that they match. A `Cookie` header set by the
user is sent only with `dont_merge_cookies` (as in Scrapy).

Changed jars are saved before each commit, with session cookies, so a resumed crawl continues its sessions. The least
recently used jars are evicted from memory. Jars may be `shared` with the other workers of a crawl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from lycosa.core.errors import BadSpider
from lycosa.crawl.fetching.proxying.selector import jar_of
from lycosa.crawl.middlewares.redirect import COOKIES_CHANGED
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.ports import SharedCookies
from lycosa.http.core.cookies import JARS_MAX, Cookie, CookieJar, CookieJars
from lycosa.http.core.request import Request
from lycosa.http.public_suffixes import is_suffix
from lycosa.infra.clock import Clock
from lycosa.storage.ports import KeyStore

log = logging.getLogger(__name__)

TABLE = "cookies"
"""The table of the key store. A key is JSON: the owner of the jar and its `cookiejar`."""

WARNINGS_MAX = 20


class Cookies:
    """The cookie jars of one spider, saved in `store`. `owner` is the name of the spider.

    `debug`: whether the cookies sent and received are logged. Raises `StorageError`.
    """

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        *,
        owner: str = "",
        debug: bool = False,
        jars_max: int = JARS_MAX,
        is_suffix: Callable[[str], bool] = is_suffix,
        shared: SharedCookies | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._debug = debug
        self._is_suffix = is_suffix
        self._jars = CookieJars(jars_max)
        self._shared = shared
        self._default = self._load(self._name(None))
        self._warnings = 0
        if shared is not None:
            shared.subscribe(self._on_shared)

    def process_request(self, request: Request) -> None:
        if request.get_meta("dont_merge_cookies"):
            return
        jar = self._jar(request)
        if request.cookies:
            self._warn(jar.set(request.url, request.cookies, self._clock.now()))
        # Most jars have no cookies for most hosts, and checking that is much cheaper than building a header.
        header = jar.header(request.url, self._clock.now()) if jar.of_host(request.url) else ""
        if header:
            request.headers["Cookie"] = header
            if self._debug:
                log.debug("Sending cookies to: %r\nCookie: %s\n", request, header)
        elif request.has_header("Cookie"):
            del request.headers["Cookie"]

    def process_response(self, request: Request, response: Response) -> Response:
        headers = response.raw.headers
        if not headers.may_have(b"set-cookie") or request.get_meta("dont_merge_cookies"):
            return response
        lines = headers.getlist("set-cookie")
        if self._jar(request).set_from(request.url, lines, self._clock.now()):
            response.flags.append(COOKIES_CHANGED)
        if self._debug and lines:
            log.debug("Received cookies from: %r\n%s", response, "".join(f"Set-Cookie: {line}\n" for line in lines))
        return response

    def reset(self, request: Request) -> None:
        """Clear the jar of this request, because its cookies belong to another proxy. Keep a jar chosen by the user."""
        if request.get_meta("cookiejar") is None and not request.get_meta("dont_merge_cookies"):
            self._jar(request).clear()
            self.process_request(request)

    def save(self) -> None:
        """Put the changed jars into the store. Its next flush makes them durable."""
        changed = self._jars.changed()
        if self._default.changed:  # the default jar is not in `_jars`, so that it is never evicted
            self._default.changed = False
            changed.append((self._name(None), self._default))
        for name, jar in changed:
            self._put(name, jar)

    def _jar(self, request: Request) -> CookieJar:
        key = jar_of(request)
        return self._default if key is None else self._named(self._name(key))

    def _named(self, name: str) -> CookieJar:
        jar = self._jars.get(name)
        if jar is None:
            jar = self._load(name)
            evicted = self._jars.add(name, jar)
            if evicted is not None and evicted[1].changed:
                self._put(*evicted)
        return jar

    def _name(self, key: Any) -> str:
        try:
            return msgspec.json.encode((self._owner, key)).decode()
        except (TypeError, ValueError, OverflowError) as error:
            raise BadSpider(f"the cookiejar in meta is a {type(key).__name__}: write a string or a number") from error

    def _load(self, name: str) -> CookieJar:
        data = self._store.get(TABLE, name)
        jar = CookieJar(self._is_suffix) if data is None else CookieJar.from_bytes(data, self._is_suffix)
        jar.on_change = None if self._shared is None else partial(self._publish, self._shared, name)
        return jar

    def _publish(self, shared: SharedCookies, name: str, cookie: Cookie) -> None:
        which = msgspec.json.encode((cookie.domain, cookie.path, cookie.host_only, cookie.name))
        shared.publish(name, which.decode(), msgspec.msgpack.encode(cookie))

    def _on_shared(self, name: str, cookie: bytes) -> None:
        if msgspec.json.decode(name, type=tuple[str, Any])[0] == self._owner:
            jar = self._default if name == self._name(None) else self._named(name)
            jar.merge(msgspec.msgpack.decode(cookie, type=Cookie), self._clock.now())

    def _put(self, name: str, jar: CookieJar) -> None:
        self._store.put(TABLE, name, jar.to_bytes() if len(jar) else None)

    def _warn(self, problems: list[str]) -> None:
        for problem in problems:
            self._warnings += 1
            if self._warnings <= WARNINGS_MAX:
                log.warning("%s%s", problem, "; further ones are not logged" * (self._warnings == WARNINGS_MAX))
