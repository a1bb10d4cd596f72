"""Settings of proxy checks (`[proxies.checks]`), the findings of a check, and the outcomes for the pool.

A proxy that cannot be reached, or cannot reach a judge, cools down as after a failed request. A proxy that alters pages
or is less anonymous than required is dead at once. A proxy that does not serve a site is banned for that site only,
until the next check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from lycosa.core.errors import BadSetting, BadUrl
from lycosa.core.units import DAY_S
from lycosa.core.url import canonicalize
from lycosa.proxies.core.checks.anonymity import Anonymity, canonical_ip
from lycosa.proxies.core.checks.judging import JudgeAddress, parse_judge_address
from lycosa.proxies.core.checks.tampering import CERTIFICATE, PAGE
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.tables import DURATION, Text, Texts, read_table

TIMEOUT_MIN_S, TIMEOUT_MAX_S = 0.1, 300.0
CONCURRENCY_MAX = 1000
SEARCHED_MAX = 1 << 20
"""Bytes of a page that are searched for texts."""

GRAVE = (PAGE, CERTIFICATE)
"""Changes that make a proxy unfit unless they are allowed; other changes are only reported."""

UNFIT = "not fit"


@dataclass(frozen=True, slots=True)
class TargetPage:
    """A page that shows whether a proxy serves a target.

    The response must have one of `statuses`, and contain all texts of `contains` and none of `lacks`.
    """

    target: Annotated[str, Meta(min_length=1, max_length=255)]
    url: Text
    statuses: Annotated[frozenset[Annotated[int, Meta(ge=100, le=599)]], Meta(min_length=1)] = frozenset({200})
    contains: Texts = ()
    lacks: Texts = ()

    def problem(self, status: int, body: bytes) -> str:
        """Return why a response is not this page; "" if it is."""
        if status not in self.statuses:
            return f"answered {status}"
        if any(text.encode() not in body[:SEARCHED_MAX] for text in self.contains):
            return "page lacks a required text"
        if any(text.encode() in body[:SEARCHED_MAX] for text in self.lacks):
            return "page contains a forbidden text"
        return ""


class Checks(Struct, frozen=True, rename={"every_s": "every", "timeout_s": "timeout", "dead_kept_s": "dead_kept"}):
    """How to check proxies. `own_addresses`: our addresses that a proxy must not reveal, besides the one that
    judges see without a proxy. `may_alter`: permitted changes.

    A proxy that has been dead for `dead_kept_s` is forgotten (0: never). `other_kinds`: whether to try other schemes if
    a proxy does not answer to its own.
    """

    judges: Annotated[tuple[JudgeAddress, ...], Meta(max_length=100, description="a list of up to 100 judges")] = ()
    every_s: Annotated[float, Meta(ge=1, le=30 * DAY_S, extra=DURATION)] = 600.0
    timeout_s: Annotated[float, Meta(ge=TIMEOUT_MIN_S, le=TIMEOUT_MAX_S, extra=DURATION)] = 10.0
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = 64
    anonymity: Anonymity = Anonymity.TRANSPARENT
    own_addresses: Texts = ()
    may_alter: frozenset[Text] = frozenset()
    other_kinds: bool = False
    sites: Annotated[tuple[TargetPage, ...], Meta(max_length=100)] = ()
    dead_kept_s: Annotated[float, Meta(ge=0, le=365 * DAY_S, extra=DURATION)] = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of one proxy.

    `protocols`: what the proxy forwards, "http" and "https" (by CONNECT, or through SOCKS); if nothing, `problem` says
    why. `kinds`: other schemes it answers to. `changes`: as in `tampering`. `latency_s`: time to connect to the proxy
    and, if it forwards HTTPS, through it to the judge. `exit_ip`: "" if it changes. `sites`: the problem by target; ""
    for none.
    """

    proxy: Proxy
    protocols: tuple[str, ...] = ()
    latency_s: float | None = None
    anonymity: Anonymity | None = None
    exit_ip: str = ""
    changes: tuple[str, ...] = ()
    sites: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    problem: str = ""

    @property
    def alive(self) -> bool:
        return bool(self.protocols)

    def unfit(self, checks: Checks) -> str:
        """Return why the proxy must not be used although it works; "" if it may be used."""
        altered = [each for each in self.changes if each in GRAVE and each not in checks.may_alter]
        if altered:
            return f"{UNFIT}: alters the {altered[0]}"
        if self.anonymity is not None and not self.anonymity.reaches(checks.anonymity):
            return f"{UNFIT}: {self.anonymity}"
        return ""

    def outcome(self, checks: Checks) -> Outcome:
        if reason := self.unfit(checks):
            return Outcome(Blame.UNFIT, reason, None, self.latency_s)
        if not self.alive:
            return Outcome(Blame.PROXY, self.problem)
        return Outcome(Blame.NONE, "", None, self.latency_s)


def checks_from(values: object, place: str = "proxies.checks") -> Checks:
    """Read the table `[proxies.checks]`. Raises `BadSetting`."""
    checks = read_table(values, Checks, place, parsers={JudgeAddress: parse_judge_address})
    own_addresses = tuple(canonical_ip(each) for each in checks.own_addresses)
    if not all(own_addresses):
        raise BadSetting(f"{place}.own_addresses: write IP addresses")
    for number, page in enumerate(checks.sites, 1):
        try:
            canonicalize(page.url)
        except BadUrl:
            raise BadSetting(f"{place}.sites[{number}].url: this is not a URL: write http:// or https://") from None
    targets = [each.target for each in checks.sites]
    if repeated := [each for each in targets if targets.count(each) > 1]:
        raise BadSetting(f"{place}.sites: two entries for the target {repeated[0][:60]!r}: merge them into one")
    return replace(checks, own_addresses=own_addresses)
