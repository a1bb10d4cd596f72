"""Decides which links a crawl follows, by their target, their depth, and the user's allow and deny globs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

from lycosa.core.errors import BadSetting
from lycosa.core.url import canonicalize, host_key

KINDS = ("host", "domain", "prefix", "any")

HOSTS_MAX = 65_536
"""Maximum number of host keys in each cache (inside, outside) of a domain crawl."""


class Scope:
    """The scope of one crawl. Create it with `Scope.of`."""

    __slots__ = ("_allow", "_deny", "_depth_max", "_domains", "_inside", "_kind", "_outside", "_prefixes")

    def __init__(self) -> None:
        self._kind = "any"
        self._inside: set[str] = set()
        self._outside: set[str] = set()
        self._domains: tuple[str, ...] = ()
        self._prefixes: tuple[str, ...] = ()
        self._depth_max: int | None = None
        self._allow: re.Pattern[str] | None = None
        self._deny: re.Pattern[str] | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        seeds: Sequence[str],
        *,
        depth_max: int | None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        exact: bool = False,
    ) -> Scope:
        """Return the scope around the seeds. Raises `BadSetting` and `BadUrl`.

        Kinds: `host`: the hostname and port of a seed; ports 80 and 443 count as the same. `domain`: the hostname of a
        seed without a leading `www.` (kept if `exact`), and its subdomains, on any port. `prefix`: URLs that start with
        a seed up to the last slash of its path. `any`: everything. Seeds have depth 0; `depth_max` None means no limit.
        Globs match the whole canonical URL, case-sensitively: `*` any characters, `?` one character, `[..]` one of a
        set; an unclosed `[` is literal. If there are `allow` globs, one must match. A `deny` glob always wins.
        """
        if kind not in KINDS:
            raise BadSetting(f"scope is {kind!r}: write one of {', '.join(KINDS)}")
        if depth_max is not None and depth_max < 0:
            raise BadSetting(f"depth is {depth_max}: write 0 (only the start URLs) or more")
        scope = cls()
        urls = [canonicalize(seed) for seed in seeds]
        scope._kind = kind
        scope._depth_max = depth_max
        scope._allow, scope._deny = _globs(allow), _globs(deny)
        scope._inside = {key for url in urls for key in _same_host(host_key(url))} if kind == "host" else set()
        prefix = "" if exact else "www."
        scope._domains = tuple(_hostname(host_key(url)).removeprefix(prefix) for url in urls)
        scope._prefixes = tuple(_prefix(url) for url in urls)
        return scope

    def reason(self, url: str, host: str, depth: int, *, anywhere: bool = False) -> str:
        """Return "" for a canonical URL in scope, else the reason: "scope", "depth", "deny" or "allow".

        With `anywhere`, the kind of the scope is not checked.
        """
        if host not in self._inside and not anywhere and not self._admits(url, host):
            return "scope"
        if self._depth_max is not None and depth > self._depth_max:
            return "depth"
        if self._deny is not None and self._deny.match(url):
            return "deny"
        if self._allow is not None and not self._allow.match(url):
            return "allow"
        return ""

    def _admits(self, url: str, host: str) -> bool:
        if self._kind == "prefix":
            return url.startswith(self._prefixes)
        return self._kind == "any" or (
            self._kind == "domain" and host not in self._outside and self._check_domain(host)
        )

    def _check_domain(self, host: str) -> bool:
        name = _hostname(host)
        inside = any(name == domain or name.endswith("." + domain) for domain in self._domains)
        cache = self._inside if inside else self._outside
        if len(cache) >= HOSTS_MAX:
            cache.clear()
        cache.add(host)
        return inside


def _hostname(host: str) -> str:
    return host.partition("://")[2].rpartition(":")[0]


def _same_host(host: str) -> list[str]:
    name, _, port = host.partition("://")[2].rpartition(":")
    ports = ("80", "443") if port in ("80", "443") else (port,)
    return [f"{scheme}://{name}:{number}" for scheme in ("http", "https") for number in ports]


def _prefix(url: str) -> str:
    path = url.partition("?")[0]
    return path[: path.rindex("/") + 1]


def _globs(globs: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, globs))) if globs else None
