"""`lycosa settings`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.options import set_option
from lycosa.config import Settings, load
from lycosa.config.kinds import hide_login
from lycosa.core.errors import BadSetting
from lycosa.storage.core.stream_url import is_address

SECRET = frozenset({"http_pass"})
"""Passwords: only `--get` shows them."""

ADDRESSES = frozenset({"frontier", "proxy", "proxy_pool"})
"""Settings that may be URLs with a password."""

SENTINEL_PASSWORD = re.compile(r"(?<=[?&]sentinel_password=)[^&]+")


@click.command("settings")
@click.option("--get", "name", metavar="NAME", help="Show only the value of this setting (Lycosa's or Scrapy's name).")
@click.option("--spider", metavar="NAME", help="Show the settings of this spider of the project.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@set_option
def command(name: str | None, spider: str | None, as_json: bool, sets: Sequence[str]) -> None:
    """Show every setting: its name, its value, and the source of the value.

    \b
    lycosa settings --get CONCURRENT_REQUESTS
    """
    places: dict[str, str] = {}
    custom = _custom(spider, sets)
    settings = load({}, sets=sets, spider_settings=custom, environ=os.environ, folder=Path.cwd(), places=places)
    if name is not None:
        _show_one(settings, name, as_json=as_json)
        return
    rows = [(each.name, _hide_secrets(each.name, getattr(settings, each.name))) for each in fields(Settings)]
    if as_json:
        print(_json({name: {"value": value, "from": places.get(name, "default")} for name, value in rows}, indent=2))
        return
    _show_all(rows, places)


def _custom(spider: str | None, sets: Sequence[str]) -> Mapping[str, object]:
    from lycosa.cli.crawl.spiders import enter_project, load_named, project_settings

    if spider is None:
        return {}
    enter_project()
    custom: Mapping[str, object] = load_named(spider, project_settings(sets)).custom_settings or {}
    return custom


def _show_one(settings: Settings, name: str, *, as_json: bool) -> None:
    from lycosa.config.layers import unknown_setting
    from lycosa.config.scrapy_unsupported import UNSUPPORTED
    from lycosa.config.view import SettingsView

    view = SettingsView(settings)
    key = next((each for each in (name, name.replace("-", "_"), name.removeprefix("user.")) if each in view), None)
    if key is None and name in UNSUPPORTED:
        raise BadSetting(f"{name} is not supported: {UNSUPPORTED[name].advice}")
    if key is None:
        raise BadSetting(unknown_setting(name))
    print(_json(view[key]) if as_json else as_text(view[key]))


def _hide_secrets(name: str, value: Any) -> Any:
    if name == "output":
        return tuple(_hide_secrets("frontier", each) for each in value)
    if name == "proxy" or (name in ADDRESSES and is_address(value)):
        return SENTINEL_PASSWORD.sub("***", str(hide_login(value))) if value else value
    return "***" if name in SECRET and value else value


def _show_all(rows: Sequence[tuple[str, Any]], places: Mapping[str, str]) -> None:
    width = max(len(name) for name, _ in rows)
    texts = [(name, one_line(as_text(value)), places.get(name, "")) for name, value in rows]
    middle = min(50, max(len(text) for _, text, place in texts if place or len(text) < 50))
    for name, text, place in texts:
        print(f"{name:<{width}}  {text:<{middle}}  {place}".rstrip())


def as_text(value: Any) -> str:
    """Format a value as it would be written after -s."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return _json(value) if isinstance(value, Mapping) else str(value)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_for_json(value), ensure_ascii=False, indent=indent, default=str)


def _for_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(_for_json(key)): _for_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(each) for each in value]
    return f"{value.__module__}:{value.__qualname__}" if isinstance(value, type) else value
