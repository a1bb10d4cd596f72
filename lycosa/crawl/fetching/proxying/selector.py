"""Which proxy a request wants of a pool: one that serves its target, with these tags, that of its session.

| in `meta`         | means                                                                                        |
|-------------------|----------------------------------------------------------------------------------------------|
| `proxy_target`    | for what the proxy is used, a text; without it, the registrable domain of the host           |
| `proxy_session`   | requests with the same text here go through the same proxy, and have a cookie jar of their own |
| `proxy_tags`      | the tags that the proxy must have, as `{"country": "de"}`                                      |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from lycosa.core.errors import BadSpider
from lycosa.core.url import canonicalize, host_key, host_name
from lycosa.http.core.request import Request
from lycosa.http.public_suffixes import registrable
from lycosa.proxies.core.pool.target import ANY, ProxyRequest

TEXT_MAX = 255
"""Characters of the name of a target, a session, a tag."""

TAGS_MAX = 32
HOSTS_MAX = 16_384
"""Hosts whose target is remembered."""

NO_TAGS: Mapping[str, str] = {}


class ProxySelector(NamedTuple):
    """As above; `session` is "" for none."""

    target: str
    session: str = ""
    tags: Mapping[str, str] = NO_TAGS

    def proxy_request(self, avoid: frozenset[str] = frozenset()) -> ProxyRequest:
        """Return it as the pool wants it."""
        if not (self.session or self.tags or avoid):
            return ANY
        return ProxyRequest(self.tags, self.session, avoid)


def selector_of(request: Request) -> ProxySelector:
    """Return what a request wants. Raises `BadSpider` for what is no text."""
    session, tags = request.get_meta("proxy_session"), request.get_meta("proxy_tags")
    if session is None and tags is None:
        return ProxySelector(target_of(request))
    return ProxySelector(target_of(request), "" if session is None else _text("proxy_session", session), _tags(tags))


def target_of(request: Request) -> str:
    """Return for what the proxy of a request is used."""
    asked = request.get_meta("proxy_target")
    if asked is not None:
        return _text("proxy_target", asked)
    return _of_host(request.record.host if request.record is not None else host_key(canonicalize(request.url)))


def jar_of(request: Request) -> Any:
    """Return the name of the cookie jar of a request, None for the one that all others share."""
    jar = request.get_meta("cookiejar")
    if jar is not None or request.get_meta("proxy_session") is None:
        return jar
    wanted = selector_of(request)
    return ["proxy_session", wanted.target, wanted.session]


@lru_cache(HOSTS_MAX)
def _of_host(host: str) -> str:
    return registrable(host_name(host).strip("[]"))


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= TEXT_MAX:
        return value
    raise BadSpider(f"{key} in meta is {value!r:.60}: write a text of 1 to {TEXT_MAX} characters")


def _tags(tags: Any) -> Mapping[str, str]:
    if tags is None:
        return NO_TAGS
    if isinstance(tags, dict) and len(tags) <= TAGS_MAX:
        return {_text("proxy_tags", name): _text("proxy_tags", value) for name, value in tags.items()}
    raise BadSpider(f'proxy_tags in meta is {tags!r:.60}: write at most {TAGS_MAX} of them, as {{"country": "de"}}')
