"""Reads lists of proxies as people and providers write them: one proxy per line, or JSON.

    # comment
    1.2.3.4:8080
    socks5h://ann:secret@proxy.example:1080   country=de provider=acme price_gb=4.5
    http://user-{session}:secret@gate.example:8000   sessions=50 rotating=no

`key=value` is a tag, unless the key is a price or `sessions`. `sessions=N` turns the line into N proxies, with s1 to sN
in place of `{session}`. JSON is an array of addresses or objects, or an object that holds such an array. Objects may
use the common names for host, port, login, scheme and country (KEYS).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from itertools import islice
from typing import Any, NamedTuple

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.proxy import COLONS, PORTS, Proxy, parse_proxy
from lycosa.proxies.core.sources.json_array import ArrayEntry, read_array

LIST_MAX = 64_000_000
"""In characters."""

PORT_SHOWN = 20
"""How many characters of an invalid port are shown in errors."""

LINE_MAX = 8_192
"""In characters."""

ENTRIES_MAX = 1_000_000
"""Maximum number of proxies and faults of a list."""

SESSIONS_MAX = 10_000
"""Maximum number of proxies for one line."""

TAGS_MAX = 32
VALUE_MAX = 100
SESSION = "{session}"
PRICES = ("price_gb", "price_request")
COMMENT = re.compile(r"(?:^|\s)#")
IPV6 = re.compile(r"\s*\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%\w+)?\](?:[:\s]|$)", re.ASCII)
"""An IPv6 address at the start of a list, which looks like the start of JSON."""

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
KEYS = {
    "host": ("host", "ip", "ip_address", "proxy_address", "address", "server"),
    "port": ("port", "proxy_port"),
    "user": ("username", "user", "login"),
    "password": ("password", "pass"),
    "kind": ("scheme", "protocol", "type"),
    "country": ("country", "country_code", "countryCode", "geo"),
}
"""The names that providers use for each part of a proxy; the first name found counts."""


class Fault(NamedTuple):
    """A problem and its line number, from 1."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


def read_list(text: str, scheme: str = "http") -> Iterator[Proxy | Fault]:
    """Yield the proxies and faults of a list in order. Raises `BadProxy` if the text is not a list."""
    if len(text) > LIST_MAX:
        raise BadProxy(f"the list has {len(text):,} characters: at most {LIST_MAX:,} are allowed")
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:1]
    if start in ("[", "{") and not IPV6.match(text):
        return _bounded(_entries(read_array(text), scheme))
    if start == "<":
        raise BadProxy("this is a page (HTML, XML), not a list of proxies")
    return _bounded(_lines(text, scheme))


def parse_line(line: str, scheme: str = "http") -> list[Proxy]:
    """Return the proxies of a line. It must be neither empty nor a comment. Raises `BadProxy`."""
    if len(line) > LINE_MAX:
        raise BadProxy(f"the line has {len(line):,} characters: write at most {LINE_MAX:,}")
    address, *fields = line.split()
    facts = [field.partition("=") for field in fields]
    if not all(equals for _, equals, _ in facts):  # not shown: it may be a login
        raise BadProxy("the text after the address is not key=value")
    return _proxies(address, {name: value for name, _, value in facts}, scheme)


def parse_entry(entry: object, scheme: str = "http") -> list[Proxy]:
    """Return the proxies of an entry of a JSON array. Raises `BadProxy`."""
    if isinstance(entry, str) and entry.strip():
        return parse_line(entry, scheme)
    if isinstance(entry, dict):
        return _object(entry, scheme)
    raise BadProxy("neither an address nor an object")


def lines_of(text: str) -> Iterable[str]:
    """Iterate over the lines of a text without building a list."""
    return StringIO(text, newline=None)


def _bounded(found: Iterator[Proxy | Fault]) -> Iterator[Proxy | Fault]:
    yield from islice(found, ENTRIES_MAX)
    if next(found, None) is not None:
        yield Fault(1, f"more than {ENTRIES_MAX:,} proxies and faults: the rest is ignored")


def _lines(text: str, scheme: str) -> Iterator[Proxy | Fault]:
    for number, line in enumerate(lines_of(text), 1):
        plain = COMMENT.split(line, maxsplit=1)[0].strip()
        try:
            yield from parse_line(plain, scheme) if plain else ()
        except BadProxy as wrong:
            yield Fault(number, str(wrong))


def _entries(entries: Iterable[ArrayEntry], scheme: str) -> Iterator[Proxy | Fault]:
    """Yield faults with the number of their entry, because JSON is often a single line."""
    for number, (line, entry) in enumerate(entries, 1):
        try:
            yield from parse_entry(entry, scheme)
        except BadProxy as wrong:
            yield Fault(line, f"entry {number:,}: {wrong}")


def _object(entry: Mapping[str, Any], scheme: str) -> list[Proxy]:
    found = {name: _first(entry, keys) for name, keys in KEYS.items()}
    found["port"] = _port_of(entry)
    found["kind"] = found["kind"] or _first_protocol(entry.get("protocols"))
    address = entry.get("proxy") or entry.get("url")
    if isinstance(address, str):
        address = _complete(address, found, scheme)
    elif not found["host"]:
        raise BadProxy("an object needs host (or ip) and port, or proxy, or url")
    else:
        address = _address(found, scheme)
    facts = {name: str(entry[name]) for name in (*PRICES, "provider", "sessions") if entry.get(name) is not None}
    if found["country"]:
        facts["country"] = found["country"].lower()
    return _proxies(address, facts, scheme)


def _complete(address: str, found: Mapping[str, str], scheme: str) -> str:
    """Add the scheme and login of the JSON object (`found`) if the address lacks them."""
    kind, _, place = address.rpartition("://")
    has_login = "@" in place or COLONS.fullmatch(place)
    login = "" if has_login else Proxy("", "", 0, found["user"], found["password"]).login
    return f"{kind or _kind(found, scheme)}://{login}{place}"


def _kind(found: Mapping[str, str], scheme: str) -> str:
    return found["kind"].lower() if found["kind"].lower() in PORTS else scheme


def _first_protocol(protocols: object) -> str:
    """Return the first protocol. In public lists, https means an HTTP proxy that accepts CONNECT."""
    first = protocols[0] if isinstance(protocols, list) and protocols else protocols
    first = first.lower() if isinstance(first, str) else ""
    return "http" if first == "https" else first


def _address(found: Mapping[str, str], scheme: str) -> str:
    kind = _kind(found, scheme)
    host = f"[{found['host']}]" if found["host"].count(":") > 1 and found["host"][0] != "[" else found["host"]
    proxy = Proxy("", "", 0, found["user"], found["password"])
    return f"{kind}://{proxy.login}{host}:{found['port']}" if found["port"] else f"{kind}://{proxy.login}{host}"


def _port_of(entry: Mapping[str, Any]) -> str:
    """Return the port as text. It is validated later."""
    value = next((entry[key] for key in KEYS["port"] if entry.get(key) not in (None, "")), "")
    return str(value[0] if isinstance(value, list) and value else value)[:PORT_SHOWN]


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    value = next((entry[key] for key in keys if entry.get(key) not in (None, "")), "")
    value = value[0] if isinstance(value, list) and value else value
    return str(value) if isinstance(value, str | int) else ""


def _proxies(address: str, facts: Mapping[str, str], scheme: str) -> list[Proxy]:
    if len(facts) > TAGS_MAX:
        raise BadProxy(f"{len(facts)} fields: write at most {TAGS_MAX}")
    prices = {name: _price(name, facts[name]) for name in PRICES if name in facts}
    tags = {name: value for name, value in facts.items() if name not in (*PRICES, "sessions")}
    for name, value in tags.items():
        if not NAME.fullmatch(name) or len(value) > VALUE_MAX:
            rule = "a tag's name begins with a-z and has at most 32 characters (a-z, 0-9, _ or -)"
            raise BadProxy(f"{rule}; its value has at most {VALUE_MAX} characters")
    count = _count(facts.get("sessions", ""), templated=SESSION in address)
    return [
        parse_proxy(address.replace(SESSION, f"s{number}"), scheme, tags=tags, **prices)
        for number in range(1, count + 1)
    ]


def _price(name: str, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise BadProxy(f"{name}={text[:VALUE_MAX]} is not a price: write a number, 0 or more")
    return price


def _count(text: str, *, templated: bool) -> int:
    if not text:
        if templated:
            raise BadProxy(f"{SESSION} in the address: write sessions=N after it")
        return 1
    if not templated:
        raise BadProxy(f"sessions={text[:VALUE_MAX]} without {SESSION} in the address")
    if not (text.isascii() and text.isdigit() and len(text) <= VALUE_MAX and 1 <= int(text) <= SESSIONS_MAX):
        raise BadProxy(f"sessions={text[:VALUE_MAX]}: write a number from 1 to {SESSIONS_MAX:,}")
    return int(text)
