"""The tests that docs/dht.md names as its proof exist, and docs/dht-crawler.md has the figures of the code."""

from __future__ import annotations

import ast
import re

from lycosa.cli.dht.crawl import command as crawl_command
from lycosa.dht.crawler.core.profiles import HOME, SERVER
from lycosa.dht.crawler.core.slowness import Brake
from tests.conftest import ROOT

NAMED = re.compile(r"`((?:\w+/)*test_\w+\.py)::(test_\w+)`")
SENTENCES_OF_BEP_5 = 24
"""Sentences with must or should."""


def page() -> str:
    return (ROOT / "docs" / "dht.md").read_text(encoding="utf-8")


def test_every_named_test_exists():
    named = NAMED.findall(page())
    assert len(named) > SENTENCES_OF_BEP_5
    missing = []
    for file, test in named:
        path = ROOT / "tests" / "dht" / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
        if test not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{test}")
    assert missing == []


def test_every_sentence_of_bep_5_with_must_or_should_has_a_test():
    table = page().split("with *must* or *should*", 1)[1].split("\n\nOther demands of BEP 5", 1)[0]
    rows = [
        line.split(" | ") for line in table.splitlines() if line.startswith("| ") and not line.startswith("| BEP 5")
    ]
    assert len(rows) == SENTENCES_OF_BEP_5
    for sentence, proof in rows:
        assert re.search(r"\b(must|should)\b", sentence), sentence
        assert NAMED.search(proof) or "the same test" in proof, sentence


def crawler_page() -> str:
    return (ROOT / "docs" / "dht-crawler.md").read_text(encoding="utf-8")


def test_the_limits_of_the_profiles_are_those_of_the_code():
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([\d,]+ \| [\d,]+) \|$", crawler_page(), re.MULTILINE))
    shown = {name: [int(each.replace(",", "")) for each in values.split(" | ")] for name, values in rows.items()}
    assert shown == {
        "new addresses a minute, UDP and TCP together": [HOME.new_addresses, SERVER.new_addresses],
        "bytes of datagrams sent a second": [HOME.bytes_per_s, SERVER.bytes_per_s],
        "nodes queried for samples a minute": [HOME.samples, SERVER.samples],
        "lookups a minute": [HOME.lookups, SERVER.lookups],
        "connections to peers a minute": [HOME.connections, SERVER.connections],
        "scrapes a minute, to count the peers of stored torrents": [HOME.scrapes, SERVER.scrapes],
        "infohashes a minute that are queued because other nodes requested them": [HOME.harvested, SERVER.harvested],
        "evicted torrents a minute that are queued again": [HOME.returned, SERVER.returned],
        "queued infohashes above which the sweep rests": [HOME.queued_max, SERVER.queued_max],
        "open connections": [HOME.connections_max, SERVER.connections_max],
        "torrents a day, at most": [HOME.torrents_per_day, SERVER.torrents_per_day],
    }


def test_every_brake_and_option_of_a_crawl_is_documented():
    for brake in Brake:
        assert f"| `{brake.value}` |" in crawler_page()
    for option in crawl_command.params:
        for name in option.opts:
            assert name in crawler_page(), name
