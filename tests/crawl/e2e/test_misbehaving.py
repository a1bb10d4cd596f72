"""Crawls of the misbehaving server: each kind of misbehaviour has one outcome (C2, C5).

The command runs in a process of its own; its output and the log of the server are compared with what is expected.
Robots.txt, waiting and scope are in `test_polite.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.cli.command import LYCOSA, environment
from tests.cli.crawled import CrawlResult, crawl
from tests.conftest import PROVE
from tests.servers.charsets import CHARSETS
from tests.servers.misbehaving import Server, running
from tests.servers.sins import LINKS

QUICK_OPTIONS = ("--retries", 1, "--max-body", "1MB", "--concurrency-per-host", 64, "--no-robots")
SUMMARY_MAX = 10
"""Dead URLs listed in a summary."""
MIB = 2**20

DEAD = {
    "/drop": ("connection closed without an answer", 2),
    "/reset": ("connection lost", 2),
    "/hang": ("timed out after 1 s", 2),
    "/hang-after-headers": ("timed out after 1 s", 2),
    "/drip": ("timed out after 1 s", 2),
    "/short": ("connection lost within the body", 2),
    "/cut-chunks": ("connection lost within the body", 2),
    "/broken-chunks": ("broken chunked encoding", 2),
    "/endless-headers": ("header too large", 1),
    "/huge-header": ("header too large", 1),
    "/endless": ("body over 1000000 bytes", 1),
    "/gzip-bomb": ("body over 1000000 bytes", 1),
    "/bad-gzip": ("cannot be decompressed", 2),
    "/not-http": ("not HTTP", 1),
    "/http-0.9": ("not HTTP", 1),
    "/500": ("500", 2),
}
"""For each path, why its URL is dead and after how many requests. There is a second request if a retry may help, or to
decompress a broken body more leniently.
"""

DONE = {
    "/304": "304",
    "/401": "401",
    "/403": "403",
    "/404": "404",
    "/410": "410",
    "/binary": "content-type",
    "/video": "content-type",
    "/redirect-nowhere": "redirect without a valid Location",
    "/redirect-bad": "redirect without a valid Location",
}
"""For each path, why its URL is done without an item, after one request."""

PAGES = {
    "/204": ("", ""),
    "/empty": ("", ""),
    "/no-content-type": ("Untyped", "Untyped"),
    "/nested": ("Deep", ""),
    "/nul-bytes": ("N\ufffdU\ufffdL", "NUL zeros between /good"),
    "/early-close-keepalive": ("Closed early", "Closed early"),
    "/1xx": ("After the hints", "After the hints"),
    "/not-gzip": ("Not compressed", "Not compressed at all"),
    "/not-gzip/zstd": ("Not compressed", "Not compressed at all"),
    "/trailers": ("", "hello"),
    "/bad-charset-label": ("Ünknown label", "Ünknown label"),
    "/slow?ms=300": ("Slow", "Slow"),
    "/flaky/1": ("Flaky", "Flaky"),
}
"""Pages that are read in spite of their faults: by path, the title and the text of the item."""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as running_server:
        yield running_server


def links_to(server: Server, *targets: str) -> str:
    return server.url("/links?" + urlencode({"to": "\n".join(targets)}))


# ------------------------------------------------------------------------------------- the outcome of each resource


@pytest.fixture(scope="module")
def dead(tmp_path_factory) -> dict[str, tuple[str, int]]:
    """Crawl the pages that end dead, as many at a time as a summary lists. Return reason and requests by path.

    Only the pages that hang have a short timeout: on a busy machine it might end other transfers, too. /reset is apart
    from pages that leave an idle connection: on such a connection it would be requested once more.
    """
    found = {}
    slow = [path for path, (reason, _) in DEAD.items() if reason.startswith("timed out")]
    fast = [path for path in DEAD if path not in slow]
    half = len(fast) // 2
    for batch, timeout_s in ((slow, 1), (fast[:half], 20), (fast[half:], 20)):
        assert len(batch) <= SUMMARY_MAX
        with running() as server:
            options = (*QUICK_OPTIONS, "--timeout", timeout_s)
            crawled = crawl(tmp_path_factory.mktemp("dead"), *map(server.url, batch), *options)
            assert (crawled.code, crawled.items, crawled.done) == (1, {}, {})
            assert set(server.paths()) == set(batch)
            assert crawled.took_s < 60
            found |= {path: (crawled.dead.get(path, ""), server.tries[path]) for path in batch}
    return found


@pytest.mark.parametrize("path", DEAD)
def test_each_dead_page_has_the_expected_reason(dead, path):
    assert dead[path] == DEAD[path]


@pytest.fixture(scope="module")
def tolerated(tmp_path_factory) -> tuple[CrawlResult, Server]:
    """Crawl the misbehaving pages that do not end dead."""
    with running() as server:
        urls = [server.url(path) for path in [*DONE, *PAGES]]
        options = ("--retries", 1, "--depth", 0, "--concurrency-per-host", 64)
        return crawl(tmp_path_factory.mktemp("tolerated"), *urls, *options), server


def test_tolerated_pages_are_not_dead(tolerated):
    crawled, _ = tolerated
    reasons = [*DONE.values(), "204", *["200"] * (len(PAGES) - 1)]
    assert (crawled.code, crawled.dead) == (0, {})
    assert crawled.done == {reason: reasons.count(reason) for reason in set(reasons)}


@pytest.mark.parametrize("path", DONE)
def test_pages_without_an_item_are_done_after_one_request(tolerated, path):
    crawled, server = tolerated
    assert path not in crawled.items
    assert server.tries[path] == 1


@pytest.mark.parametrize("path", PAGES)
def test_tolerated_pages_become_items(tolerated, path):
    crawled, server = tolerated
    item = crawled.items[path]
    assert (item["title"], item["text"], item["status"]) == (*PAGES[path], 204 if path == "/204" else 200)
    assert server.tries[path] == (2 if path.startswith(("/flaky", "/not-gzip")) else 1)


# ----------------------------------------------------------------------------------------------------- bounded memory


def peak_mib(home: Path, *arguments: object) -> float:
    """Run the command to its end. Return its peak memory."""
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            [*LYCOSA, "crawl", *map(str, arguments)], cwd=home, env=environment(), stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in {0, 1}, (home / "output").read_text()
    return usage.ru_maxrss / 1024


@pytest.mark.parametrize("path", ["/endless", "/gzip-bomb", "/endless-headers", "/video"])
def test_memory_stays_bounded(server, tmp_path, path):
    (tmp_path / "baseline").mkdir()
    baseline = peak_mib(tmp_path / "baseline", server.url("/good"))
    peak = peak_mib(tmp_path, server.url(path), "--timeout", 20)
    assert server.tries[path] == 1
    assert peak - baseline < 3 * 16, f"{peak:.0f} MiB, {baseline:.0f} for a small page"


def test_concurrent_gzip_bombs_use_at_most_max_body_each(server, tmp_path):
    bombs = [server.url(f"/gzip-bomb?{number}") for number in range(16)]
    (tmp_path / "baseline").mkdir()
    baseline = peak_mib(tmp_path / "baseline", server.url("/good"))
    peak = peak_mib(tmp_path, *bombs, "--concurrency-per-host", 16, "--max-body", 2 * MIB, "--timeout", 20)
    assert peak - baseline < 16 * 2 * 2


# ---------------------------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize(
    ("path", "last", "reason", "requests"),
    [
        ("/redirect-loop/a", "/redirect-loop/b", "redirect loop", 2),
        ("/redirect-self", "/redirect-self", "redirect loop", 1),
        ("/redirect-chain/0", "/redirect-chain/20", "more than 20 redirects", 21),
    ],
)
def test_redirect_loops_are_dead_with_their_reason(server, tmp_path, path, last, reason, requests):
    crawled = crawl(tmp_path, server.url(path), "--no-robots")
    assert (crawled.code, crawled.items, crawled.dead) == (1, {}, {last: reason})
    assert (len(server.hits), len(set(server.paths()))) == (requests, requests)


def test_a_site_that_redirects_until_it_receives_its_cookie_works(server, tmp_path):
    crawled = crawl(tmp_path, server.url("/cookies-required"))
    assert (crawled.code, crawled.items["/cookies-required"]["title"]) == (0, "With cookie")
    (tmp_path / "refused").mkdir()
    refused = crawl(tmp_path / "refused", server.url("/cookies-required"), "--no-cookies")
    assert (refused.code, refused.dead) == (1, {"/cookies-required": "redirect loop"})


def test_a_required_cookie_can_be_set_on_the_command_line(server, tmp_path):
    crawled = crawl(tmp_path, server.url("/cookies-required"), "--header", "Cookie: session=7")
    assert (crawled.code, crawled.items["/cookies-required"]["title"]) == (0, "With cookie")


def test_a_redirect_out_of_scope_is_not_followed_and_is_reported(tmp_path):
    with running(host="127.0.0.2") as other, running(out=other.url("/good")) as server:
        start = server.url("/redirect-out")
        crawled = crawl(tmp_path, start)
        hint = f"hint: {start} redirects to {other.url('/good')}, outside the scope: start there, or widen --scope"
        assert hint in crawled.stderr.splitlines()
        assert (crawled.code, crawled.items, crawled.done) == (0, {}, {"redirect out of scope": 1})
        assert other.hits == []


def test_a_redirect_within_the_scope_is_one_page(server, tmp_path):
    crawled = crawl(tmp_path, server.url("/redirect-good"), server.url("/redirect-good?again"))
    assert crawled.done == {"redirect": 2, "200": 1}
    (item,) = crawled.items.values()
    assert item["url"].startswith(server.url("/redirect-good"))
    assert (item["final_url"], item["depth"]) == (server.url("/good"), 0)


# -------------------------------------------------------------------------------------------------------------- links


def test_broken_links_are_repaired_like_a_browser_does_or_skipped(server, tmp_path):
    crawled = crawl(tmp_path, server.url("/broken-links"), "--depth", 1, "--no-robots")
    below = ["", "relative", "spaced%20out", "?query", "%C3%BCn%C3%AFcode/%E6%97%A5%E6%9C%AC", "unquoted"]
    expected = {f"/linked/{name}" for name in below} | {"/good", "/up?a=1&b=2", "/back/slash", "/single", "/upper"}
    assert sorted(server.paths()) == sorted([*expected, "/broken-links"])
    assert (crawled.code, crawled.dead) == (0, {})
    assert crawled.done == {"200": 2, "404": 10}
    assert crawled.skipped == {"scope": 3}  # //127.0.0.2/, http://bücher.example/ and http:///three


def test_a_page_with_ten_thousand_links_is_crawled(server, tmp_path):
    """`make prove` fetches all of them."""
    pages = LINKS + 1 if PROVE else 1_000
    crawled = crawl(tmp_path, server.url("/many-links"), "--no-robots", "--max-pages", pages)
    assert (crawled.code, crawled.done) == (0, {"200": pages})
    assert crawled.items["/many-links"]["out_links"] == LINKS
    assert len(server.hits) == len(server.tries) == len(crawled.items) == pages


def months(first: int, last: int) -> set[str]:
    """Return the pages of the calendar from month `first` to month `last`, counted from January 2026."""
    numbers = range(2026 * 12 + first, 2026 * 12 + last + 1)
    return {f"/calendar/{number // 12:04}-{number % 12 + 1:02}" for number in numbers}


def test_an_endless_calendar_ends_at_the_depth_limit(server, tmp_path):
    crawled = crawl(tmp_path, server.url("/calendar/2026-01"), "--depth", 7, "--no-robots")
    assert crawled.code == 0
    assert set(crawled.items) == months(-7, 7)
    assert sorted(server.paths()) == sorted(months(-7, 7))
    assert crawled.skipped == {"depth": 2}


@pytest.mark.parametrize("at_once", [1, 64])
def test_an_endless_calendar_ends_at_max_pages_and_resumes(server, tmp_path, at_once):
    command = (server.url("/calendar/2026-01"), "--no-robots", "--concurrency-per-host", at_once)
    for pages in (1, 10, 25):
        crawled = crawl(tmp_path, *command, "--max-pages", pages)
        assert crawled.code == 0
        assert len(server.hits) == len(set(server.paths())) == len(crawled.items) == pages
        assert f"stopped at --max-pages {pages}" in crawled.stderr


def test_failures_do_not_count_as_pages(server, tmp_path):
    start = links_to(server, "/404", "/binary", "/500", "/good", "/slow")
    crawled = crawl(tmp_path, start, "--max-pages", 3, "--no-robots", "--retries", 0, "--concurrency-per-host", 1)
    assert len(crawled.items) == 3
    assert set(server.tries) == {server.hits[0].target, "/404", "/binary", "/500", "/good", "/slow"}


# ----------------------------------------------------------------------------------------------------------- charsets


@pytest.fixture(scope="module")
def decoded(tmp_path_factory) -> dict[str, str]:
    """Crawl the pages with a doubtful charset. Return their texts."""
    with running() as server:
        urls = [server.url(f"/charset/{name}") for name in CHARSETS]
        crawled = crawl(tmp_path_factory.mktemp("charsets"), *urls)
        assert (crawled.code, len(crawled.items)) == (0, len(CHARSETS))
        return {path.rpartition("/")[2]: item["text"] for path, item in crawled.items.items()}


@pytest.mark.parametrize("name", CHARSETS)
def test_the_text_matches_what_a_browser_shows(decoded, name):
    assert decoded[name] == CHARSETS[name].shown


@pytest.mark.parametrize("label", ["utf-8", "ascii"])
def test_a_wrong_charset_label_is_used_as_by_a_browser(server, tmp_path, label):
    crawled = crawl(tmp_path, server.url(f"/wrong-charset/{label}"))
    shown = "文字化け".encode("shift_jis").decode("utf-8", "replace") if label == "utf-8" else "•¶Žš‰»‚¯"
    assert crawled.items[f"/wrong-charset/{label}"]["title"] == shown
