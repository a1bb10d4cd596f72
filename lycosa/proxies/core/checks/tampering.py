"""What a proxy has changed: the page, the certificate, headers of the request or of the response.

Headers that proxies may add (Via, Age, X-Cache, ...) or drop (hop-by-hop headers, RFC 9110 §7.6) do not count. The same
change always has the same text, so that changes can be counted: "page", "request adds cookie", ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lycosa.core.headers import Headers
from lycosa.proxies.core.checks.anonymity import SeenRequest, reveals_proxy

PAGE = "page"
CERTIFICATE = "certificate"

FOUND_MAX = 20

NAME_MAX = 40

HOPS = frozenset({
    "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer", "transfer-encoding",
    "upgrade", "via", "age", "date", "server", "warning", "cache-status", "proxy-status", "content-length",
    "content-encoding", "accept-encoding", "vary", "host", "cache-control", "pragma", "x-cache", "x-cache-lookup",
    "x-cache-status", "x-cache-hits", "x-squid-error", "x-served-by", "x-proxy-cache", "x-request-id",
})  # fmt: skip
"""Headers that a proxy may set, change or drop."""


def request_changes(seen: SeenRequest, direct: SeenRequest) -> list[str]:
    """Return the changes to the headers of a request. `direct`: a request without a proxy."""
    return _sorted(_differences("request", dict(direct.fields), dict(seen.fields)))


def answer_changes(headers: Headers, sent: Mapping[str, str]) -> list[str]:
    """Return the changes to the headers of a response. `sent` has the headers of the server by lower-case name."""
    return _sorted(_differences("answer", sent, dict(headers.items())))


def _differences(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name, value in after.items():
        if name in HOPS or reveals_proxy(name):
            continue
        if name not in before:
            yield f"{what} adds {_shown(name)}"
        elif value != before[name]:
            yield f"{what} changes {_shown(name)}"
    yield from (f"{what} drops {name}" for name in before if name not in after and name not in HOPS)


def _shown(name: str) -> str:
    """Replace all but printable ASCII in a header's name: the proxy may have made it up."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in name[:NAME_MAX])


def _sorted(found: Iterable[str]) -> list[str]:
    return sorted(set(found))[:FOUND_MAX]
