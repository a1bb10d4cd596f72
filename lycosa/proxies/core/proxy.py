"""A proxy: scheme, host, port and login. Two logins on one host and port are two proxies.

The whole login is secret: providers often put sessions and tokens into the user name. The public `name` has a digest of
the login; the `url` to connect with is secret.

`host:port` alone means an HTTP proxy. With `socks4a` and `socks5h` the proxy resolves host names, with `socks4` and
`socks5` the client does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from urllib.parse import quote, unquote

import ada_url
from xxhash import xxh3_64_hexdigest

from lycosa.core.errors import BadProxy

Scheme = Literal["http", "https", "socks4", "socks4a", "socks5", "socks5h"]
PORTS = {"http": 80, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}

ADDRESS_MAX = 1024
"""In characters."""

SOCKS5 = frozenset({"socks5", "socks5h"})
LOGIN_MAX = 255
"""Bytes of a user name or password in SOCKS 5 (RFC 1929, section 2)."""

SHOWN_MAX = 60
IPV4 = re.compile(r"(?:\d+\.){3}\d+")
NAME = re.compile(r"(?=.{1,254}$)(?:[^.]{1,63}\.)*[^.]{1,63}\.?")
"""RFC 1035, section 2.3.4."""

COLONS = re.compile(
    r"(?:(?P<scheme>[a-z0-9]+)://)?(?P<host>[^\s:@/\\\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})"
    r":(?P<user>[^\s:]+):(?P<password>\S*)",
    re.IGNORECASE,
)
"""[scheme://]host:port:user:password, as providers print it, without percent-encoding."""

REVERSED = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}")
"""An address where the login is expected: the two are swapped. This has an error message of its own, because other
messages would quote the login as the host.
"""

ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z0-9]+)://)?(?:(?P<user>[^\s:@/]*)(?::(?P<password>[^\s@/]*))?@)?"
    r"(?P<host>[^\s:@/\\\[\]?#]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?/?",
    re.IGNORECASE,
)
SURROGATE = re.compile("[\ud800-\udfff]")
"""Python decodes bytes that are not UTF-8 to these characters. They cannot be sent."""

SAFE = re.compile(r"(?:[A-Za-z0-9]+://)?[^:]*(?::\d{1,5}(?![^/?#:]))?")
"""The part of an invalid address that cannot be a login: a host, and a port if digits follow the colon."""


@dataclass(frozen=True, repr=False)
class Proxy:
    """A proxy. `tags` (`country=de`, `provider=acme`) and prices are not part of its identity.

    Prices may be in any currency, but in the same one for all proxies. Cheaper proxies are used first.
    """

    scheme: str
    host: str
    port: int
    username: str = ""
    password: str = ""
    tags: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)
    price_gb: float = field(default=0.0, compare=False)
    price_request: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        return f"Proxy({self.name})"

    @cached_property
    def url(self) -> str:
        """Secret: contains the login."""
        return f"{self.scheme}://{self.login}{self._place}"

    @property
    def login(self) -> str:
        """The user name and password as in a URL, with the @ after them; "" without a login."""
        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"{quote(self.username, safe='')}{password}@" if self.username or self.password else ""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, the same in all processes."""
        identity = f"{self.scheme}\0{self._place}\0{self.username}\0{self.password}"
        return str(xxh3_64_hexdigest(identity.encode()))

    @cached_property
    def name(self) -> str:
        """The address for logs, metrics and pages, with a digest of the login."""
        address = f"{self.scheme}://{self._place}"
        return f"{address}#{self.key[:6]}" if self.username or self.password else address

    @property
    def _place(self) -> str:
        return f"{self.host}:{self.port}"


def parse_proxy(text: str, scheme: str = "http", **facts: object) -> Proxy:
    """Parse the address of a proxy. Raises `BadProxy`, whose message does not contain the login.

    The form is `[scheme://][user[:password]@]host[:port]` or `[scheme://]host:port:user:password`, with IPv6 addresses
    in brackets. If the text has no scheme, `scheme` applies, and the port is required.
    """
    if SURROGATE.search(text):
        raise BadProxy("the address is not UTF-8: write it in UTF-8")
    # As an ADDRESS, host:port:user:p@ss would be the login host:port:user:p at the host ss.
    forms = (ADDRESS, COLONS) if "://" in text else (COLONS, ADDRESS)
    found = next(filter(None, (form.fullmatch(text) for form in forms)), None) if len(text) <= ADDRESS_MAX else None
    if found and not found["port"]:
        found = COLONS.fullmatch(text) or found  # http://host:port:user:p@ss
    if found is None:
        raise BadProxy(f"{_shown(text)} is not the address of a proxy: write [scheme://][user:password@]host:port")
    if found.re is COLONS and REVERSED.fullmatch(f"{found['user']}:{found['password']}"):
        raise BadProxy("the login comes before the address: write host:port:user:password")
    parts = found.groupdict()
    named = (parts.get("scheme") or scheme).lower()
    if named not in PORTS:
        raise BadProxy(f"{named}:// is not a kind of proxy: write one of {', '.join(PORTS)}")
    if not parts["port"] and not parts.get("scheme"):
        raise BadProxy(f"{_shown(text)} has no port: write host:port")
    port = int(parts["port"] or PORTS[named])
    if not 1 <= port <= 65535:
        raise BadProxy(f"{port} is not a port: write 1 to 65535")
    login = (parts["user"] or "", parts["password"] or "")
    if found.re is ADDRESS:
        login = _unquote(*login)
    if named in SOCKS5 and max(len(part.encode()) for part in login) > LOGIN_MAX:
        raise BadProxy(f"the name or password has more than {LOGIN_MAX} bytes: SOCKS 5 cannot send it (RFC 1929)")
    return Proxy(named, _host(parts["host"]), port, *login, **facts)  # type: ignore[arg-type]


def _unquote(user: str, password: str) -> tuple[str, str]:
    try:
        return unquote(user, errors="strict"), unquote(password, errors="strict")
    except UnicodeDecodeError:
        raise BadProxy("the login is not UTF-8: write it in UTF-8, percent-encoded") from None


def _host(text: str) -> str:
    """Return a host in the form of WHATWG URLs: lower case, IDNA, short IPv6.

    Unusual IPv4 addresses are refused: in a list of proxies they are mistakes. A browser reads 1.2.3 as 1.2.0.3, and
    010.1.2.3 as 8.1.2.3.
    """
    shown = repr(text[:SHOWN_MAX])
    try:
        host = str(ada_url.URL(f"http://{text}/").hostname)
    except ValueError:
        raise BadProxy(f"{shown} is not a host") from None
    if IPV4.fullmatch(host) and host != text:
        raise BadProxy(f"{shown} is an ambiguous IP address: write four decimal numbers, such as 1.2.3.4")
    if not host.startswith("[") and not NAME.fullmatch(host):
        raise BadProxy(f"{shown} is not a host")
    return host


def _shown(text: str) -> str:
    """Quote an invalid address without the part that may be a login."""
    rest = text.rpartition("@")[2]
    safe = SAFE.match(rest)
    kept = safe[0] if safe else ""
    return repr(kept[:SHOWN_MAX] + ("…" if len(kept) > SHOWN_MAX or kept != rest else ""))
