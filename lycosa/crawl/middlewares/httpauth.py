"""Sends a user name and password (HTTP Basic, RFC 7617) only to one domain and its subdomains.

    class Intranet(Spider):
        http_user = "ann"
        http_pass = "secret"
        http_auth_domain = "example.com"    # None: to every host

The settings with these names work too; there `*` means every host. A request that has an `Authorization` header keeps
it. A redirect to another domain does not receive the password.
"""

from __future__ import annotations

from base64 import b64encode

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.origin import ORIGINS_MAX, origin_of, url_prefix
from lycosa.http.core.request import Request

DOMAIN_ADVICE = "write http_auth_domain = 'example.com' too, so that no other site receives the password"


class HttpAuth:
    """Adds the `Authorization` header to requests to `domain` (None: to all hosts). Raises `BadSpider`."""

    def __init__(self, user: str, password: str, domain: str | None) -> None:
        if ":" in user:
            raise BadSpider(f"http_user is {user!r}: a user name cannot contain ':' (RFC 7617)")
        self._header = basic(user, password)
        self._domain = domain.lower().lstrip(".") if domain else ""
        self._covered: dict[str, bool] = {}

    @classmethod
    def of(cls, spider: Spider, user: str = "", password: str = "", domain: str = "") -> HttpAuth | None:
        """Return the middleware for the spider's attributes, else for the settings, or None.

        Raises `BadSpider` or `BadSetting` if there is no domain.
        """
        name, secret = getattr(spider, "http_user", ""), getattr(spider, "http_pass", "")
        if name or secret:
            if not hasattr(spider, "http_auth_domain"):
                raise BadSpider(f"{type(spider).__name__} has http_user: {DOMAIN_ADVICE} (None: all hosts get it)")
            return cls(name, secret, spider.http_auth_domain)
        if (user or password) and not domain:
            raise BadSetting(f"http_user is set: {DOMAIN_ADVICE}")
        return cls(user, password, domain) if user or password else None

    def process_request(self, request: Request) -> None:
        prefix = url_prefix(request.url)
        covered = self._covered.get(prefix)
        if covered is None:
            covered = self._covers(prefix)
        if covered and not request.has_header("Authorization"):
            request.headers["Authorization"] = self._header

    def _covers(self, prefix: str) -> bool:
        origin = origin_of(prefix)
        covers = origin is not None and (not self._domain or self._domain in origin.names())
        if len(self._covered) >= ORIGINS_MAX:
            self._covered.clear()
        self._covered[prefix] = covers
        return covers


def basic(user: str, password: str) -> str:
    """Return the header's value, in Latin-1 as most servers expect, or in UTF-8 if that is impossible."""
    pair = f"{user}:{password}"
    try:
        octets = pair.encode("latin-1")
    except UnicodeEncodeError:
        octets = pair.encode()
    return "Basic " + b64encode(octets).decode("ascii")
