"""One table of a TOML file, read strictly: an unknown key or a bad value is one line that says what to write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isfinite

from lycosa.core.errors import BadSetting
from lycosa.core.units import parse_duration

TEXT_MAX = 4096
"""Characters of a value."""

ENTRIES_MAX = 1000
"""Entries of an array, or of a table in the table."""

SHOWN_MAX = 60


class Table:
    """The values of a table; `place` says in messages where it stands, `known` which keys it may have.

    Each method returns the value of a key, or the default. All raise `BadSetting`.
    """

    def __init__(self, place: str, values: object, known: Collection[str]) -> None:
        if not isinstance(values, Mapping):
            raise BadSetting(f"{place}: not a table: write [{place.rsplit(maxsplit=1)[-1]}]")
        unknown = next((str(name) for name in values if name not in known), None)
        if unknown is not None:
            raise BadSetting(f"{place}: unknown key {_shown(unknown)}: write one of {', '.join(known)}")
        self.place = place
        self._values: Mapping[str, object] = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def wrong(self, name: str, instead: str) -> BadSetting:
        """Return the error for a value, which is not repeated: it may be a secret."""
        return BadSetting(f"{self.place}: {name}: {instead}")

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self._values.get(name, default)
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise self.wrong(name, f"write a text of at most {TEXT_MAX:,} characters")
        return value

    def one_of(self, name: str, default: str, choices: Collection[str]) -> str:
        """One of a few words."""
        value = self.text(name, default)
        if value not in choices:
            raise self.wrong(name, f"{_shown(value)} is none of {', '.join(choices)}")
        return value

    def number(self, name: str, default: float = 0.0, least: float = 0.0, most: float = inf) -> float:
        """A number."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f"write a number{_range(least, most)}")
        if not isfinite(value):
            raise self.wrong(name, "write a number")
        return float(value)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"write a whole number{_range(least, most)}")
        return value

    def yes(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "write true or false")
        return value

    def seconds(self, name: str, default: float, least: float, most: float) -> float:
        """A time: seconds, or a text such as "10m"."""
        value = self._values.get(name, default)
        if isinstance(value, str):
            value = parse_duration(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f'write seconds, or a text such as "10m" or "1d"{_range(least, most)}')
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of texts, or one text."""
        return _texts(self, name, self._values.get(name, ()))

    def pairs(self, name: str) -> dict[str, str]:
        """A table of texts."""
        return {key: str(value) for key, value in self._table(name, str | int).items()}

    def choices(self, name: str) -> dict[str, tuple[str, ...]]:
        """A table of texts, or of arrays of them."""
        return {key: _texts(self, f"{name}.{key}", value) for key, value in self._table(name, object).items()}

    def entries(self, name: str) -> list[object]:
        """An array of whatever it is."""
        value = self._values.get(name, [])
        if not isinstance(value, list) or len(value) > ENTRIES_MAX:
            raise self.wrong(name, f"write at most {ENTRIES_MAX:,} tables, each as [[{name}]]")
        return value

    def _table(self, name: str, kind: object) -> dict[str, object]:
        value = self._values.get(name, {})
        if not isinstance(value, Mapping) or len(value) > ENTRIES_MAX:
            raise self.wrong(name, 'write a table, { name = "value" }')
        if not all(isinstance(each, kind) for each in value.values()):  # type: ignore[arg-type]
            raise self.wrong(name, 'write texts in it, { name = "value" }')
        return {str(key): each for key, each in value.items()}


def _texts(table: Table, name: str, value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or len(listed) > ENTRIES_MAX:
        raise table.wrong(name, 'write texts, ["one", "two"]')
    if not all(isinstance(each, str) and len(each) <= TEXT_MAX for each in listed):
        raise table.wrong(name, 'write texts, ["one", "two"]')
    return tuple(listed)


def _range(least: float, most: float) -> str:
    return f", {least:g} or more" if most == inf else f", {least:,g} to {most:,g}"


def _shown(text: str) -> str:
    return repr(text[:SHOWN_MAX])
