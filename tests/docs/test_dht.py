"""The tests that docs/dht.md names as its proof exist."""

from __future__ import annotations

import ast
import re

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
