"""Settings: one name everywhere, layers in their order, and one clear line for every mistake (C8, bad input)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from lycosa.cli.options import FLAGS
from lycosa.config import Settings, load
from lycosa.core.bloom import EXPECTED_MAX, FALSE_POSITIVES, Layer, memory_bytes
from lycosa.core.errors import BadSetting


def settings(tmp_path: Path, flags=None, *, toml="", pyproject="", environ=None, **layers) -> Settings:
    if toml:
        (tmp_path / "lycosa.toml").write_text(toml)
    if pyproject:
        (tmp_path / "pyproject.toml").write_text(pyproject)
    return load(flags or {}, environ=environ or {}, folder=tmp_path, **layers)


def complaint(tmp_path: Path, flags=None, **layers) -> str:
    with pytest.raises(BadSetting) as caught:
        settings(tmp_path, flags, **layers)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 300
    return text


def test_without_layers_the_defaults_apply(tmp_path):
    assert settings(tmp_path) == Settings()


def test_every_later_layer_wins(tmp_path):
    """Each layer sets the delay, then is taken away, last one first."""
    layers = {
        "pyproject": "[tool.lycosa]\ndelay = 1",
        "toml": "delay = 2\n[crawl]\ndelay = 3",
        "environ": {"LYCOSA_DELAY": "4"},
        "spider_settings": {"DOWNLOAD_DELAY": 5},
        "sets": ["delay=6"],
        "flags": {"delay": "7"},
    }
    delays = []
    while layers:
        for file in tmp_path.iterdir():
            file.unlink()
        delays.append(settings(tmp_path, **layers).delay)
        layers.popitem()
    assert delays == [7, 6, 5, 4, 3, 1]


def test_crawl_table_wins_over_the_top_level(tmp_path):
    assert settings(tmp_path, toml="delay = 2\ndepth = 1\n[crawl]\ndelay = 3").delay == 3


def test_option_that_is_not_given_changes_nothing(tmp_path):
    assert settings(tmp_path, {"delay": None, "robots": None}, toml="delay = 2\nrobots = false").robots is False


def test_every_default_is_accepted_by_its_kind(tmp_path):
    defaults = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    assert load({}, spider_settings=defaults, environ={}, folder=tmp_path) == Settings()


def test_too_large_bloom_filter_is_refused_with_its_memory(tmp_path):
    for text in ("10000000000", "1e10", "10_000_000_000"):
        assert complaint(tmp_path, {"expected_urls": text}) == (
            "--expected-urls: a Bloom filter for 10,000,000,000 URLs takes 12 GB of memory in every segment: "
            "write at most 1,000,000,000 (1.2 GB); the filter grows by itself for more URLs"
        )
    assert complaint(tmp_path, toml="expected_urls = 1_000_000_001").startswith(
        "lycosa.toml: expected_urls: a Bloom filter for 1,000,"
    )
    (tmp_path / "lycosa.toml").unlink()
    for text in ("1e300", "inf", "nan", "999", "-1", "1000.5", "many", ""):
        assert "is not a whole number from 1,000 to 1,000,000,000" in complaint(tmp_path, {"expected_urls": text})
    assert [settings(tmp_path, {"expected_urls": text}).expected_urls for text in ("1e9", "1000", 5e6)] == [
        10**9,
        1000,
        5_000_000,
    ]


def test_bound_of_expected_urls_is_that_of_the_filter(tmp_path):
    assert settings(tmp_path, {"expected_urls": EXPECTED_MAX}).expected_urls == EXPECTED_MAX
    assert f"{EXPECTED_MAX:,}" in complaint(tmp_path, {"expected_urls": 10**15})


def test_memory_in_the_message_is_that_of_the_filter():
    for expected in (1000, 1_000_000, 3_000_000):
        assert Layer(expected, FALSE_POSITIVES).bits.size_in_bits / 8 == pytest.approx(memory_bytes(expected), rel=0.01)


def test_every_option_is_a_setting():
    names = [each.setting for each in FLAGS]
    assert set(names) < {field.name for field in fields(Settings)}
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("max_body=10MB", "max_body", 10_000_000),
        ("max_body=10 MiB", "max_body", 10 * 1024**2),
        ("max_body=1.5kib", "max_body", 1536),
        ("max_body=500", "max_body", 500),
        ("max-body=500", "max_body", 500),
        ("depth=none", "depth", None),
        ("depth=", "depth", None),
        ("depth=0", "depth", 0),
        ("robots=No", "robots", False),
        ("robots=1", "robots", True),
        ("scope=DOMAIN", "scope", "domain"),
        ("allow=*/a/*, */b/*", "allow", ("*/a/*", "*/b/*")),
        ("allow=*/a,b/*\n*/c/*", "allow", ("*/a,b/*", "*/c/*")),
        ("header=Accept: a/b, c/d\nX-Y:z", "header", ("Accept: a/b, c/d", "X-Y:z")),
        ("proxy=", "proxy", ""),
        ("proxy=socks5h://127.0.0.1:1080", "proxy", "socks5h://127.0.0.1:1080"),
        ("output=items.JSONL", "output", ("items.JSONL",)),
        ("output=-", "output", ("-",)),
        ("output=a.csv\nb.json:csv.gz", "output", ("a.csv", "b.json:csv.gz")),
        ("output=a.csv,b.json:csv.gz,-", "output", ("a.csv", "b.json:csv.gz", "-")),
        ("output=a,b.csv", "output", ("a,b.csv",)),
        ("log_level=debug", "log_level", "DEBUG"),
    ],
)
def test_text_is_converted(tmp_path, text, name, value):
    assert getattr(settings(tmp_path, sets=[text]), name) == value


def test_toml_values_keep_their_types(tmp_path):
    actual = settings(tmp_path, toml='delay = 1\nallow = ["a,b", "c"]\nmax_body = "1MB"\n[header]\nAccept = "x, y"')
    assert (actual.delay, actual.allow, actual.max_body, actual.header) == (
        1.0,
        ("a,b", "c"),
        1_000_000,
        ("Accept: x, y",),
    )


def test_a_tilde_is_expanded_to_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings(tmp_path, sets=["state=~/s"]).state == str(tmp_path / "s")


def test_zero_means_no_limit_in_scrapys_names_only(tmp_path):
    assert settings(tmp_path, toml="depth = 3", sets=["DEPTH_LIMIT=0"]).depth is None
    assert settings(tmp_path, sets=["depth=0"]).depth == 0


def test_environment_variables_that_are_no_settings_are_ignored(tmp_path):
    environ = {"LYCOSA_DEBUG": "1", "LYCOSA_PROVE": "1", "LYCOSA_TEST_SEED": "1", "PATH": "x"}
    assert settings(tmp_path, environ=environ) == Settings()


@pytest.mark.parametrize(
    ("layers", "parts"),
    [
        ({"toml": "dealy = 1"}, ["lycosa.toml", "'dealy'", "did you mean delay?"]),
        ({"toml": "[crawl]\ndealy = 1"}, ["lycosa.toml [crawl]", "'dealy'"]),
        ({"toml": "[hub]\na = 1"}, ["lycosa.toml", "'hub'"]),
        ({"toml": "crawl = 1"}, ["lycosa.toml", "[crawl]"]),
        ({"toml": "delay = 1 2"}, ["lycosa.toml", "not valid TOML", "line 1"]),
        ({"pyproject": "[tool.lycosa]\ndealy = 1"}, ["pyproject.toml [tool.lycosa]", "'dealy'"]),
        ({"pyproject": "[tool]\nlycosa = 1"}, ["pyproject.toml", "[tool.lycosa]"]),
        ({"environ": {"LYCOSA_DEALY": "1"}}, ["LYCOSA_DEALY", "did you mean LYCOSA_DELAY?"]),
        ({"environ": {"LYCOSA_DELAY": "x"}}, ["LYCOSA_DELAY: 'x' is not a number of seconds"]),
        ({"environ": {"LYCOSA_DELAY": ""}}, ["LYCOSA_DELAY: '' is not"]),
        ({"spider_settings": {"DOWNLOAD_DEALY": 1}}, ["custom_settings", "did you mean DOWNLOAD_DELAY?"]),
        ({"spider_settings": {7: 1}}, ["custom_settings", "'7'"]),
        ({"sets": ["dealy=1"]}, ["-s dealy", "did you mean delay?"]),
        ({"sets": ["delay"]}, ["-s 'delay'", "NAME=VALUE"]),
        ({"sets": ["=1"]}, ["-s '=1'", "NAME=VALUE"]),
        ({"flags": {"concurrency": "many"}}, ["--concurrency: 'many' is not a whole number from 1 to 10,000"]),
        ({"flags": {"concurrency": "0"}}, ["--concurrency", "from 1"]),
        ({"flags": {"concurrency": "9" * 5000}}, ["--concurrency", "from 1"]),
        ({"flags": {"concurrency": True}}, ["--concurrency", "True"]),
        ({"flags": {"concurrency": 1.5}}, ["--concurrency", "1.5"]),
        ({"flags": {"delay": "-1"}}, ["--delay: '-1' is not a number of seconds from 0"]),
        ({"flags": {"delay": "nan"}}, ["--delay: 'nan' is not"]),
        ({"flags": {"delay": "inf"}}, ["--delay: 'inf' is not"]),
        ({"flags": {"max_body": "10 apples"}}, ["--max-body", "10MB or 10MiB"]),
        ({"flags": {"max_body": "9e99"}}, ["--max-body"]),
        ({"flags": {"max_body": "9" * 400 + "GB"}}, ["--max-body"]),
        ({"flags": {"depth": "deep"}}, ["--depth", "'none'"]),
        ({"flags": {"scope": "hots"}}, ["--scope: 'hots' is not one of host, domain, prefix, any"]),
        ({"flags": {"output": "items.xml"}}, ["-o: 'items.xml'", ".jsonl"]),
        ({"flags": {"fields": "url,title,url"}}, ["--fields: 'url' is given twice: list each once"]),
        ({"flags": {"output": "items"}}, ["-o: 'items'", ".jsonl"]),
        ({"flags": {"header": ("A: b", "C")}}, ["--header: 'C' is not a header line"]),
        ({"flags": {"header": ("A: b\r\nC: d",)}}, ["--header"]),
        ({"flags": {"user_agent": "a\nb"}}, ["--user-agent"]),
        ({"flags": {"user_agent": ""}}, ["--user-agent"]),
        ({"flags": {"proxy": "127.0.0.1:3128"}}, ["--proxy: '127.0.0.1:3128' is not a proxy such as http://"]),
        ({"flags": {"proxy": "ftp://a:1"}}, ["--proxy"]),
        ({"flags": {"content_types": "html"}}, ["--content-types: 'html' is not a content type such as text/html"]),
        ({"flags": {"log_level": "LOUD"}}, ["--log-level: 'LOUD' is not one of DEBUG"]),
        ({"flags": {"state": "a\0b"}}, ["--state"]),
        ({"toml": "robots = 2"}, ["lycosa.toml: robots: 2 is not true or false"]),
        ({"toml": "delay = 1979-05-27"}, ["lycosa.toml: delay"]),
        ({"toml": "allow = 3"}, ["lycosa.toml: allow: 3"]),
        ({"toml": "allow = [3]"}, ["lycosa.toml: allow: 3"]),
    ],
)
def test_every_mistake_is_one_line_with_its_place(tmp_path, layers, parts):
    text = complaint(tmp_path, **layers)
    assert [part for part in parts if part not in text] == [], text


def test_invalid_value_is_refused_even_if_a_later_layer_replaces_it(tmp_path):
    assert "lycosa.toml" in complaint(tmp_path, {"delay": "1"}, toml="delay = 'x'")


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "lycosa.toml").mkdir()
    assert "lycosa.toml cannot be read" in complaint(tmp_path)
    (tmp_path / "lycosa.toml").rmdir()
    (tmp_path / "lycosa.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in complaint(tmp_path)
