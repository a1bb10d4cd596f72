"""The output of `lycosa settings` and `lycosa version`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from lycosa import __version__
from lycosa.cli.main import main
from lycosa.config import Settings


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)
    Path("lycosa.toml").write_text(
        "delay = 1.5\nspider_modules = ['spiders_of_test']\n[pipelines]\n'a:B' = 3\n[user]\ntoken = 'x'\n"
    )
    Path("spiders_of_test.py").write_text(
        "from lycosa import Spider\nclass S(Spider):\n    name = 's'\n"
        "    custom_settings = {'DOWNLOAD_DELAY': 2, 'pipelines': {int: None}, 'user': {'a': {int: [int]}}}\n"
    )
    yield
    sys.modules.pop("spiders_of_test", None)


def shown(capsys, *argv: str) -> str:
    assert main(["settings", *argv]) == 0
    return capsys.readouterr().out


def test_every_setting_is_shown_with_value_and_source(capsys):
    lines = shown(capsys, "-s", "depth=3").splitlines()
    assert [line.split()[0] for line in lines] == [field.name for field in fields(Settings)]
    shown_values = {line.split()[0]: line.split()[1:] for line in lines}
    assert shown_values["delay"] == ["1.5", "lycosa.toml"]
    assert shown_values["depth"] == ["3", "-s", "depth"]
    assert shown_values["timeout"] == ["30"]
    assert shown_values["robots"] == ["true"]
    assert shown_values["max_pages"] == ["none"]
    assert shown_values["pipelines"] == ['{"a:B":', "3}", "lycosa.toml"]


def test_settings_as_json(capsys):
    shown_values = json.loads(shown(capsys, "--json", "--spider", "s"))
    assert shown_values["delay"] == {"value": 2.0, "from": "custom_settings"}
    assert shown_values["timeout"] == {"value": 30.0, "from": "default"}
    assert shown_values["pipelines"] == {"value": {"builtins:int": None}, "from": "custom_settings"}
    assert shown_values["user"]["value"] == {"token": "x", "a": {"builtins:int": ["builtins:int"]}}
    assert set(shown_values) == {field.name for field in fields(Settings)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delay", "1.5"),
        ("DOWNLOAD_DELAY", "1.5"),
        ("max-pages", "none"),
        ("CLOSESPIDER_PAGECOUNT", "0"),
        ("content_types", "text/html, application/xhtml+xml"),
        ("user", '{"token": "x"}'),
        ("user.token", "x"),
        ("token", "x"),
        ("http_cache", "off"),
        ("cookies", "true"),
    ],
)
def test_one_setting_is_shown_with_get(capsys, name, text):
    assert shown(capsys, "--get", name) == f"{text}\n"


def test_one_setting_as_json(capsys):
    assert shown(capsys, "--get", "user", "--json") == '{"token": "x"}\n'


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--get", "dealy"], "unknown setting 'dealy': did you mean delay?"),
        (["--get", "FEEDS"], "FEEDS is not supported: write -o FILE.jsonl, .json, .csv or .sqlite (or set output)"),
        (["--spider", "t"], "no spider is called 't'; available spiders: s"),
        (["-s", "x"], "-s 'x': write NAME=VALUE"),
    ],
)
def test_mistakes_are_one_line(capsys, argv, line):
    assert main(["settings", *argv]) == 2
    assert capsys.readouterr().err == f"lycosa: {line}\n"


def test_a_password_is_shown_only_with_get(capsys):
    secret = ["-s", "http_pass=hunter2"]
    assert "hunter2" not in shown(capsys, *secret) + shown(capsys, "--json", *secret)
    assert shown(capsys, "--get", "http_pass", *secret) == "hunter2\n"


def test_the_login_of_a_proxy_is_shown_only_with_get(capsys):
    proxy = "socks5h://ann:hunt@er2@127.0.0.1:3128"
    assert "socks5h://***@127.0.0.1:3128 " in shown(capsys, "-s", f"proxy={proxy}")
    assert "er2" not in shown(capsys, "--json", "-s", f"proxy={proxy}")
    assert shown(capsys, "--get", "proxy", "-s", f"proxy={proxy}") == proxy + "\n"
    for wrong in ("ann:hunter2@host", "htp://ann:hunter2@host", "http://ann:hunt/er2@host"):
        assert main(["settings", "-s", f"proxy={wrong}"]) == 2
        stderr = capsys.readouterr().err
        assert "er2" not in stderr
        assert "***@host' is not a proxy such as" in stderr


def test_the_password_of_a_stream_is_shown_only_with_get(capsys):
    output = "redis://ann:hunt@er2@127.0.0.1:3128/0?stream=items"
    assert "redis://***@127.0.0.1:3128/0?stream=items " in shown(capsys, "-s", f"output={output}")
    assert "er2" not in shown(capsys, "--json", "-s", f"output={output}")
    assert shown(capsys, "--get", "output", "-s", f"output={output}") == output + "\n"
    assert "items@home.jsonl " in shown(capsys, "-s", "output=items@home.jsonl")
    assert main(["settings", "-s", "output=redis://ann:hunt@er2@127.0.0.1:3128/0"]) == 2
    stderr = capsys.readouterr().err
    assert "er2" not in stderr
    assert "redis://127.0.0.1:3128/0: name the stream" in stderr


def test_control_characters_in_a_value_are_not_printed(capsys):
    Path("lycosa.toml").write_text('[user]\ntoken = "a\\u001b[2J"')
    assert "\x1b" not in shown(capsys)


def test_verbose_version_lists_the_libraries(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"lycosa {__version__}\n"
    assert main(["version", "-v"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["lycosa", __version__]
    assert {"python", "platform"} <= {name for name, _ in lines}


def test_the_passwords_of_a_shared_frontier_are_shown_only_with_get(capsys):
    frontier = "redis+sentinel://ann:hunt@er2@127.0.0.1:3128/shop?sentinel_user=bob&sentinel_password=hunter3"
    shown_ = "redis+sentinel://***@127.0.0.1:3128/shop?sentinel_user=bob&sentinel_password=***"
    for name in ("frontier", "output"):
        wanted = [frontier + "&stream=items", shown_ + "&stream=items"] if name == "output" else [frontier, shown_]
        assert f"{wanted[1]} " in shown(capsys, "-s", f"{name}={wanted[0]}")
        assert "er2" not in (shown_values := shown(capsys, "--json", "-s", f"{name}={wanted[0]}"))
        assert "hunter3" not in shown_values
        assert shown(capsys, "--get", name, "-s", f"{name}={wanted[0]}") == wanted[0] + "\n"
