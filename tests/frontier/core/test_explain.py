"""Why a URL is not fetched, for every state and every reason (C8, F6)."""

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


def explained(*rows: Row, **known) -> str:
    lines = explain(UrlFacts(URL, rows, **known), NOW, lambda at: f"<{at:g}>")
    assert all("\n" not in line for line in lines)
    return " | ".join(lines)


def bounds(kind: str = "host", seeds=("http://b.example/",), **more) -> CrawlBounds:
    allow, deny, depth = more.pop("allow", ()), more.pop("deny", ()), more.pop("depth", None)
    scope = Scope.of(kind or "any", seeds, depth_max=depth, allow=allow, deny=deny)
    return CrawlBounds(scope, kind, depth, allow, deny, **more)


@pytest.mark.parametrize(
    ("row_", "expected"),
    [
        (row("leased", 1300.0), "being fetched: leased until <1300>"),
        (row("delayed", 1500.0), "delayed until <1500>, the not_before of its request"),
        (row("retry", 1200.0, attempts=1), "will be retried at <1200>, after 1 failed attempt"),
        (row("retry", 1200.0, attempts=3), "after 3 failed attempts"),
        (row("dead", 990.0, "timeout", attempts=3), "marked dead at <990>: timeout (3 failed attempts)"),
        (row("dead", 990.0, "timeout"), f"lycosa frontier requeue --url '{URL}'"),
        (row("done", 990.0, "200"), "done at <990>: it was fetched (200)"),
        (row("done", 990.0, "404"), "the host answered that the page does not exist (404)"),
        (row("done", 990.0, "410"), "gone for good"),
        (row("done", 990.0, "unchanged"), "the page has not changed"),
        (row("done", 990.0, "scope"), "out of the scope"),
        (row("done", 990.0, "depth"), "deeper than the crawl may go"),
        (row("done", 990.0, "robots"), "robots.txt forbids it"),
        (row("done", 990.0, "301"), "done at <990>: 301"),
        (row("archived", 990.0, "200"), "archived at <990>: it was fetched (200)"),
        (row("done", 990.0, "200", segment="monday"), "done in segment monday at"),
    ],
    ids=lambda each: f"{each.state} {each.reason}" if isinstance(each, Row) else "",
)
def test_every_state_is_explained(row_, expected):
    assert expected in explained(row_)


def test_no_state_lacks_an_explanation():
    for state in set(State) - {State.NEW}:
        assert str(explained(row(state, 5.0, "x"))) != ""


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (HostView(HOST, 12, 3), "may be contacted now; 12 of its URLs queued, 3 in flight"),
        (HostView(HOST, 12, ready_at=1002.0, delay_s=2.5), "is contacted next at <1002> (delay 2.5 s)"),
        (HostView(HOST, 1, blocked_until=1060.0, ready_at=1060.0), "is blocked until <1060> (Retry-After or back-off)"),
        (HostView(HOST, 1, robots_status=-1), "the robots.txt of its host is fetched first"),
        (HostView(HOST, 1, robots_status=200), "queued"),
    ],
)
def test_a_queued_url_waits_for_its_host(host, expected):
    assert expected in explained(row("queued"), host=host)


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        (
            AddressView("10.0.0.1", 1003.0, 0, 0, 5.0, 1, 9e9),
            "its IP address 10.0.0.1 is contacted next at <1003> (delay 5 s per address)",
        ),
        (AddressView("10.0.0.1", 1003.0, 1, 2, 5.0, 7, 9e9), "7 hosts share it and take turns"),
        (
            AddressView("10.0.0.1", 0.0, 2, 2, 0.0, 1, 9e9),
            "its IP address 10.0.0.1 is busy: 2 in flight, at most 2 at a time",
        ),
        (AddressView("10.0.0.1", 1003.0, 2, 2, 5.0, 1, 9e9), "and the next transfer not before <1003>"),
        (AddressView("10.0.0.1", 900.0, 1, 2, 5.0, 1, 9e9), "its IP address 10.0.0.1 may be contacted now"),
        (AddressView("", concurrency=2), "its IP address is looked up first"),
        (AddressView("10.0.0.1", until=999.0), "its IP address is looked up first"),
    ],
)
def test_a_queued_url_waits_for_the_address_of_its_host(shared, expected):
    text = explained(row("queued"), host=HostView(HOST, 12, 1, concurrency=8, robots_status=200, shared=shared))
    assert expected in text
    assert f"its host {HOST} may be contacted as soon as the limits of its IP address allow it" in text


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (HostView(HOST, 12, 8, concurrency=8), f"its host {HOST} is busy: at most 8 transfers at a time"),
        (
            HostView(HOST, 12, 1, preparing=True, concurrency=8),
            "its robots.txt is being fetched, or its IP address looked up",
        ),
        (
            HostView(HOST, 12, robots_status=200, robots_at=NOW - 90_000.0),
            "the robots.txt of its host is fetched first",
        ),
    ],
)
def test_a_host_may_be_busy_although_its_delay_is_over(host, expected):
    text = explained(row("queued"), host=host)
    assert expected in text
    assert ("may be contacted now" in text) == (host.in_flight == 0)


def test_the_limits_of_a_stopped_crawl_are_unknown():
    text = explained(row("queued"), host=HostView(HOST, 12), stopped=True)
    assert "is not blocked; 12 of its URLs queued" in text
    assert "the next run sets the limits of its host (--delay, --concurrency-per-host and so on)" in text
    assert "may be contacted now" not in text
    text = explained(row("queued"), host=HostView(HOST, 12, blocked_until=1060.0), stopped=True)
    assert "is blocked until <1060>" in text
    assert "the next run" not in explained(row("queued"), host=HostView(HOST, 12))


@pytest.mark.parametrize("state", ["queued", "delayed", "retry"])
def test_the_line_after_the_state_says_why_the_crawl_is_halted(state):
    text = explained(row(state, 1100.0), halted="the crawl is paused: 5 MB free", host=HostView(HOST, 1))
    assert text.split(" | ")[1] == "the crawl is paused: 5 MB free"
    assert "paused" not in explained(row("done", 990.0, "200"), halted="the crawl is paused: 5 MB free")


def test_a_block_of_the_host_is_mentioned_if_it_ends_after_the_url_is_due():
    for until, rests in ((1200.0, True), (1050.0, False)):
        text = explained(row("retry", 1100.0), host=HostView(HOST, 1, blocked_until=until))
        assert ("is blocked until" in text) == rests


def test_a_queued_url_waits_for_its_segment():
    segments = {"2100-01-01": SegmentView("2100-01-01", SegmentState.OPEN, 4e9)}
    text = explained(row("queued", segment="2100-01-01"), segments=segments)
    assert "queued in segment 2100-01-01" in text
    assert "its segment starts at <4e+09>" in text


def test_a_rule_that_will_forbid_a_queued_url_is_mentioned():
    text = explained(row("queued"), host=HostView(HOST, 1, robots_status=200), facts=ROBOTS)
    assert "forbids it: Disallow: /private/" in text
    assert "forbids" not in explained(row("queued"), facts=ROBOTS, bounds=CrawlBounds(robots=False))


def test_a_url_is_explained_in_each_of_its_segments():
    text = explained(row("done", 990.0, "200"), row("queued", segment="next"))
    assert "done in segment (no name)" in text
    assert "queued in segment next" in text


def test_two_urls_with_the_same_fingerprint_are_mentioned():
    assert "counts as the same page as http://a.example/y" in explained(row("queued", url="http://a.example/y"))


@pytest.mark.parametrize(
    ("known", "expected", "never"),
    [
        ({}, "lycosa frontier import adds it", "scope"),
        ({"bounds": bounds("host")}, "out of scope: not on the host of a start URL", "import"),
        ({"bounds": bounds("domain")}, "not in the domain of a start URL or below it", "import"),
        ({"bounds": bounds("prefix", ("http://a.example/b/",))}, "not in the folder of a start URL", "import"),
        ({"bounds": bounds("any", deny=("*/y", "*/pri*"))}, "--deny */pri* matches it", "*/y"),
        ({"bounds": bounds("any", allow=("*/y", "*/z"))}, "none of --allow */y, */z matches it", "import"),
        (
            {"bounds": bounds("any", depth=3)},
            "(the crawl follows links up to depth 3); lycosa frontier import adds it",
            "scope",
        ),
        ({"facts": ROBOTS}, "robots.txt of http://a.example:80 forbids it: Disallow: /private/", "import"),
        ({"facts": HostFacts(b"", 503, 900.0)}, "cannot be read (status 503), so nothing is allowed", "import"),
        ({"facts": HostFacts(b"", 404, 900.0)}, "import adds it", "robots"),
        ({"facts": ROBOTS, "bounds": CrawlBounds(robots=False)}, "import adds it", "robots"),
        ({"segments": {"old": SegmentView("old", SegmentState.DROPPED)}}, "segment that was dropped: old", "scope"),
    ],
)
def test_a_url_never_seen_is_explained_by_the_rule_that_forbids_it(known, expected, never):
    text = explained(**known)
    assert text.startswith("never seen")
    assert expected in text
    assert never not in text


def test_the_scope_of_a_spider_is_its_domains():
    scope = Scope.of("domain", ["http://b.example/"], depth_max=None)
    assert "not in the allowed_domains of the spider" in explained(bounds=CrawlBounds(scope, ""))


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
def test_the_forbidding_line_of_a_robots_txt(robots, url, rule):
    assert forbidding_rule(robots, 200, f"http://a.example{url}", "Lycosa/1.0") == rule


def test_a_robots_txt_that_could_not_be_fetched_has_no_forbidding_line():
    assert forbidding_rule(b"User-agent: *\nDisallow: /", 404, URL) == ""
