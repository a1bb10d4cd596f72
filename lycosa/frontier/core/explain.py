"""Explains in plain words why a URL is not fetched, or when it will be fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from lycosa.core.url import host_key
from lycosa.frontier.core.model import AddressView, HostFacts, HostView, Row, SegmentState, SegmentView
from lycosa.frontier.core.scope import Scope
from lycosa.frontier.core.states import ROBOTS_TTL_S, State
from lycosa.http.core.robots import forbidding_rule, robots_from_response

FormatTime = Callable[[float], str]

REASONS = {
    "404": "the host answered that the page does not exist (404)",
    "410": "the host answered that the page is gone for good (410)",
    "unchanged": "the host answered that the page has not changed (304)",
    "scope": "it is out of the scope of the crawl",
    "depth": "it is deeper than the crawl may go",
    "deny": "a --deny glob matches it",
    "allow": "no --allow glob matches it",
    "robots": "robots.txt forbids it",
}
INSIDE = {
    "host": "on the host of a start URL",
    "domain": "in the domain of a start URL or below it",
    "prefix": "in the folder of a start URL",
    "": "in the allowed_domains of the spider",
}


class CrawlBounds(NamedTuple):
    """`scope` is None if it is unknown. `kind` is its kind, or "" for the `allowed_domains` of a spider."""

    scope: Scope | None = None
    kind: str = ""
    depth: int | None = None
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    robots: bool = True
    user_agent: str = ""


class UrlFacts(NamedTuple):
    """`halted` is why nothing is fetched at all, or "". While the crawl is `stopped`, the limits of hosts are
    unknown."""

    url: str
    rows: Sequence[Row] = ()
    host: HostView | None = None
    facts: HostFacts | None = None
    segments: Mapping[str, SegmentView] = {}
    bounds: CrawlBounds = CrawlBounds()
    halted: str = ""
    stopped: bool = False


def explain(known: UrlFacts, now: float, when: FormatTime) -> list[str]:
    """Return sentences, the most important first. `when` formats unix seconds."""
    if not known.rows:
        return [*_never_seen(known)]
    lines = [
        f"it counts as the same page as {url}" for url in sorted({row.record.url for row in known.rows} - {known.url})
    ]
    name_segment = len(known.segments) > 1 or any(row.record.segment for row in known.rows)
    return lines + [line for row in known.rows for line in _row(row, known, now, when, name_segment=name_segment)]


def _row(row: Row, known: UrlFacts, now: float, when: FormatTime, *, name_segment: bool) -> Iterator[str]:
    where = f" in segment {row.record.segment or '(no name)'}" if name_segment else ""
    at = when(row.at) if row.at else ""
    attempts = f"{row.record.attempts} failed attempt{'' if row.record.attempts == 1 else 's'}"
    match row.state:
        case State.QUEUED:
            yield f"queued{where}"
            yield from _halted(known)
            yield from _waits_for(row, known, now, when)
        case State.LEASED:
            yield f"being fetched{where}: leased until {at}"
        case State.DELAYED:
            yield f"delayed{where} until {at}, the not_before of its request"
            yield from _also_waits_for(row, known, now, when)
        case State.RETRY:
            yield f"will be retried{where} at {at}, after {attempts}"
            yield from _also_waits_for(row, known, now, when)
        case State.DEAD:
            yield f"marked dead{where}{_at(at)}: {row.reason} ({attempts})"
            yield f"to queue it again: lycosa frontier requeue --url '{row.record.url}'"
        case _:
            state = "archived" if row.state == State.ARCHIVED else "done"
            yield f"{state}{where}{_at(at)}: {_ended_because(row.reason)}"
            if row.reason in {"robots", "scope", "deny", "allow"}:
                yield from _forbidding_rules(known)


def _at(at: str) -> str:
    return f" at {at}" if at else ""


def _ended_because(reason: str) -> str:
    if not reason:
        return "its time and reason are not stored in this crawl (keep_done stores them)"
    fetched = f"it was fetched ({reason})" if reason.isdecimal() and reason.startswith("2") else reason
    return REASONS.get(reason, fetched)


def _waits_for(row: Row, known: UrlFacts, now: float, when: FormatTime) -> Iterator[str]:
    segment, host = known.segments.get(row.record.segment), known.host
    if segment is not None and segment.starts_at > now:
        yield f"its segment starts at {when(segment.starts_at)}"
    if host is None:
        return
    yield from _host(host, now, when, stopped=known.stopped)
    if known.stopped:
        yield "the next run sets the limits of its host (--delay, --concurrency-per-host and so on)"
    if host.shared is not None:
        yield from _address(host.shared, now, when)
    if known.bounds.robots and (host.robots_status < 0 or host.robots_at + ROBOTS_TTL_S <= now):
        yield "the robots.txt of its host is fetched first"
    elif known.bounds.robots:
        yield from _robots(known)


def _halted(known: UrlFacts) -> Iterator[str]:
    if known.halted:
        yield known.halted


def _also_waits_for(row: Row, known: UrlFacts, now: float, when: FormatTime) -> Iterator[str]:
    yield from _halted(known)
    if known.host is not None and known.host.blocked_until > max(row.at, now):
        yield from _host(known.host, now, when, stopped=known.stopped)


def _host(host: HostView, now: float, when: FormatTime, *, stopped: bool) -> Iterator[str]:
    name, load = f"its host {host.host}", f"{host.queued:,} of its URLs queued, {host.in_flight:,} in flight"
    if host.blocked_until > now:
        yield f"{name} is blocked until {when(host.blocked_until)} (Retry-After or back-off); {load}"
    elif host.preparing:
        yield f"{name} will be contacted later: its robots.txt is being fetched, or its IP address looked up; {load}"
    elif 0 < host.concurrency <= host.in_flight:
        yield f"{name} is busy: at most {host.concurrency:,} transfers at a time; {load}"
    elif host.ready_at > now:
        yield f"{name} is contacted next at {when(host.ready_at)} (delay {host.delay_s:g} s); {load}"
    elif host.shared is not None:
        yield f"{name} may be contacted as soon as the limits of its IP address allow it; {load}"
    elif stopped:
        yield f"{name} is not blocked; {load}"
    else:
        yield f"{name} may be contacted now; {load}"


def _address(shared: AddressView, now: float, when: FormatTime) -> Iterator[str]:
    if not shared.address or shared.until <= now:
        yield "its IP address is looked up first, since the crawl has limits per address"
        return
    name = f"its IP address {shared.address}"
    sharing = f"; {shared.hosts:,} hosts share it and take turns" if shared.hosts > 1 else ""
    next_at = when(shared.ready_at) if shared.ready_at > now else ""
    if 0 < shared.concurrency <= shared.in_flight:
        rest = f", and the next transfer not before {next_at}" if next_at else ""
        yield f"{name} is busy: {shared.in_flight:,} in flight, at most {shared.concurrency:,} at a time{rest}{sharing}"
    elif next_at:
        yield f"{name} is contacted next at {next_at} (delay {shared.delay_s:g} s per address){sharing}"
    else:
        yield f"{name} may be contacted now{sharing}"


def _never_seen(known: UrlFacts) -> Iterator[str]:
    yield "never seen"
    rules = list(_forbidding_rules(known))
    yield from rules
    dropped = [view.name for view in known.segments.values() if view.state == SegmentState.DROPPED]
    if dropped:
        yield f"it may have been in a segment that was dropped: {', '.join(dropped[:10])}"
    if not rules:
        depth = known.bounds.depth
        limit = f" (the crawl follows links up to depth {depth})" if depth is not None else ""
        yield f"no fetched page links to it{limit}; lycosa frontier import adds it"


def _forbidding_rules(known: UrlFacts) -> Iterator[str]:
    bounds, url = known.bounds, known.url
    reason = bounds.scope.reason(url, host_key(url), 0) if bounds.scope is not None else ""
    if reason == "deny":
        yield f"--deny {next((glob for glob in bounds.deny if fnmatchcase(url, glob)), '')} matches it"
    elif reason == "allow":
        yield f"none of --allow {', '.join(bounds.allow)} matches it"
    elif reason:
        yield f"out of scope: not {INSIDE.get(bounds.kind, bounds.kind)}"
    if bounds.robots:
        yield from _robots(known)


def _robots(known: UrlFacts) -> Iterator[str]:
    facts, agent = known.facts, known.bounds.user_agent or "Lycosa"
    if facts is None or robots_from_response(facts.robots, facts.robots_status, agent).allowed(known.url):
        return
    rule, host = forbidding_rule(facts.robots, facts.robots_status, known.url, agent), host_key(known.url)
    if rule:
        yield f"robots.txt of {host} forbids it: {rule}"
    else:
        yield f"robots.txt of {host} cannot be read (status {facts.robots_status}), so nothing is allowed"
