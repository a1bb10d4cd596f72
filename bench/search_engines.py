#!/usr/bin/env python3
"""The engines of the search of torrents beside each other: bench/search_engines.py [--torrents N].

Each gets the same rows, once names only, once names and words of files, and answers the same queries. Times are CPU
seconds of this process and of Sphinx: decoding and analyzing in Python are part of each, and also told apart. Sphinx is
a server of its own with real-time indexes; its batch indexer, which is faster and cannot be updated, reads a file that
is written here.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.torrent_search import BATCH, DISTINCT, cpu_s, queries, record, request  # noqa: E402
from lycosa.search.core.request import ValueFilter  # noqa: E402
from lycosa.search.core.schema import TORRENTS, IndexEntry  # noqa: E402
from lycosa.search.core.sphinxql import CHARSET, fed  # noqa: E402
from lycosa.search.fts5 import Fts5Index  # noqa: E402
from lycosa.search.ports import Index  # noqa: E402
from lycosa.search.sphinx.index import SphinxIndex  # noqa: E402
from lycosa.search.tantivy import TantivyIndex  # noqa: E402
from lycosa.search.torrent_entry import torrent_entry  # noqa: E402
from lycosa.storage.records.content import encode_content  # noqa: E402
from lycosa.storage.records.rows import NEVER, searched_torrents, worth  # noqa: E402
from tests.servers.sphinx import SphinxProcess, sphinx_process  # noqa: E402

MEMORY = "256M"
"""What Sphinx may keep of an index before it writes a part: the default of `lycosa index sphinx-config`."""
NEWEST = {"sort": "found", "filters": (ValueFilter("type", values=("video",)), ValueFilter("size", 10**6))}
QUERIES = 100
TICKS = 100
PLAIN = """source rows
{{
    type = tsvpipe
    tsvpipe_command = cat {folder}/rows.tsv
{fields}
{numbers}
}}
index rows
{{
    source = rows
    path = {folder}/plain
    charset_table = {charset}
    docinfo = extern
}}
indexer
{{
    mem_limit = 256M
}}
"""


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
    parser.add_argument("--torrents", type=int, default=200_000)
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
        folder = Path(tempfile.mkdtemp(prefix="lycosa-bench-"))
        try:
            made = TantivyIndex if engine == "tantivy" else Fts5Index
            build_s, size, told = measure(made, folder, rows, texts, files)  # type: ignore[operator]
        finally:
            shutil.rmtree(folder)
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
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
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
    """Return the CPU seconds and the size of a plain index with the same fields and numbers, without keywords."""
    fields = ["name", "files"] if files else ["name"]
    folder = Path(tempfile.mkdtemp(prefix="lycosa-bench-"))
    try:
        parts = "\n".join(f"    tsvpipe_field = {name}" for name in fields)
        numbers = "\n".join(f"    tsvpipe_attr_bigint = n_{name}" for name in TORRENTS.numbers)
        config = folder / "sphinx.conf"
        config.write_text(PLAIN.format(folder=folder, fields=parts, numbers=numbers, charset=CHARSET))
        began = cpu_s()
        with (folder / "rows.tsv").open("w", encoding="utf-8") as file:
            for entries in rows.batches(files=files):
                for entry in entries:
                    values = [fed(entry.texts[name]) for name in fields]
                    values += [str(entry.numbers.get(name, -1)) for name in TORRENTS.numbers]
                    file.write("\t".join([str(entry.key), *values]) + "\n")
        written_s = cpu_s() - began
        before_s = children_s()
        done = subprocess.run(["indexer", "--config", str(config), "rows"], capture_output=True, text=True, check=False)
        assert f"collected {rows.count} docs" in done.stdout, done.stdout + done.stderr
        size = sum(file.stat().st_size for file in folder.glob("plain*"))
        return written_s + children_s() - before_s, size
    finally:
        shutil.rmtree(folder)


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def server_cpu_s(server: SphinxProcess) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
