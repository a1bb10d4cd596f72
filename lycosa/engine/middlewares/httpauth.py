"""Sends a user name and a password (HTTP Basic, RFC 7617) to one domain and what is below it, and to nobody else.

    class Intranet(Spider):
        http_user = "ann"
        http_pass = "secret"
        http_auth_domain = "example.com"    # None: to every host

A request that has an `Authorization` header keeps it. A redirect that leaves the domain leaves the password behind.
"""

from __future__ import annotations

from base64 import b64encode

from lycosa.core.errors import BadSpider
from lycosa.core.model import Request
from lycosa.core.origin import place_of
from lycosa.engine.spider import Spider


class HttpAuth:
    """Authorizes requests to `domain` (None: all). Raises `BadSpider`."""

    def __init__(self, user: str, password: str, domain: str | None) -> None:
        if ":" in user:
            raise BadSpider(f"http_user is {user!r}: a user name cannot hold ':' (RFC 7617)")
        self._header = basic(user, password)
        self._domain = domain.lower().lstrip(".") if domain else ""

    @classmethod
    def of(cls, spider: Spider) -> HttpAuth | None:
        """Return the middleware that the spider's attributes ask for, or None. Raises `BadSpider`."""
        user, password = getattr(spider, "http_user", ""), getattr(spider, "http_pass", "")
        if not (user or password):
            return None
        if not hasattr(spider, "http_auth_domain"):
            wanted = "http_auth_domain = 'example.com' beside http_user, so that no other site is told the password"
            raise BadSpider(f"{type(spider).__name__}: write {wanted} (None: tell every host)")
        return cls(user, password, spider.http_auth_domain)

    def process_request(self, request: Request) -> None:
        """Add the header where it belongs."""
        if not request.has_header("Authorization") and self._covers(request.url):
            request.headers["Authorization"] = self._header

    def _covers(self, url: str) -> bool:
        place = place_of(url)
        return place is not None and (not self._domain or self._domain in place.names())


def basic(user: str, password: str) -> str:
    """Return the value of the header. Latin-1 as far as it goes, as servers have always read it, else UTF-8."""
    pair = f"{user}:{password}"
    try:
        octets = pair.encode("latin-1")
    except UnicodeEncodeError:
        octets = pair.encode()
    return "Basic " + b64encode(octets).decode("ascii")
