"""The documents say what the program does."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest

from lycosa.cli.settings import as_text
from lycosa.config import SCRAPY_NAMES, Settings
from lycosa.config.view import SettingsView
from lycosa.core.frontier import Event, State
from lycosa.core.request import META_KEYS, SHORTHANDS, Request
from lycosa.engine.response import Response
from tests.conftest import ROOT


@pytest.fixture
def frontier_docs() -> ModuleType:
    loader = SourceFileLoader("docs_frontier", str(ROOT / "scripts" / "docs-frontier"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["docs-commands", "docs-frontier"])
def test_what_is_generated_is_what_the_code_says(script):
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_step_that_is_not_drawn_is_told(frontier_docs, monkeypatch):
    more = {**frontier_docs.TRANSITIONS, (State.ARCHIVED, Event.REQUEUE): State.QUEUED}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", more)
    with pytest.raises(frontier_docs.Drift, match=r"missing \[\(<State\.ARCHIVED"):
        frontier_docs.picture()


def test_an_arrow_that_no_step_has_is_told(frontier_docs, monkeypatch):
    less = {key: state for key, state in frontier_docs.TRANSITIONS.items() if key[1] is not Event.NACK}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", less)
    with pytest.raises(frontier_docs.Drift, match=r"too much \[\(<State\.LEASED"):
        frontier_docs.picture()


def test_a_bound_without_words_is_told(frontier_docs, monkeypatch):
    monkeypatch.delitem(frontier_docs.TOLD, "SEGMENTS_MAX")
    with pytest.raises(frontier_docs.Drift, match=r"database\.py: SEGMENTS_MAX has no words"):
        frontier_docs.limits()


SETTING = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+) \| (?P<meaning>[^|]{10,}) \| (?P<scrapys>[^|]*) \|$", re.MULTILINE
)
IN_WORDS = {
    "content_types", "max_body", "user_agent", "media_expires", "memory_warning", "http_cache_size", "http_cache_dir",
    "http_cache_expiration", "media_max_size", "output", "state", "refresh", "key", "free_space", "log_file",
}  # fmt: skip
"""Settings whose default is told in words."""


def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_every_setting_is_told_once_with_its_default_and_its_name_in_scrapy():
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


def test_where_scrapys_defaults_differ_is_told():
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


def test_every_argument_and_attribute_of_a_request_is_told_once():
    arguments = {name for name in inspect.signature(Request).parameters if name != "shorthands"} | set(SHORTHANDS)
    assert sorted(requests_page("Request")) == sorted(arguments | public(Request))


def test_every_attribute_of_a_response_is_told_once():
    assert sorted(requests_page("Response")) == sorted(
        public(Response) | {"url", "request", "fetched_at", "flags", "raw"}
    )


def test_every_key_of_meta_is_told_once_with_its_meaning():
    page = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")
    section = page.split("\n## Keys of meta\n", 1)[1].split("\n## ", 1)[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == META_KEYS


META_KEY = re.compile(r"""(?:\basked\(|\bmeta\[|\bmeta\.get\()(?:["'](\w+)["']|([A-Z_]+)\b)""")
OURS = {"_httpcache"}
"""Keys that are there only while a request is under way."""


def test_every_key_of_meta_that_the_code_reads_is_known():
    found = set(SHORTHANDS.values())
    for path in (ROOT / "lycosa").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for literal, constant in META_KEY.findall(text):
            named = re.search(rf'^{constant} = "(\w+)"', text, re.MULTILINE) if constant else None
            found |= {literal} if literal else {named[1]} if named else set()
    assert found - OURS == set(META_KEYS)
