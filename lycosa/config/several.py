"""Settings that hold several values: lists, and mappings from names. See `kinds`.

In text, the parts stand between commas or line ends; a mapping may also be a JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lycosa.config.kinds import DOTTED, Kind, WrongPart
from lycosa.config.scrapy_parts import SCRAPY_PARTS
from lycosa.core.errors import BadSetting

SHORT_NAME = re.compile(r"[a-z][a-z0-9_]*")
HOST = re.compile(r"(?=.*[^\d.])[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)
ORDER_STEP = 100
"""Parts given as a list, without numbers, get 100, 200, 300..."""
ORDER_MAX = 1_000_000
EVERYWHERE = "*"


class Many(NamedTuple):
    """Several values of one kind: a list, or one text with commas (where `commas`) or line ends between them."""

    each: Kind
    commas: bool = True

    @property
    def wanted(self) -> str:
        return f"{self.each.wanted}, or several"

    def convert(self, value: object) -> tuple[Any, ...]:
        if isinstance(value, Mapping):
            value = [f"{key}: {text}" for key, text in value.items()]
        if isinstance(value, str):
            value = split(value, commas=self.commas)
        if isinstance(value, (set, frozenset)):
            value = sorted(value)
        if value is None or isinstance(value, int):
            value = [] if value is None else [value]
        if not isinstance(value, (Sequence, range)):
            raise TypeError
        return tuple(_converted(self.each, part) for part in value)


class Networks(NamedTuple):
    """Hosts and networks: names, addresses, CIDR blocks; `true` is all of them, `false` none."""

    wanted: str = "true, or a list of hosts and networks such as 10.0.0.0/8 or intranet.example"

    def convert(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str) and value.strip().lower() in {"true", "yes", "on", "1", EVERYWHERE}:
            value = True
        if isinstance(value, str) and value.strip().lower() in {"false", "no", "off", "0", "none"}:
            value = False
        if value is None or isinstance(value, bool):
            return (EVERYWHERE,) if value else ()
        parts = split(value) if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            raise TypeError
        return tuple(_network(part) for part in parts)


class Parts(NamedTuple):
    """Which parts run, and in which order: from a class, an object, `module:Class` or a short name to a number; None
    for not at all. A list stands for 100, 200, 300..."""

    wanted: str = "a list of classes or 'module:Class', or a table of them with numbers (or none)"

    def convert(self, value: object) -> dict[str | type, int | None]:
        if isinstance(value, str):
            value = _table(value) if value.lstrip().startswith("{") else dict(_numbered(split(value)))
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            if not isinstance(value, Sequence):
                raise TypeError
            value = {each: ORDER_STEP * n for n, each in enumerate(value, 1)}
        parts = {_part(name): _order(name, order) for name, order in value.items()}
        return {part: order for part, order in parts.items() if not _is_foreign(part, order)}


class Sizes(NamedTuple):
    """Width and height of pictures, by name."""

    wanted: str = "a table of sizes in pixels such as {small = [50, 50]}"

    def convert(self, value: object) -> dict[str, tuple[int, int]]:
        table = _table(value) if isinstance(value, str) and value else value or {}
        if not isinstance(table, Mapping):
            raise TypeError
        return {str(name): _size(size) for name, size in table.items()}


class Table(NamedTuple):
    """Whatever the user keeps there, by name."""

    wanted: str = "a table"

    def convert(self, value: object) -> dict[str, Any]:
        table = _table(value) if isinstance(value, str) and value else value or {}
        if not isinstance(table, Mapping):
            raise TypeError
        return {str(name): each for name, each in table.items()}


def split(text: str, *, commas: bool = True) -> list[str]:
    """Return the parts of a text: its lines, or, of a single line, what is between commas."""
    parts = text.split("," if commas and "\n" not in text else "\n")
    return [part.strip() for part in parts if part.strip()]


def _converted(each: Kind, part: object) -> Any:
    try:
        return each.convert(part)
    except (TypeError, ValueError):
        raise WrongPart(part) from None


def _network(part: object) -> str:
    import ipaddress

    if not isinstance(part, str):
        raise WrongPart(part)
    text = part.strip().lower()
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        if not HOST.fullmatch(text):
            raise WrongPart(part) from None
        return text.rstrip(".")


def _table(text: str) -> Any:
    import json

    return json.loads(text)


def _numbered(parts: Sequence[str]) -> Iterator[tuple[str, str | int]]:
    """Yield the names with their numbers; those without one are counted."""
    for n, part in enumerate(parts, 1):
        name, equals, order = part.partition("=")
        yield name.strip(), order.strip() if equals else ORDER_STEP * n


def _part(name: object) -> Any:
    """Return a part that is a class or an object, or its name, always as `module:Class` or as a short name."""
    if isinstance(name, type) or type(name).__module__ != "builtins":
        return name
    if not isinstance(name, str):
        raise WrongPart(name)
    module, colon, path = name.partition(":") if ":" in name else name.rpartition(".")
    if colon and DOTTED.fullmatch(module) and DOTTED.fullmatch(path):
        return SCRAPY_PARTS.get(f"{module}:{path}", f"{module}:{path}")
    if colon or not SHORT_NAME.fullmatch(name):
        raise WrongPart(name)
    return name


MISSPELT = 0.9
"""How alike a path must be to that of a part of Scrapy to be a misspelling of it; its parts are less alike."""


def _is_foreign(part: str | type, order: int | None) -> bool:
    """True for a part of Scrapy that is not here and is switched off. Raises `BadSetting` when it is switched on."""
    if not isinstance(part, str) or not part.startswith("scrapy."):
        return False
    from difflib import get_close_matches  # slow to import, and seldom needed

    if near := get_close_matches(part, SCRAPY_PARTS, n=1, cutoff=MISSPELT):
        raise BadSetting(f"Scrapy has no {part}: did you mean {near[0].replace(':', '.')}?")
    if order is not None:
        raise BadSetting(f"{part} is a part of Scrapy that is not needed here: leave it out")
    return True


def _order(name: object, order: object) -> int | None:
    if order is None or (isinstance(order, str) and order.strip().lower() in {"", "none"}):
        return None
    try:
        number = int(order) if isinstance(order, (int, str)) and not isinstance(order, bool) else None
    except ValueError:
        number = None
    if number is None or abs(number) > ORDER_MAX:
        raise WrongPart({name: order})
    return number


def _size(size: object) -> tuple[int, int]:
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(type(each) is int and each > 0 for each in size):
        return size[0], size[1]
    raise WrongPart(size)
