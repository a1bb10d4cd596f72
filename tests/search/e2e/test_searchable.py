"""Searchable: a page is found at most 5 s after its commit while the crawl runs (D3, "Exact meanings")."""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median

from lycosa.app.search import open_index
from lycosa.search.ports import DocumentIndex
from tests.cli.command import Running, start_command
from tests.conftest import PROVE
from tests.servers.tree import grow, word

SEARCHABLE_S = 5.0
SAMPLES = 4


def newest_page(output: Path) -> int:
    """Return the number of the page in the last complete line: the crawl still writes, so the last line may be cut."""
    *_, line, _ = output.read_bytes().split(b"\n")
    return int(json.loads(line)["url"].rsplit("/", 1)[1])


def seconds_until_found(index: DocumentIndex, number: int, run: Running) -> float:
    started = time.monotonic()
    assert run.until(lambda: index.search(word(number)).total == 1), run.stderr
    return time.monotonic() - started


def test_pages_are_found_while_the_crawl_runs(tmp_path):
    output = tmp_path / "items.jsonl"
    with grow(20_000, delay_s=0.1) as tree:
        command = ["crawl", tree.url, "-o", output, "--index", tmp_path / "index", "--concurrency", 16]
        with start_command(*command, cwd=tmp_path) as run:
            assert run.until(lambda: output.exists() and b"\n" in output.read_bytes()), run.stderr
            index = open_index(tmp_path / "index")
            try:
                times_s = [seconds_until_found(index, newest_page(output), run) for _ in range(SAMPLES)]
            finally:
                index.close()
            assert run.process.poll() is None, "the crawl must still be running"
    print(f"found after {max(times_s):.2f} s at most")
    assert median(times_s) <= (SEARCHABLE_S if PROVE else 6 * SEARCHABLE_S), "even on a busy machine"
