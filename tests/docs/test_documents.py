"""The documents match the program."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import Any

import pytest

import lycosa
from lycosa.cli.settings import as_text
from lycosa.config import SCRAPY_NAMES, Settings
from lycosa.config.view import SettingsView
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.states import Event, State
from lycosa.http.core.request import SHORTHANDS, Request
from tests.conftest import ROOT
from tests.docs.meta_keys import META_KEYS


@pytest.fixture
def frontier_docs() -> ModuleType:
    loader = SourceFileLoader("docs_frontier", str(ROOT / "scripts" / "docs-frontier"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["docs-commands", "docs-frontier", "docs-pictures"])
def test_generated_documents_are_up_to_date(script):
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_transition_missing_in_the_picture_is_an_error(frontier_docs, monkeypatch):
    more = {**frontier_docs.TRANSITIONS, (State.ARCHIVED, Event.REQUEUE): State.QUEUED}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", more)
    with pytest.raises(frontier_docs.Drift, match=r"missing \[\(<State\.ARCHIVED"):
        frontier_docs.picture()


def test_an_arrow_without_a_transition_is_an_error(frontier_docs, monkeypatch):
    less = {key: state for key, state in frontier_docs.TRANSITIONS.items() if key[1] is not Event.NACK}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", less)
    with pytest.raises(frontier_docs.Drift, match=r"too much \[\(<State\.LEASED"):
        frontier_docs.picture()


def test_a_limit_without_a_meaning_is_an_error(frontier_docs, monkeypatch):
    monkeypatch.delitem(frontier_docs.LIMIT_MEANINGS, "SEGMENTS_MAX")
    with pytest.raises(frontier_docs.Drift, match=r"lmdb\.py: SEGMENTS_MAX has no docstring"):
        frontier_docs.limits()


SETTING = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+) \| (?P<meaning>[^|]{10,}) \| (?P<scrapys>[^|]*) \|$", re.MULTILINE
)
IN_WORDS = {
    "content_types", "max_body", "max_callback_bytes", "user_agent", "media_expires", "memory_warning",
    "http_cache_size", "http_cache_dir", "http_cache_expiration", "media_max_size", "output", "state", "refresh",
    "fingerprint_rules", "free_space", "keep_segments", "keep_segments_for", "log_file",
}  # fmt: skip
"""Settings whose default is given in words."""


def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_every_setting_is_documented_once_with_its_default_and_its_name_in_scrapy():
    rows = {match["name"]: match for match in SETTING.finditer(settings_page())}
    names = [match["name"] for match in SETTING.finditer(settings_page())]
    assert names == [field.name for field in fields(Settings)], "missing, too much, or in another order"
    told = {name: set(re.findall(r"`(\w+)`", match["scrapys"])) for name, match in rows.items()}
    meant = {name: {each for each, ours in SCRAPY_NAMES.items() if ours == name} for name in names}
    assert told == meant
    defaults = {name: rows[name]["default"].strip("`") for name in names if name not in IN_WORDS}
    assert defaults == {name: default_of(name) for name in defaults}


def default_of(name: str) -> str:
    value = getattr(Settings(), name)
    return "none" if value in ((), {}, "", None) and not isinstance(value, bool) else as_text(value)


def test_different_defaults_of_scrapy_are_documented():
    defaults = pytest.importorskip("scrapy.settings.default_settings", reason="scrapy is not installed: make bench")
    table = settings_page().split("| default in Scrapy |\n", 1)[1].split("\n\n", 1)[0]
    told = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    view = SettingsView(Settings())
    names = {name for name in SCRAPY_NAMES if name in vars(defaults)}
    differ = {name for name in names if plain(view[name]) != plain(vars(defaults)[name])}
    in_other_words = {"HTTPAUTH_DOMAIN", "HTTPCACHE_POLICY", "REFERRER_POLICY"}
    assert told == differ - in_other_words


def plain(value: object) -> object:
    return sorted(value) if isinstance(value, (list, tuple)) else value


def requests_page(section: str) -> list[str]:
    """Return the first cells of the tables of a section of docs/requests.md."""
    page = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")
    body = page.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(?:Request\.|Response\.)?(\w+)[^`]*` \|", body, re.MULTILINE)


def public(cls: type) -> set[str]:
    """Return the names that users of a class may use."""
    slots = {name for name in getattr(cls, "__slots__", ()) if not name.startswith("_")}
    return slots | {name for name in vars(cls) if not name.startswith("_")}


def test_every_argument_and_attribute_of_a_request_is_documented_once():
    arguments = {name for name in inspect.signature(Request).parameters if name != "shorthands"} | set(SHORTHANDS)
    assert sorted(requests_page("Request")) == sorted(arguments | public(Request))


def test_every_attribute_of_a_response_is_documented_once():
    assert sorted(requests_page("Response")) == sorted(
        public(Response) | {"url", "request", "fetched_at", "flags", "raw"}
    )


def test_every_key_of_meta_is_documented_once_with_its_meaning():
    page = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")
    section = page.split("\n## Keys of meta\n", 1)[1].split("\n## ", 1)[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == META_KEYS


def is_meta(node: ast.AST) -> bool:
    """Whether this is the meta of something: `request.meta`, or a variable of that name."""
    return (isinstance(node, ast.Attribute) and node.attr == "meta") or (
        isinstance(node, ast.Name) and node.id == "meta"
    )


def meta_keys(source: str) -> Iterator[str]:
    """Yield the keys of meta that a module reads or writes; for a constant, its name in capitals."""
    for node in ast.walk(ast.parse(source)):
        keys: list[ast.AST | None] = []
        match node:
            case ast.Call(ast.Name("get_meta") | ast.Attribute(_, "get_meta"), [key, *_]):
                keys = [key]
            case ast.Call(ast.Attribute(owner, "get" | "pop" | "setdefault"), [key, *_]) if is_meta(owner):
                keys = [key]
            case ast.Call(ast.Attribute(owner, "update"), [], named) if is_meta(owner):
                keys = [ast.Constant(each.arg) for each in named]
            case ast.Subscript(owner, key) if is_meta(owner):
                keys = [key]
            case ast.keyword("meta", value) | ast.Assign([ast.Name("meta")], value):
                keys = [key for each in ast.walk(value) if isinstance(each, ast.Dict) for key in each.keys]
        for key in keys:
            match key:
                case ast.Constant(str(text)):
                    yield text
                case ast.Name(constant) if constant.isupper():
                    yield constant


def test_the_code_uses_only_documented_keys_of_meta():
    """Values that only our own code needs are passed as arguments, not in undocumented keys of meta."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "lycosa").rglob("*.py"))]
    constants = dict(re.findall(r'^([A-Z_]+) = "(\w+)"', "\n".join(texts), re.MULTILINE))
    found = {constants.get(key, key) for text in texts for key in meta_keys(text)}
    assert found | set(SHORTHANDS.values()) == set(META_KEYS)


def test_the_search_for_keys_of_meta_finds_them():
    assert list(
        meta_keys("request.meta['a'] = 1\nrequest.meta.setdefault('b', 2)\nget_meta('c')\nrequest.get_meta(D)")
    ) == [
        "a",
        "b",
        "c",
        "D",
    ]
    assert list(meta_keys("meta = {'a': 1, **meta}\nRequest(url, meta={'b': 1} if x else None)")) == ["a", "b"]


PAGE = """<!doctype html><title>Quotes {n}</title>
<div class="quote"><span class="text">So it goes {n}</span> <span>by <small>Kurt</small></span></div>
<div class="quote"><span class="text">{long}</span> <span>by <small>Marcel</small></span></div>
<li class="next"><a href="/{next}">Next</a></li>"""


@asynccontextmanager
async def quotes() -> AsyncIterator[str]:
    """Serve two pages of quotes, which link to each other. Yield the address of the first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        number = 2 if path == "/2" else 1
        body = PAGE.format(n=number, next=2 if number == 1 else "", long="x" * 300).encode()
        status = "404 Not Found" if path == "/robots.txt" else "200 OK"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def readme(mark: str, url: str) -> CodeType:
    """Return the code of the README block that contains `mark`, with the URL of a site that exists here."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [each for each in blocks if mark in each]
    text = block.replace("https://quotes.example.org/", url).replace("delay=0.5", "delay=0")
    return compile(text, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_spider_of_the_readme_yields_short_quotes():
    async def story() -> list[tuple[str, str]]:
        async with quotes() as url:
            names: dict[str, Any] = {"__name__": __name__}
            exec(readme("class Quotes", url), names)
            async with lycosa.Crawl(names["Quotes"]) as crawl:
                await crawl.run()
            return sorted((item.text, item.author) for item in crawl.items)

    assert asyncio.run(story()) == [("So it goes 1", "Kurt"), ("So it goes 2", "Kurt")]


def test_the_crawl_of_the_readme_runs_in_the_running_loop(capsys):
    async def story() -> None:
        async with quotes() as url:
            await eval(readme("lycosa.Crawl", url))

    asyncio.run(story())
    assert sorted(capsys.readouterr().out.splitlines()) == ["{'title': 'Quotes 1'}", "{'title': 'Quotes 2'}"]


def test_the_index_lists_every_page():
    listed = set(re.findall(r"\]\(([\w/.-]+)\)", (ROOT / "docs" / "index.md").read_text()))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - listed == set()
    assert {link for link in listed if not (ROOT / "docs" / link).exists()} == set()
