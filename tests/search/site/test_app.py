"""The search site over a real socket: pages, API, hostile pages and visitors (C7, D4)."""

from __future__ import annotations

import json
import random
import re
from urllib.parse import quote

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.query import OFFSET_MAX, QUERY_MAX
from lycosa.search.core.results import Hit
from lycosa.search.pages import PageIndex
from lycosa.search.site.app import API_LIMIT_MAX, PAGE_MAX, PAGE_SIZE, duration_text, page_numbers
from lycosa.search.site.app import _result as result_of
from lycosa.search.site.limits import BURST
from tests.search.indexes import create_pages
from tests.search.site.sample_site import sample_pages, serving


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    index = create_pages("fts5", tmp_path_factory.mktemp("index") / "index")
    index.add(sample_pages())
    index.commit({})
    with serving(index, title="Spiders & co") as server:
        yield server


@pytest.fixture(scope="module")
def empty_site(tmp_path_factory):
    with serving(create_pages("fts5", tmp_path_factory.mktemp("index") / "index")) as server:
        yield server


class Broken(PageIndex):
    def __init__(self):
        pass

    def count(self):
        raise IndexFailure("the index /data/index cannot be read: gone")

    def search(self, query, *, limit=10, offset=0):
        raise IndexFailure("the index /data/index cannot be searched: gone")


class Buggy(Broken):
    def search(self, query, *, limit=10, offset=0):
        raise ZeroDivisionError("a bug at /secret/path")


def search(site, query: str, **more: object):
    extra = "".join(f"&{name}={value}" for name, value in more.items())
    return site.get(f"/search?q={quote(query)}{extra}")


def test_home_has_a_labelled_search_box_and_the_number_of_documents(site):
    page = site.get("/").text
    assert '<label class="unseen" for="q">' in page
    assert re.search(r'<input id="q" name="q" type="search"[^>]* autofocus>', page)
    assert "99 documents" in page
    assert "Spiders &amp; co" in page


def test_home_of_an_empty_index(empty_site):
    assert "Nothing is indexed yet" in empty_site.get("/").text


def test_results_show_title_snippet_and_url(site):
    page = search(site, "爬虫").text
    assert "1 result" in page
    assert 'value="爬虫"' in page, "the query stays in the search box"
    assert "DHT<b>爬虫</b>" in page
    assert "关于<b>爬虫</b>的说明" in page
    link = 'href="http://docs.example.org/a%20b/%E7%88%AC%E8%99%AB.html?x=1" rel="noopener nofollow"'
    assert link in page
    assert '<span class="host">docs.example.org</span><span class="step">a b</span>' in page
    assert '<span class="step">爬虫.html?x=1</span>' in page
    assert re.search(r'<time datetime="2026-11-21T07:00:00Z"[^>]*>21 November 2026</time>', page)
    assert 'lang="zh"' in page
    assert re.search(r"in [\d.]+ ms", page)


@pytest.mark.parametrize(
    ("url", "title", "shown"),
    [
        ("http://h.example/a b", "", ("http://h.example/a b", "h.example/a b")),
        ("http://h.example/", "\u200b \u200f", ("http://h.example/", "h.example")),
        ("http://h.example/<b>", "", ("http://h.example/<b>", "h.example/&lt;b&gt;")),
        ("notes.txt", "", ("", "notes.txt")),
        ("", "", ("", "Untitled")),
    ],
)
def test_result_without_a_title_shows_its_url(url, title, shown):
    result = result_of(Hit(url, title, title, "", "", "", 1.0))
    assert (result.href, result.title) == shown


def test_content_of_hostile_pages_is_escaped(site):
    page = search(site, "trap").text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in page
    assert 'href="javascript' not in page
    assert 'href="http://[broken' not in page
    page = search(site, "spiders").text
    assert "onclick" not in page
    assert ">h.example/evil</a>" in page, "no title: the URL without its password and its text-reversing character"
    assert '<span class="host">h.example</span>' in page, "no password is shown"
    assert "soon" not in page


@pytest.mark.parametrize(
    "query", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 77*77 }}", "' onx='"]
)
def test_hostile_queries_are_escaped(site, query):
    page = search(site, query).text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "5929" not in page


def test_results_have_page_links(site):
    first = search(site, "common").text
    assert "95 results" in first
    assert first.count('<li class="result">') == PAGE_SIZE
    assert 'rel="next" href="/search?q=common&amp;page=2"' in first
    assert 'rel="prev"' not in first
    last = search(site, "common", page=10).text
    assert last.count('<li class="result">') == 5
    assert 'rel="next"' not in last
    assert 'rel="prev" href="/search?q=common&amp;page=9"' in last
    assert 'aria-current="page">10<' in last
    assert "There is no page 11" in search(site, "common", page=11).text


@pytest.mark.parametrize("number", ["0", "-1", "x", "", "1e9", "9" * 30, "²", str(PAGE_MAX + 1)])
def test_any_page_number_is_answered(site, number):
    assert search(site, "common", page=quote(number)).status == 200


def test_search_tips_are_shown_if_nothing_is_found(site):
    page = search(site, "zebra")
    assert page.status == 200
    assert "Nothing found for <q>zebra</q>" in page.text
    assert "title:index" in page.text


def test_partial_matches_are_announced(site):
    assert "No page has all of these words" in search(site, "common zebra").text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("-common", "only excludes"),
        ("*", "no word in it"),
        ("x" * (QUERY_MAX + 1), "use at most"),
        ("a " * 400, "use at most"),
    ],
)
def test_invalid_query_is_explained_in_one_line(site, query, message):
    page = search(site, query)
    assert page.status == 400
    assert message in page.text
    answer = site.get(f"/api/search?q={quote(query)}")
    assert answer.status == 400
    assert message in json.loads(answer.text)["error"]


@pytest.mark.parametrize("path", ["/search", "/search?q=", "/search?q=%20%20"])
def test_empty_query_redirects_home(site, path):
    answer = site.get(path)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_api_returns_results_as_json(site):
    answer = json.loads(site.get("/api/search?q=common&limit=3&offset=94").text)
    took_ms = answer.pop("took_ms")
    (hit,) = answer.pop("hits")
    assert answer == {"query": "common", "total": 95, "partial": False, "suggestion": "", "limit": 3, "offset": 94}
    assert took_ms > 0
    assert hit["snippet"].startswith("<b>common</b> words")
    assert set(hit) == {"url", "title", "title_html", "snippet", "fetched_at", "lang", "score"}


@pytest.mark.parametrize(
    "parameters",
    [
        "limit=0",
        f"limit={API_LIMIT_MAX + 1}",
        "limit=x",
        "offset=-1",
        f"offset={OFFSET_MAX + 1}",
        "limit=",
        "offset=1.5",
    ],
)
def test_api_parameters_are_bounded(site, parameters):
    answer = site.get(f"/api/search?q=common&{parameters}")
    assert answer.status == 400
    assert "is out of range" in json.loads(answer.text)["error"]


def test_api_page_documents_the_parameters(site):
    page = site.get("/api").text
    for text in ("<code>q</code>", "<code>limit</code>", "<code>offset</code>", f"{site.url}/api/search?q="):
        assert text in page


def test_health_reports_the_number_of_documents(site):
    assert json.loads(site.get("/healthz").text) == {"ok": True, "documents": 99}


@pytest.mark.parametrize(
    "path", ["/", "/search?q=common", "/api", "/api/search?q=x", "/nowhere", "/static/site.css", "/healthz"]
)
def test_every_response_has_security_headers(site, path):
    headers = site.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/api", "/healthz"])
def test_an_unchanged_response_is_not_sent_again(site, path):
    first = site.get(path)
    assert first.headers["cache-control"] == "no-cache"
    again = site.request("GET", path, If_None_Match=first.headers["etag"])
    assert (again.status, again.text, again.headers["etag"]) == (304, "", first.headers["etag"])
    assert "content-security-policy" in again.headers
    assert site.request("GET", path, If_None_Match='W/"other"').status == 200


def test_pages_are_compressed_for_clients_that_accept_it(site):
    answer = site.request("GET", "/search?q=common", Accept_Encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert "<b>common</b> words" in answer.text


def test_clients_of_other_machines_are_limited(tmp_path):
    from_afar = {"X_Forwarded_For": "203.0.113.77"}
    with serving(create_pages("fts5", tmp_path / "index"), per_minute=0.01) as server:
        answers = [server.request("GET", "/api", **from_afar) for _ in range(BURST + 1)]
        assert [answer.status for answer in answers] == [200] * BURST + [429]
        assert int(answers[-1].headers["retry-after"]) > 1
        assert re.search(r"Try again in \d+ s\.", answers[-1].text)
        assert "content-security-policy" in answers[-1].headers
        told = server.request("GET", "/api/search?q=x", **from_afar)
        assert (told.status, "try again in" in json.loads(told.text)["error"]) == (429, True)
        assert server.request("GET", "/static/site.css", **from_afar).status == 200
        assert server.request("GET", "/api", X_Forwarded_For="203.0.113.78").status == 200
        assert server.get("/api").status == 200


@pytest.mark.parametrize("path", ["/", "/search?q=common", "/search?q=zebra", "/search?q=*", "/api", "/nowhere"])
def test_pages_load_from_this_server_only(site, path):
    page = site.get(path).text
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=\"/static/)", page)
    for address in re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="([^"]+)"', page):
        assert site.get(address).status == 200


def test_unknown_path_is_404(site):
    answer = site.get("/nowhere")
    assert (answer.status, "This page does not exist" in answer.text) == (404, True)
    assert json.loads(site.get("/api/nowhere").text) == {"error": "Not Found"}
    assert site.get("/static/../site.py").status == 404
    assert site.get("/static/%2e%2e/site.py").status == 404


def test_failing_index_is_reported():
    with serving(Broken()) as server:
        for path in ("/", "/search?q=x"):
            answer = server.get(path)
            assert (answer.status, "/data/index" in answer.text, "is unavailable" in answer.text) == (503, False, True)
        assert json.loads(server.get("/api/search?q=x").text)["error"].startswith("search is unavailable")
        assert json.loads(server.get("/healthz").text)["ok"] is False
        assert server.get("/healthz").status == 503


def test_internal_error_shows_no_details():
    with serving(Buggy()) as server:
        answer = server.get("/search?q=x")
    assert answer.status == 500
    assert "Internal error" in answer.text
    assert "secret" not in answer.text


def test_any_bytes_as_a_query_are_answered(site):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        query = "".join(f"%{rng.randrange(256):02x}" for _ in range(rng.randint(1, 20)))
        assert site.get(f"/search?q={query}").status in {200, 303, 400}
        assert site.get(f"/api/search?q={query}").status in {200, 400}


@pytest.mark.parametrize(
    ("number", "last", "numbers"),
    [
        (1, 1, [1]),
        (1, 3, [1, 2, 3]),
        (1, 20, [1, 2, 3, 4, 5, 6, 7]),
        (10, 20, [7, 8, 9, 10, 11, 12, 13]),
        (20, 20, [14, 15, 16, 17, 18, 19, 20]),
    ],
)
def test_page_numbers(number, last, numbers):
    assert page_numbers(number, last) == numbers


def test_times_are_readable():
    assert [duration_text(each) for each in (0.123, 12.3, 1234)] == ["0.1 ms", "12 ms", "1.2 s"]
