"""What a setting may hold: a number within bounds, a size, a switch, one of a few words, text, a place for files.

A kind converts what stands in a file, in the environment or in Python to the type of its setting, or says what would be
right. It knows neither names nor places: the layers do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lycosa.core.errors import BadSetting, UsageError
from lycosa.core.units import parse_duration, parse_size
from lycosa.proxies.core.pool_url import parse_pool_address as read_pool
from lycosa.storage.core.stream_url import is_address, read_address

BODY_MAX = 1024**3
ITEM_SUFFIXES = (".jsonl", ".jl", ".ndjson")
STANDARD_OUTPUT = "-"
YES = frozenset({"true", "yes", "on", "1"})
NO = frozenset({"false", "no", "off", "0"})
PROXY_URL = re.compile(r"(?:https?|socks(?:4a?|5h?))://[^\s/]+/?", re.IGNORECASE)
LOGIN = re.compile(r"^((?:[^/@]*//)?).*@", re.DOTALL)
HEADER_LINE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")
CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
SHORT = re.compile(r".{1,1000}")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
PRINTABLE_LINE = re.compile(r"[\x20-\x7e]+")


class Kind(Protocol):
    """What a setting may hold. `convert` takes text or a TOML or Python value; any
    TypeError or ValueError means: it is not `wanted`, a BadSetting says why itself."""

    @property
    def wanted(self) -> str:
        """The right values in words, to follow "is not"."""
        ...

    def convert(self, value: object) -> Any:
        """Return the value in the type of the setting."""
        ...


class Whole(NamedTuple):
    """A whole number within bounds, both included; or None where that has a meaning."""

    low: int
    high: int
    optional: bool = False

    @property
    def wanted(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}" + (" or 'none'" if self.optional else "")

    def convert(self, value: object) -> int | None:
        if self.optional and (value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"})):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError
        return int(within(self.low, int(value), self.high))


class Urls(Whole):
    """A number of URLs that a Bloom filter has room for."""

    def convert(self, value: object) -> int | None:
        from lycosa.core.bloom import too_large  # slow to import, and hardly ever needed

        number = float(value) if isinstance(value, (float, str)) else 0.5
        whole = int(number) if number.is_integer() else value
        if isinstance(whole, int) and (why := too_large(whole)):
            raise BadSetting(why)
        return super().convert(whole)


class Number(NamedTuple):
    """A number within bounds, both included."""

    low: float
    high: float

    @property
    def wanted(self) -> str:
        return f"a number from {self.low:g} to {self.high:,.0f}"

    def convert(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        return within(self.low, float(value), self.high)


class Seconds(Number):
    """A time span within bounds, both included."""

    @property
    def wanted(self) -> str:
        return f"a number of seconds from {self.low:g} to {self.high:,.0f}, such as 0.5"


class Age(NamedTuple):
    """A time span in seconds, or None for none; text may have a unit."""

    low: float
    high: float
    wanted: str = "an age such as 3600 (seconds), 30m, 12h, 7d or 2w"

    def convert(self, value: object) -> float | None:
        if value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"}):
            return None
        if isinstance(value, str):
            value = parse_duration(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError
        return within(self.low, float(value), self.high)


class Size(NamedTuple):
    """A number of bytes, or None for what is usual; text may have a unit."""

    low: int
    high: int
    optional: bool = False

    @property
    def wanted(self) -> str:
        return f"a size from {self.low:,} to {self.high:,} bytes, such as 500000, 10MB or 10MiB"

    def convert(self, value: object) -> int | None:
        if self.optional and (value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"})):
            return None
        if isinstance(value, str):
            value = parse_size(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        return int(within(self.low, value, self.high))


class Switch(NamedTuple):
    """Yes or no."""

    wanted: str = "true or false"

    def convert(self, value: object) -> bool:
        if isinstance(value, (bool, int)) and value in {0, 1}:
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in YES | NO:
            return value.strip().lower() in YES
        raise ValueError


class OneOf(NamedTuple):
    """One of a few words, in any case."""

    words: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return f"one of {', '.join(self.words)}"

    def convert(self, value: object) -> str:
        for word in self.words:
            if isinstance(value, str) and value.strip().lower() == word.lower():
                return word
        raise ValueError


class Text(NamedTuple):
    """Text of a certain form. `empty` is what an empty text or None stands for; ... when there is no such thing."""

    wanted: str
    form: re.Pattern[str]
    empty: Any = ...

    def convert(self, value: object) -> Any:
        if self.empty is not ... and (value is None or value == ""):
            return self.empty
        if not isinstance(value, str) or not self.form.fullmatch(value):
            raise ValueError
        return value


class Location(NamedTuple):
    """A file or folder, `~` expanded; None when there is none."""

    wanted: str
    suffixes: tuple[str, ...] = ()
    required: bool = False

    def convert(self, value: object) -> str | None:
        if value in (None, "") and not self.required:
            return None
        if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
            raise ValueError
        if str(value) == STANDARD_OUTPUT:
            return STANDARD_OUTPUT
        path = Path(value).expanduser()
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            raise ValueError
        return str(path)


class Output(Location):
    """A file, or the address of a stream in Redis."""

    def convert(self, value: object) -> str | None:
        if not is_address(value):
            return super().convert(value)
        try:
            read_address(str(value))
        except UsageError as error:
            raise BadSetting(str(error)) from None
        return str(value)


class PoolPlace(Location):
    """Where a pool of proxies is: a file or folder, in memory, or the address of a server."""

    def convert(self, value: object) -> str | None:
        if not value or not isinstance(value, (str, Path)):
            return super().convert(value)
        try:
            place = read_pool(str(value))
        except UsageError as error:
            raise BadSetting(str(error)) from None
        return super().convert(place.folder) if place.folder else str(value)


class WrongPart(ValueError):
    """One of several values is wrong: this one."""


def without_login(proxy: object) -> object:
    """Return a URL, or what was meant to be one, as it may be shown."""
    return LOGIN.sub(r"\1***@", proxy) if isinstance(proxy, str) else proxy


def within(low: float, value: float, high: float) -> float:
    """Return the value. Raises `ValueError` when it is out of bounds."""
    if not low <= value <= high:
        raise ValueError
    return value
