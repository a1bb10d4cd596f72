"""Kinds of settings that hold a single value.

A kind converts a value from a file, the environment or Python to the type of its setting, or says what is valid.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lycosa.core.errors import BadSetting, UsageError
from lycosa.core.units import parse_duration, parse_size
from lycosa.proxies.core.pool_url import parse_pool_address as read_pool
from lycosa.storage.core.output import STANDARD_OUTPUT

BODY_MAX = 1024**3
TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
PROXY_URL = re.compile(r"(?:https?|socks(?:4a?|5h?))://[^\s/]+/?", re.IGNORECASE)
LOGIN = re.compile(r"^((?:[^/@]*//)?).*@", re.DOTALL)
HEADER_LINE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")
CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
SHORT = re.compile(r".{1,1000}")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
PRINTABLE_LINE = re.compile(r"[\x20-\x7e]+")


class SettingKind(Protocol):
    """The type of a setting, and what its valid values are."""

    @property
    def expected(self) -> str:
        """Describe the valid values, as a phrase that follows "is not"."""

    def convert(self, value: object) -> Any:
        """Convert text or a TOML or Python value to the type of the setting.

        Raises `BadSetting` with an explanation, or `TypeError` or `ValueError` if `expected` explains enough.
        """


class Integer(NamedTuple):
    """A whole number within bounds, or None if `optional`."""

    low: int
    high: int
    optional: bool = False

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}" + (" or 'none'" if self.optional else "")

    def convert(self, value: object) -> int | None:
        if self.optional and is_none(value):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError
        return int(check_range(self.low, int(value), self.high))


class UrlCount(Integer):
    """The capacity of a Bloom filter, in URLs."""

    def convert(self, value: object) -> int | None:
        from lycosa.core.bloom import too_large  # slow to import, and rarely needed

        number = float(value) if isinstance(value, (float, str)) else 0.5
        whole = int(number) if number.is_integer() else value
        if isinstance(whole, int) and (problem := too_large(whole)):
            raise BadSetting(problem)
        return super().convert(whole)


class RealNumber(NamedTuple):
    """A number within bounds, both included."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"a number from {self.low:g} to {self.high:,.0f}"

    def convert(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        return check_range(self.low, float(value), self.high)


class SecondsWithin(RealNumber):
    """A number of seconds within bounds, both included."""

    @property
    def expected(self) -> str:
        return f"a number of seconds from {self.low:g} to {self.high:,.0f}, such as 0.5"


class Duration(NamedTuple):
    """A number of seconds within bounds, or None; text may have a unit."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"a time from {self.low:g} to {self.high:,.0f} seconds, such as 3600, 12h, 7d or 2w"

    def convert(self, value: object) -> float | None:
        if is_none(value):
            return None
        return RealNumber(self.low, self.high).convert(parse_duration(value) if isinstance(value, str) else value)


class ByteSize(NamedTuple):
    """A number of bytes within bounds, or None if `optional`; text may have a unit."""

    low: int
    high: int
    optional: bool = False

    @property
    def expected(self) -> str:
        return f"a size from {self.low:,} to {self.high:,} bytes, such as 10MB or 10MiB"

    def convert(self, value: object) -> int | None:
        if self.optional and is_none(value):
            return None
        return Integer(self.low, self.high).convert(parse_size(value) if isinstance(value, str) else value)


class Boolean(NamedTuple):
    """True or false."""

    expected: str = "true or false"

    def convert(self, value: object) -> bool:
        if isinstance(value, (bool, int)) and value in {0, 1}:
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in TRUE | FALSE:
            return value.strip().lower() in TRUE
        raise ValueError


class Choice(NamedTuple):
    """One of several words; upper and lower case are the same."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    def convert(self, value: object) -> str:
        for word in self.words:
            if isinstance(value, str) and value.strip().lower() == word.lower():
                return word
        raise ValueError


class Text(NamedTuple):
    """Text that matches `pattern`. Empty text and None become `empty`; if `empty` is `...`, they are refused."""

    expected: str
    pattern: re.Pattern[str]
    empty: Any = ...

    def convert(self, value: object) -> Any:
        if self.empty is not ... and (value is None or value == ""):
            return self.empty
        if not isinstance(value, str) or not self.pattern.fullmatch(value):
            raise ValueError
        return value


class FilePath(NamedTuple):
    """A path with `~` expanded; None for no path, unless it is `required`."""

    expected: str
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


class PoolLocation(FilePath):
    """The location of a proxy pool: a file, a folder, memory, or the URL of a server."""

    def convert(self, value: object) -> str | None:
        if not value or not isinstance(value, (str, Path)):
            return super().convert(value)
        try:
            address = read_pool(str(value))
        except UsageError as error:
            raise BadSetting(str(error)) from None
        return super().convert(address.folder) if address.folder else str(value)


class BadElement(ValueError):
    """An invalid element of a setting with several values, given as the exception's argument."""


def is_none(value: object) -> bool:
    """Return whether a value means "none"."""
    return value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"})


def hide_login(url: object) -> object:
    """Replace the login in a URL, even an invalid one, with `***`."""
    return LOGIN.sub(r"\1***@", url) if isinstance(url, str) else url


def check_range(low: float, value: float, high: float) -> float:
    """Return the value. Raises `ValueError` if it is out of bounds."""
    if not low <= value <= high:
        raise ValueError
    return value
