"""What a proxy has changed on the way: the page, the certificate, fields of the request or of the answer.

Proxies that keep to the rules add fields of their own (Via, Age, X-Cache, ...) and drop those of a single hop (RFC 9110
§7.6); that is not meant. What is found is said in short words that are the same for the same change, so that they can
be counted: "page", "certificate", "request adds cookie", "answer adds set-cookie", ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lycosa.core.headers import Headers
from lycosa.proxies.core.checks.anonymity import Seen, betrays

PAGE = "page"
CERTIFICATE = "certificate"

FOUND_MAX = 20
"""Changes that are named of one answer."""

NAME_MAX = 40

HOPS = frozenset({
    "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer", "transfer-encoding",
    "upgrade", "via", "age", "date", "server", "warning", "cache-status", "proxy-status", "content-length",
    "content-encoding", "accept-encoding", "vary", "host", "cache-control", "pragma", "x-cache", "x-cache-lookup",
    "x-cache-status", "x-cache-hits", "x-squid-error", "x-served-by", "x-proxy-cache", "x-request-id",
})  # fmt: skip
"""Fields that a proxy may set, change or drop."""


def request_changes(seen: Seen, direct: Seen) -> list[str]:
    """Return what became of the fields of a request, `direct` being those of one without a proxy."""
    return _few(_differences("request", dict(direct.fields), dict(seen.fields)))


def answer_changes(headers: Headers, sent: Mapping[str, str]) -> list[str]:
    """Return what became of the fields of an answer of which `sent` were sent, by lower-case name."""
    return _few(_differences("answer", sent, dict(headers.items())))


def _differences(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name, value in after.items():
        if name in HOPS or betrays(name):
            continue
        if name not in before:
            yield f"{what} adds {_shown(name)}"
        elif value != before[name]:
            yield f"{what} changes {_shown(name)}"
    yield from (f"{what} drops {name}" for name in before if name not in after and name not in HOPS)


def _shown(name: str) -> str:
    """Return the name of a field, which anybody may have made up."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in name[:NAME_MAX])


def _few(found: Iterable[str]) -> list[str]:
    return sorted(set(found))[:FOUND_MAX]
