"""The rules about names of torrents: `python bench/torrent_rules.py [--names 1_000_000]`.

    described       names whose type and facts are found, per second of CPU time; floor 20,000
    inspected       records that are cleaned, checked against the deny rules and described, with one file and with 30
    refused         how many harmless names the rules against abuse material refuse, by kind of name

The names are those of tests/storage/rules: labelled names of releases, and harmless random names that resemble refused
ones.
Exit 1: the floor is not held.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from running import ROOT, progress

sys.path.insert(0, str(ROOT))

from lycosa.storage.core.torrents.content import ContentRules
from lycosa.storage.rules.rule_files import CONTENT, PACKAGE, compile_own, load_rules, make_inspector
from tests.storage.rules.name_corpus import names
from tests.storage.rules.records import record_named

DESCRIBED_MIN = 20_000
TIMED = 20_000
ROUNDS = 3
SEED = 19
LABELLED = ROOT / "tests" / "storage" / "rules" / "names.txt"


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=1_000_000, help="names that the rules against abuse material see")
    described = speeds()["described"]
    refused(parser.parse_args().names)
    return 0 if described >= DESCRIBED_MIN else 1


def speeds(timed: int = TIMED) -> dict[str, float]:
    """Return how many names or records are done per second of CPU time."""
    labelled = [line.rpartition("|")[2] for line in LABELLED.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    named = (labelled * (timed // len(labelled) + 1))[:timed]
    single = [record_named(name) for name in named]
    many = [record_named(name, *(f"{name}/{n:02} {name}.mkv" for n in range(30))) for name in named[: timed // 30]]
    inspector, content = make_inspector(), ContentRules([(load_rules(PACKAGE / CONTENT), compile_own)])
    found = {
        "described": rate(content.facts, named),
        "inspected, 1 file": rate(inspector.inspect, single),
        "inspected, 30 files": rate(inspector.inspect, many),
    }
    for name, per_s in found.items():
        progress(f"{name}: {per_s:,.0f}/s")
    return found


def rate(do: Callable[[Any], object], values: Sequence[Any]) -> float:
    """Return the best rate of a few rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        started = time.process_time()
        for value in values:
            do(value)
        best = max(best, len(values) / (time.process_time() - started))
    return best


def refused(count: int) -> Counter[str]:
    """Return how many names of each kind are refused."""
    inspector, counts, wrong = make_inspector(), Counter[str](), Counter[str]()
    for kind, name in islice(names(SEED), count):
        counts[kind] += 1
        wrong[kind] += bool(inspector.refusal(record_named(name)))
    for kind, number in counts.items():
        progress(f"{kind}: {wrong[kind]:,} of {number:,} refused")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
