"""The settings as the parts of a user read them: like a dict, by our names, by Scrapy's, and by the user's own.

    crawler.settings["delay"]   crawler.settings.getfloat("DOWNLOAD_DELAY")   crawler.settings.get("SHOP_TOKEN", "")

By a name of Scrapy's the value is what Scrapy's own would be: 0 where ours is None, megabytes where ours are bytes.
The user's own names are the keys of the table `user`. Nothing can be set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from lycosa.config.kinds import Switch
from lycosa.config.scrapy_names import SAME, SCRAPY_NAMES, TOGETHER
from lycosa.config.scrapy_others import EXPLAINED
from lycosa.config.settings import Settings
from lycosa.config.several import split


class SettingsView(Mapping[str, Any]):
    """A read-only mapping over `Settings`. It iterates over our names and the user's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own = [field.name for field in fields(Settings)]

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return getattr(self._settings, name)
        if name in self._settings.user:
            return self._settings.user[name]
        if name in SCRAPY_NAMES:
            return self._as_scrapys(name)
        raise KeyError(f"{name} ({EXPLAINED[name].instead})" if name in EXPLAINED else name)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._settings.user if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def getbool(self, name: str, default: bool = False) -> bool:
        """Return true or false; text may say it in words. Raises `ValueError`."""
        value = self.get(name)
        if value is None:
            return default
        try:
            return Switch().convert(value)
        except ValueError:
            raise ValueError(f"{name}: {value!r} is not {Switch().wanted}") from None

    def getint(self, name: str, default: int = 0) -> int:
        """Return a whole number. Raises `ValueError`."""
        value = self.get(name)
        return default if value is None else int(value)

    def getfloat(self, name: str, default: float = 0.0) -> float:
        """Return a number. Raises `ValueError`."""
        value = self.get(name)
        return default if value is None else float(value)

    def getlist(self, name: str, default: list[Any] | None = None) -> list[Any]:
        """Return a list of one's own; text is cut at its commas."""
        value = self.get(name)
        if value is None:
            return list(default or [])
        return split(value) if isinstance(value, str) else list(value)

    def getdict(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a dict of one's own; text is read as JSON. Raises `ValueError`."""
        value = self.get(name)
        if value is None:
            return dict(default or {})
        return dict(json.loads(value) if isinstance(value, str) else value)

    def _as_scrapys(self, name: str) -> Any:
        setting = SCRAPY_NAMES[name]
        value = getattr(self._settings, setting)
        if setting in TOGETHER:
            each = TOGETHER[setting]
            return each.writes[each.names.index(name)](value)
        return SAME[name].write(value)
