"""The kinds of documents in an index, and the form in which they are added.

The caller analyzes the texts into normalized words, separated by spaces, so that every back end finds the same
documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Schema:
    """A kind of document. `texts` maps the searched texts to weights. Requests filter by `numbers` and `keywords`, and
    sort by `numbers`.

    `words` is the version of the text analysis: an index with an older version must be rebuilt.
    """

    kind: str
    words: int
    title: str
    """The text that `title:` searches."""
    texts: Mapping[str, float]
    near: tuple[str, ...]
    """The texts in which adjacent query words raise the score."""
    listed: tuple[str, ...]
    """The texts whose words are used for suggestions and completions."""
    numbers: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    time: str = ""
    """The number that is a time (seconds since 1970). Requests filter it by days and hours, and sort by it."""
    stepped: tuple[str, ...] = ()
    """The other numbers by which users sort."""
    counted: tuple[str, ...] = ()
    """The keywords whose values can be counted."""
    numeric_keys: bool = False
    """Whether the keys are ids of rows in another store. Then the index stores only keys."""
    filled_by: str = "lycosa index build"
    """The command that fills an index."""
    rebuilt_by: str = "`lycosa index build --fresh`"
    """The command that rebuilds a damaged index."""
    analysis: tuple[str, ...] = ()
    """The optional steps of text analysis (`search.core.analysis`)."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps parts of a document to the fields of items that may hold them (`search.core.documents`)."""


class IndexEntry(NamedTuple):
    """A document to add to an index. It replaces the document with the same key."""

    key: str | int
    texts: Mapping[str, str]
    numbers: Mapping[str, int] = {}
    keywords: Mapping[str, Sequence[str]] = {}
    stored: bytes = b""


PAGES = Schema(
    kind="pages",
    words=1,
    title="title",
    texts={"title": 4.0, "headings": 2.0, "text": 1.0, "url": 0.6},
    near=("title", "text"),
    listed=("title", "headings", "text"),
    keywords=("site",),
)
TORRENTS = Schema(
    kind="torrents",
    words=3,
    title="name",
    texts={"name": 3.0, "files": 1.0},
    near=("name",),
    listed=("name",),
    numbers=(
        "size",
        "found",
        "files_count",
        "seeders",
        "resolution",
        "year",
        "season",
        "episode",
    ),
    keywords=("type", "language", "category"),
    time="found",
    stepped=("size", "files_count", "seeders"),
    counted=("type", "language"),
    numeric_keys=True,
    filled_by="lycosa index",
    rebuilt_by="`lycosa index --rebuild` with the same --state or --store",
)
