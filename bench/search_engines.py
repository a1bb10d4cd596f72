#!/usr/bin/env python3
"""Compare the engines of the search of torrents: bench/search_engines.py [--torrents N].

Each engine gets the same rows, once names only, once names and words of files, and answers the same queries. Times are
CPU seconds of this process and of Sphinx. Decoding and analyzing in Python are part of each time, and are also reported
alone. Sphinx is a server of its own with real-time indexes; its batch indexer, which is faster but makes an index that
cannot be updated, reads a file that is written here.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from running import ROOT, bytes_in, count, kept

sys.path.insert(0, str(ROOT))

from sphinx_batch import batch_index, fed_row, text_fields
from torrent_search import BATCH, DISTINCT, cpu_s, queries, record, request

from lycosa.search.core.request import ValueFilter
from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.fts5 import Fts5Index
from lycosa.search.ports import Index
from lycosa.search.sphinx.index import SphinxIndex
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_entry import torrent_entry
from lycosa.storage.records.content import encode_content
from lycosa.storage.records.rows import NEVER, searched_torrents, worth
from tests.servers.sphinx import SphinxProcess, sphinx_process

MEMORY = "256M"
"""Memory that Sphinx may use for an index before it writes a part: the default of `lycosa index sphinx-config`."""
NEWEST = {"sort": "found", "filters": (ValueFilter("type", values=("video",)), ValueFilter("size", 10**6))}
QUERIES = 100
TICKS = 100


class Rows:
    """The rows of a store, and the entries that are made of them."""

    def __init__(self, count: int) -> None:
        rng = random.Random(1)
        self.count = count
        self._contents = [encode_content(record(rng, number)) for number in range(min(count, DISTINCT))]

    def batches(self, *, files: bool) -> Iterator[list[IndexEntry]]:
        for start in range(0, self.count, BATCH):
            numbers = range(start, min(start + BATCH, self.count))
            contents = (self._contents[number % len(self._contents)] for number in numbers)
            rows = zip(numbers, contents, strict=True)
            stored = searched_torrents([(number + 1, content, worth(9, 0), NEVER) for number, content in rows])
            entries = [torrent_entry(each) for each in stored]
            yield entries if files else [entry._replace(texts={**entry.texts, "files": ""}) for entry in entries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torrents", type=count, default=200_000)
    rows = Rows(parser.parse_args().torrents)
    print(f"{rows.count:,} torrents\n")
    print("| engine | build, CPU s | in Python | ratio | size, MB | ratio | search, CPU ms | filtered and sorted |")
    print("|---|---|---|---|---|---|---|---|")
    for files in (False, True):
        compare(rows, files=files)


def compare(rows: Rows, *, files: bool) -> None:
    print(f"| **{'names and words of files' if files else 'names only'}** | | | | | | | |", flush=True)
    began = cpu_s()
    names = [entries[0].texts["name"] for entries in rows.batches(files=files)]
    analysis_s = cpu_s() - began
    texts = list(queries(random.Random(2), names))[:QUERIES]
    first: tuple[float, float] | None = None
    for engine, measure in (("tantivy", embedded), ("FTS5", embedded), ("Sphinx, real-time", on_sphinx)):
        with kept() as folder:
            made = TantivyIndex if engine == "tantivy" else Fts5Index
            build_s, size, told = measure(made, folder, rows, texts, files)  # type: ignore[operator]
        first = first or (build_s, size)
        line(engine, build_s, analysis_s, size, first, told)
    build_s, size = batch_indexer(rows, files=files)
    assert first is not None
    line("Sphinx, batch", build_s, analysis_s, size, first, ("", ""))


def line(engine: str, build_s: float, analysis_s: float, size: float, first: tuple, told: tuple[str, str]) -> None:
    ratios = build_s / first[0], size / first[1]
    print(
        f"| {engine} | {build_s:.1f} | {analysis_s:.1f} | {ratios[0]:.2f} | {size / 1e6:.1f} | {ratios[1]:.2f}"
        f" | {told[0]} | {told[1]} |",
        flush=True,
    )


def embedded(made: type, folder: Path, rows: Rows, texts: list[str], files: bool) -> tuple:
    index = made(folder / "index", TORRENTS, write=True)
    build_s = filled(index, rows, cpu_s, files=files)
    size = bytes_in(folder)
    told = searched(index, texts, cpu_s)
    index.close()
    return build_s, size, told


def on_sphinx(_: type, _folder: Path, rows: Rows, texts: list[str], files: bool) -> tuple:
    with sphinx_process({"torrents": TORRENTS}, MEMORY) as server:
        index = SphinxIndex(server.address("torrents"), TORRENTS, write=True)

        def spent() -> float:
            return cpu_s() + server_cpu_s(server)

        build_s = filled(index, rows, spent, files=files)
        size, told = index.size_bytes(), searched(index, texts, spent)
        index.close()
        return build_s, size, told


def filled(index: Index, rows: Rows, spent: Callable[[], float], *, files: bool) -> float:
    began = spent()
    rebuilt = index.rebuild()
    for entries in rows.batches(files=files):
        rebuilt.add(entries, new=True)
    index.adopt(rebuilt)
    assert index.count() == rows.count
    return spent() - began


def searched(index: Index, texts: list[str], spent: Callable[[], float]) -> tuple[str, str]:
    told = []
    for options in ({}, NEWEST):
        began = spent()
        for text in texts:
            index.find(request(text)._replace(**options))
        told.append(f"{1000 * (spent() - began) / len(texts):.2f}")
    return told[0], told[1]


def batch_indexer(rows: Rows, *, files: bool) -> tuple[float, float]:
    """Return the CPU seconds and the size of a plain index of the same entries."""
    fields = text_fields(files=files)
    with kept() as folder:
        began = cpu_s() + children_s()
        with (folder / "rows.tsv").open("w", encoding="utf-8") as file:
            for entries in rows.batches(files=files):
                file.writelines(fed_row(entry, fields) for entry in entries)
        assert batch_index(folder, f"cat {folder}/rows.tsv", fields, MEMORY) == rows.count
        size = sum(file.stat().st_size for file in folder.glob("plain*"))
        return cpu_s() + children_s() - began, size


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def server_cpu_s(server: SphinxProcess) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
