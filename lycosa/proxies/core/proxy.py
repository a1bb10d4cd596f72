"""Who a proxy is: scheme, host, port and login. Two logins on one host and port are two proxies.

The login is a secret, often the user name, too: providers put sessions and tokens there. So a proxy has a `name` for
everybody (address, and a digest where there is a login) and a `url` for whoever connects through it.

`host:port` alone is an HTTP proxy. Of SOCKS, `socks4a` and `socks5h` let the proxy find the host, `socks4` and `socks5`
ask for an address.
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
"""The schemes, and the port that is meant where none stands."""

ADDRESS_MAX = 1024
"""Characters of the address of a proxy."""

SOCKS5 = frozenset({"socks5", "socks5h"})
LOGIN_MAX = 255
"""Bytes of a name or password in SOCKS 5 (RFC 1929, section 2)."""

SHOWN_MAX = 60
IPV4 = re.compile(r"(?:\d+\.){3}\d+")
NAME = re.compile(r"(?=.{1,254}$)(?:[^.]{1,63}\.)*[^.]{1,63}\.?")
"""Of a host (RFC 1035, section 2.3.4)."""

COLONS = re.compile(
    r"(?:(?P<scheme>[a-z0-9]+)://)?(?P<host>[^\s:@/\\\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})"
    r":(?P<user>[^\s:]+):(?P<password>\S*)",
    re.IGNORECASE,
)
"""[scheme://]host:port:user:password, as providers print it: nothing in it is quoted."""

REVERSED = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}")
"""What stands in the place of a login when that is a number, and comes first: it would be shown as an address."""

ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z0-9]+)://)?(?:(?P<user>[^\s:@/]*)(?::(?P<password>[^\s@/]*))?@)?"
    r"(?P<host>[^\s:@/\\\[\]?#]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?/?",
    re.IGNORECASE,
)
SURROGATE = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes that are not UTF-8, and nobody can send."""

SAFE = re.compile(r"(?:[A-Za-z0-9]+://)?[^:]*(?::\d{1,5}(?![^/?#:]))?")
"""What is no login in a text that is no address: a host, and what stands behind its colon if that can be a port."""


@dataclass(frozen=True, repr=False)
class Proxy:
    """One way out. `tags` (`country=de`, `provider=acme`) and prices are no part of who it is.

    `price_gb` and `price_request` are in any one currency; what costs nothing is used first.
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
        """The address with the login: a secret."""
        return f"{self.scheme}://{self.login}{self._place}"

    @property
    def login(self) -> str:
        """User name and password as they stand in a URL, with the @ behind them; "" for none."""
        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"{quote(self.username, safe='')}{password}@" if self.username or self.password else ""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits that stand for the whole identity, the same everywhere."""
        whole = f"{self.scheme}\0{self._place}\0{self.username}\0{self.password}"
        return str(xxh3_64_hexdigest(whole.encode()))

    @cached_property
    def name(self) -> str:
        """What logs, metrics and pages show: no login, but logins on the same address have different names."""
        address = f"{self.scheme}://{self._place}"
        return f"{address}#{self.key[:6]}" if self.username or self.password else address

    @property
    def _place(self) -> str:
        return f"{self.host}:{self.port}"


def parse_proxy(text: str, scheme: str = "http", **facts: object) -> Proxy:
    """Return the proxy at an address in one of the usual forms. Raises `BadProxy`, which repeats no login.

    `[scheme://][user[:password]@]host[:port]`, or `[scheme://]host:port:user:password`; IPv6 in brackets. `scheme` is
    meant where none stands, which wants a port.
    """
    if SURROGATE.search(text):
        raise BadProxy("an address that is not UTF-8: write it in UTF-8")
    forms = (ADDRESS, COLONS) if "://" in text else (COLONS, ADDRESS)
    found = next(filter(None, (form.fullmatch(text) for form in forms)), None) if len(text) <= ADDRESS_MAX else None
    if found and not found["port"]:
        found = COLONS.fullmatch(text) or found  # http://host:port:user:p@ss
    if found is None:
        raise BadProxy(f"{_shown(text)} is not the address of a proxy: write [scheme://][user:password@]host:port")
    if found.re is COLONS and REVERSED.fullmatch(f"{found['user']}:{found['password']}"):
        raise BadProxy("a login in front of the address: write host:port:user:password")
    parts = found.groupdict()
    named = (parts.get("scheme") or scheme).lower()
    if named not in PORTS:
        raise BadProxy(f"{named}:// is no kind of proxy: write one of {', '.join(PORTS)}")
    if not parts["port"] and not parts.get("scheme"):
        raise BadProxy(f"{_shown(text)} has no port: write host:port")
    port = int(parts["port"] or PORTS[named])
    if not 1 <= port <= 65535:
        raise BadProxy(f"{port} is not a port: 1 to 65535")
    login = (parts["user"] or "", parts["password"] or "")
    if found.re is ADDRESS:
        login = _unquoted(*login)
    if named in SOCKS5 and max(len(part.encode()) for part in login) > LOGIN_MAX:
        raise BadProxy(f"a name or password of more than {LOGIN_MAX} bytes: SOCKS 5 cannot send it (RFC 1929)")
    return Proxy(named, _host(parts["host"]), port, *login, **facts)  # type: ignore[arg-type]


def _unquoted(user: str, password: str) -> tuple[str, str]:
    try:
        return unquote(user, errors="strict"), unquote(password, errors="strict")
    except UnicodeDecodeError:
        raise BadProxy("a login that is not UTF-8: write it in UTF-8, percent-encoded") from None


def _host(text: str) -> str:
    """Return a host as WHATWG URLs write it: lower case, IDNA, short IPv6.

    But for addresses: 1.2.3 is 1.2.0.3 to a browser, and 010.1.2.3 is 8.1.2.3. In a list that is a fault.
    """
    shown = repr(text[:SHOWN_MAX])
    try:
        host = str(ada_url.URL(f"http://{text}/").hostname)
    except ValueError:
        raise BadProxy(f"{shown} is not a host") from None
    if IPV4.fullmatch(host) and host != text:
        raise BadProxy(f"{shown} is no IP address that everybody reads alike: write 1.2.3.4")
    if not host.startswith("[") and not NAME.fullmatch(host):
        raise BadProxy(f"{shown} is not a host")
    return host


def _shown(text: str) -> str:
    """Return bad text without what may be a login."""
    behind = text.rpartition("@")[2]
    safe = SAFE.match(behind)
    kept = safe[0] if safe else ""
    return repr(kept[:SHOWN_MAX] + ("…" if len(kept) > SHOWN_MAX or kept != behind else ""))
