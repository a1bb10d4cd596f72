"""The torrent site over a real socket: takedowns, conditional requests, headers, hostile requests."""

from __future__ import annotations

import json
import random
import re

import pytest

from lycosa.search import torrents
from lycosa.search.site.torrents.app import BURST
from lycosa.search.torrents import TorrentSearch
from tests.search.site.torrents.sample_torrents import HASHES, SAMPLES, torrent_site

PAGES = [
    "/",
    "/search?q=show",
    "/search?q=zebra",
    "/browse",
    "/statistics",
    "/api",
    "/nowhere",
    f"/torrent/{HASHES[0]}",
]


def test_a_takedown_holds_from_the_next_request_everywhere(tmp_path):
    taken, kept = SAMPLES[0], SAMPLES[1]
    lists = ["/", "/search?q=show", "/search.rss?q=show", "/search.atom?q=show", "/search.json?q=show"]
    lists += ["/search.csv?q=show", "/api/search?q=show", "/torznab/api?t=search&q=show", f"/torrent/{HASHES[1]}"]
    lists[0] = "/search?type=video"
    with torrent_site(tmp_path) as (server, store, run):
        own = [f"/torrent/{HASHES[0]}", f"/torrent/{HASHES[0]}.json", f"/api/torrents/{HASHES[0]}"]
        tags = {path: server.get(path).headers["etag"] for path in lists}
        assert {path: server.request("HEAD", path).headers["etag"] for path in lists} == tags
        assert [server.get(path).status for path in own] == [200] * 3
        assert all(HASHES[0] in server.get(path).text for path in lists)
        run(store.deny([taken.infohash_v1], reason="a letter"))
        for path in lists:
            answer = server.request("GET", path, If_None_Match=tags[path])
            assert (answer.status, HASHES[0] in answer.text, HASHES[1] in answer.text) == (200, False, True), path
        assert [server.get(path).status for path in own] == [410] * 3
        assert "This torrent was removed" in server.get(own[0]).text
        assert "a letter" not in server.get(own[0]).text
        run(store.deny([kept.infohash_v1]))
        assert "Nothing found" in server.get("/search?q=show").text
        newest = HASHES[-1]
        assert ("50 torrents" in server.get("/").text, newest in server.get("/").text) == (False, True)
        assert json.loads(server.get("/api/counts?q=common&lang=en").text)["type"] == {}
        run(store.deny([record.infohash_v1 for record in SAMPLES[4:]]))
        assert not any(infohash in server.get("/").text for infohash in HASHES[4:])
        assert "Common" not in server.get("/search?q=comon").text, "neither as a result nor as another spelling"
        for path in ("/suggest?q=comm", "/api/suggest?q=comm"):
            assert "common" not in server.get(path).text


def test_counts_say_about_while_the_index_has_more_removed_torrents_than_a_search_excludes(tmp_path, monkeypatch):
    monkeypatch.setattr(torrents, "REMOVED_MAX", 10)
    with torrent_site(tmp_path) as (server, store, run):
        run(store.deny([record.infohash_v1 for record in SAMPLES[10:]]))
        for path in ("/", "/statistics"):
            assert "about 40 torrents" in server.get(path).text
        assert re.search('Audio</a></th>.*?<td class="number">about 35</td>', server.get("/browse").text, re.DOTALL)
        counts = json.loads(server.get("/api/counts?q=common").text)
        assert (counts["type"], counts["exact"]) == ({"audio": 35}, False)
        assert json.loads(server.get("/healthz").text) == {"ok": True, "documents": 40, "exact": False}

        query = "q=common&sort=date"
        page = server.get(f"/search?{query}").text
        assert ("5 results" in page, "about 5 results" in page) == (True, False)
        told = json.loads(server.get(f"/search.json?{query}").text)
        assert (told["total"], told["exact"], len(told["torrents"])) == (5, True, 5)
        assert 'total="5"' in server.get("/torznab/api?t=search&q=common").text

        monkeypatch.setattr(torrents, "REFILL_MAX", 2)
        page = server.get(f"/search?{query}").text
        assert ("The first results were removed" in page, "Nothing found" in page) == (True, False)
        told = json.loads(server.get(f"/search.json?{query}&limit=20").text)
        assert (told["total"], told["exact"], told["torrents"]) == (0, False, [])
        assert 'total="0"' in server.get("/torznab/api?t=search&q=common&limit=20").text


def test_a_site_below_a_path_links_to_itself(tmp_path):
    with torrent_site(tmp_path, base="/some/torrents") as (server, _store, _run):
        for path in (
            "/",
            "/search?q=common",
            f"/torrent/{HASHES[1]}?q=show",
            "/browse",
            "/statistics",
            "/api",
            "/nowhere",
        ):
            page = server.get(f"/some/torrents{path}").text
            links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
            assert len(links) > 5
            assert all(link.startswith("/some/torrents/") for link in links), links
            for link in links[:12]:
                assert server.get(link.replace("&amp;", "&")).status in {200, 303}, link
        assert (
            server.get("/some/torrents/torrent/" + HASHES[0].upper()).headers["location"].startswith("/some/torrents/")
        )
        assert f"{server.url}/some/torrents/torrent/{HASHES[1]}" in server.get("/some/torrents/search.rss?q=show").text
        assert json.loads(server.get("/some/torrents/api/nowhere").text) == {"error": "Not Found"}
        assert "\nDisallow: /some/torrents/search\n" in server.get("/some/torrents/robots.txt").text
        assert server.get("/search?q=show").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/search?q=common&page=2",
        "/search.json?q=common",
        "/search.csv?q=common",
        "/search.atom?q=common",
        "/search.atom?q=zebra",
        "/api/search?q=common",
        f"/api/torrents/{HASHES[0]}",
    ],
)
def test_an_unchanged_answer_is_not_sent_again(site, path):
    first = site.get(path)
    assert (first.status, first.headers["cache-control"]) == (200, "no-cache")
    tag = first.headers["etag"]
    assert site.get(path).headers["etag"] == tag
    for tags in (tag, f'"a", {tag}', tag.removeprefix("W/")):
        again = site.request("GET", path, If_None_Match=tags)
        assert (again.status, again.text) == (304, "")
        for name in ("etag", "cache-control", "vary"):
            assert again.headers.get(name) == first.headers.get(name)
    assert site.request("GET", path, If_None_Match='W/"other"').status == 200


def test_pages_are_compressed_for_clients_that_accept_it(site):
    answer = site.request("GET", "/search?q=common", Accept_Encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert "Common album" in answer.text
    assert int(answer.headers["content-length"]) < 60_000


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_from_this_server_only_and_are_not_indexed(site, path):
    answer = site.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert '<meta name="robots" content="noindex">' in answer.text
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=\"/static/)", answer.text)
    for address in re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="([^"]+)"', answer.text):
        assert site.get(address.replace("&amp;", "&")).status == 200


def test_unknown_paths_and_methods_are_refused_for_people_and_for_programs(site):
    answer = site.get("/nowhere")
    assert (answer.status, "This page does not exist" in answer.text) == (404, True)
    assert json.loads(site.get("/api/nowhere").text) == {"error": "Not Found"}
    assert site.get("/search.exe?q=show").status == 404
    refused = site.request("POST", "/search")
    assert (refused.status, "This action is not available here" in refused.text) == (405, True)
    robots = site.get("/robots.txt").text
    assert ("\nDisallow: /search\n" in robots, "/torrent/" in robots) == (True, False), "robots see noindex and 410"


def test_clients_of_other_machines_are_limited(tmp_path):
    from_afar = {"X_Forwarded_For": "203.0.113.77"}
    with torrent_site(tmp_path, per_minute=0.01) as (server, _store, _run):
        answers = [server.request("GET", "/robots.txt", **from_afar) for _ in range(BURST + 2)]
        assert [answer.status for answer in answers[:BURST]] == [200] * BURST
        assert answers[-1].status == 429
        assert int(answers[-1].headers["retry-after"]) > 1
        assert 'href="/static/site.css"' in answers[-1].text
        assert "Try again in" in answers[-1].text
        assert "content-security-policy" in answers[-1].headers
        told = server.request("GET", "/api/search", **from_afar)
        assert (told.status, "try again in" in json.loads(told.text)["error"]) == (429, True)
        assert server.request("GET", "/robots.txt", X_Forwarded_For="203.0.113.78").status == 200
        assert server.request("GET", "/static/site.css", **from_afar).status == 200
        assert server.get("/robots.txt").status == 200


def test_any_bytes_in_a_query_are_answered(site):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    names = [
        "q",
        "type",
        "lang",
        "size",
        "age",
        "date",
        "files",
        "sort",
        "order",
        "page",
        "limit",
        "offset",
        "cat",
        "t",
    ]
    for _ in range(100):
        values = ("".join(f"%{rng.randrange(256):02x}" for _ in range(rng.randint(0, 12))) for _ in range(3))
        query = "&".join(f"{rng.choice(names)}={value}" for value in values)
        for path in ("/search", "/search.rss", "/api/search", "/torznab/api", "/suggest"):
            assert site.get(f"{path}?{query}").status in {200, 400}


@pytest.mark.parametrize(
    "query",
    [
        "q=" + "a+" * 2000,
        "q=" + "x" * 5000,
        "page=999999999",
        "size=" + "9" * 99,
        "date=9999-12",
        "age=999999999999999",
    ],
)
def test_query_bombs_are_refused_or_answered(site, query):
    assert site.get(f"/search?{query}").status in {200, 400}


@pytest.mark.parametrize("page", ["501", "1000000000", "9" * 400, "-1", "x"])
def test_a_page_that_cannot_exist_is_answered_briefly(site, page):
    answer = site.get(f"/search?q=common&page={page}")
    assert (answer.status, "does not exist: a search shows up to 500 pages" in answer.text) == (400, True)
    assert len(answer.text) < 6000


def test_the_page_of_an_internal_error_looks_like_the_site(tmp_path, monkeypatch):
    monkeypatch.setattr(TorrentSearch, "get", None)
    with torrent_site(tmp_path) as (server, _store, _run):
        answer = server.get(f"/torrent/{HASHES[0]}")
        assert (answer.status, "The error has been logged" in answer.text) == (500, True)
        assert 'href="/static/site.css"' in answer.text
        assert "content-security-policy" in answer.headers


def test_without_its_index_the_site_says_so_and_shows_no_paths(tmp_path, caplog):
    with torrent_site(tmp_path) as (server, _store, _run):
        (tmp_path / "index").rename(tmp_path / "away")
        paths = ("/search?q=great", "/search.json?q=great", "/search.rss?q=great", "/api/search?q=great", "/healthz")
        try:
            answers = [server.get(path) for path in paths]
            assert [answer.status for answer in answers] == [503] * len(paths)
            answers.append(server.get("/torznab/api?t=search&q=great"))
            assert 'code="900"' in answers[-1].text
            assert "Search is unavailable" in answers[0].text
            assert [answer.text for answer in answers if str(tmp_path) in answer.text] == []
            assert str(tmp_path) in caplog.text, "the log says why"
            assert server.get(f"/torrent/{HASHES[0]}").status == 200, "the store has it"
        finally:
            (tmp_path / "away").rename(tmp_path / "index")
        assert server.get("/search?q=great").status == 200


def test_queries_and_addresses_of_visitors_are_not_stored(tmp_path, caplog):
    caplog.set_level(0)
    with torrent_site(tmp_path) as (server, _store, _run):
        for path in (
            "/search?q={}",
            "/search.json?q={}",
            "/suggest?q={}",
            "/api/search?q={}",
            "/nowhere/{}",
            "/search?q={}&x",
        ):
            server.request("GET", path.format("privateword"), X_Forwarded_For="203.0.113.77")
        server.request("GET", "/search?q=privateword&page=999999", X_Forwarded_For="203.0.113.77")
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert SAMPLES[0].infohash_v1 in stored
    for private in ("privateword", "203.0.113.77"):
        assert (private.encode() in stored, private in caplog.text) == (False, False)
