"""Functions that settings and spiders name are imported, or refused with an error of one line (F1, F2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.imports import import_function
from lycosa.app.request_rules import fingerprint_rules_of, segment_naming_of, stored_fingerprint
from lycosa.config import Settings, load
from lycosa.core.errors import BadSetting, UsageError
from lycosa.core.url import fingerprint
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

URL = "http://a.example/?b&gclid=1&a"
FUNCTIONS = """
from functools import partial

number = 5

def key(method, url, body):
    return url

def two(method, url):
    return url

def more(method, url, body, extra=None, *rest):
    return url

async def waits(method, url, body):
    return url

class Key:
    def __call__(self, method, url, body):
        return b"called"

    @staticmethod
    def plain(method, url, body):
        return 5

instance = Key()
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current folder with modules, which are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wolf_shop.py").write_text(FUNCTIONS)
    (tmp_path / "wolf_broken.py").write_text("def key(:\n")
    (tmp_path / "wolf_raises.py").write_text("raise ValueError('first\\nsecond')")
    (tmp_path / "wolf_exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "wolf_needs.py").write_text("import wolf_nowhere")
    before = [*sys.path]
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("wolf_")]:
        del sys.modules[name]


class Plain(Spider):
    name = "plain"


class Own(Spider):
    name = "own"

    def key_resolver(self, method: str, url: str, body: bytes) -> str:
        return f"{self.name} {url}"

    def segment_resolver(self, request: Request, now: float) -> str:
        return f"{self.name}-{now:.0f}"


@pytest.mark.parametrize("word", ["wolf_shop:key", "wolf_shop:more", "wolf_shop:instance", "wolf_shop:Key.plain"])
def test_a_function_is_imported_from_the_current_folder(word: str) -> None:
    assert import_function("fingerprint_rules", word, "method, url, body")("GET", URL, b"") in (URL, b"called", 5)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("wolf_nowhere:key", "there is no module 'wolf_nowhere', neither installed nor in "),
        ("wolf_shop.sub:key", "there is no module 'wolf_shop.sub', neither"),
        ("wolf_needs:key", "wolf_needs cannot be imported: it needs wolf_nowhere"),
        ("wolf_broken:key", "wolf_broken cannot be imported: SyntaxError: "),
        ("wolf_raises:key", "wolf_raises cannot be imported: ValueError: first"),
        ("wolf_exits:key", "wolf_exits cannot be imported: SystemExit: 0"),
        ("wolf_shop:kye", "wolf_shop has no 'kye': did you mean key?"),
        ("wolf_shop:Key.other", "wolf_shop has no 'Key.other'"),
        ("wolf_shop:number", "wolf_shop:number is a int: write a function (method, url, body)"),
        ("wolf_shop:two", "wolf_shop:two does not take (method, url, body)"),
        ("wolf_shop:waits", "wolf_shop:waits is async: write a plain function"),
        (".:key", ". cannot be imported: "),
        ("..:.", ".. cannot be imported: "),
        ("a..b:key", ""),
    ],
)
def test_an_invalid_name_is_reported_in_one_line(word: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        fingerprint_rules_of(Settings(fingerprint_rules=(word,)), Plain())
    assert str(caught.value).startswith(f"fingerprint_rules: {message}")
    assert "\n" not in str(caught.value)


def test_two_functions_are_refused() -> None:
    with pytest.raises(
        BadSetting, match=r"^fingerprint_rules: wolf_shop:key and wolf_shop:more: only one function is allowed$"
    ):
        fingerprint_rules_of(Settings(fingerprint_rules=("wolf_shop:key,wolf_shop:more",)), Plain())


def kept(key: tuple[str, ...], spider: Spider) -> tuple[tuple[str, ...], Any]:
    keys = fingerprint_rules_of(Settings(fingerprint_rules=key), spider)
    return keys.words, keys.resolver("GET", keys.reduce(URL), b"") if keys.resolver else keys.reduce(URL)


def test_the_fingerprint_rules_come_from_the_setting_and_the_spider() -> None:
    short = "http://a.example/?a&b"
    assert kept((), Plain()) == ((), URL)
    assert kept(("sort,tracking",), Plain()) == (("sort", "tracking"), short)
    assert kept(("sort,wolf_shop:key", "tracking"), Plain()) == (("sort", "tracking", "wolf_shop:key"), short)
    assert kept((), Own()) == (("own.key_resolver",), f"own {URL}")
    assert kept(("sort", "tracking"), Own()) == (("sort", "tracking", "own.key_resolver"), f"own {short}")
    assert kept(("wolf_shop:key",), Own()) == (("wolf_shop:key",), URL)
    assert kept(("none",), Own()) == ((), URL)


@pytest.mark.parametrize("value", [["tracking", "drop:a,b"], "tracking,drop:a,b", "tracking\ndrop:a,b"])
def test_the_command_line_overrides_custom_settings(tmp_path: Path, value: object) -> None:
    custom = {"fingerprint_rules": value, "segment": "3d"}
    settings = load({}, spider_settings=custom, environ={"LYCOSA_SEGMENT": "day"}, folder=tmp_path)
    assert (fingerprint_rules_of(settings, Plain()).words, settings.segment) == (("tracking", "drop:a,b"), "3d")
    flags = {"fingerprint_rules": ("sort", "drop:c"), "segment": "none"}
    settings = load(flags, spider_settings=custom, environ={}, folder=tmp_path)
    assert (fingerprint_rules_of(settings, Plain()).words, settings.segment) == (("sort", "drop:c"), "none")


def test_the_fingerprint_rules_of_a_state_are_used_again() -> None:
    assert stored_fingerprint([]) is fingerprint
    for words in (["sort", "tracking"], ["drop:b,c d", "keep:a"], ["sort", "wolf_shop:key"]):
        keys = fingerprint_rules_of(Settings(fingerprint_rules=tuple(words)), Plain())
        assert list(keys.words) == words
        assert stored_fingerprint(words)("GET", URL, b"") == keys.fingerprint("GET", URL)
    with pytest.raises(
        BadSetting, match=r"^own.key_resolver computes the fingerprints of this crawl: only a run of its"
    ):
        stored_fingerprint(["sort", "own.key_resolver"])


def of_run(segment: str, spider: Spider) -> str:
    return segment_naming_of(Settings(segment=segment), spider).of_run(Request(URL), 86_400.0)


def test_segments_are_named_by_the_setting_else_by_the_spider() -> None:
    (Path.cwd() / "wolf_time.py").write_text("def name(request, now):\n    return f'at-{now:.0f}'")
    assert of_run("", Plain()) == ""
    assert of_run("", Own()) == "own-86400"
    assert of_run("none", Own()) == ""
    assert of_run("day", Own()) == "1970-01-02"
    assert of_run("spider", Own()) == "own"
    assert of_run("wolf_time:name", Own()) == "at-86400"


class Periods(Plain):
    def segment_resolver(self, request: Request) -> str:
        return "3d"


def test_a_resolver_without_a_time_returns_the_period_of_each_request() -> None:
    (Path.cwd() / "wolf_period.py").write_text("def often(request):\n    return 'hour'\ndef odd(a, b, c): pass")
    assert of_run("", Periods()) == "1970-01-01+3d"
    assert of_run("wolf_period:often", Plain()) == "1970-01-02T00+hour"
    with pytest.raises(BadSetting, match=r"wolf_period:odd does not take \(request, now\) or \(request\)"):
        of_run("wolf_period:odd", Plain())


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("text", "Plain.key_resolver is a str: write a function (method, url, body)"),
        (partial(lambda: None), "Plain.key_resolver does not take (method, url, body)"),
    ],
)
def test_a_spider_attribute_that_is_no_resolver_is_reported(found: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        fingerprint_rules_of(Settings(), Plain(key_resolver=found))
    assert str(caught.value) == message


def test_a_resolver_without_a_signature_is_accepted() -> None:
    assert import_function("fingerprint_rules", "builtins:max", "method, url, body") is max
