"""Politeness as the server sees it: delays, robots.txt and scope (C5, F5).

The time of a request is that at which the server has read the request, by the clock of the server. A request that
arrives late makes the next one seem early: `tests/pace.py` has the tolerance for a series of requests, `ARRIVAL_S` is
the tolerance for a single wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from urllib.parse import urlencode

import pytest

from tests.cli.crawled import crawl
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, running

ARRIVAL_S = 0.1


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as running_server:
        yield running_server


@pytest.fixture
def other() -> Iterator[Server]:
    """Another host."""
    with running(host="127.0.0.2") as running_server:
        yield running_server


def links_to(server: Server, *targets: str, path: str = "/links") -> str:
    return server.url(f"{path}?" + urlencode({"to": "\n".join(targets)}))


def tree(number: int) -> set[str]:
    return {f"/tree/{number}/{each}" for each in range(number)}


def gaps(server: Server) -> list[float]:
    """Return the seconds between each request and the next."""
    return gaps_of(hit.at for hit in server.hits)


# ------------------------------------------------------------------------------------------------------------- waiting


@pytest.mark.parametrize(
    ("path", "min_s", "max_s"), [("/429?after=2", 2.0, 12.0), ("/503-date?after=4", 3.0, 13.0), ("/503", 0.5, 10.0)]
)
def test_retry_after_blocks_the_whole_host_and_no_other(server, other, tmp_path, path, min_s, max_s):
    server.delay_ms, other.delay_ms = 1.0, 20.0
    starts = [server.url(path), server.url("/tree/5/0"), other.url("/tree/60/0")]
    crawled = crawl(tmp_path, *starts, "--no-robots", "--concurrency-per-host", 1, "--retries", 1)
    assert server.hits[0].target == path
    wait_s = server.hits[1].at - server.hits[0].at
    assert min_s - ARRIVAL_S < wait_s < max_s
    between = [hit for hit in other.hits if server.hits[0].at < hit.at < server.hits[1].at]
    assert len(between) > 2 or wait_s > min_s + 1, "later, both hosts may be due at once on a busy machine"
    assert server.tries[path] == 2
    assert crawled.dead == ({"/503": "503"} if path == "/503" else {})
    assert crawled.code == len(crawled.dead)
    assert set(crawled.items) == tree(5) | tree(60) | ({path} - set(crawled.dead))


def test_429_stops_requests_that_have_not_started(server, tmp_path):
    server.delay_ms = 50
    starts = [server.url(f"/tree/120/{number}") for number in range(8)]
    crawled = crawl(tmp_path, *starts, server.url("/429?after=2"), "--no-robots", "--concurrency-per-host", 8)
    refused_at = next(hit.at for hit in server.hits if hit.target == "/429?after=2")
    after_s = [hit.at - refused_at for hit in server.hits]
    # The others under way may arrive later, and those that start before the answer does.
    assert sum(0 < gap < 2 - ARRIVAL_S for gap in after_s) < 40
    assert crawled.code == 0
    assert set(crawled.items) == {*tree(120), "/429?after=2"}


def test_500_does_not_block_its_host(server, tmp_path):
    server.delay_ms = 10
    starts = [server.url("/500"), server.url("/tree/12/0")]
    crawled = crawl(
        tmp_path, *starts, "--no-robots", "--concurrency-per-host", 1, "--retries", 1, "-s", "backoff_base=10"
    )
    first, second = (index for index, hit in enumerate(server.hits) if hit.target == "/500")
    assert second - first >= 2
    assert server.hits[first + 1].at - server.hits[first].at < 5, "the host waited for the retry, which takes 5 to 10 s"
    assert (crawled.dead, set(crawled.items)) == ({"/500": "500"}, tree(12))


@pytest.mark.parametrize("concurrency", [1, 8])
def test_requests_to_each_host_keep_the_delay(server, other, tmp_path, concurrency):
    options = ("--delay", 0.2, "--concurrency-per-host", concurrency)
    crawled = crawl(tmp_path, server.url("/tree/9/0"), other.url("/tree/9/0"), *options)
    assert (crawled.code, crawled.done) == (0, {"200": 18})
    for host in (server, other):
        assert len(host.hits) == 10
        assert_paced(gaps(host), 0.2)
        assert median(gaps(host)) < 0.2 * 1.5


def test_the_delay_applies_to_retries_redirects_and_errors(server, tmp_path):
    start = links_to(server, "/404", "/flaky/2", "/redirect-good", "/drop", "/binary", "/tree/3/0")
    crawl(tmp_path, start, "--delay", 0.2, "--retries", 2)
    assert len(server.hits) >= 15
    # A transfer that finds its idle connection closed sends the request again at once on a new connection.
    hits = [hit for before, hit in zip([None, *server.hits], server.hits, strict=False) if not _is_resent(before, hit)]
    assert_paced(gaps_of(hit.at for hit in hits), 0.2)


def _is_resent(before, hit) -> bool:
    return before is not None and before.target == hit.target == "/drop"


@pytest.mark.parametrize("crawl_delay_s", [0.3, 0.1])
def test_the_longer_of_crawl_delay_and_configured_delay_applies(server, other, tmp_path, crawl_delay_s):
    server.robots = f"User-agent: *\nCrawl-delay: {crawl_delay_s}\n"
    crawled = crawl(tmp_path, server.url("/tree/6/0"), other.url("/tree/6/0"), "--delay", 0.2)
    assert (crawled.code, crawled.done) == (0, {"200": 12})
    assert_paced(gaps(server), max(crawl_delay_s, 0.2))
    assert_paced(gaps(other), 0.2)
    assert min(gaps(other)) < 0.29


def test_concurrency_per_host_limits_each_host(server, other, tmp_path):
    server.delay_ms = other.delay_ms = 30
    crawled = crawl(tmp_path, server.url("/tree/60/0"), other.url("/tree/60/0"), "--concurrency-per-host", 3)
    assert (crawled.code, crawled.done) == (0, {"200": 120})
    assert (server.busiest, other.busiest) == (3, 3)


def test_concurrency_limits_all_requests(server, tmp_path):
    server.delay_ms = 30
    crawl(tmp_path, server.url("/tree/60/0"), "--concurrency-per-host", 64, "--concurrency", 5)
    assert server.busiest == 5


# ---------------------------------------------------------------------------------------------------------- robots.txt


def test_robots_txt_is_fetched_first_and_once_per_host(server, other, tmp_path):
    server.delay_ms = 5
    starts = [
        server.url("/tree/30/0"),
        server.url("/tree/20/0"),
        links_to(server, other.url("/tree/10/0"), other.url()),
    ]
    crawled = crawl(tmp_path, *starts, "--scope", "any", "--allow", "*/tree/*")
    assert crawled.code == 0
    for host in (server, other):
        assert host.paths()[0] == "/robots.txt"
        assert host.tries["/robots.txt"] == 1
    assert set(other.paths()) == {"/robots.txt", *tree(10)}
    before = len(server.hits)
    crawl(tmp_path, *starts, server.url("/good"), "--scope", "any")
    assert server.paths()[before:] == ["/good"]


def test_forbidden_pages_are_never_requested(server, tmp_path):
    server.robots = "User-agent: *\nDisallow: /tree/13/1\nDisallow: /good\nAllow: /tree/13/11\n"
    crawled = crawl(tmp_path, server.url("/tree/13/0"), server.url("/redirect-good"))
    allowed = {f"/tree/13/{number}" for number in (0, 2, 3, 7, 8, 9, 11)}  # only page 1 links to 4, 5 and 6
    assert sorted(server.paths()) == sorted({"/robots.txt", "/redirect-good", *allowed})
    assert (crawled.code, set(crawled.items)) == (0, allowed)
    assert crawled.done == {"200": 7, "redirect": 1, "robots": 4}


def test_a_forbidden_start_url_is_done_and_reported(server, tmp_path):
    server.robots = "User-agent: *\nDisallow: /\n"
    crawled = crawl(tmp_path, server.url("/good"))
    assert (crawled.code, crawled.done, crawled.items) == (0, {"robots": 1}, {})
    assert f"hint: robots.txt forbids the start URL {server.url('/good')}" in crawled.stderr
    assert server.paths() == ["/robots.txt"]


@pytest.mark.parametrize(
    ("robots", "error"), [("500", "500"), ("503", "503"), ("429", "429"), ("hang", "timed out after 1 s")]
)
def test_no_page_is_requested_when_robots_txt_fails(server, tmp_path, robots, error):
    server.robots = robots
    timeout_s = 1 if robots == "hang" else 20  # on a busy machine a short timeout might end other answers, too
    crawled = crawl(tmp_path, server.url("/good"), server.url("/tree/5/0"), "--retries", 1, "--timeout", timeout_s)
    reason = f"cannot fetch {server.url('/robots.txt')}: {error}"
    assert (crawled.code, crawled.items) == (1, {})
    assert crawled.dead == {"/good": reason, "/tree/5/0": reason}
    assert server.paths() == ["/robots.txt"] * 2
    assert robots == "hang" or gaps(server)[0] > 0.5 - ARRIVAL_S


@pytest.mark.parametrize("robots", ["401", "403", "404", "410", "304", "204", "loop", "html", ""])
def test_everything_is_allowed_without_a_usable_robots_txt(server, tmp_path, robots):
    server.robots = robots
    crawled = crawl(tmp_path, server.url("/tree/5/0"))
    assert (crawled.code, set(crawled.items)) == (0, tree(5))
    assert server.tries["/robots.txt"] == (6 if robots == "loop" else 1)


def test_a_redirected_robots_txt_applies(server, tmp_path):
    server.robots = "redirect"
    crawled = crawl(tmp_path, links_to(server, "/private", "/private/a", "/good"))
    assert server.paths()[:2] == ["/robots.txt", "/robots-moved.txt"]
    assert (crawled.code, crawled.done) == (0, {"200": 2, "robots": 2})
    assert not {"/private", "/private/a"} & set(server.paths())


def test_only_the_first_half_megabyte_of_robots_txt_applies(server, tmp_path):
    filler = "".join(f"Sitemap: http://a.example/{number:070}\n" for number in range(11_000))
    server.robots = f"User-agent: *\nDisallow: /private\n{filler}Disallow: /good\n"
    assert 2**20 < len(server.robots) < 2 * 2**20
    crawled = crawl(tmp_path, links_to(server, "/private", "/good"))
    assert (crawled.code, crawled.done) == (0, {"200": 2, "robots": 1})
    assert server.tries["/good"] == 1


def test_no_robots_ignores_robots_txt(server, tmp_path):
    server.robots = "User-agent: *\nDisallow: /\n"
    crawled = crawl(tmp_path, server.url("/tree/5/0"), "--no-robots")
    assert (crawled.code, set(crawled.items)) == (0, tree(5))
    assert server.tries["/robots.txt"] == 0


# --------------------------------------------------------------------------------------------------------------- scope


@pytest.mark.parametrize(
    ("scope", "within", "port", "address"),
    [
        ("host", {"/links/a/b", "/links/c", "/good"}, 0, 0),
        ("domain", {"/links/a/b", "/links/c", "/good"}, 1, 0),
        ("prefix", {"/links/a/b"}, 0, 0),
        ("any", {"/links/a/b", "/links/c", "/good"}, 1, 1),
    ],
)
def test_each_scope_crawls_its_own_pages_and_hosts(server, other, tmp_path, scope, within, port, address):
    with running() as same_name:
        targets = ["b", "../c", "/good", same_name.url("/good"), other.url("/good"), f"//{other.address}/empty"]
        start = links_to(server, *targets, path="/links/a/start")
        crawled = crawl(tmp_path, start, "--scope", scope)
        assert crawled.code == 0
        assert set(server.paths()) == {"/robots.txt", server.hits[1].target, *within}
        assert [hit.target for hit in same_name.hits] == ["/robots.txt", "/good"][: 2 * port]
        assert set(other.paths()) == ({"/robots.txt", "/good", "/empty"} if address else set())
        assert crawled.skipped.get("scope", 0) == 6 - len(within) - port - 2 * address


def test_the_domain_scope_includes_subdomains(server, tmp_path):
    port = server.address.rpartition(":")[2]
    names = ["www.localhost", "a.b.localhost", "notlocalhost"]
    start = links_to(server, *(f"http://{name}:{port}/good?{name}" for name in names))
    crawled = crawl(tmp_path, start.replace("127.0.0.1", "localhost"), "--scope", "domain")
    assert (crawled.code, crawled.skipped) == (
        0,
        {"scope": 1},
    )  # notlocalhost does not resolve, so a request would fail
    assert set(server.paths()[1:]) - {"/robots.txt"} == {
        server.hits[1].target,
        "/good?www.localhost",
        "/good?a.b.localhost",
    }
    assert server.tries["/robots.txt"] == 3


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_depth_limits_the_crawl(server, tmp_path, depth):
    crawled = crawl(tmp_path, server.url("/tree/40/0"), "--depth", depth)
    pages = (3 ** (depth + 1) - 1) // 2
    assert set(server.paths()) == {"/robots.txt", *(f"/tree/40/{number}" for number in range(pages))}
    assert {item["depth"] for item in crawled.items.values()} == set(range(depth + 1))
    assert crawled.skipped == {"depth": 3 ** (depth + 1)}


def test_allow_and_deny_select_urls(server, tmp_path):
    crawled = crawl(
        tmp_path, server.url("/tree/40/0"), "--allow", "*/tree/40/[1-9]*", "--deny", "*2", "--deny", "*/[39]"
    )
    # 0 links to 1, 2, 3; 1 to 4, 5, 6; these to 13..15, 16..18, 19..21.
    expected = {0, 1, 4, 5, 6, *range(13, 22)}
    assert set(server.paths()) == {"/robots.txt", *(f"/tree/40/{number}" for number in expected)}
    assert crawled.skipped == {"deny": 2}
