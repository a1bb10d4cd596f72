"""The array that a JSON text holds, entry by entry, each with its line.

What a text takes in memory must not be for its sender to say: 64 MB of `[[],[],[],` become two gigabytes when all of it
is there at once. So the text is gone over once, to see that it is JSON, which keeps nothing; then its array is looked
for, and each entry is made when it is asked for. What stands before the array is passed over.
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
"""Characters of an entry."""

PASSED_MAX = 1_000_000
"""Texts, brackets and members of objects before the array: passing them over takes a second."""

DIGITS_MAX = 20
NEAR = 3
"""Objects in each other in which an array is looked for whose path nobody says."""

BLANKS = re.compile(r"[ \t\n\r]*+")
SCALAR = re.compile(r"[^\s,\]}]++")
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}
WRONG = re.compile(r"(?:JSON is malformed: )?(?P<what>.+?) \(byte (?P<byte>\d+)\)")

Step = str | int
"""The name of a member of an object, or the place in an array."""


class ArrayEntry(NamedTuple):
    """One of the array; `line` is the one in which it begins, from 1."""

    line: int
    value: object


def read_array(text: str, path: Sequence[Step] | None = None, where: str = "") -> Iterator[ArrayEntry]:
    """Return the entries of the array at a path; without one, of the array that the text is or holds near its top.

    `where` is the path as it is written. Raises `BadProxy` at once for what is no JSON or has no such array, and on the
    way for an entry that is too long.
    """
    _refuse_no_json(text)
    walk = _Walk(text)
    at = walk.near() if path is None else walk.follow(path)
    if at is None or text[at] != "[":
        raise BadProxy(f"this JSON has no array at {where}" if where else "this JSON holds no array of proxies")
    return _entries(text, at)


def _refuse_no_json(text: str) -> None:
    """Raise `BadProxy`, with the line and what is wrong in it."""
    data = text.encode("utf-8", "replace")
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except RecursionError:
        raise BadProxy("this is not JSON: it is nested too deeply") from None
    except msgspec.DecodeError as wrong:
        found = WRONG.fullmatch(str(wrong))
        line = 1 + data.count(b"\n", 0, int(found["byte"]) if found else len(data.rstrip()))
        raise BadProxy(f"this is not JSON: line {line:,}: {found['what'] if found else 'it breaks off'}") from None


class _Walk:
    """A way through a text that is JSON as a whole. What begins at a place is told by that place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = PASSED_MAX

    def near(self) -> int | None:
        """Return where the first array or object of objects leads, NEAR at most."""
        at: int | None = _behind_blanks(self._text, 0)
        for _ in range(NEAR):
            if at is None or self._text[at] != "{":
                return at
            at = next((value for _, value in self._members(at) if self._text[value] in "[{"), None)
        return at

    def follow(self, path: Sequence[Step]) -> int | None:
        """Return what is at a path, None when nothing is."""
        at: int | None = _behind_blanks(self._text, 0)
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
        """Yield names and values of an object."""
        at = _behind_blanks(self._text, at + 1)
        while self._text[at] != "}":
            name, end = _name(self._text, at)
            at = _behind_blanks(self._text, _behind_blanks(self._text, end) + 1)
            yield name, at
            at = self._behind(at)

    def _items(self, at: int) -> Iterator[int]:
        """Yield the entries of an array."""
        at = _behind_blanks(self._text, at + 1)
        while self._text[at] != "]":
            yield at
            at = self._behind(at)

    def _behind(self, at: int) -> int:
        """Pass a value over. Return where the next one begins, or what holds both ends."""
        self._passed()
        end = at
        if self._text[at] in '"[{':
            depth = 0
            for token in TOKEN.finditer(self._text, at):
                self._passed()
                depth += DEEPER.get(self._text[token.start()], 0)
                end = token.end()
                if not depth:
                    break
        elif scalar := SCALAR.match(self._text, at):
            end = scalar.end()
        return _next(self._text, end)

    def _passed(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BadProxy(f"more than {PASSED_MAX:,} values stand before the array of proxies")


def _entries(text: str, at: int) -> Iterator[ArrayEntry]:
    """Yield what the array that begins here holds. A window of the text is looked at: no entry takes more."""
    line, counted = 1, 0
    begin, window = 0, ""
    at = _behind_blanks(text, at + 1)
    while text[at] != "]":
        line, counted = line + text.count("\n", counted, at), at
        if not window or at > begin + ENTRY_MAX:
            begin, window = at, text[at : at + 2 * ENTRY_MAX]
        value, end = _value(window, at - begin)
        if end < 0 or (end == len(window) and begin + end < len(text)):
            raise BadProxy(f"line {line:,}: an entry of more than {ENTRY_MAX:,} characters")
        yield ArrayEntry(line, value)
        at = _next(text, begin + end)


def _value(window: str, at: int) -> tuple[object, int]:
    """Return a value and its end, -1 when it does not end here."""
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


def _behind_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    assert found
    return found.end()


def _next(text: str, at: int) -> int:
    """Return where the next value begins behind one, or where the array or object ends."""
    at = _behind_blanks(text, at)
    return _behind_blanks(text, at + 1) if text[at] == "," else at


def _whole(digits: str) -> float:
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


DECODER = json.JSONDecoder(parse_int=_whole)
