"""The contract of the `Index` port, with pages, for every back end (C7, C8)."""

from __future__ import annotations

import html
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.query import LIMIT_MAX, OFFSET_MAX, QUERY_MAX, QUERY_WORDS_MAX
from lycosa.search.core.results import Document
from lycosa.search.pages import PageIndex
from tests.search.indexes import ENGINES, create_pages

PAGES = [
    Document(
        "1",
        "https://docs.example.org/lib/asyncio.html",
        "Coroutines",
        "await asyncio.gather(a, b) runs both",
        "Running",
    ),
    Document("2", "https://docs.example.org/lib/os.html", "The os module", "os.path joins names of files", "os.path"),
    Document("3", "https://blog.example.com/dht", "手撕包菜", "用Python写的DHT爬虫，抓取磁力链接。", "磁力搜索"),
    Document(
        "4",
        "https://cv.example.com:8443/",
        "Résumé",
        "Ein Café an der Straße in Łódź",
        "",
        "de",
        "2026-11-21T07:00:00Z",
    ),
    Document(
        "5",
        "http://127.0.0.1:8000/files",
        "Files",
        "gather the names of files, then run <script>alert(1)</script> & go",
    ),
    Document("6", "https://ja.example.org/", "クローラー", "ウェブをクロールするプログラム。한국어 문서도 있다"),
]


def with_pages(index: PageIndex) -> PageIndex:
    index.add(PAGES)
    index.commit({"items": 6})
    return index


@pytest.fixture(params=ENGINES)
def index(request, tmp_path) -> Iterator[PageIndex]:
    index = create_pages(request.param, tmp_path / "index")
    yield index
    index.close()


@pytest.fixture
def filled(index) -> PageIndex:
    return with_pages(index)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory) -> Iterator[dict[str, PageIndex]]:
    """One index of each kind. Not parametrized: in random test order each would be created many times."""
    indexes = {kind: with_pages(create_pages(kind, tmp_path_factory.mktemp(kind) / "index")) for kind in ENGINES}
    yield indexes
    for index in indexes.values():
        index.close()


@pytest.fixture(params=ENGINES)
def searched(request, filled_once) -> PageIndex:
    """A filled index that tests share and do not write to."""
    return filled_once[request.param]


def urls(index: PageIndex, query: str) -> list[str]:
    page = index.search(query)
    assert page.total == len(page.hits)
    return [hit.url for hit in page.hits]


def keys(index: PageIndex, query: str) -> str:
    """Return the sorted keys of the hits."""
    by_url = {page.url: page.key for page in PAGES}
    return "".join(sorted(by_url[url] for url in urls(index, query)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("dht", "3"),
        ("DHT", "3"),
        ("爬虫", "3"),
        ("DHT爬虫", "3"),
        ("爬虫 dht", "3"),
        ("虫爬", ""),
        ("磁力", "3"),
        ("包菜", "3"),
        ("クロール", "6"),
        ("한국", "6"),
        ("resume", "4"),
        ("RÉSUMÉ", "4"),
        ("re\u0301sume\u0301", "4"),
        ("cafe", "4"),
        ("strasse", "4"),
        ("lodz", "4"),
        ("asyncio", "1"),
        ("gather", "15"),
        ("asyncio.gather", "1"),
        ('"asyncio gather"', "1"),
        ('"gather asyncio"', ""),
        ("os.path", "2"),
        ("path", "2"),
        ("names files", "25"),
        ("gather files", "5"),
        ("gather -asyncio", "5"),
        ("gather NOT asyncio", "5"),
        ('names -"os.path"', "5"),
        ("asyncio OR café", "14"),
        ("title:os", "2"),
        ("title:files", "5"),
        ('title:"os module"', "2"),
        ("site:example.org", "126"),
        ("site:docs.example.org", "12"),
        ("site:https://docs.example.org/lib/", "12"),
        ("gather site:127.0.0.1", "5"),
        ("site:127.0.0.1:8000", "5"),
        ("site:cv.example.com:8443", "4"),
        ("gather OR site:cv.example.com:8443", "145"),
        ("site:127.0.0.1:9", ""),
        ("site:example.org -site:ja.example.org", "12"),
        ("gather -site:127.0.0.1", "1"),
        ("script", "5"),
        ("“os.path”", "2"),
        ("nowhere", ""),
    ],
)
def test_query_finds_exactly_these_documents(searched, query, found):
    assert keys(searched, query) == found


def test_partial_matches_are_returned_and_marked_if_no_page_has_all_words(searched):
    assert not searched.search("os path names").partial
    page = searched.search("os path zebra")
    assert page.partial
    assert [hit.url for hit in page.hits] == [PAGES[1].url]
    assert searched.search("磁力链接下载").partial, "a sentence without spaces is split"
    assert searched.search('"os zebra"').total == 0, "a quoted phrase is not loosened"
    assert searched.search("os path zebra -module").total == 0, "nor is an exclusion"
    assert not searched.search("zebra okapi").partial


def test_title_outweighs_headings_and_headings_outweigh_text(index):
    filler = "some other words that make the text as long as the others are"
    index.add(
        [
            Document("text", "http://h/a", "Aaa", f"{filler} lycosa", "Bbb"),
            Document("headings", "http://h/b", "Aaa", f"{filler} word", "lycosa"),
            Document("title", "http://h/c", "lycosa", f"{filler} word", "Bbb"),
        ]
    )
    index.commit({})
    assert urls(index, "lycosa") == ["http://h/c", "http://h/b", "http://h/a"]


def test_hits_hold_the_fields_of_the_document(searched):
    (hit,) = searched.search("resume").hits
    assert (hit.url, hit.title, hit.title_html) == ("https://cv.example.com:8443/", "Résumé", "<b>Résumé</b>")
    assert (hit.lang, hit.fetched_at) == ("de", "2026-11-21T07:00:00Z")
    assert hit.score > 0


def test_snippets_are_escaped_and_only_b_marks_words(filled):
    (hit,) = filled.search("script names").hits
    assert hit.snippet == (
        "gather the <b>names</b> of files, then run &lt;<b>script</b>&gt;alert(1)&lt;/<b>script</b>&gt; &amp; go"
    )
    (hit,) = filled.search("爬虫").hits
    assert hit.snippet == "用Python写的DHT<b>爬虫</b>，抓取磁力链接。"


def test_snippet_of_a_long_text_shows_the_match(index):
    index.add([Document("k", "http://h/", "", "filler words " * 5000 + "the needle is here " + "more filler " * 5000)])
    index.commit({})
    (hit,) = index.search("needle").hits
    assert "the <b>needle</b> is here" in hit.snippet
    assert hit.snippet.startswith("… ")
    assert hit.snippet.endswith(" …")
    assert len(hit.snippet) < 400


def test_documents_are_visible_after_commit_only(index):
    index.add(PAGES[:1])
    assert (index.count(), index.search("asyncio").total, index.positions()) == (0, 0, {})
    index.commit({"items": 1})
    assert (index.count(), index.search("asyncio").total, index.positions()) == (1, 1, {"items": 1})


def test_document_replaces_one_with_the_same_key(filled):
    filled.add([PAGES[0]._replace(text="first version"), PAGES[0]._replace(text="second version")])
    filled.commit({"items": 7})
    assert filled.count() == len(PAGES)
    assert filled.search('"await asyncio"').total == 0
    assert filled.search('"first version"').total == 0
    assert urls(filled, '"second version"') == [PAGES[0].url]


def test_document_replaces_one_with_the_same_long_key(index):
    document = Document("k" * 100_000, "http://h/", "long key", "text")
    for _ in range(2):
        index.add([document])
        index.commit({})
    assert index.count() == 1


def test_commit_keeps_positions_of_other_sources(index):
    index.commit({"a": 1, "b": 2})
    index.commit({"b": 3})
    assert index.positions() == {"a": 1, "b": 3}


def test_results_are_paged(index):
    index.add([Document(str(n), f"http://h/{n}", f"page {n}", "common words") for n in range(25)])
    index.commit({})
    pages = [index.search("common", limit=10, offset=offset) for offset in (0, 10, 20, 30)]
    assert [page.total for page in pages] == [25] * 4
    assert [len(page.hits) for page in pages] == [10, 10, 5, 0]
    assert len({hit.url for page in pages for hit in page.hits}) == 25


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (-1, 0), (LIMIT_MAX + 1, 0), (10, -1), (10, OFFSET_MAX + 1)])
def test_paging_is_bounded(searched, limit, offset):
    with pytest.raises(IndexFailure, match="out of range: use") as caught:
        searched.search("gather", limit=limit, offset=offset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "the query is empty"),
        (" \t\n", "the query is empty"),
        ("*", "has no word in it"),
        ('"', "has no word in it"),
        ("-gather", "only excludes"),
        ("x" * (QUERY_MAX + 1), "use at most"),
        ("word " * 2000, "use at most"),
        ("a " * (QUERY_WORDS_MAX + 1), "use at most"),
    ],
)
def test_empty_or_too_long_queries_are_refused_in_one_line(searched, query, message):
    with pytest.raises(IndexFailure, match=message) as caught:
        searched.search(query)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('gather "files', "5"),
        ('"os path" "', "2"),
        ("AND AND", ""),
        ("AND gather OR OR files", "125"),
        ("OR", ""),
        ("gather AND asyncio", "1"),
        ("os:path", "2"),
        ("*:* gather", "15"),
        ("gather~2^4 OR gather", "15"),
        ("[gather TO files]", "5"),
        ("title: gather", ""),
        ("+gather +files", "5"),
        ("gather\x00files", "5"),
        ("(gather", "15"),
        ("/ga.*/ gather", ""),
        ("site: gather", ""),
        ("'; DROP TABLE pages; --", ""),
        ("gather \ud800", "15"),
    ],
)
def test_hostile_queries_are_read_as_words(searched, query, found):
    page = searched.search(query)
    by_url = {each.url: each.key for each in PAGES}
    if not page.partial:
        assert "".join(sorted(by_url[hit.url] for hit in page.hits)) == found


def test_any_query_is_answered_or_refused_in_one_line(searched):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pieces = [
        '"',
        "-",
        "site:",
        "title:",
        "OR",
        "AND",
        "NOT",
        " ",
        "gather",
        "爬虫",
        "é",
        "*",
        ":",
        "\\",
        "\0",
        "(",
        "½",
        "ｶﾞ",
    ]
    for _ in range(500):
        query = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        try:
            page = searched.search(query)
        except IndexFailure as refusal:
            assert "\n" not in str(refusal)
            continue
        for hit in page.hits:
            for shown in (hit.title_html, hit.snippet):
                assert "<" not in re.sub(r"</?b>", "", shown)
                assert shown.count("<b>") == shown.count("</b>")
            plain = html.unescape(re.sub(r"</?b>", "", hit.title_html))
            assert plain == hit.title


def fill_up(index: PageIndex) -> None:
    """Add pages of random numbers, 60 MB in all, and commit each."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for n in range(200):
        text = " ".join(str(rng.getrandbits(64)) for _ in range(10_000))
        index.add([Document(f"n{n}", "http://h/", "numbers", text)])
        index.commit({"numbers": n + 1})


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_a_full_device_is_reported_and_no_committed_document_is_lost(engine: str, small_device: Path) -> None:
    path = small_device / "index"
    index = with_pages(create_pages(engine, path))
    with pytest.raises(IndexFailure, match="no space left on the device") as caught:
        fill_up(index)
    assert "\n" not in str(caught.value)
    index.close()
    subprocess.run(["mount", "-o", "remount,size=100m", small_device], check=True)
    index = create_pages(engine, path)
    assert index.positions()["items"] == 6
    committed = index.positions().get("numbers", 0)
    # The device may have been full when the position was written, after the document: the document is indexed again.
    assert 0 <= index.count() - 6 - committed <= 1
    index.add([Document(f"n{committed}", "http://h/", "numbers", "1")])
    index.commit({})
    assert index.count() == 6 + committed + 1
    index.add([PAGES[0]._replace(key="more")])
    index.commit({})
    assert index.search("gather").total == 3
    index.close()
