"""`lycosa settings`: every setting, its value, and where that comes from."""

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
from lycosa.config import Settings, trace
from lycosa.config.kinds import hide_login
from lycosa.core.errors import BadSetting
from lycosa.storage.core.stream_url import is_address

SECRET = frozenset({"http_pass"})
"""Passwords: only `--get` shows them."""

ADDRESSES = frozenset({"frontier", "output", "proxy", "proxy_pool"})
"""Those that may be URLs with a password in them."""

SENTINELS = re.compile(r"(?<=[?&]sentinel_password=)[^&]+")


@click.command("settings")
@click.option("--get", "name", metavar="NAME", help="Only the value of this one, by our name or Scrapy's.")
@click.option("--spider", metavar="NAME", help="As this spider of the project has them.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@set_option
def command(name: str | None, spider: str | None, as_json: bool, sets: Sequence[str]) -> None:
    """Show every setting: name, value, and where the value comes from.

    \b
    lycosa settings --get CONCURRENT_REQUESTS
    """
    loaded = trace({}, sets=sets, spider_settings=_custom(spider, sets), environ=os.environ, folder=Path.cwd())
    if name is not None:
        _show_one(loaded.settings, name, as_json=as_json)
        return
    rows = [(each.name, _safe(each.name, getattr(loaded.settings, each.name))) for each in fields(Settings)]
    if as_json:
        told = {name: {"value": value, "from": loaded.places.get(name, "default")} for name, value in rows}
        print(_json(told, indent=2))
        return
    _show_all(rows, loaded.places)


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

    view, ours = SettingsView(settings), name.replace("-", "_")
    known = next((each for each in (name, ours, name.removeprefix("user.")) if each in view), None)
    if known is None and name in UNSUPPORTED:
        raise BadSetting(f"{name} is not supported: {UNSUPPORTED[name].advice}")
    if known is None:
        raise BadSetting(unknown_setting(name))
    print(_json(view[known]) if as_json else as_text(view[known]))


def _safe(name: str, value: Any) -> Any:
    if name == "proxy" or (name in ADDRESSES and is_address(value)):
        return SENTINELS.sub("***", str(hide_login(value))) if value else value
    return "***" if name in SECRET and value else value


def _show_all(rows: Sequence[tuple[str, Any]], places: Mapping[str, str]) -> None:
    width = max(len(name) for name, _ in rows)
    texts = [(name, one_line(as_text(value)), places.get(name, "")) for name, value in rows]
    middle = min(50, max(len(text) for _, text, place in texts if place or len(text) < 50))
    for name, text, place in texts:
        print(f"{name:<{width}}  {text:<{middle}}  {place}".rstrip())


def as_text(value: Any) -> str:
    """Return a value as one writes it after -s."""
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
    return json.dumps(_plain(value), ensure_ascii=False, indent=indent, default=str)


def _plain(value: Any) -> Any:
    """Return what JSON cannot hold in a form that it can: classes by name."""
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return f"{value.__module__}:{value.__qualname__}" if isinstance(value, type) else value
