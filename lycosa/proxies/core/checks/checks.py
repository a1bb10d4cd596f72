"""What a check asks of a proxy, what it has found, and what that means for a pool. `[proxies.checks]` says the first.

A proxy that cannot be reached, or reaches no judge, rests like one that failed at work. One that is not fit, as it
alters pages or shows more of us than may be, is dead at once: whatever it does, its answers are not wanted. Sites that
it does not serve are their own affair: it is banned there until the next check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lycosa.core.errors import BadSetting, BadUrl
from lycosa.core.url import canonicalize
from lycosa.proxies.core.checks.anonymity import Anonymity, canonical
from lycosa.proxies.core.checks.judging import JudgeAddress, read_address
from lycosa.proxies.core.checks.tampering import CERTIFICATE, PAGE
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.tables import Table

EVERY_S, EVERY_MIN_S, EVERY_MAX_S = 600.0, 1.0, 30 * 86_400.0
TIMEOUT_S, TIMEOUT_MIN_S, TIMEOUT_MAX_S = 10.0, 0.1, 300.0
CONCURRENCY, CONCURRENCY_MAX = 64, 1000
DEAD_KEPT_S, DEAD_KEPT_MAX_S = 7 * 86_400.0, 365 * 86_400.0
"""A proxy is forgotten when it is dead for so long; 0: never."""

JUDGES_MAX = 100
SITES_MAX = 100
LOOKED_AT = 1 << 20
"""Bytes of a page of a site in which texts are looked for."""

GRAVE = (PAGE, CERTIFICATE)
"""Changes that make a proxy unfit unless they are allowed; others are told only."""

UNFIT = "not fit"
KEYS = (
    "judges", "every", "timeout", "concurrency", "anonymity", "own_addresses", "may_alter", "other_kinds", "sites",
    "dead_kept",
)  # fmt: skip
SITE_KEYS = ("target", "url", "statuses", "contains", "lacks")


@dataclass(frozen=True, slots=True)
class Site:
    """A page by which a proxy is known to serve a target.

    It comes with one of `statuses`, with all texts of `contains` in it, and none of `lacks`.
    """

    target: str
    url: str
    statuses: frozenset[int] = frozenset({200})
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def problem(self, status: int, body: bytes) -> str:
        """Return why an answer is not that page, "" when it is."""
        if status not in self.statuses:
            return f"answered {status}"
        if any(text.encode() not in body[:LOOKED_AT] for text in self.contains):
            return "page without what must be in it"
        if any(text.encode() in body[:LOOKED_AT] for text in self.lacks):
            return "page with what must not be in it"
        return ""


@dataclass(frozen=True, slots=True)
class Checks:
    """How to check. `own` are addresses of ours that no judge sees; `may_alter` are changes that are put up with.

    `dead_kept_s`: a proxy that is dead for so long is forgotten, 0: none is.
    `other_kinds`: what answers in no way as the kind of proxy it is said to be is tried as the others.
    """

    judges: tuple[JudgeAddress, ...] = ()
    every_s: float = EVERY_S
    timeout_s: float = TIMEOUT_S
    concurrency: int = CONCURRENCY
    least: Anonymity = Anonymity.TRANSPARENT
    own: tuple[str, ...] = ()
    may_alter: frozenset[str] = frozenset()
    other_kinds: bool = False
    sites: tuple[Site, ...] = ()
    dead_kept_s: float = DEAD_KEPT_S


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found of one proxy.

    `protocols` are what it carries: "http", and "https" (by CONNECT, or through SOCKS); none: it is of no use, and
    `problem` says why. `kinds` are the schemes as which it answers, where others were tried. `changes` are those of
    `tampering`. `latency_s` is TCP and TLS connect to the proxy. `exit_ip` "" when it changes. `sites` has a problem
    for each target, "" for none.
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
        """Whether it carries anything."""
        return bool(self.protocols)

    def unfit(self, checks: Checks) -> str:
        """Return why it must not be used though it may work, "" for nothing."""
        altered = [each for each in self.changes if each in GRAVE and each not in checks.may_alter]
        if altered:
            return f"{UNFIT}: alters the {altered[0]}"
        if self.anonymity is not None and not self.anonymity.reaches(checks.least):
            return f"{UNFIT}: {self.anonymity}"
        return ""

    def outcome(self, checks: Checks) -> Outcome:
        """Return what the pool is to hear."""
        if reason := self.unfit(checks):
            return Outcome(Blame.UNFIT, reason, None, self.latency_s)
        if not self.alive:
            return Outcome(Blame.PROXY, self.problem)
        return Outcome(Blame.NONE, "", None, self.latency_s)


def checks_from(values: object, place: str = "proxies.checks") -> Checks:
    """Return what `[proxies.checks]` says. Raises `BadSetting`."""
    table = Table(place, values, KEYS)
    judges = table.texts("judges")
    if len(judges) > JUDGES_MAX:
        raise table.wrong("judges", f"write at most {JUDGES_MAX}")
    return Checks(
        tuple(read_address(each) for each in judges),
        table.seconds("every", EVERY_S, EVERY_MIN_S, EVERY_MAX_S),
        table.seconds("timeout", TIMEOUT_S, TIMEOUT_MIN_S, TIMEOUT_MAX_S),
        table.whole("concurrency", CONCURRENCY, 1, CONCURRENCY_MAX),
        Anonymity(table.one_of("anonymity", Anonymity.TRANSPARENT, [str(each) for each in Anonymity])),
        _addresses(table),
        frozenset(table.texts("may_alter")),
        table.yes("other_kinds", default=False),
        _sites(table),
        table.seconds("dead_kept", DEAD_KEPT_S, 0, DEAD_KEPT_MAX_S),
    )


def _addresses(table: Table) -> tuple[str, ...]:
    found = tuple(canonical(each) for each in table.texts("own_addresses"))
    if not all(found):
        raise table.wrong("own_addresses", "write IP addresses")
    return found


def _sites(table: Table) -> tuple[Site, ...]:
    entries = table.entries("sites")
    if len(entries) > SITES_MAX:
        raise table.wrong("sites", f"write at most {SITES_MAX}")
    sites = tuple(_site(entry, f"{table.place}.sites, number {number}") for number, entry in enumerate(entries, 1))
    targets = [each.target for each in sites]
    twice = next((each for each in targets if targets.count(each) > 1), None)
    if twice is not None:
        raise BadSetting(f"{table.place}.sites: two for the target {twice[:60]!r}: put all texts into one")
    return sites


def _site(entry: object, place: str) -> Site:
    table = Table(place, entry, SITE_KEYS)
    target, url = table.text("target"), table.text("url")
    if not target:
        raise table.wrong("target", "is missing: write the target of the pool that this page stands for")
    try:
        canonicalize(url)
    except BadUrl:
        raise table.wrong("url", "is not a URL: write http:// or https://") from None
    statuses = table.entries("statuses") if "statuses" in table else [200]
    if not statuses or not all(isinstance(each, int) and re.fullmatch(r"[1-5]\d\d", str(each)) for each in statuses):
        raise table.wrong("statuses", "write statuses, [200]")
    return Site(
        target,
        url,
        frozenset(each for each in statuses if isinstance(each, int)),
        table.texts("contains"),
        table.texts("lacks"),
    )
