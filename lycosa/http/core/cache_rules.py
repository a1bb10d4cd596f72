"""The rules of a private HTTP cache (RFC 9111): what may be stored, how a stored response may be used, when it expires.

Times are unix seconds. Header fields of a request are a mapping of lower-case names. Responses are hostile input: an
invalid field counts as missing, or makes the response stale.

    storable             request, response         -> whether it may be stored (§3) and could be served later
    decide               request, stored response  -> serve it, revalidate it, or fetch (§4); and whether it may be
                                                      served if the host fails (§4.2.4, RFC 5861)
    freshen              stored response, 304      -> the response to store instead (§4.3.4)
    urls_to_invalidate   unsafe request, response  -> the URLs whose stored responses must be deleted (§4.4)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from lycosa.core.dates import HTTP_DATE, http_date
from lycosa.core.headers import Headers
from lycosa.core.retry import RETRY_STATUSES
from lycosa.core.units import DAY_S
from lycosa.core.url import host_key, join
from lycosa.http.core.model import HttpResponse

HEURISTIC = 0.1
"""The fraction of the time since Last-Modified for which a response without a lifetime is fresh (§4.2.2)."""

HEURISTIC_MAX_S = DAY_S
"""Maximum heuristic lifetime, and the lifetime of a permanent redirect with neither a lifetime nor Last-Modified."""

SECONDS_MAX = 2**31
"""Larger numbers of seconds are reduced to this (§1.2.2)."""

DIRECTIVES_MAX_CHARS = 4096

MEMBER = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+\\?"?)+', re.DOTALL)
"""A member of a comma-separated list. A comma in quotes does not end the member."""

ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,1000}"')
"""An entity tag, strong or weak (RFC 9110 §8.8.3), of at most 1000 ASCII characters between the quotes."""

CONDITIONS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"})
"""The cache does not answer requests with these fields: such requests are already conditional, or ask for a range."""

UNDERSTOOD = frozenset(
    {200, 203, 204, 300, 301, 302, 303, 305, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410}
    | {411, 413, 414, 415, 421, 422, 426, 500, 501, 502, 503, 504, 505}
)
"""Final statuses whose caching requirements are implemented here, for `must-understand` (§5.2.2.3)."""

PARTIAL = frozenset({206, 304, 412, 416})
"""Statuses of responses to conditional and range requests. `PrivateRules` never stores such incomplete responses."""

HEURISTIC_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
"""Statuses that are heuristically cacheable (RFC 9110 §15.1), except 206."""

PERMANENT = frozenset({301, 308})
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
FAILED = frozenset({500, 502, 503, 504})
"""Statuses that count as a failed revalidation (RFC 5861 §4)."""

NOT_STORED = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization"}
    | {"proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Fields that are not stored: those of one connection (§3.1), and Set-Cookie, which must act only once."""

BODY_FIELDS = frozenset({"content-encoding", "content-length", "content-md5", "content-range", "content-type"})
"""Fields that a 304 does not update: they describe the stored body (§3.2)."""


class StoredResponse(msgspec.Struct, array_like=True, frozen=True):
    """A response as a cache stores it: the body decompressed, the header fields in order, with lower-case names.

    `requested_at` and `received_at` (unix seconds) are the times of the request and of the response; a 304 updates
    both. `vary` holds the request's values of the fields that Vary names. New struct fields may only be appended.
    """

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    requested_at: float
    received_at: float
    vary: dict[str, str] = {}
    ip: str = ""
    http_version: str = ""


class CacheAction(Enum):
    """SERVE the stored response; REVALIDATE it with a conditional request; FETCH, ignoring the cache.

    NOT_CACHED: no usable response is stored, and fetching is not allowed (`only-if-cached`, `ignore_missing`).
    """

    SERVE = "serve"
    REVALIDATE = "revalidate"
    FETCH = "fetch"
    NOT_CACHED = "not cached"


class CacheDecision(NamedTuple):
    """How to answer a request. `conditions` are the fields that make the request conditional.

    `serve_on_error`: whether the stored response may be served if the host fails.
    """

    action: CacheAction
    conditions: Mapping[str, str] = {}
    serve_on_error: bool = False


class CacheQuery(NamedTuple):
    """The parts of a request that matter to a cache. The names of `fields` are lower-case."""

    method: str
    url: str
    fields: Mapping[str, str] = {}


class ReplayRules(NamedTuple):
    """Store everything, and serve it until it is older than `expiration_s` (0: forever). Like Scrapy's DummyPolicy.

    Header fields are ignored. Responses with a status in `ignore_http_codes` (by default those that are retried) are
    not stored. With `ignore_missing` nothing is fetched.
    """

    expiration_s: float = 0.0
    ignore_http_codes: frozenset[int] = RETRY_STATUSES
    ignore_missing: bool = False

    def applies_to(self, query: CacheQuery) -> bool:
        return True

    def storable(self, query: CacheQuery, response: HttpResponse, received_at: float) -> bool:
        """Whether to store the response. A 304 is incomplete without the response that it confirms."""
        complete = not response.skipped and not response.partial
        return response.status not in self.ignore_http_codes and response.status != 304 and complete

    def decide(self, query: CacheQuery, stored: StoredResponse | None, now: float) -> CacheDecision:
        if stored is None or (self.expiration_s and now - stored.received_at > self.expiration_s):
            return CacheDecision(CacheAction.NOT_CACHED if self.ignore_missing else CacheAction.FETCH)
        return CacheDecision(CacheAction.SERVE)


class PrivateRules(NamedTuple):
    """Store and serve responses as RFC 9111 allows for a private cache.

    With `ignore_missing` stale responses are revalidated or fetched again, but nothing else is fetched.
    """

    ignore_missing: bool = False

    def applies_to(self, query: CacheQuery) -> bool:
        return query.method in {"GET", "HEAD"} and "no-store" not in _request_directives(query)

    def storable(self, query: CacheQuery, response: HttpResponse, received_at: float) -> bool:
        headers = response.headers
        response_cc = directives(headers.getlist("cache-control"))
        # must-understand overrides no-store for caches that implement the status (§5.2.2.3).
        understood = "must-understand" in response_cc and response.status in UNDERSTOOD
        if response.skipped or response.partial or query.method not in {"GET", "HEAD"}:
            return False
        if response.status < 200 or response.status in PARTIAL:
            return False
        if ("no-store" in response_cc or "must-understand" in response_cc) and not understood:
            return False
        if "no-store" in _request_directives(query) or "*" in _members(headers.getlist("vary")):
            return False
        explicit = "expires" in headers or not {"max-age", "public", "private"}.isdisjoint(response_cc)
        # A response that is never fresh and cannot be revalidated would never be served.
        useful = bool(conditions_of(headers)) or lifetime_s(response.status, headers, response_cc, received_at) > 0
        return useful and (explicit or response.status in HEURISTIC_STATUSES)

    def decide(self, query: CacheQuery, stored: StoredResponse | None, now: float) -> CacheDecision:
        request_cc = _request_directives(query)
        if stored is not None and CONDITIONS.isdisjoint(query.fields) and matches_vary(stored, query):
            headers = Headers.of(stored.headers)
            response_cc = directives(headers.getlist("cache-control"))
            age = age_s(stored, headers, now)
            stale_s = age - lifetime_s(stored.status, headers, response_cc, stored.received_at)
            if _may_serve(response_cc, request_cc, age, stale_s):
                return CacheDecision(CacheAction.SERVE)
            if "only-if-cached" not in request_cc:
                conditions = conditions_of(headers)
                action = CacheAction.REVALIDATE if conditions else CacheAction.FETCH
                return CacheDecision(action, conditions, _may_serve_on_error(response_cc, request_cc, stale_s))
        not_cached = self.ignore_missing or "only-if-cached" in request_cc
        return CacheDecision(CacheAction.NOT_CACHED if not_cached else CacheAction.FETCH)


Rules = PrivateRules | ReplayRules


def cache_key(query: CacheQuery, body: bytes = b"", jar: str = "") -> str:
    """Return the key under which the response is stored. Different users (`jar`, Authorization) never share a key."""
    parts = (query.method, query.url, jar, query.fields.get("authorization", ""))
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass") + b"\0" + body, digest_size=16).hexdigest()


def to_stored(query: CacheQuery, response: HttpResponse, received_at: float) -> StoredResponse:
    """Convert a response to the form in which it is stored."""
    return StoredResponse(
        response.url,
        response.status,
        _stored_fields(response.headers),
        response.body,
        received_at - max(0.0, response.timings.total_s),
        received_at,
        {name: query.fields.get(name, "") for name in _members(response.headers.getlist("vary"))},
        response.ip,
        response.http_version,
    )


def headers_to_serve(stored: StoredResponse, now: float) -> Headers:
    """Return the stored fields with the current Age (§5.1)."""
    age = ("age", str(int(age_s(stored, Headers.of(stored.headers), now))))
    return Headers.of([*(field for field in stored.headers if field[0] != "age"), age])


def matches_vary(stored: StoredResponse, query: CacheQuery) -> bool:
    """Whether the fields that Vary names have the same values, except for white space (§4.1)."""
    return all(_collapse(query.fields.get(name, "")) == _collapse(value) for name, value in stored.vary.items())


def conditions_of(headers: Headers) -> dict[str, str]:
    """Return the request fields that revalidate a response (§4.3.1), or {}."""
    etag, modified = headers.get("etag"), headers.get("last-modified")
    conditions = {"If-None-Match": etag} if ETAG.fullmatch(etag) else {}
    return {**conditions, "If-Modified-Since": modified} if HTTP_DATE.fullmatch(modified) else conditions


def freshen(stored: StoredResponse, response: HttpResponse, received_at: float) -> StoredResponse:
    """Return the response to store after a 304 (§4.3.4): the fields of the 304 replace the old ones.

    A 304 with a different entity tag refers to another response, so the stored one is returned unchanged.
    """
    old, new = dict(stored.headers).get("etag", ""), response.headers.get("etag")
    if new and old and new.removeprefix("W/") != old.removeprefix("W/"):
        return stored
    fields = [field for field in _stored_fields(response.headers) if field[0] not in BODY_FIELDS]
    names = {name for name, _ in fields} | {"age"}  # the old Age is outdated, even if the 304 has none
    return msgspec.structs.replace(
        stored,
        headers=[*(field for field in stored.headers if field[0] not in names), *fields],
        requested_at=received_at - max(0.0, response.timings.total_s),
        received_at=received_at,
    )


def urls_to_invalidate(query: CacheQuery, response: HttpResponse) -> list[str]:
    """Return the URLs whose stored responses an unsafe request invalidates (§4.4); [] if the request failed."""
    if query.method in SAFE or not 200 <= response.status < 400:
        return []
    named = (join(query.url, response.headers.get(name)) for name in ("location", "content-location"))
    host = host_key(query.url)  # a host must not invalidate the responses of other hosts
    return list(dict.fromkeys([query.url, *(url for url in named if url and host_key(url) == host)]))


def directives(values: Iterable[str]) -> dict[str, str]:
    """Parse Cache-Control (§5.2) into lower-case names and arguments ("" if none). The first of equal names counts."""
    found: dict[str, str] = {}
    for member in MEMBER.findall(",".join(values)[:DIRECTIVES_MAX_CHARS]):
        name, _, value = member.partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found


def lifetime_s(status: int, headers: Headers, response_cc: Mapping[str, str], received_at: float) -> float:
    """Return how many seconds a response is fresh (§4.2.1). `s-maxage` is for shared caches, so it is ignored."""
    if "max-age" in response_cc:
        return float(_seconds(response_cc["max-age"]))
    date = http_date(headers.get("date"), received_at)
    since = received_at if date is None else date
    expires = headers.getlist("expires")
    if expires:  # two Expires, or an invalid one, mean that the response is stale (§5.3)
        until = http_date(expires[0], received_at) if len(expires) == 1 else None
        return 0.0 if until is None else max(0.0, until - since)
    if status not in HEURISTIC_STATUSES and "public" not in response_cc:
        return 0.0
    modified = http_date(headers.get("last-modified"), received_at)
    if modified is None:
        return HEURISTIC_MAX_S if status in PERMANENT else 0.0
    return min(HEURISTIC_MAX_S, max(0.0, since - modified) * HEURISTIC)


def age_s(stored: StoredResponse, headers: Headers, now: float) -> float:
    """Return the age of a response in seconds (§4.2.3)."""
    date = http_date(headers.get("date"), stored.received_at)
    apparent_s = 0.0 if date is None else max(0.0, stored.received_at - date)
    upstream_s = _seconds(",".join(headers.getlist("age")).partition(",")[0].strip())
    delay_s = max(0.0, stored.received_at - stored.requested_at)
    return max(apparent_s, upstream_s + delay_s) + max(0.0, now - stored.received_at)


def _may_serve(response_cc: Mapping[str, str], request_cc: Mapping[str, str], age: float, stale_s: float) -> bool:
    """Whether the directives of both sides allow serving the response. `stale_s` is negative while it is fresh."""
    if "no-cache" in response_cc or "no-cache" in request_cc:
        return False
    if "max-age" in request_cc and age > _seconds(request_cc["max-age"]):
        return False
    if stale_s < 0:
        return "min-fresh" not in request_cc or -stale_s >= _seconds(request_cc["min-fresh"])
    if "must-revalidate" in response_cc or "min-fresh" in request_cc:
        return False
    if "max-stale" in request_cc and (not request_cc["max-stale"] or stale_s <= _seconds(request_cc["max-stale"])):
        return True
    return "stale-while-revalidate" in response_cc and stale_s <= _seconds(response_cc["stale-while-revalidate"])


def _may_serve_on_error(response_cc: Mapping[str, str], request_cc: Mapping[str, str], stale_s: float) -> bool:
    """Whether the stored response may be served if the host fails.

    `stale-if-error` limits how long the response may have been stale; without this directive there is no limit. The
    directive of the request overrides that of the response (RFC 5861 §4).
    """
    if "must-revalidate" in response_cc or "no-cache" in response_cc or "no-cache" in request_cc:
        return False
    bound = request_cc.get("stale-if-error", response_cc.get("stale-if-error"))
    return bound is None or stale_s <= _seconds(bound)


def _request_directives(query: CacheQuery) -> dict[str, str]:
    fields = query.fields
    if "cache-control" in fields:
        return directives([fields["cache-control"]])
    return {"no-cache": ""} if "no-cache" in fields.get("pragma", "").lower() else {}


def _stored_fields(headers: Headers) -> list[tuple[str, str]]:
    left_out = NOT_STORED.union(_members(headers.getlist("connection")))
    return [field for field in headers.items() if field[0] not in left_out]


def _members(values: Iterable[str]) -> list[str]:
    return [name for value in values for each in value.split(",") if (name := each.strip().lower())]


def _collapse(value: str) -> str:
    return ",".join(" ".join(each.split()) for each in value.split(","))


def _seconds(text: str) -> int:
    """Return delta-seconds (§1.2.2); 0 for invalid text, so that the response counts as stale."""
    if not text.isascii() or not text.isdigit():
        return 0
    return min(int(text), SECONDS_MAX) if len(text.lstrip("0")) < 11 else SECONDS_MAX
