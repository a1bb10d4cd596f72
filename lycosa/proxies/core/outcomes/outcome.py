"""The outcome of one use of a proxy: who is to blame for a failure, and where the proxy has to cool down.

    blame     what happened                                           consequence
    -----     --------------------------------------------------      ---------------------------------------------
    NONE      a page                                                  none: the proxy works, here and everywhere
    NOBODY    404, 5xx, a broken page: a problem of the site          none: the proxy works
    MISS      an error or timeout behind the proxy                    its success rate on this site drops
    SITE      403, 429, a captcha, a user's rule                      the proxy cools down for this site
    PROXY     no connection to the proxy, 407                         the proxy cools down everywhere
    UNFIT     a check found that it alters pages or reveals us        the proxy is dead until a check finds it working

A failure behind a proxy is only a miss: a site that is slow, down, or has a bad certificate must not make its proxies
unusable for other sites. After a few misses in a row, the proxy is banned for this site.

`OutcomeRule` is for sites that use a status in an unusual way, such as 200 for a block page. The first rule that
matches a response decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from lycosa.core.errors import (
    PROXY_LOGIN_REFUSED,
    BadProxy,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    TlsFailed,
)
from lycosa.core.retry import parse_retry_after

SEARCHED_MAX = 65_536
"""Bytes of a body that are searched for captchas and the patterns of rules."""

MEASURED_MAX_S = 60.0
"""Maximum latency that is derived from the duration of a lease."""

RULES_MAX = 100

RuleText = Annotated[str, Meta(min_length=1, max_length=1_000)]

PROXY_LOGIN = 407
LOGIN_STATUSES = frozenset({401, 407})
"""Responses to a CONNECT with a wrong login: 407, from some proxies 401."""

NOT_FOUND, NOT_HTTP = "host not found", "not HTTP"
SITE_STATUSES = frozenset({403, 429})
CAPTCHAS = (
    b"g-recaptcha", b"www.google.com/recaptcha/", b"hcaptcha.com", b"cf-challenge", b"cf_chl_opt", b"cf-turnstile",
    b"captcha-delivery.com", b"px-captcha", b"_incapsula_resource", b"awswafcaptcha", b"arkoselabs.com",
    b"geo.captcha", b"/sorry/index",
)  # fmt: skip
"""Parts of common challenge pages, in lower case. They count only in responses with CHALLENGE_STATUSES, because
ordinary forms contain them, too."""

CHALLENGE_STATUSES = frozenset({401, 403, 405, 429, 503})


class Blame(StrEnum):
    """Who is to blame for a failure."""

    NONE = "none"
    NOBODY = "nobody"
    MISS = "miss"
    SITE = "site"
    PROXY = "proxy"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one use of a proxy.

    `reason`: always the same for the same cause. `rest_s`: the Retry-After in seconds. `latency_s`: the seconds of the
    TCP and TLS handshakes, or a longer time if only that is known (`measured`, `clients.latency_of`).
    """

    blame: Blame = Blame.NONE
    reason: str = ""
    rest_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """Assigns the blame for some responses of a site. All conditions that are set must hold.

    `statuses`: the response has one of them. `body`: a pattern in the first SEARCHED_MAX bytes of the body. `location`:
    a pattern in the response's URL or in the URL it redirects to. `shorter`, `longer`: the body has fewer, or more,
    bytes.
    """

    blame: Blame
    reason: RuleText = "rule"
    statuses: frozenset[Annotated[int, Meta(ge=100, le=599)]] = frozenset()
    body: RuleText = ""
    location: RuleText = ""
    shorter: Annotated[int, Meta(ge=1, le=1 << 40)] | None = None
    longer: Annotated[int, Meta(ge=0, le=1 << 40)] | None = None

    def matches(self, status: int, body: bytes, locations: Sequence[str]) -> bool:
        return (
            (not self.statuses or status in self.statuses)
            and (self.shorter is None or len(body) < self.shorter)
            and (self.longer is None or len(body) > self.longer)
            and (not self.location or any(_pattern(self.location).search(each) for each in locations))
            and (not self.body or _bytes_pattern(self.body).search(body, 0, SEARCHED_MAX) is not None)
        )


def checked_rules(rules: Sequence[OutcomeRule]) -> tuple[OutcomeRule, ...]:
    """Return the rules. Raises `BadProxy` for an invalid pattern, a rule without conditions, or too many rules."""
    if len(rules) > RULES_MAX:
        raise BadProxy(f"{len(rules)} rules for one site: write at most {RULES_MAX}")
    for number, rule in enumerate(rules, 1):
        if not (rule.statuses or rule.body or rule.location or rule.shorter or rule.longer is not None):
            raise BadProxy(f"rule {number} ({rule.reason}) has no condition: write statuses, body, location, …")
        for name, pattern in (("body", rule.body.encode()), ("location", rule.location)):
            try:
                re.compile(pattern)
            except re.error as error:
                raise BadProxy(f"rule {number}: {name} is not a valid pattern: {error}") from None
    return tuple(rules)


def judge(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    locations: Sequence[str] = (),
    rules: Sequence[OutcomeRule] = (),
    now: float = 0.0,
    latency_s: float | None = None,
) -> Outcome:
    """Return the outcome of a response. `headers`: by lower-case name. `locations`: its URL and its redirect target."""
    rest_s = parse_retry_after(headers.get("retry-after", ""), now)
    for rule in rules:
        if rule.matches(status, body, locations):
            return Outcome(rule.blame, rule.reason, rest_s, latency_s)
    blame, reason = _judge_status(status, body)
    # The Retry-After of a 503 is about the site, whichever proxy is used.
    return Outcome(blame, reason, rest_s if blame is Blame.SITE else None, latency_s)


def measured(outcomes: Sequence[Outcome], held_s: float) -> list[Outcome]:
    """Return the outcomes of a lease. If none has a latency, the first NONE or SITE gets the mean time per use.

    `held_s`: the duration of the lease. The mean includes the transfer, so a latency measured by the client is better.
    A mean above MEASURED_MAX_S is ignored: most of it is the client's own work.
    """
    found, time_s = list(outcomes), held_s / max(1, len(outcomes))
    if time_s <= 0 or time_s > MEASURED_MAX_S or any(each.latency_s is not None for each in found):
        return found
    for place, outcome in enumerate(found):
        if outcome.blame is Blame.NONE or outcome.blame is Blame.SITE:  # others may not have reached the proxy
            found[place] = replace(outcome, latency_s=time_s)
            break
    return found


def judge_error(error: FetchError, latency_s: float | None = None) -> Outcome:
    """Return the outcome of a failed transfer. `latency_s` applies unless the error has its own."""
    latency_s = error.latency_s if error.latency_s is not None else latency_s
    return Outcome(_blame_of(error), str(error), None, latency_s)


def _judge_status(status: int, body: bytes) -> tuple[Blame, str]:
    if status == PROXY_LOGIN:
        return Blame.PROXY, f"{PROXY_LOGIN_REFUSED} (407)"
    if status in CHALLENGE_STATUSES and (mark := _captcha(body)):
        return Blame.SITE, f"captcha ({mark})"
    if status in SITE_STATUSES:
        return Blame.SITE, str(status)
    return (Blame.NONE, "") if status < 400 else (Blame.NOBODY, str(status))


def _captcha(body: bytes) -> str:
    start = body[:SEARCHED_MAX].lower()
    return next((mark.decode() for mark in CAPTCHAS if mark in start), "")


def _blame_of(error: FetchError) -> Blame:
    if isinstance(error, FetchTimeout):
        return Blame.MISS if error.reached else Blame.PROXY
    if isinstance(error, ConnectFailed):
        return _blame_of_connect(error)
    if isinstance(error, (ConnectionLost, TlsFailed)) or str(error) == NOT_HTTP:
        return Blame.MISS
    return Blame.NOBODY


def _blame_of_connect(error: ConnectFailed) -> Blame:
    """Return the blame for a failed connection, by the error's message (`http/curl/errors.py`).

    In a response to CONNECT, 5xx means that the proxy could not reach the site, and 403 that it refused to.
    """
    reason = str(error)
    if reason == NOT_FOUND:  # resolved by us, for SOCKS proxies that need an address
        return Blame.NOBODY
    status = re.fullmatch(r"proxy answered (\d{3})", reason)
    if reason == PROXY_LOGIN_REFUSED or (status and int(status[1]) in LOGIN_STATUSES):
        return Blame.PROXY
    return Blame.MISS if status or error.reached else Blame.PROXY


@lru_cache(1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


@lru_cache(1024)
def _bytes_pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.encode())
