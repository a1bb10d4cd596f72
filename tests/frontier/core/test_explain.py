"""Why a URL is not fetched, for every state and every reason (C8, F6, issue 3 "Operations")."""

from __future__ import annotations

import pytest

from lycosa.frontier.core.explain import CrawlBounds, UrlFacts, explain
from lycosa.frontier.core.model import AddressView, HostFacts, HostView, Row, SegmentState, SegmentView, UrlRecord
from lycosa.frontier.core.scope import Scope
from lycosa.frontier.core.states import State
from lycosa.http.core.robots import forbidding_rule

URL, HOST = "http://a.example/private/x", "http://a.example:80"
NOW = 1000.0
ROBOTS = HostFacts(b"User-agent: *\nDisallow: /pri\nDisallow: /private/\nAllow: /private/ok\n", 200, 900.0)


def row(state: str, at: float = 0.0, reason: str = "", **fields) -> Row:
    return Row(state, UrlRecord(1, 1, fields.pop("url", URL), HOST, **fields), at, reason)


def told(*rows: Row, **known) -> str:
    lines = explain(UrlFacts(URL, rows, **known), NOW, lambda at: f"<{at:g}>")
    assert all("\n" not in line for line in lines)
    return " | ".join(lines)


def bounds(kind: str = "host", seeds=("http://b.example/",), **more) -> CrawlBounds:
    allow, deny, depth = more.pop("allow", ()), more.pop("deny", ()), more.pop("depth", None)
    scope = Scope.of(kind or "any", seeds, depth_max=depth, allow=allow, deny=deny)
    return CrawlBounds(scope, kind, depth, allow, deny, **more)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (row("leased", 1300.0), "being fetched now: lent until <1300>"),
        (row("delayed", 1500.0), "asleep until <1500>, as it was asked to be"),
        (row("retry", 1200.0, attempts=1), "to be tried again at <1200>, after 1 failed attempt"),
        (row("retry", 1200.0, attempts=3), "after 3 failed attempts"),
        (row("dead", 990.0, "timeout", attempts=3), "given up at <990>: timeout (3 failed attempts)"),
        (row("dead", 990.0, "timeout"), f"lycosa frontier requeue --url '{URL}'"),
        (row("done", 990.0, "200"), "done at <990>: it was fetched (200)"),
        (row("done", 990.0, "404"), "the host says that it does not exist (404)"),
        (row("done", 990.0, "410"), "gone for good"),
        (row("done", 990.0, "304"), "it has not changed"),
        (row("done", 990.0, "scope"), "out of the scope"),
        (row("done", 990.0, "depth"), "deeper than the crawl may go"),
        (row("done", 990.0, "robots"), "robots.txt forbids it"),
        (row("done", 990.0, "301"), "done at <990>: 301"),
        (row("archived", 990.0, "200"), "archived at <990>: it was fetched (200)"),
        (row("done", 990.0, "200", segment="monday"), "done in segment monday at"),
    ],
    ids=lambda each: f"{each.state} {each.reason}" if isinstance(each, Row) else "",
)
def test_every_state_is_told(given, says):
    assert says in told(given)


def test_no_state_is_forgotten():
    for state in set(State) - {State.NEW}:
        assert str(told(row(state, 5.0, "x"))) != ""


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (HostView(HOST, 12, 3), "may be asked now; 12 of its URLs queued, 3 in flight"),
        (HostView(HOST, 12, ready_at=1002.0, delay_s=2.5), "is asked next at <1002> (delay 2.5 s)"),
        (HostView(HOST, 1, blocked_until=1060.0, ready_at=1060.0), "is blocked until <1060> (Retry-After or back-off)"),
        (HostView(HOST, 1, robots_status=-1), "the robots.txt of its host comes first"),
        (HostView(HOST, 1, robots_status=200), "queued"),
    ],
)
def test_what_is_queued_waits_for_its_host(host, says):
    assert says in told(row("queued"), host=host)


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (
            AddressView("10.0.0.1", 1003.0, 0, 0, 5.0, 1, 9e9),
            "its IP address 10.0.0.1 is asked next at <1003> (delay 5 s per address)",
        ),
        (AddressView("10.0.0.1", 1003.0, 1, 2, 5.0, 7, 9e9), "7 hosts share it, and take turns"),
        (
            AddressView("10.0.0.1", 0.0, 2, 2, 0.0, 1, 9e9),
            "its IP address 10.0.0.1 is busy: 2 in flight, at most 2 at a time",
        ),
        (AddressView("10.0.0.1", 1003.0, 2, 2, 5.0, 1, 9e9), "and the next one not before <1003>"),
        (AddressView("10.0.0.1", 900.0, 1, 2, 5.0, 1, 9e9), "its IP address 10.0.0.1 may be asked now"),
        (AddressView("", concurrency=2), "its IP address is looked up first"),
        (AddressView("10.0.0.1", until=999.0), "its IP address is looked up first"),
    ],
)
def test_what_is_queued_waits_for_the_address_of_its_host(shared, says):
    said = told(row("queued"), host=HostView(HOST, 12, 1, concurrency=8, robots_status=200, shared=shared))
    assert says in said
    assert f"its host {HOST} may be asked as soon as its IP address may" in said


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (HostView(HOST, 12, 8, concurrency=8), f"its host {HOST} is busy: at most 8 transfers at a time"),
        (HostView(HOST, 12, 1, preparing=True, concurrency=8), "robots.txt or its IP address is being asked for now"),
        (HostView(HOST, 12, robots_status=200, robots_at=NOW - 90_000.0), "the robots.txt of its host comes first"),
    ],
)
def test_a_host_that_is_ready_by_the_clock_alone_is_not_ready(host, says):
    said = told(row("queued"), host=host)
    assert says in said
    assert ("may be asked now" in said) == (host.in_flight == 0)


def test_the_limits_of_a_crawl_that_does_not_run_are_not_known():
    said = told(row("queued"), host=HostView(HOST, 12), stopped=True)
    assert "does not rest; 12 of its URLs queued" in said
    assert "(--delay, --concurrency-per-host and so on) are those of the next run" in said
    assert "may be asked now" not in said
    said = told(row("queued"), host=HostView(HOST, 12, blocked_until=1060.0), stopped=True)
    assert "is blocked until <1060>" in said
    assert "those of the next run" not in told(row("queued"), host=HostView(HOST, 12))


@pytest.mark.parametrize("state", ["queued", "delayed", "retry"])
def test_why_nothing_at_all_is_fetched_comes_right_after_the_state(state):
    said = told(row(state, 1100.0), standstill="the crawl is paused: 5 MB free", host=HostView(HOST, 1))
    assert said.split(" | ")[1] == "the crawl is paused: 5 MB free"
    assert "paused" not in told(row("done", 990.0, "200"), standstill="the crawl is paused: 5 MB free")


def test_a_host_that_rests_for_longer_than_its_url_is_told():
    for until, rests in ((1200.0, True), (1050.0, False)):
        said = told(row("retry", 1100.0), host=HostView(HOST, 1, blocked_until=until))
        assert ("is blocked until" in said) == rests


def test_what_is_queued_waits_for_its_segment():
    segments = {"2100-01-01": SegmentView("2100-01-01", SegmentState.OPEN, 4e9)}
    said = told(row("queued", segment="2100-01-01"), segments=segments)
    assert "queued in segment 2100-01-01" in said
    assert "its segment starts at <4e+09>" in said


def test_a_rule_that_will_forbid_what_is_queued_is_told_before():
    said = told(row("queued"), host=HostView(HOST, 1, robots_status=200), facts=ROBOTS)
    assert "forbids it: Disallow: /private/" in said
    assert "forbids" not in told(row("queued"), facts=ROBOTS, bounds=CrawlBounds(robots=False))


def test_every_segment_is_told():
    said = told(row("done", 990.0, "200"), row("queued", segment="next"))
    assert "done in segment (no name)" in said
    assert "queued in segment next" in said


def test_a_key_that_makes_two_urls_one_is_told():
    assert "counts as the same page as http://a.example/y" in told(row("queued", url="http://a.example/y"))


@pytest.mark.parametrize(
    ("known", "says", "never"),
    [
        ({}, "lycosa frontier import adds it", "scope"),
        ({"bounds": bounds("host")}, "out of scope: not in the host of a start URL", "import"),
        ({"bounds": bounds("domain")}, "not in the domain of a start URL or below it", "import"),
        ({"bounds": bounds("prefix", ("http://a.example/b/",))}, "not in the folder of a start URL", "import"),
        ({"bounds": bounds("any", deny=("*/y", "*/pri*"))}, "--deny */pri* matches it", "*/y"),
        ({"bounds": bounds("any", allow=("*/y", "*/z"))}, "none of --allow */y, */z matches it", "import"),
        ({"bounds": bounds("any", depth=3)}, "follows links 3 deep; lycosa frontier import adds it", "scope"),
        ({"facts": ROBOTS}, "robots.txt of http://a.example:80 forbids it: Disallow: /private/", "import"),
        ({"facts": HostFacts(b"", 503, 900.0)}, "cannot be read (status 503), so nothing is allowed", "import"),
        ({"facts": HostFacts(b"", 404, 900.0)}, "import adds it", "robots"),
        ({"facts": ROBOTS, "bounds": CrawlBounds(robots=False)}, "import adds it", "robots"),
        ({"segments": {"old": SegmentView("old", SegmentState.DROPPED)}}, "segment that was dropped: old", "scope"),
    ],
)
def test_what_was_never_seen_is_told_with_the_rule_against_it(known, says, never):
    said = told(**known)
    assert said.startswith("never seen")
    assert says in said
    assert never not in said


def test_a_spider_has_domains():
    scope = Scope.of("domain", ["http://b.example/"], depth_max=None)
    assert "not in the allowed_domains of the spider" in told(bounds=CrawlBounds(scope, ""))


@pytest.mark.parametrize(
    ("robots", "url", "rule"),
    [
        (b"User-agent: *\nDisallow: /a", "/a/b", "Disallow: /a"),
        (b"User-agent: *\nDisallow: /a\nDisallow: /a/*/c", "/a/b/c", "Disallow: /a/*/c"),
        (b"User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b", ""),
        (b"User-agent: lycosa\nDisallow: /b\n\nUser-agent: *\nDisallow: /a", "/a", ""),
        (b"User-agent: lycosa\nDisallow: /b\n\nUser-agent: *\nDisallow: /a", "/b", "Disallow: /b"),
        (b"User-agent: *\nDisallow: /\x1b[2J", "/%1B[2J", "Disallow: /%1B[2J"),
        (b"", "/a", ""),
    ],
)
def test_the_line_of_a_robots_txt_that_forbids(robots, url, rule):
    assert forbidding_rule(robots, 200, f"http://a.example{url}", "Lycosa/1.0") == rule


def test_a_robots_txt_that_was_not_read_has_no_lines():
    assert forbidding_rule(b"User-agent: *\nDisallow: /", 404, URL) == ""
