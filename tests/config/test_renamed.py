"""Old names of settings and options: refused, with the new name in the message."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from lycosa.app.proxies.pools import read_policies
from lycosa.cli.main import main
from lycosa.config import Settings, load
from lycosa.config.renamed import OPTIONS, POLICY_KEYS, SETTINGS, renamed_option, renamed_setting, renamed_variable
from lycosa.core.errors import BadSetting
from lycosa.proxies.core.policy import TargetPolicy


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({"toml": "blocked_after = 1"}, "lycosa.toml: setting 'blocked_after' is now 'slow_callback_after'"),
        ({"toml": "[crawl]\nexpect = 1"}, "lycosa.toml [crawl]: setting 'expect' is now 'expected_urls'"),
        ({"sets": ["blocked-after=1"]}, "-s blocked-after: setting 'blocked-after' is now 'slow_callback_after'"),
        ({"environ": {"LYCOSA_EXPECT": "1"}}, "environment: LYCOSA_EXPECT is now LYCOSA_EXPECTED_URLS"),
        ({"spider_settings": {"key": "sort"}}, "custom_settings: setting 'key' is now 'fingerprint_rules'"),
    ],
)
def test_old_setting_is_refused_with_its_new_name(tmp_path: Path, layers, message):
    (tmp_path / "lycosa.toml").write_text(layers.pop("toml", ""))
    with pytest.raises(BadSetting) as caught:
        load({}, **{"environ": {}, "folder": tmp_path, **layers})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["crawl", "--expect", "1000", "http://a.example/"], "option --expect is now --expected-urls"),
        (["frontier", "list", "--state-of", "dead"], "option --state-of is now --status"),
        (["settings", "--get", "expect"], "setting 'expect' is now 'expected_urls'"),
    ],
)
def test_old_option_gives_a_message_of_one_line_and_exit_code_2(capsys, arguments, message):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"lycosa: {message}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default.bans_max = 1", "proxies.default: 'bans_max' is now 'max_bans'"),
        ('targets."a.example".cool_max_s = 1', "proxies.targets.\"a.example\": 'cool_max_s' is now 'max_cool_s'"),
        (
            "default = 1\ntargets = {b = 2, c = {misses_max = 3}}",
            "proxies.targets.\"c\": 'misses_max' is now 'max_misses'",
        ),
    ],
)
def test_old_key_of_a_policy_is_refused_with_its_new_name(text, message):
    with pytest.raises(BadSetting) as caught:
        read_policies(tomllib.loads(text))
    assert str(caught.value) == message


def test_an_old_name_without_a_successor_is_reported_as_no_longer_existing(monkeypatch):
    monkeypatch.setattr("lycosa.config.renamed.SETTINGS", {"old": ""})
    monkeypatch.setattr("lycosa.config.renamed.OPTIONS", {"-x": ""})
    assert renamed_setting("old") == "setting 'old' no longer exists"
    assert renamed_variable("LYCOSA_", "old") == "LYCOSA_OLD no longer exists"
    assert [renamed_option(option) for option in ("-x", "--old")] == [
        "option -x no longer exists",
        "option --old no longer exists",
    ]


def test_unknown_names_that_were_never_ours_have_no_message():
    assert renamed_setting("dealy") == renamed_variable("LYCOSA_", "dealy") == renamed_option("--dealy") == ""


def test_no_old_name_is_in_use_and_every_new_one_is():
    names = {field.name for field in fields(Settings)}
    assert not SETTINGS.keys() & names
    assert {new for new in SETTINGS.values() if new} <= names
    assert not {new for new in OPTIONS.values() if new} & OPTIONS.keys()
    policy_names = {field.name for field in fields(TargetPolicy)}
    assert not POLICY_KEYS.keys() & policy_names
    assert set(POLICY_KEYS.values()) <= policy_names
