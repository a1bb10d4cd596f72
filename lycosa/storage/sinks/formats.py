"""The formats of items in a file: JSON lines and CSV."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from lycosa.core.errors import BadItem, StorageError
from lycosa.storage.sinks.json_lines import to_line

log = logging.getLogger(__name__)

COLUMNS_MAX = 10_000

HEADER_MAX = 500_000
"""Maximum bytes of the first line of a CSV file."""

COLUMNS_SHOWN = 100
"""Maximum characters of the column names in a message."""

LEFT_OUT_MAX = 100
"""Maximum number of fields without a column that the warning names."""

INTEGER_MAX = 2**63
"""Larger integers are stored as text: worker processes and SQLite take integers of 64 bits at most."""

ROW_BYTES = 1_000
"""The assumed size of an item that is not encoded yet."""


class ItemFormat(Protocol):
    """Turns items into the records of a file. Each record ends with a newline."""

    name: str

    def prepare(self, item: Any) -> Any:
        """Return the item in the form that `encode` takes. Raises `BadItem`."""

    def resume(self, beginning: bytes) -> None:
        """Continue a file that begins with these bytes (at most BEGINNING_MAX); b"" for an empty one.

        Raises `StorageError` if the items do not fit into this file.
        """

    def encode(self, items: Sequence[Any]) -> bytes: ...

    def encoded(self) -> None:
        """Note that the last result of `encode` was written, so that the next one follows it."""

    def close(self) -> None: ...


class JsonLines:
    """One JSON object per line."""

    name = "jsonl"

    def prepare(self, item: Any) -> bytes:
        return to_line(item)

    def resume(self, beginning: bytes) -> None:
        pass

    def encode(self, items: Sequence[bytes]) -> bytes:
        return b"\n".join([*items, b""])

    def encoded(self) -> None:
        pass

    def close(self) -> None:
        pass


class Csv:
    """RFC 4180 with a header. Lists of plain values are joined with commas, other lists and objects are JSON.

    The columns are `fields`, else those of the existing file, else all fields of the first batch. Other fields are left
    out; without `fields`, a warning names and counts them.
    """

    name = "csv"

    def __init__(self, shown: str, fields: Sequence[str] = ()) -> None:
        self._shown = shown
        self._given = list(fields)
        self._columns: list[str] = []
        self._has_header = False
        self._left_out: dict[str, int] = {}
        self._unwritten: Sequence[dict[str, Any]] = ()

    def prepare(self, item: Any) -> dict[str, Any]:
        return row_of(item, _cell)

    def resume(self, beginning: bytes) -> None:
        if beginning and b"\n" not in beginning:
            raise StorageError(f"{self._shown}: its first line is not the header of a CSV file: name another file")
        self._columns = _header(beginning) if beginning else []
        self._has_header = bool(self._columns)
        if self._given and self._has_header and self._columns != self._given:
            raise StorageError(
                f"{self._shown} has the columns {_joined(self._columns)}, not {_joined(self._given)}: "
                "continue without --fields, name another file, or start afresh with -O"
            )

    def encode(self, items: Sequence[dict[str, Any]]) -> bytes:
        if not self._has_header:
            self._columns = self._given or _columns_of(items)
        if not self._columns:
            return b""
        text = io.StringIO()
        writer = csv.writer(text)
        if not self._has_header:
            writer.writerow(self._columns)
        writer.writerows([item.get(column) for column in self._columns] for item in items)
        self._unwritten = items
        return text.getvalue().encode()

    def encoded(self) -> None:
        self._has_header = bool(self._columns)
        if not self._given:
            self._count_left_out(self._unwritten)
        self._unwritten = ()

    def close(self) -> None:
        if self._left_out:
            counts = ", ".join(f"{field} ({count:,})" for field, count in sorted(self._left_out.items()))
            log.warning(
                "%s: fields without a column were left out: %s; name the columns with --fields", self._shown, counts
            )
            self._left_out.clear()

    def _count_left_out(self, items: Sequence[dict[str, Any]]) -> None:
        columns = {*self._columns}
        for item in items:
            if not item.keys() <= columns:
                for field in item.keys() - columns:
                    if field in self._left_out or len(self._left_out) < LEFT_OUT_MAX:
                        self._left_out[field] = self._left_out.get(field, 0) + 1


def row_of(item: Any, cell: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields of an item, with `cell` applied to each value. Raises `BadItem`."""
    plain = msgspec.json.decode(to_line(item))
    if not isinstance(plain, dict):
        raise BadItem(f"a {type(item).__qualname__!r} cannot be a row of a table: only an item with fields can")
    return {name: cell(value) for name, value in plain.items()}


def plain_cell(value: Any) -> Any:
    """Return a value as text, as a number of at most 64 bits, or as None."""
    if isinstance(value, int) and not -INTEGER_MAX <= value < INTEGER_MAX:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else msgspec.json.encode(value).decode()


def encoded_size(prepared: Any) -> int:
    """Return the size of a prepared item in bytes; an estimate if it is not encoded yet."""
    return len(prepared) + 1 if type(prepared) is bytes else ROW_BYTES


def _columns_of(items: Sequence[dict[str, Any]]) -> list[str]:
    """Return the fields of the items, at most COLUMNS_MAX, whose header takes at most HEADER_MAX bytes."""
    names = dict.fromkeys(field for item in items for field in item)
    ends = accumulate(len(name.encode()) + len('"",') + name.count('"') for name in names)
    return [name for name, end in zip(names, ends, strict=True) if end < HEADER_MAX][:COLUMNS_MAX]


def _header(beginning: bytes) -> list[str]:
    text = io.StringIO(beginning.decode("utf-8-sig", "replace"), newline="")
    return next(csv.reader(text), [])


def _joined(columns: Sequence[str]) -> str:
    text = ",".join(columns)
    return text if len(text) <= COLUMNS_SHOWN else f"{text[:COLUMNS_SHOWN]}..."


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(each, (str, int, float)) for each in value):
        return ",".join(str(_cell(each)) for each in value)
    return plain_cell(value)
