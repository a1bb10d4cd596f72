"""The entries of an array in a JSON text, one at a time, each with its line number.

A hostile text must not fill the memory: 64 MB of `[[],[],[],` become 2 GB when decoded at once. The text is therefore
first validated, without building values. Everything before the array is skipped without decoding, and each entry is
decoded when it is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

import msgspec

from lycosa.core.errors import BadProxy

ENTRY_MAX = 65_536
"""In characters."""

SKIPPED_MAX = 1_000_000
"""Maximum number of strings, brackets and values before the array. Skipping that many takes about a second."""

DIGITS_MAX = 20

NEAR = 3
"""If no path is given, the array may be inside up to this many nested objects."""

BLANKS = re.compile(r"[ \t\n\r]*+")
SCALAR = re.compile(r"[^\s,\]}]++")
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}
WRONG = re.compile(r"(?:JSON is malformed: )?(?P<what>.+?) \(byte (?P<byte>\d+)\)")

Step = str | int
"""The name of a member of an object, or an index of an array."""


class ArrayEntry(NamedTuple):
    """An entry, and the number of the line on which it starts, from 1."""

    line: int
    value: object


def read_array(text: str, path: Sequence[Step] | None = None, where: str = "") -> Iterator[ArrayEntry]:
    """Iterate over the entries of the array at a path.

    Without a path the array is the whole text, or an array near its top (NEAR). `where` is the path in messages. Raises
    `BadProxy`: at once if the text is not JSON or has no such array, during the iteration if an entry is too long.
    """
    _refuse_invalid(text)
    scanner = _Scanner(text)
    at = scanner.find_near() if path is None else scanner.follow(path)
    if at is None or text[at] != "[":
        raise BadProxy(f"this JSON has no array at {where}" if where else "this JSON holds no array of proxies")
    return _entries(text, at)


def _refuse_invalid(text: str) -> None:
    """Raise `BadProxy` if a text is not JSON."""
    data = text.encode("utf-8", "replace")
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except RecursionError:
        raise BadProxy("this is not JSON: it is nested too deeply") from None
    except msgspec.DecodeError as wrong:
        found = WRONG.fullmatch(str(wrong))
        line = 1 + data.count(b"\n", 0, int(found["byte"]) if found else len(data.rstrip()))
        raise BadProxy(f"this is not JSON: line {line:,}: {found['what'] if found else 'unexpected end'}") from None


class _Scanner:
    """Finds values in valid JSON without decoding them. A value is returned as the index of its start."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = SKIPPED_MAX

    def find_near(self) -> int | None:
        """Return the top-level value if it is not an object, otherwise the first array within NEAR nested objects.

        In each object only the first member that is an array or an object is searched.
        """
        at: int | None = _skip_blanks(self._text, 0)
        for _ in range(NEAR):
            if at is None or self._text[at] != "{":
                return at
            at = next((value for _, value in self._members(at) if self._text[value] in "[{"), None)
        return at

    def follow(self, path: Sequence[Step]) -> int | None:
        at: int | None = _skip_blanks(self._text, 0)
        for step in path:
            if at is None:
                return None
            if isinstance(step, str):
                members = self._members(at) if self._text[at] == "{" else iter(())
                at = next((value for name, value in members if name == step), None)
            else:
                items = self._items(at) if self._text[at] == "[" else iter(())
                at = next((value for number, value in enumerate(items) if number == step), None)
        return at

    def _members(self, at: int) -> Iterator[tuple[str, int]]:
        at = _skip_blanks(self._text, at + 1)
        while self._text[at] != "}":
            name, end = _name(self._text, at)
            at = _skip_blanks(self._text, _skip_blanks(self._text, end) + 1)
            yield name, at
            at = self._skip(at)

    def _items(self, at: int) -> Iterator[int]:
        at = _skip_blanks(self._text, at + 1)
        while self._text[at] != "]":
            yield at
            at = self._skip(at)

    def _skip(self, at: int) -> int:
        """Return where the next value starts, or where the array or object ends."""
        self._count()
        end = at
        if self._text[at] in '"[{':
            depth = 0
            for token in TOKEN.finditer(self._text, at):
                self._count()
                depth += DEEPER.get(self._text[token.start()], 0)
                end = token.end()
                if not depth:
                    break
        elif scalar := SCALAR.match(self._text, at):
            end = scalar.end()
        return _next(self._text, end)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BadProxy(f"more than {SKIPPED_MAX:,} values come before the array of proxies")


def _entries(text: str, at: int) -> Iterator[ArrayEntry]:
    """Decode each entry from a window of the text, which limits the length of an entry."""
    line, counted = 1, 0
    start, window = 0, ""
    at = _skip_blanks(text, at + 1)
    while text[at] != "]":
        line, counted = line + text.count("\n", counted, at), at
        if not window or at > start + ENTRY_MAX:
            start, window = at, text[at : at + 2 * ENTRY_MAX]
        value, end = _value(window, at - start)
        # A value at the end of the window may be cut off: 123 would become 12.
        if end < 0 or (end == len(window) and start + end < len(text)):
            raise BadProxy(f"line {line:,}: an entry has more than {ENTRY_MAX:,} characters")
        yield ArrayEntry(line, value)
        at = _next(text, start + end)


def _value(window: str, at: int) -> tuple[object, int]:
    """Return a value and the index after it, -1 if it does not end in the window."""
    try:
        return DECODER.raw_decode(window, at)
    except (ValueError, RecursionError):
        return None, -1


def _name(text: str, at: int) -> tuple[str, int]:
    try:
        name, end = scanstring(text, at + 1)
    except ValueError:
        raise BadProxy("this is not JSON: the name of a member cannot be read") from None
    return name, end


def _skip_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    assert found
    return found.end()


def _next(text: str, at: int) -> int:
    """Return where the next value starts, or where the array or object ends."""
    at = _skip_blanks(text, at)
    return _skip_blanks(text, at + 1) if text[at] == "," else at


def _whole(digits: str) -> float:
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


DECODER = json.JSONDecoder(parse_int=_whole)
