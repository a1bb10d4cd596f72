"""Where items go, as users write it: FILE by its suffix, FILE:FORMAT, `-`, `-:FORMAT`, or a stream in Redis. Pure.

items.jsonl   items.csv.gz   items.txt:jsonl   -:csv   redis://host:6379/0?stream=items
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.storage.core.stream_url import is_address, read_address

STANDARD_OUTPUT = "-"
FORMATS = {
    "jsonl": "jsonl",
    "jl": "jsonl",
    "ndjson": "jsonl",
    "json": "json",
    "csv": "csv",
    "sqlite": "sqlite",
    "sqlite3": "sqlite",
}
"""The format of each suffix."""

CODECS = ("gz", "zst")
UNCOMPRESSED = frozenset({"sqlite"})
PRINTABLE = frozenset({"jsonl", "csv"})
"""Formats that can be written to standard output."""

EXPECTED = "write a file that ends in .jsonl, .json, .csv or .sqlite (and .gz or .zst), FILE:FORMAT, or '-'"


class Output(NamedTuple):
    """One output. `path` is "" for standard output and streams; `stream` is the URL of a stream, "" for others.

    `format` is jsonl, json, csv or sqlite. `codec` is "", ".gz" or ".zst".
    """

    path: str
    format: str = "jsonl"
    codec: str = ""
    stream: str = ""

    @property
    def text(self) -> str:
        """The output in messages; "" for standard output."""
        return read_address(self.stream).text if self.stream else self.path


def parse_output(text: str) -> Output:
    """Return the output that a user names. Raises `UsageError`."""
    if is_address(text):
        read_address(text)
        return Output("", stream=text)
    path, colon, name = text.rpartition(":")
    if not colon or "/" in name:
        path, name = text, "jsonl" if text == STANDARD_OUTPUT else "".join(PurePath(text).suffixes[-2:])
    words = [word for word in name.lower().split(".") if word]
    codec = f".{words.pop()}" if words and words[-1] in CODECS else ""
    form = FORMATS.get(words[-1], "") if words else ""
    if not path or not form:
        raise UsageError(f"{text!r}: {EXPECTED}")
    if codec and form in UNCOMPRESSED:
        raise UsageError(f"{text!r}: a database cannot be compressed: write {path.removesuffix(codec)!r}")
    if path != STANDARD_OUTPUT:
        return Output(path, form, codec)
    if form not in PRINTABLE or codec:
        raise UsageError(f"{text!r}: standard output takes jsonl or csv, uncompressed: '-' or '-:csv'")
    return Output("", form)


def parse_outputs(texts: str | Sequence[str] | None) -> list[Output]:
    """Return the outputs that a user names, standard output for none. Raises `UsageError`."""
    named = [texts] if isinstance(texts, str) else texts
    return [parse_output(text) for text in named or [STANDARD_OUTPUT]]
