"""`bench/books.py` (C1, "Fast"): its pages are as specified, and contenders that do different work are detected."""

from __future__ import annotations

import os
import re
from collections import Counter
from importlib.util import find_spec

import pytest

from lycosa.crawl.spiders.response import Response
from tests.bench.conftest import programs
from tests.conftest import PROVE, ROOT

PAGES = 63  # three lists and 60 products


@pytest.fixture(autouse=True, scope="module")
def bench():
    with programs(
        "books", "books_budget", "bookstore", "products", "race", "report", "budget", folder="bench/peers"
    ) as imported:
        yield imported


@pytest.fixture(autouse=True)
def all_cores():
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


def contender(bench, key):
    return next(each for each in bench.books.CONTENDERS if each.key == key)


def page_of(path, folder):
    return Response(f"http://h/{path}", 200, {"Content-Type": "text/html"}, (folder / path).read_bytes())


def test_the_bookstore_has_the_specified_pages(bench, tmp_path):
    paths = bench.bookstore.write_shop(tmp_path / "one", bench.bookstore.products_of(PAGES))
    assert len(paths) == 60
    sizes = [(tmp_path / "one" / path).stat().st_size for path in paths]
    assert 2_990 <= min(sizes) <= max(sizes) <= 3_020
    visits, todo = Counter(), [bench.bookstore.START]
    while todo:
        path = todo.pop()
        visits[path] += 1
        page = page_of(path, tmp_path / "one")
        links = page.css(bench.products.PRODUCTS) + page.css(bench.products.NEXT)
        todo += [page.urljoin(link.attrib["href"]).removeprefix("http://h/") for link in links]
    assert set(visits.values()) == {1}
    assert len(visits) == PAGES
    assert set(paths) < set(visits)
    bench.bookstore.write_shop(tmp_path / "two", 60)
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in visits)


def test_both_kinds_of_selectors_extract_the_same(bench, tmp_path):
    for path in bench.bookstore.write_shop(tmp_path, 20):
        page = page_of(path, tmp_path)
        item = bench.products.book(page, path)
        assert item == bench.products.lexbor_book(page.tree, path)
        assert all(item.values())
        assert (len(item["breadcrumbs"]), len(item["details"])) == (3, 7)
        assert bench.products.document(page, path) == bench.products.lexbor_document(page.tree, path)


def test_real_pages_are_an_even_sample_with_plain_names(bench, tmp_path):
    for number in range(10):
        (tmp_path / f"{number}.html").touch()
    (tmp_path / "a b.html").touch()
    (tmp_path / "text.txt").touch()
    assert bench.bookstore.real_pages(tmp_path, 5) == ["0.html", "2.html", "4.html", "6.html", "8.html"]
    assert len(bench.bookstore.real_pages(tmp_path, 100)) == 10


@pytest.mark.nginx
@pytest.mark.parametrize("kind", ["shop", "docs", "awaiting"])
def test_all_contenders_produce_the_same_items(bench, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(bench.books, "LOG_FLUSH", "100ms")
    site = tmp_path / "site-of-docs"
    bench.bookstore.write_shop(site, 60)
    available = [each for each in bench.books.CONTENDERS if takes_part(each, kind)]
    with bench.books.track(kind, PAGES, tmp_path, site=site / "books") as track:
        found = {each.key: [track.run(each)] for each in available}
    assert found.keys() >= {"parsel", "scrapy" if kind == "awaiting" and find_spec("scrapy") else "parsel"}
    assert bench.report.differing(found) == []
    assert all((run.pages, run.requests) == (PAGES, PAGES + (key == "all-on")) for key, (run,) in found.items())


def takes_part(contender, kind):
    """Whether the contender is installed. Without `make prove`, slow ones take part in one workload only."""
    if kind == "awaiting":
        return contender.key == "parsel" or (contender.key == "scrapy" and find_spec("scrapy") is not None)
    if contender.key in {"parsel", "lexbor"}:
        return True
    return (PROVE or kind == "shop") and (contender.lycosa or find_spec(contender.key))


@pytest.mark.nginx
def test_the_time_budget_covers_every_part(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench.books, "LOG_FLUSH", "100ms")
    with bench.books.track("shop", PAGES, tmp_path) as track:
        budget = bench.books_budget.measure(track, contender(bench, "parsel"))
    parts, names = {part.name: part.micros for part in budget}, bench.books_budget
    timed = (names.FETCH, names.SELECT, names.CALLBACK, names.MIDDLEWARE, names.FRONTIER, names.ITEM, names.REQUESTS)
    assert all(parts[name] > 0 for name in timed)
    assert "| **all** |" in names.table({"parsel": budget})


PEER = """
import json, sys, urllib.request
items, kind, start = sys.argv[1:]
root = start.removesuffix("catalogue/page-1.html")
with open(items, "w") as file:
    for path in {fetched}:
        urllib.request.urlopen(root + path).read()
    for path in {written}:
        print(json.dumps({{"url": root + path, "price": {price}}}), file=file)
"""
LIST = "catalogue/page-1.html"
BOOKS = ["books/book-0.html", "books/book-1.html"]


@pytest.mark.nginx
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"fetched": BOOKS}, "differ in 1 pages"),
        ({"fetched": [LIST, LIST, *BOOKS]}, "differ in 1 pages"),
        ({"written": BOOKS[:1]}, "too few or too many items: 1, among them books/book-1.html"),
        ({"written": [*BOOKS, BOOKS[0]]}, "too few or too many items: 1, among them books/book-0.html"),
    ],
)
def test_a_peer_that_does_different_work_is_detected(bench, tmp_path, monkeypatch, changes, complaint):
    monkeypatch.setattr(bench.books, "LOG_FLUSH", "10ms")
    if complaint and "differ in" in complaint:  # the log never becomes complete
        monkeypatch.setattr(bench.race, "LOG_MAX_S", 0.5)
    parameters = {"fetched": [LIST, *BOOKS], "written": BOOKS, "price": 1, **changes}
    for key, price in (("peer", 1), ("other", 2)):
        (tmp_path / f"{key}.py").write_text(PEER.format(**{**parameters, "price": price}))
    peers = {key: bench.race.Contender(key, "", (str(tmp_path / f"{key}.py"),)) for key in ("peer", "other")}
    with bench.books.track("shop", 3, tmp_path) as track:
        if complaint:
            with pytest.raises(bench.race.BadRun, match=complaint):
                track.run(peers["peer"])
        else:
            results = {key: [track.run(peer)] * 2 for key, peer in peers.items()}
            results["third"] = results["peer"]
            assert [line.split()[0] for line in bench.report.differing(results)] == ["other", "other"]


def run_of(bench, rate, cpu_s=1.0):
    figures = {"span_s": 1.0, "peak_mb": 1.0, "requests": 1, "digest": "d", "text_chars": 1, "bytes": 3_000_000}
    return bench.race.Run(pages=1000, wall_s=1000 / rate, cpu_s=cpu_s, **figures)


@pytest.mark.parametrize(
    ("kind", "parsel", "lexbor", "holds"),
    [
        ("shop", 600, 1200, [True, True]),
        ("shop", 599, 1199, [False, False]),
        ("docs", 300, 600, [True, True]),
        ("docs", 299, 599, [False, False]),
    ],
)
def test_verdicts_on_the_floors(bench, kind, parsel, lexbor, holds):
    rates = {"parsel": parsel, "lexbor": lexbor, "scrapy": 100}
    results = {key: [run_of(bench, rate)] for key, rate in rates.items()}
    assert [each.holds for each in bench.books.verdicts(kind, results)] == holds
    assert f"| **Lycosa**, parsel | {parsel} | 1.00 | 1 | {parsel / 100:.1f} | 1/1.0 |" in bench.books.table(
        kind, results
    )


@pytest.mark.parametrize(("cpu_s", "holds"), [(1.15, True), (1.16, False)])
def test_the_cost_of_all_middlewares_has_a_limit(bench, cpu_s, holds):
    results = {"all-on": [run_of(bench, 100, cpu_s)], "all-off": [run_of(bench, 100, 1.0)]}
    (verdict,) = bench.books.verdicts("shop", results)
    assert verdict.holds == holds
    assert re.search(r"add 1[56]% to the CPU time of a page", verdict.line)


def test_every_timed_part_exists(bench):
    for part in (*bench.books_budget.PARTS, bench.books_budget.CHAIN):
        owner, name = bench.budget.resolve(part)
        assert callable(getattr(owner, name)), part


def test_the_parts_of_the_budget_add_up_to_the_time_of_the_process(bench):
    times = {
        "spent": {bench.books_budget.SELECT: 3.0, "": 9.0},
        "cpu_started_s": 1.0,
        "cpu_ended_s": 11.0,
        "clocks_s": 0.5,
    }
    parts = {part.name: part.micros for part in bench.books_budget.parts(times, 12.0, 1000)}
    assert sum(parts.values()) == pytest.approx(11.5 / 1000 * 1e6)
    assert parts[bench.books_budget.START] == pytest.approx(2000)


def test_the_document_has_every_marker():
    document = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("books-shop", "books-docs", "books-shop-budget", "books-docs-budget", "books-floors"):
        assert document.count(f"<!-- bench:{name} -->\n") == document.count(f"<!-- /bench:{name} -->\n") == 1
