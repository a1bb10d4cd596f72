"""Selects the proxy of a request: by its target and tags, or by its session.

| in `meta`         | meaning                                                                                      |
|-------------------|----------------------------------------------------------------------------------------------|
| `proxy_target`    | the target that the proxy is used for, a string; default: the registrable domain of the host |
| `proxy_session`   | requests with the same string go through the same proxy and share a cookie jar               |
| `proxy_tags`      | the tags that the proxy must have, like `{"country": "de"}`                                  |
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

TAGS_MAX = 32
HOSTS_MAX = 16_384

NO_TAGS: Mapping[str, str] = {}


class ProxySelector(NamedTuple):
    """The values of the `meta` keys above. `session` is "" if there is none."""

    target: str
    session: str = ""
    tags: Mapping[str, str] = NO_TAGS

    def proxy_request(self, avoid: frozenset[str] = frozenset()) -> ProxyRequest:
        if not (self.session or self.tags or avoid):
            return ANY
        return ProxyRequest(self.tags, self.session, avoid)


def selector_of(request: Request) -> ProxySelector:
    """Return the selector of a request. Raises `BadSpider` for invalid values."""
    session, tags = request.get_meta("proxy_session"), request.get_meta("proxy_tags")
    if session is None and tags is None:
        return ProxySelector(target_of(request))
    return ProxySelector(target_of(request), "" if session is None else _text("proxy_session", session), _tags(tags))


def target_of(request: Request) -> str:
    """Return the target of a request. Raises `BadSpider`."""
    target = request.get_meta("proxy_target")
    if target is not None:
        return _text("proxy_target", target)
    return _of_host(request.record.host if request.record is not None else host_key(canonicalize(request.url)))


def jar_of(request: Request) -> Any:
    """Return the request's cookie jar, or None for the default one."""
    jar = request.get_meta("cookiejar")
    if jar is not None or request.get_meta("proxy_session") is None:
        return jar
    selector = selector_of(request)
    return ["proxy_session", selector.target, selector.session]


@lru_cache(HOSTS_MAX)
def _of_host(host: str) -> str:
    return registrable(host_name(host).strip("[]"))


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= TEXT_MAX:
        return value
    raise BadSpider(f"{key} in meta is {value!r:.60}: write a string of 1 to {TEXT_MAX} characters")


def _tags(tags: Any) -> Mapping[str, str]:
    if tags is None:
        return NO_TAGS
    if isinstance(tags, dict) and len(tags) <= TAGS_MAX:
        return {_text("proxy_tags", name): _text("proxy_tags", value) for name, value in tags.items()}
    raise BadSpider(f'proxy_tags in meta is {tags!r:.60}: write at most {TAGS_MAX} tags, as {{"country": "de"}}')
