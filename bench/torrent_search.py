#!/usr/bin/env python3
"""How fast torrents are indexed and searched, and how large the index is: bench/torrent_search.py [--torrents N].

The torrents are those of tests/storage/torrents.py, with a third of CJK names. Each step is timed in CPU seconds, too:
decoding records, analyzing names and counting words in Python, and tantivy with its threads. Searches have one to three
words of names; `spelling_ms` is the time to suggest another spelling for such a search after one letter was changed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lycosa.search.core.request import SearchRequest, ValueFilter  # noqa: E402
from lycosa.search.core.schema import TORRENTS  # noqa: E402
from lycosa.search.core.torrent_query import parse_torrent_query  # noqa: E402
from lycosa.search.core.torrent_text import torrent_words  # noqa: E402
from lycosa.search.speller import Speller  # noqa: E402
from lycosa.search.tantivy import TantivyIndex  # noqa: E402
from lycosa.search.torrent_entry import torrent_entry  # noqa: E402
from lycosa.search.word_list import WordCounter, WordList  # noqa: E402
from lycosa.storage.core.content_facts import ContentFacts, ContentType  # noqa: E402
from lycosa.storage.core.torrent_record import TorrentRecord  # noqa: E402
from lycosa.storage.records.content import encode_content  # noqa: E402
from lycosa.storage.records.rows import NEVER, searched_torrents, worth  # noqa: E402
from tests.storage.torrents import torrent  # noqa: E402

BATCH = 2000
DISTINCT = 20_000
"""Number of records that are encoded. More torrents repeat these records, with the same names and files."""
QUERIES = 400
FILES = (1, 1, 1, 2, 3, 5, 12, 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torrents", type=int, default=200_000)
    count = parser.parse_args().torrents
    folder = Path(tempfile.mkdtemp(prefix="lycosa-bench-"))
    try:
        report(measure(count, folder))
    finally:
        shutil.rmtree(folder)


def measure(count: int, folder: Path) -> dict[str, object]:
    rng = random.Random(1)
    records = [record(rng, number) for number in range(min(count, DISTINCT))]
    contents = [encode_content(each) for each in records]
    told: dict[str, object] = {"torrents": count}
    steps = dict.fromkeys(("decode", "analyze", "list_words", "add"), 0.0)
    index = TantivyIndex(folder / "index", TORRENTS, write=True)
    rebuilt = index.rebuild()
    words = WordCounter(folder / "index", TORRENTS)
    began, cpu = time.perf_counter(), cpu_s()
    names: list[str] = []
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        mark = time.thread_time()
        stored = searched_torrents(
            [(number, contents[number % len(contents)], worth(9, 0), NEVER) for number in numbers]
        )
        steps["decode"] += time.thread_time() - mark
        mark = time.thread_time()
        entries = [torrent_entry(each) for each in stored]
        steps["analyze"] += time.thread_time() - mark
        mark = time.thread_time()
        words.add(entries)
        steps["list_words"] += time.thread_time() - mark
        mark = time.thread_time()
        rebuilt.add(entries, new=True)
        steps["add"] += time.thread_time() - mark
        names += [rng.choice(stored).name]
    index.adopt(rebuilt)
    words.commit()
    words.close()
    told["build_s"] = round(time.perf_counter() - began, 1)
    told["build_cpu_s"] = round(cpu_s() - cpu, 1)
    told |= {f"{name}_us_per_torrent": round(1e6 * spent / count, 1) for name, spent in steps.items()}
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    told |= {"index_mb": round(size / 1e6, 1), "index_bytes_per_torrent": round(size / count)}
    told["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    texts = list(queries(rng, names))
    newest = {"sort": "found", "filters": (ValueFilter("type", values=("video",)), ValueFilter("size", 10**6))}
    told["search_ms"] = timed(texts, lambda text: index.find(request(text)))
    told["search_filtered_sorted_ms"] = timed(texts, lambda text: index.find(request(text)._replace(**newest)))
    told["count_types_ms"] = timed(texts, lambda text: index.count_values(request(text), {"type": 10}))
    told["newest_ms"] = timed(texts[:50], lambda _: index.find(SearchRequest(sort="found", limit=20)))
    told["all_types_ms"] = timed(texts[:20], lambda _: index.count_values(SearchRequest(), {"type": 10}))
    mistyped = [mistyped_by_one(rng, text) for text in texts]
    speller = Speller(WordList(folder / "index"))
    told["spelling_ms"] = timed(mistyped, lambda text: speller.suggestion(text, 0, lambda *_: False))
    told["completion_ms"] = timed(texts, lambda text: speller.completions(text[:3], 8))
    index.close()
    return told


def record(rng: random.Random, number: int) -> TorrentRecord:
    made = torrent(number, files=rng.choice(FILES))
    facts = ContentFacts(rng.choice(list(ContentType)), rng.choice((2040, 5040, 3010, 7020)), 1080, 2020)
    return TorrentRecord(
        made.infohash_v1, None, made.name, made.files, made.piece_bytes, 1_780_000_000 + number, content=facts
    )


def queries(rng: random.Random, names: list[str]) -> Iterator[str]:
    for _ in range(QUERIES):
        words = torrent_words(rng.choice(names))
        yield " ".join(rng.sample(words, min(rng.randrange(1, 4), len(words))))


def mistyped_by_one(rng: random.Random, text: str) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice("abcdefghijklmnopqrstuvwxyz") + text[place + 1 :]


def request(text: str) -> SearchRequest:
    parsed = parse_torrent_query(text, 0.0)
    return SearchRequest(parsed.query, parsed.filters, limit=20)


def timed(texts: list[str], search: Callable[[str], object]) -> dict[str, float]:
    took = []
    for text in texts:
        mark = time.perf_counter()
        search(text)
        took.append((time.perf_counter() - mark) * 1000)
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "p99": round(cuts[98], 2)}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report(told: dict[str, object]) -> None:
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
