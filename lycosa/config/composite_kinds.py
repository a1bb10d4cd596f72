"""Kinds of settings that hold several values.

In text, elements are separated by commas or line ends; a mapping may also be a JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.config.kinds import DOTTED, FALSE, TRUE, BadElement, Integer, SettingKind, is_none
from lycosa.config.scrapy_parts import SCRAPY_PARTS
from lycosa.core.errors import BadSetting, UsageError
from lycosa.storage.core.output import parse_output

SHORT_NAME = re.compile(r"[a-z][a-z0-9_]*")
HOST = re.compile(r"(?=.*[^\d.])[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)
ORDER_STEP = 100
"""Parts that are listed without numbers get 100, 200, 300, ..."""

ORDER = Integer(-1_000_000, 1_000_000)
EVERYWHERE = "*"
SIMILARITY_MIN = 0.9
"""Minimum similarity at which an unknown path counts as a misspelled path of SCRAPY_PARTS.

Correct paths of Scrapy's other parts are less similar.
"""


class ListOf(NamedTuple):
    """A list, or text split at line ends or (with `commas`) at commas. With `distinct` no value may be given twice."""

    element: SettingKind
    commas: bool = True
    distinct: bool = False

    @property
    def expected(self) -> str:
        return f"{self.element.expected}, or several"

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
        elements = tuple(_convert_element(self.element, each) for each in value)
        if self.distinct and len(set(elements)) < len(elements):
            twice = next(each for place, each in enumerate(elements) if each in elements[:place])
            raise BadSetting(f"{twice!r} is given twice: list each once")
        return elements


class OutputList(NamedTuple):
    """Outputs for items; see `storage.core.output`."""

    expected: str = "one or more outputs: files, '-' or Redis streams"

    def convert(self, value: object) -> tuple[str, ...]:
        if isinstance(value, Path):
            value = str(value)
        if isinstance(value, str):
            value = _split_outputs(value)
        if value is None:
            return ()
        if not isinstance(value, Sequence):
            raise TypeError
        return tuple(map(_output, value))


class Networks(NamedTuple):
    """Hosts and networks: names, addresses, CIDR blocks; `true` means all, `false` none."""

    expected: str = "true, or a list of hosts and networks such as 10.0.0.0/8 or intranet.example"

    def convert(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str) and value.strip().lower() in {*TRUE, EVERYWHERE}:
            value = True
        if isinstance(value, str) and value.strip().lower() in {*FALSE, "none"}:
            value = False
        if value is None or isinstance(value, bool):
            return (EVERYWHERE,) if value else ()
        entries = split(value) if isinstance(value, str) else value
        if not isinstance(entries, Sequence):
            raise TypeError
        return tuple(map(_network, entries))


class PartOrder(NamedTuple):
    """Maps a class, an object, `module:Class` or a short name to its order number, or to None to disable it."""

    expected: str = "a list of classes or 'module:Class', or a table that maps each to a number or none"

    def convert(self, value: object) -> dict[str | type, int | None]:
        if isinstance(value, str) and not value.lstrip().startswith("{"):
            value = dict(_numbered(split(value)))
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = {each: ORDER_STEP * n for n, each in enumerate(value, 1)}
        parts = {_part(name): _order(name, order) for name, order in _table(value).items()}
        return {part: order for part, order in parts.items() if not _is_unneeded(part, order)}


class ImageSizes(NamedTuple):
    """Width and height in pixels, by name."""

    expected: str = "a table of sizes in pixels such as {small = [50, 50]}"

    def convert(self, value: object) -> dict[str, tuple[int, int]]:
        return {str(name): _size(size) for name, size in _table(value).items()}


class UserTable(NamedTuple):
    """The user's own settings, of any type."""

    expected: str = "a table"

    def convert(self, value: object) -> dict[str, Any]:
        return {str(name): each for name, each in _table(value).items()}


def relative_outputs(base: Path, outputs: Sequence[str]) -> tuple[str, ...]:
    """Resolve the relative paths of files against the folder `base`."""
    return tuple(str(base / each) if parse_output(each).path else each for each in outputs)


def _split_outputs(text: str) -> list[str]:
    """Split text at commas if every part is then an output, otherwise into lines."""
    by_commas = split(text)
    return by_commas if all(map(_is_output, by_commas)) else split(text, commas=False)


def _is_output(text: str) -> bool:
    try:
        parse_output(text)
    except UsageError:
        return False
    return True


def _output(text: object) -> str:
    if not isinstance(text, (str, Path)) or "\0" in str(text):
        raise BadElement(text)
    try:
        path = parse_output(str(text)).path
    except UsageError as error:
        raise BadSetting(str(error)) from None
    return str(Path(text).expanduser()) if path else str(text)


def split(text: str, *, commas: bool = True) -> list[str]:
    """Split text into lines, or at commas if it is a single line."""
    elements = text.split("," if commas and "\n" not in text else "\n")
    return [element.strip() for element in elements if element.strip()]


def _convert_element(kind: SettingKind, element: object) -> Any:
    try:
        return kind.convert(element)
    except (TypeError, ValueError):
        raise BadElement(element) from None


def _network(entry: object) -> str:
    import ipaddress

    if not isinstance(entry, str):
        raise BadElement(entry)
    text = entry.strip().lower()
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        if not HOST.fullmatch(text):
            raise BadElement(entry) from None
        return text.rstrip(".")


def _table(value: object) -> Mapping[Any, Any]:
    import json

    table = json.loads(value) if isinstance(value, str) and value else value or {}
    if not isinstance(table, Mapping):
        raise TypeError
    return table


def _numbered(entries: Sequence[str]) -> Iterator[tuple[str, str | int]]:
    for n, entry in enumerate(entries, 1):
        name, equals, order = entry.partition("=")
        yield name.strip(), order.strip() if equals else ORDER_STEP * n


def _part(name: object) -> Any:
    if isinstance(name, type) or type(name).__module__ != "builtins":
        return name
    if not isinstance(name, str):
        raise BadElement(name)
    module, colon, path = name.partition(":") if ":" in name else name.rpartition(".")
    if colon and DOTTED.fullmatch(module) and DOTTED.fullmatch(path):
        return SCRAPY_PARTS.get(f"{module}:{path}", f"{module}:{path}")
    if colon or not SHORT_NAME.fullmatch(name):
        raise BadElement(name)
    return name


def _is_unneeded(part: str | type, order: int | None) -> bool:
    """Return whether an entry disables a part of Scrapy that Lycosa lacks.

    Raises `BadSetting` if the entry enables such a part, or misspells the path of a part.
    """
    if not isinstance(part, str) or not part.startswith("scrapy."):
        return False
    from difflib import get_close_matches  # slow to import, and rarely needed

    if near := get_close_matches(part, SCRAPY_PARTS, n=1, cutoff=SIMILARITY_MIN):
        raise BadSetting(f"Scrapy has no {part}: did you mean {near[0].replace(':', '.')}?")
    if order is not None:
        raise BadSetting(f"{part} is a part of Scrapy that is not needed here: leave it out")
    return True


def _order(name: object, order: object) -> int | None:
    try:
        return None if is_none(order) else ORDER.convert(order)
    except (TypeError, ValueError):
        raise BadElement({name: order}) from None


def _size(size: object) -> tuple[int, int]:
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(type(each) is int and each > 0 for each in size):
        return size[0], size[1]
    raise BadElement(size)
