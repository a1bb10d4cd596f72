"""The settings as the user's code sees them, by our names, Scrapy's names, and the user's own.

    crawler.settings["delay"]   crawler.settings.getfloat("DOWNLOAD_DELAY")   crawler.settings.get("SHOP_TOKEN", "")

A Scrapy name returns the value in Scrapy's form, such as 0 for None or MiB for bytes (MEMUSAGE_LIMIT_MB). The user's
own names are the keys of the table `user`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from lycosa.config.composite_kinds import split
from lycosa.config.kinds import Boolean
from lycosa.config.scrapy_names import COMBINATIONS, EQUIVALENTS, SCRAPY_NAMES
from lycosa.config.scrapy_unsupported import UNSUPPORTED
from lycosa.config.settings import Settings


class SettingsView(Mapping[str, Any]):
    """A read-only mapping over `Settings` that iterates over our names and the user's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own = [field.name for field in fields(Settings)]

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return getattr(self._settings, name)
        if name in self._settings.user:
            return self._settings.user[name]
        if name in SCRAPY_NAMES:
            return self._scrapy_value(name)
        raise KeyError(f"{name} ({UNSUPPORTED[name].advice})" if name in UNSUPPORTED else name)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._settings.user if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def getbool(self, name: str, default: bool = False) -> bool:
        """Text may be "yes", "off" and so on. Raises `ValueError`."""
        value = self.get(name)
        if value is None:
            return default
        try:
            return Boolean().convert(value)
        except ValueError:
            raise ValueError(f"{name}: {value!r} is not {Boolean().expected}") from None

    def getint(self, name: str, default: int = 0) -> int:
        value = self.get(name)
        return default if value is None else int(value)

    def getfloat(self, name: str, default: float = 0.0) -> float:
        value = self.get(name)
        return default if value is None else float(value)

    def getlist(self, name: str, default: list[Any] | None = None) -> list[Any]:
        """Return a new list. Text is split at commas."""
        value = self.get(name)
        if value is None:
            return list(default or [])
        return split(value) if isinstance(value, str) else list(value)

    def getdict(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a new dict. Text is parsed as JSON. Raises `ValueError`."""
        value = self.get(name)
        if value is None:
            return dict(default or {})
        return dict(json.loads(value) if isinstance(value, str) else value)

    def _scrapy_value(self, name: str) -> Any:
        setting = SCRAPY_NAMES[name]
        value = getattr(self._settings, setting)
        if setting in COMBINATIONS:
            each = COMBINATIONS[setting]
            return each.writes[each.names.index(name)](value)
        return EQUIVALENTS[name].write(value)
