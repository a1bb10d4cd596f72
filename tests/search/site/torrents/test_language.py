from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from starlette.requests import Request

import lycosa
from lycosa.app import torrent_admin
from lycosa.core.errors import BadQuery, UsageError
from lycosa.search.core.torrent_query import EXAMPLES, INVALID
from lycosa.search.site.app import TEMPLATES
from lycosa.search.site.failure_texts import TEXTS
from lycosa.search.site.torrents import pages
from lycosa.search.site.torrents.admin import parts
from lycosa.search.site.torrents.admin.parts import SAID
from lycosa.search.site.torrents.language import ENGLISH, LANGUAGES_OF_SITE, language_of
from lycosa.search.site.torrents.pages import CHOICES, LABELS, LANGUAGE_NAMES, TYPE_NAMES
from lycosa.search.site.torrents.statistics import SIZE_LABELS
from lycosa.storage.core.torrents.words import WordIndex
from lycosa.storage.rules import installed
from tests.search.site.torrents.sample_torrents import HASHES

ADMIN = Path(parts.__file__).parent
CHINESE = LANGUAGES_OF_SITE["zh"]


def language(accepted: str, cookie: str = "") -> str:
    headers = [(b"accept-language", accepted.encode()), (b"cookie", cookie.encode())]
    return language_of(Request({"type": "http", "headers": headers})).code


def messages(source: str, error: type[Exception]) -> Iterator[str]:
    """Yield the messages, with their placeholders, of the errors of this class that the source creates."""
    for node in ast.walk(ast.parse(dedent(source))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == error.__name__:
            [message] = node.args
            if ast.unparse(message) == "INVALID + EXAMPLES[name]":
                yield from (INVALID + example for example in EXAMPLES.values())
            else:
                yield ast.literal_eval(message)


def errors_on_pages() -> set[str]:
    """Return the messages of errors in queries, and of those of administrators."""
    texts = {
        text
        for path in Path(lycosa.__file__).parent.rglob("*.py")
        if "BadQuery(" in (source := path.read_text(encoding="utf-8"))
        for text in messages(source, BadQuery)
    }
    for path in [*ADMIN.glob("*.py"), Path(torrent_admin.__file__), Path(installed.__file__)]:
        texts |= set(messages(path.read_text(encoding="utf-8"), UsageError))
    return texts | set(messages(inspect.getsource(WordIndex._add), UsageError))


def test_every_text_of_the_pages_is_translated():
    texts = {text for path in TEMPLATES.glob("*.html") for text in re.findall(r'\bt\("([^"]+)"', path.read_text())}
    texts |= {*LABELS.values(), *LANGUAGE_NAMES.values(), *TYPE_NAMES.values(), *SIZE_LABELS}
    texts |= errors_on_pages()
    texts |= {label for choices in CHOICES.values() for _, label in choices}
    texts |= {*SAID.values(), *(told for each in TEXTS.values() for told in (each.heading, each.text))}
    for path in [*ADMIN.glob("*.py"), Path(pages.__file__), Path(torrent_admin.__file__)]:
        texts |= set(re.findall(r'(?<!")"([A-Z][^"{}]+\.)"(?!")', path.read_text()))
        texts |= set(re.findall(r'message\(\s*request,\s*\d+,\s*"([^"]+)"', path.read_text()))
    assert len(texts) > 250
    assert sorted(texts - CHINESE.texts.keys()) == []
    for english, chinese in CHINESE.texts.items():
        assert sorted(re.findall(r"\{[^}]+\}", english)) == sorted(re.findall(r"\{[^}]+\}", chinese)), english


@pytest.mark.parametrize(
    "query",
    [
        "q=-x",
        "q=!!!",
        "q=" + "+".join(map(str, range(65))),
        "q=x&page=999",
        "size=big",
        "age=old",
        "sort=q",
        "order=q",
        "year=" + "9" * 101,
    ],
)
def test_an_invalid_query_is_explained_in_the_language_of_the_visitor(site, query):
    for code, end in (("en", "."), ("zh", "。")):
        answer = site.request("GET", f"/search?{query}", Accept_Language=code)
        reason = re.search('role="alert">([^<]+)</p>', answer.text)[1]
        assert (answer.status, bool(re.search("[\u4e00-\u9fff]{2}", reason))) == (400, code == "zh"), reason
        assert (reason[-1], reason[-2] in ".。") == (end, False)


def test_the_language_is_that_of_the_browser_unless_the_visitor_chose_another():
    assert language("zh-CN,en;q=0.8") == "zh"
    assert language("fr, en;q=0.9, zh;q=0.8") == "en"
    assert language("en;q=0.1, zh-CN;q=0.9") == language("zh;q=0.5, en;q=0, fr") == "zh"
    assert language("zh;q=0") == language("zh;q=0, en;q=0.1") == "en"
    assert language("") == language("fr") == "en"
    assert language("zh", "lycosa_language=en") == "en"
    assert language("en", "lycosa_language=xx") == "en"


def test_counts_days_and_times_in_both_languages():
    assert (ENGLISH.count(1, "file"), ENGLISH.count(2000, "file")) == ("1 file", "2,000 files")
    assert CHINESE.count(2000, "file") == "2,000 个文件"
    assert (ENGLISH.day(1_793_836_800), CHINESE.day(1_793_836_800)) == ("5 November 2026", "2026-11-05")
    assert re.fullmatch(r"\d+ d ago", ENGLISH.ago(0))
    assert re.fullmatch(r"\d+ 天前", CHINESE.ago(0))


def test_pages_are_in_the_language_of_the_visitor(site):
    for path in ("/", "/search?q=common&page=2", f"/torrent/{HASHES[0]}?q=show", "/browse", "/statistics", "/nowhere"):
        answer = site.request("GET", path, Accept_Language="zh-CN")
        assert '<html lang="zh">' in answer.text
        assert answer.headers["content-language"] == "zh"
        assert re.search("[\u4e00-\u9fff]{2}", answer.text.partition("<main")[2])
    answer = site.request("GET", "/language/zh")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert "最新" in site.request("GET", "/", Cookie=cookie).text
    page = site.get("/search?q=a%26b&type=video").text
    [link] = re.findall('href="(/language/[^"]+)"', page)
    assert site.get(link.replace("&amp;", "&")).headers["location"] == "/search?q=a%26b&type=video", "back to the page"
    for elsewhere in ("//example.org", "https://example.org", "/\\example.org", "/search%0a", "javascript:x", "/../x"):
        assert site.get(f"/language/zh?to={elsewhere}").headers["location"] == "/"
    assert site.get("/language/xx").status == 404
