"""Search indexes with every back end."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from lycosa.search.core.schema import PAGES, TORRENTS, Schema
from lycosa.search.fts5 import Fts5Index
from lycosa.search.pages import PageIndex
from lycosa.search.ports import Index
from lycosa.search.sphinx.index import SphinxIndex, erase_sphinx
from lycosa.search.tantivy import TantivyIndex
from tests.conftest import need
from tests.servers.sphinx import SPHINX, SphinxProcess, find_sphinx, sphinx_process

ENGINES = ["fts5", "sphinx", "tantivy"]
NAMES = [f"{schema.kind}_{number}" for schema in (PAGES, TORRENTS) for number in range(4)]
"""Indexes of the Sphinx server, which are emptied and used again."""


def open_index(engine: str, path: Path, schema: Schema, *, write: bool) -> Index:
    """Open an index of this kind; for writing, create it."""
    if engine == "sphinx":
        return _OnSphinx(path, schema, write=write)
    return (Fts5Index if engine == "fts5" else TantivyIndex)(path, schema, write=write)


def create_index(engine: str, path: Path, schema: Schema) -> Index:
    """Create an index of this kind, or open it for writing."""
    return open_index(engine, path, schema, write=True)


def create_pages(engine: str, path: Path) -> PageIndex:
    """Create an index of pages."""
    return PageIndex(create_index(engine, path, PAGES))


class _OnSphinx(SphinxIndex):
    """An index of the Sphinx server of this test process, named by the folder that an index of another engine has."""

    names: dict[Path, str] = {}
    opened: list[str] = []

    def __init__(self, path: Path, schema: Schema, *, write: bool) -> None:
        need(SPHINX, find_sphinx() is not None)
        is_new = path not in self.names
        if is_new:
            name = next(each for each in NAMES if each.startswith(schema.kind) and each not in self.opened)
            NAMES.append(NAMES.pop(NAMES.index(name)))
            for other in [other for other, of in self.names.items() if of == name]:
                del self.names[other]
            self.names[path] = name
        self.at = self.names[path]
        self.opened.append(self.at)
        address = _sphinx().address(self.at)
        if is_new:
            erase_sphinx(address)
        super().__init__(address, schema, write=write)

    def close(self) -> None:
        super().close()
        if self.at:
            self.opened.remove(self.at)
        self.at = ""


@cache
def _sphinx() -> SphinxProcess:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(sphinx_process({name: PAGES if name[0] == "p" else TORRENTS for name in NAMES}))
