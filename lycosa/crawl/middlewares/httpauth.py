"""Sends user name and password (HTTP Basic, RFC 7617) to one domain and its subdomains only.

    class Intranet(Spider):
        http_user = "ann"
        http_pass = "secret"
        http_auth_domain = "example.com"    # None: to every host

or the settings of these names. A request that has an `Authorization` header keeps it. A redirect to another domain does
not get the password.
"""

from __future__ import annotations

from base64 import b64encode

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.origin import ORIGINS_MAX, origin_of, url_prefix
from lycosa.http.core.request import Request

DOMAIN_ADVICE = "write http_auth_domain = 'example.com' too, so that no other site receives the password"


class HttpAuth:
    """Authorizes requests to `domain` (None: all). Raises `BadSpider`."""

    def __init__(self, user: str, password: str, domain: str | None) -> None:
        if ":" in user:
            raise BadSpider(f"http_user is {user!r}: a user name cannot hold ':' (RFC 7617)")
        self._header = basic(user, password)
        self._domain = domain.lower().lstrip(".") if domain else ""
        self._covered: dict[str, bool] = {}

    @classmethod
    def of(cls, spider: Spider, user: str = "", password: str = "", domain: str = "") -> HttpAuth | None:
        """Return the middleware for the spider's attributes, or else for the given settings; None without either.

        Raises `BadSpider` or `BadSetting` if no domain is given.
        """
        name, secret = getattr(spider, "http_user", ""), getattr(spider, "http_pass", "")
        if name or secret:
            if not hasattr(spider, "http_auth_domain"):
                raise BadSpider(f"{type(spider).__name__} has http_user: {DOMAIN_ADVICE} (None: all hosts do)")
            return cls(name, secret, spider.http_auth_domain)
        if (user or password) and not domain:
            raise BadSetting(f"http_user is set: {DOMAIN_ADVICE}")
        return cls(user, password, domain) if user or password else None

    def process_request(self, request: Request) -> None:
        begin = url_prefix(request.url)
        covered = self._covered.get(begin)
        if covered is None:
            covered = self._covers(begin)
        if covered and not request.has_header("Authorization"):
            request.headers["Authorization"] = self._header

    def _covers(self, begin: str) -> bool:
        origin = origin_of(begin)
        covers = origin is not None and (not self._domain or self._domain in origin.names())
        if len(self._covered) >= ORIGINS_MAX:
            self._covered.clear()
        self._covered[begin] = covers
        return covers


def basic(user: str, password: str) -> str:
    """Return the value of the header: in Latin-1, as servers traditionally read it, or UTF-8 for other characters."""
    pair = f"{user}:{password}"
    try:
        octets = pair.encode("latin-1")
    except UnicodeEncodeError:
        octets = pair.encode()
    return "Basic " + b64encode(octets).decode("ascii")
