"""Parses the outputs that users name: FILE (format by suffix), FILE:FORMAT, `-`, `-:FORMAT`, or a Redis stream.

items.jsonl   items.csv.gz   items.txt:jsonl   -:csv   redis://host:6379/0?stream=items
"""

from __future__ import annotations

from collections.abc import Sequence
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

CODECS = ("gz", "zst")
UNCOMPRESSED = frozenset({"sqlite"})
PRINTABLE = frozenset({"jsonl", "csv"})

EXPECTED = "write a file that ends in .jsonl, .json or .csv (.gz or .zst may follow) or .sqlite, FILE:FORMAT, or '-'"


class OutputTarget(NamedTuple):
    """`path` is "" for standard output and streams; `stream` is the URL of a stream.

    `format` is jsonl, json, csv or sqlite. `codec` is "", ".gz" or ".zst".
    """

    path: str
    format: str = "jsonl"
    codec: str = ""
    stream: str = ""

    @property
    def text(self) -> str:
        """The name of the output in messages; "" for standard output."""
        return read_address(self.stream).text if self.stream else self.path


def parse_output(text: str) -> OutputTarget:
    """Parse one output. Raises `UsageError`."""
    if is_address(text):
        read_address(text)
        return OutputTarget("", stream=text)
    path, _, name = text.rpartition(":")
    form, codec = _format_of(name)
    if not path or not form:
        path, (form, codec) = text, _format_of(_suffix(text))
    if text == STANDARD_OUTPUT:
        form = "jsonl"
    if not path.rpartition("/")[2] or not form:
        raise UsageError(f"{text!r}: {EXPECTED}")
    if codec and form in UNCOMPRESSED:
        raise UsageError(f"{text!r}: a database cannot be compressed: write {text[: -len(codec)]!r}")
    if path != STANDARD_OUTPUT:
        return OutputTarget(path, form, codec)
    if form not in PRINTABLE or codec:
        raise UsageError(f"{text!r}: standard output takes jsonl or csv, uncompressed: '-' or '-:csv'")
    return OutputTarget("", form)


def _suffix(path: str) -> str:
    """Return the suffix of a file name without its dot; both suffixes of a compressed file (csv.gz)."""
    words = path.rpartition("/")[2].lstrip(".").split(".")[1:]
    return ".".join(words[-2:] if words and words[-1].lower() in CODECS else words[-1:])


def _format_of(suffix: str) -> tuple[str, str]:
    """Return the format ("" if unknown) and the codec of a suffix such as csv.gz."""
    word, _, codec = suffix.lower().partition(".")
    return (FORMATS.get(word, ""), codec and f".{codec}") if codec in {"", *CODECS} else ("", "")


def parse_outputs(texts: str | Sequence[str] | None) -> list[OutputTarget]:
    """Parse outputs; the default is standard output. Raises `UsageError`."""
    named = [texts] if isinstance(texts, str) else texts
    return [parse_output(text) for text in named or [STANDARD_OUTPUT]]
