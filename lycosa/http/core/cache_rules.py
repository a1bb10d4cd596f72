"""The rules of a private HTTP cache (RFC 9111): what may be kept, what a kept response may do now, and when it goes.

Pure: values in, a decision out; `now` is in unix seconds. Header fields of a request come as a mapping of lower-case
names. Everything that a response says is hostile: what cannot be read counts as not said, or as stale.

    storable        request, response         -> may it be kept, and is that of any use (§3)
    decide          request, what is kept     -> serve it, ask whether it still holds, or fetch (§4); and may it
                                                 stand in when the host fails (§4.2.4, RFC 5861)
    freshened       ... and the host says 304 -> what is kept from now on (§4.3.4)
    invalidated     an unsafe request         -> the URLs whose responses go (§4.4)

`ReplayRules` are for development: everything is kept and served again, whatever it says of itself.
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
from lycosa.core.url import host_key, join
from lycosa.http.core.model import Response

HEURISTIC = 0.1
"""The part of its age since Last-Modified that a response stays fresh when it does not say (§4.2.2)."""

HEURISTIC_MAX_S = 86_400.0
"""At most so long, and so long for permanent redirects that do not say."""

SECONDS_MAX = 2**31
"""What a larger number of seconds counts as (§1.2.2)."""

DIRECTIVES_MAX_CHARS = 4096
"""Characters of Cache-Control that are read."""

MEMBER = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+\\?"?)+', re.DOTALL)
"""A member of a list; a comma within quotes does not end it."""

ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,1000}"')
"""An entity tag, strong or weak (RFC 9110 §8.8.3), in ASCII and of a bounded length."""

CONDITIONS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"})
"""Whoever sets one of these asks something of his own, which a cache cannot answer."""

UNDERSTOOD = frozenset(
    {200, 203, 204, 300, 301, 302, 303, 305, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410}
    | {411, 413, 414, 415, 421, 422, 426, 500, 501, 502, 503, 504, 505}
)
"""Final statuses whose caching requirements are kept here, for `must-understand` (§5.2.2.3)."""

PARTIAL = frozenset({206, 304, 412, 416})
"""Answers to a condition or a range that a request asked for: they are no whole response, and never kept."""

HEURISTIC_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
"""Cacheable unless told otherwise (RFC 9110 §15.1)."""

PERMANENT = frozenset({301, 308})
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
FAILED = frozenset({500, 502, 503, 504})
"""An answer of these to the question whether a kept response still holds is no answer (RFC 5861 §4)."""

NOT_KEPT = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization"}
    | {"proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Fields of one connection (§3.1); and a cookie is set by the response that brings it, not by each repetition."""

OF_THE_BODY = frozenset({"content-encoding", "content-length", "content-md5", "content-range", "content-type"})
"""Fields that a 304 does not change: they describe the body that is kept (§3.2)."""


class StoredResponse(msgspec.Struct, array_like=True, frozen=True):
    """A response as a cache keeps it: its body decompressed, its header fields in order, with lower-case names.

    `requested_at` and `received_at` (unix seconds) are when the request was sent, and when this was received or last
    confirmed by a 304. `vary` holds what the request said in the fields that the response names in Vary. Fields are
    only ever appended.
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


class Action(Enum):
    """SERVE: as it is, without asking the host. REVALIDATE: ask with the conditions. FETCH: as if there were none.

    NOT_CACHED: no other answer than a kept one is wanted (`only-if-cached`, `ignore_missing`), and there is none.
    """

    SERVE = "serve"
    REVALIDATE = "revalidate"
    FETCH = "fetch"
    NOT_CACHED = "not cached"


class Decision(NamedTuple):
    """What to do, the header fields that make the request conditional, and whether the stored response may be served
    when the host fails."""

    action: Action
    conditions: Mapping[str, str] = {}
    stand_in: bool = False


class Asked(NamedTuple):
    """What a cache looks at of a request. The names of `fields` are lower-case."""

    method: str
    url: str
    fields: Mapping[str, str] = {}


class ReplayRules(NamedTuple):
    """Keep everything, serve it until it is older than `expiration_s` (0: for ever). As Scrapy's DummyPolicy.

    Responses with `ignore_http_codes` are not kept: by default those that are tried again. With `ignore_missing`
    nothing is fetched.
    """

    expiration_s: float = 0.0
    ignore_http_codes: frozenset[int] = RETRY_STATUSES
    ignore_schemes: frozenset[str] = frozenset({"file"})
    ignore_missing: bool = False

    def concerns(self, asked: Asked) -> bool:
        """True when the cache has anything to do with such a request."""
        return _scheme(asked.url) not in self.ignore_schemes

    def storable(self, asked: Asked, response: Response, received_at: float) -> bool:
        """True when the response is to be kept. A 304 is none without the one that it is about."""
        whole = not response.skipped and not response.partial
        return response.status not in self.ignore_http_codes and response.status != 304 and whole

    def decide(self, asked: Asked, stored: StoredResponse | None, now: float) -> Decision:
        """Say what the stored response may do now."""
        if stored is None or (self.expiration_s and now - stored.received_at > self.expiration_s):
            return Decision(Action.NOT_CACHED if self.ignore_missing else Action.FETCH)
        return Decision(Action.SERVE)


class PrivateRules(NamedTuple):
    """Keep what RFC 9111 lets a cache of one user keep, and serve it as long as it allows.

    `always_store` keeps also what is stale at once and cannot be asked for; `no-store` still counts.
    `ignore_directives` of Cache-Control are not read in responses. With `ignore_missing` nothing is fetched of which no
    response is kept; one that is stale is asked about.
    """

    always_store: bool = False
    ignore_directives: frozenset[str] = frozenset()
    ignore_schemes: frozenset[str] = frozenset({"file"})
    ignore_missing: bool = False

    def concerns(self, asked: Asked) -> bool:
        """True when the cache has anything to do with such a request."""
        if asked.method not in {"GET", "HEAD"} or _scheme(asked.url) in self.ignore_schemes:
            return False
        return "no-store" not in _asked_directives(asked)

    def storable(self, asked: Asked, response: Response, received_at: float) -> bool:
        """True when the response may be kept (§3), and can be served again or asked about."""
        headers = response.headers
        said = self.directives(headers)
        understood = "must-understand" in said and response.status in UNDERSTOOD
        if (
            response.skipped
            or response.partial
            or asked.method not in {"GET", "HEAD"}
            or response.status < 200
            or response.status in PARTIAL
        ):
            return False
        if ("no-store" in said or "must-understand" in said) and not understood:
            return False
        if "no-store" in _asked_directives(asked) or "*" in _members(headers.getlist("vary")):
            return False
        if self.always_store:
            return True
        told = "max-age" in said or "expires" in headers or "public" in said or "private" in said
        useful = bool(conditions_of(headers)) or lifetime_s(response.status, headers, said, received_at) > 0
        return useful and (told or response.status in HEURISTIC_STATUSES)

    def decide(self, asked: Asked, stored: StoredResponse | None, now: float) -> Decision:
        """Say what the stored response may do now (§4)."""
        wanted = _asked_directives(asked)
        if stored is not None and CONDITIONS.isdisjoint(asked.fields) and selected(stored, asked):
            headers = Headers.of(stored.headers)
            said = self.directives(headers)
            age = age_s(stored, headers, now)
            stale_s = age - lifetime_s(stored.status, headers, said, stored.received_at)
            if _may_serve(said, wanted, age, stale_s):
                return Decision(Action.SERVE)
            if "only-if-cached" not in wanted:
                conditions = conditions_of(headers)
                action = Action.REVALIDATE if conditions else Action.FETCH
                return Decision(action, conditions, _good_on_error(said, wanted, stale_s))
        return Decision(Action.NOT_CACHED if self.ignore_missing or "only-if-cached" in wanted else Action.FETCH)

    def directives(self, headers: Headers) -> dict[str, str]:
        """Return what a response says in Cache-Control, without what is not to be read."""
        said = directives(headers.getlist("cache-control"))
        return {name: said[name] for name in said if name not in self.ignore_directives} if said else said


Rules = PrivateRules | ReplayRules


def key_of(asked: Asked, body: bytes = b"", jar: str = "") -> str:
    """Return what a response is kept under. Requests of several users (`jar`, Authorization) never share one."""
    parts = (asked.method, asked.url, jar, asked.fields.get("authorization", ""))
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass") + b"\0" + body, digest_size=16).hexdigest()


def stored_of(asked: Asked, response: Response, received_at: float) -> StoredResponse:
    """Return the response as it is kept."""
    return StoredResponse(
        response.url,
        response.status,
        _kept(response.headers),
        response.body,
        received_at - max(0.0, response.timings.total_s),
        received_at,
        {name: asked.fields.get(name, "") for name in _members(response.headers.getlist("vary"))},
        response.ip,
        response.http_version,
    )


def served(stored: StoredResponse, now: float) -> Headers:
    """Return the header fields to serve it with: those that are kept, and how old it is (§5.1)."""
    age = ("age", str(int(age_s(stored, Headers.of(stored.headers), now))))
    return Headers.of([*(field for field in stored.headers if field[0] != "age"), age])


def selected(stored: StoredResponse, asked: Asked) -> bool:
    """True when the request says the same in the fields that Vary names (§4.1), white space aside."""
    return all(_plain(asked.fields.get(name, "")) == _plain(value) for name, value in stored.vary.items())


def conditions_of(headers: Headers) -> dict[str, str]:
    """Return the fields that ask whether a response still holds (§4.3.1); {} when it cannot be asked about."""
    etag, modified = headers.get("etag"), headers.get("last-modified")
    conditions = {"If-None-Match": etag} if ETAG.fullmatch(etag) else {}
    return {**conditions, "If-Modified-Since": modified} if HTTP_DATE.fullmatch(modified) else conditions


def freshened(stored: StoredResponse, response: Response, received_at: float) -> StoredResponse:
    """Return what is kept after a 304 (§4.3.4): its fields take the place of the old ones.

    One that names another entity is about another response: what is kept stays as it is.
    """
    old, new = dict(stored.headers).get("etag", ""), response.headers.get("etag")
    if new and old and new.removeprefix("W/") != old.removeprefix("W/"):
        return stored
    fields = [field for field in _kept(response.headers) if field[0] not in OF_THE_BODY]
    names = {name for name, _ in fields} | {"age"}  # an Age that the 304 does not repeat was that of the old one
    return msgspec.structs.replace(
        stored,
        headers=[*(field for field in stored.headers if field[0] not in names), *fields],
        requested_at=received_at - max(0.0, response.timings.total_s),
        received_at=received_at,
    )


def invalidated(asked: Asked, response: Response) -> list[str]:
    """Return the URLs whose kept responses an unsafe request has made wrong (§4.4); [] when it failed."""
    if asked.method in SAFE or not 200 <= response.status < 400:
        return []
    named = (join(asked.url, response.headers.get(name)) for name in ("location", "content-location"))
    host = host_key(asked.url)
    return list(dict.fromkeys([asked.url, *(url for url in named if url and host_key(url) == host)]))


def directives(values: Iterable[str]) -> dict[str, str]:
    """Parse Cache-Control (§5.2): lower-case names, "" for no argument. Of two that differ the first counts."""
    found: dict[str, str] = {}
    for member in MEMBER.findall(",".join(values)[:DIRECTIVES_MAX_CHARS]):
        name, _, value = member.partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    return found


def lifetime_s(status: int, headers: Headers, said: Mapping[str, str], received_at: float) -> float:
    """Return for how long a response is fresh (§4.2.1). `s-maxage` is for shared caches, and not read."""
    if "max-age" in said:
        return float(_seconds(said["max-age"]))
    date = http_date(headers.get("date"), received_at)
    since = received_at if date is None else date
    expires = headers.getlist("expires")
    if expires:
        until = http_date(expires[0], received_at) if len(expires) == 1 else None
        return 0.0 if until is None else max(0.0, until - since)
    if status not in HEURISTIC_STATUSES and "public" not in said:
        return 0.0
    modified = http_date(headers.get("last-modified"), received_at)
    if modified is None:
        return HEURISTIC_MAX_S if status in PERMANENT else 0.0
    return min(HEURISTIC_MAX_S, max(0.0, since - modified) * HEURISTIC)


def age_s(stored: StoredResponse, headers: Headers, now: float) -> float:
    """Return how old a response is (§4.2.3)."""
    date = http_date(headers.get("date"), stored.received_at)
    apparent_s = 0.0 if date is None else max(0.0, stored.received_at - date)
    told = ",".join(headers.getlist("age")).partition(",")[0].strip()
    told_s = _seconds(told) if told.isascii() and told.isdigit() else 0
    delay_s = max(0.0, stored.received_at - stored.requested_at)
    return max(apparent_s, told_s + delay_s) + max(0.0, now - stored.received_at)


def _may_serve(said: Mapping[str, str], wanted: Mapping[str, str], age: float, stale_s: float) -> bool:
    """Tell by what both sides say; `stale_s` is for how long it has been stale, negative while it is fresh."""
    if "no-cache" in said or "no-cache" in wanted:
        return False
    if "max-age" in wanted and age > _seconds(wanted["max-age"]):
        return False
    if stale_s < 0:
        return "min-fresh" not in wanted or -stale_s >= _seconds(wanted["min-fresh"])
    if "must-revalidate" in said or "min-fresh" in wanted:
        return False
    if "max-stale" in wanted and (not wanted["max-stale"] or stale_s <= _seconds(wanted["max-stale"])):
        return True
    return "stale-while-revalidate" in said and stale_s <= _seconds(said["stale-while-revalidate"])


def _good_on_error(said: Mapping[str, str], wanted: Mapping[str, str], stale_s: float) -> bool:
    """`stale-if-error` of either side bounds for how long; without it that is allowed unless it is forbidden."""
    if "must-revalidate" in said or "no-cache" in said or "no-cache" in wanted:
        return False
    bound = wanted.get("stale-if-error", said.get("stale-if-error"))
    return bound is None or stale_s <= _seconds(bound)


def _asked_directives(asked: Asked) -> dict[str, str]:
    fields = asked.fields
    if "cache-control" in fields:
        return directives([fields["cache-control"]])
    return {"no-cache": ""} if "no-cache" in fields.get("pragma", "").lower() else {}


def _kept(headers: Headers) -> list[tuple[str, str]]:
    left_out = NOT_KEPT.union(_members(headers.getlist("connection")))
    return [field for field in headers.items() if field[0] not in left_out]


def _members(values: Iterable[str]) -> list[str]:
    """Return the members of a list field in lower case."""
    return [name for value in values for each in value.split(",") if (name := each.strip().lower())]


def _plain(value: str) -> str:
    return ",".join(" ".join(each.split()) for each in value.split(","))


def _seconds(text: str) -> int:
    """Return delta-seconds (§1.2.2): nonsense is 0, so that it counts as stale."""
    if not text.isascii() or not text.isdigit():
        return 0
    return min(int(text), SECONDS_MAX) if len(text.lstrip("0")) < 11 else SECONDS_MAX


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()
