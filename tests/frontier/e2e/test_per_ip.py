"""Politeness per IP address, measured at the server (F8): several hosts of one address share its delay and concurrency.

The hosts are ports of one loopback address, or names that resolve to it. Times are those of the servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lycosa.app.crawl import run as app
from lycosa.app.crawl import wiring
from lycosa.app.crawl.spec import crawl_spec
from lycosa.config import Settings
from lycosa.crawl.events.stats import Summary
from tests.cli.crawled import crawl
from tests.http.static_resolver import StaticResolver
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, running

SHARED, ALONE = "127.0.0.5", "127.0.0.6"


@pytest.fixture
def hosts() -> Iterator[list[Server]]:
    """Two hosts with the same address, and one with its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(host=address)) for address in (SHARED, SHARED, ALONE)]


def starts(*servers: Server) -> list[float]:
    """Return the times of all requests to these servers."""
    return sorted(hit.at for server in servers for hit in server.hits)


def gaps(*servers: Server) -> list[float]:
    return gaps_of(starts(*servers))


def busiest(took_s: float, *servers: Server) -> int:
    """Return the maximum number of simultaneous requests, given the duration of each."""
    at = starts(*servers)
    return max(sum(begin <= moment < begin + took_s for begin in at) for moment in at)


def test_delay_per_ip(hosts, tmp_path):
    one, two, other = hosts
    urls = [one.url("/tree/5/0"), two.url("/tree/4/0"), other.url("/tree/10/0")]
    crawled = crawl(tmp_path, *urls, "--delay-per-ip", 0.3)
    assert (crawled.code, crawled.done) == (0, {"200": 19})
    for servers in ((one, two), (other,)):  # requests for robots.txt count, too; and no address waits for another
        found = gaps(*servers)
        assert len(found) == 10
        assert_paced(found, 0.3)
        assert median(found) < 0.3 * 1.5


def test_delay_per_ip_with_a_longer_delay_per_host(hosts, tmp_path):
    one, two, _ = hosts
    crawled = crawl(
        tmp_path, one.url("/tree/4/0"), two.url("/tree/5/0"), "--delay-per-ip", 0.1, "--delay", 0.3, "--no-robots"
    )
    assert (crawled.code, crawled.done) == (0, {"200": 9})
    assert_paced(gaps(one, two), 0.1)
    assert_paced(gaps(one), 0.3)
    assert_paced(gaps(two), 0.3)


def test_concurrency_per_ip(hosts, tmp_path):
    one, two, other = hosts
    one.delay_ms = two.delay_ms = other.delay_ms = 40
    urls = [one.url("/tree/41/0"), two.url("/tree/40/0"), other.url("/tree/50/0")]
    crawled = crawl(tmp_path, *urls, "--concurrency-per-ip", 2, "--no-robots")
    assert (crawled.code, crawled.done) == (0, {"200": 131})
    assert busiest(0.04, one, two) == 2
    assert max(one.busiest, two.busiest, other.busiest) == 2
    assert busiest(0.04, one, two, other) == 4


def test_without_a_limit_per_ip_hosts_of_one_address_do_not_wait_for_each_other(hosts, tmp_path):
    one, two, _ = hosts
    one.delay_ms = two.delay_ms = 40
    crawl(tmp_path, one.url("/tree/41/0"), two.url("/tree/40/0"), "--concurrency-per-host", 2, "--no-robots")
    assert busiest(0.04, one, two) == 4


def test_host_name_and_its_address_share_limits(tmp_path):
    with running() as one, running() as two:
        name = one.url("/tree/4/0").replace("127.0.0.1", "localhost")
        crawled = crawl(tmp_path, name, two.url("/tree/5/0"), "--delay-per-ip", 0.2)
        assert (crawled.code, crawled.done) == (0, {"200": 9})
        assert {hit.headers["host"] for hit in one.hits} == {name.split("/")[2]}
        assert_paced(gaps(one, two), 0.2)


def test_unresolvable_host_delays_no_other_host(hosts, tmp_path):
    one = hosts[0]
    lost = ["http://no-such-host.invalid/a", "http://no-such-host.invalid/b"]
    options = ("--concurrency-per-ip", 2, "--retries", 3, "--no-robots")  # the retries take 3.5 s or more
    crawled = crawl(tmp_path, *lost, one.url("/tree/9/0"), *options)
    assert (crawled.code, crawled.done) == (1, {"200": 9})
    assert crawled.dead == {"/a": "host not found", "/b": "host not found"}
    assert starts(one)[-1] - starts(one)[0] < 3.5


def test_unresolvable_host_fails_at_robots_txt(tmp_path):
    crawled = crawl(tmp_path, "http://no-such-host.invalid/a", "--delay-per-ip", 0.1, "--retries", 0)
    assert (crawled.code, crawled.dead) == (
        1,
        {"/a": "cannot fetch http://no-such-host.invalid/robots.txt: host not found"},
    )


def test_limits_per_ip_are_ignored_with_a_warning_if_a_proxy_is_used(hosts, tmp_path):
    proxy = hosts[0]
    urls = [f"http://{name}.invalid/tree/10/0?{name}" for name in "ab"]
    crawled = crawl(tmp_path, *urls, "--proxy", proxy.url(), "--delay-per-ip", 5, "--no-robots", "--depth", 0)
    assert (crawled.code, crawled.done, sorted(proxy.paths())) == (0, {"200": 2}, urls)
    assert crawled.stderr.count("are ignored with a proxy") == 1


def test_fetcher_uses_only_the_addresses_of_the_resolver(hosts, tmp_path, monkeypatch):
    """Otherwise it would be unknown for which address a request counts."""
    url = hosts[0].url("/good").replace(SHARED, "localhost")
    robots_url = url.replace("/good", "/robots.txt")
    monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver({}))
    for name, robots in (("a", True), ("b", False)):
        options = {"state": tmp_path / name, "output": tmp_path / f"{name}.jsonl", "delay_per_ip": 0.1}
        summary = crawl_here([url], **options, robots=robots, retries=1)
        assert summary.dead == [(url, f"{f'cannot fetch {robots_url}: ' * robots}host not found")]
        assert summary.dead_reasons == {summary.dead[0][1]: 1}


def test_names_with_one_address_share_limits(tmp_path, monkeypatch):
    with running(host=SHARED) as server:
        port = server.address.rpartition(":")[2]
        table = {"a.example": [SHARED], "b.example": [SHARED, ALONE]}
        monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver(table))
        urls = [f"http://a.example:{port}/tree/4/0", f"http://b.example:{port}/tree/5/0"]
        summary = crawl_here(urls, state=tmp_path / "state", output=tmp_path / "items.jsonl", delay_per_ip=0.1)
        assert (summary.finished, summary.reasons) == (True, {"200": 9})
        assert {hit.headers["host"] for hit in server.hits} == {f"a.example:{port}", f"b.example:{port}"}
        assert len(server.hits) == 11
        assert_paced(gaps(server), 0.1)


def test_robots_txt_redirect_to_another_host_is_followed(hosts, tmp_path):
    one, _, other = hosts
    one.robots = other.url("/robots-moved.txt")
    crawled = crawl(tmp_path, one.url("/private"), one.url("/good"), "--delay-per-ip", 0.01)
    assert (crawled.code, crawled.done) == (0, {"200": 1, "robots": 1})
    assert (one.paths(), other.paths()) == (["/robots.txt", "/good"], ["/robots-moved.txt"])


def crawl_here(urls: list[str], **given: Any) -> Summary:
    """Crawl in this process, where parts of the crawler can be replaced."""
    settings = Settings(**{name: str(value) if isinstance(value, Path) else value for name, value in given.items()})
    return asyncio.run(app.crawl(crawl_spec(settings, urls)))
