"""The documents say what the program does."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest

from lycosa.core.frontier import Event, State
from tests.conftest import ROOT


@pytest.fixture
def frontier_docs() -> ModuleType:
    loader = SourceFileLoader("docs_frontier", str(ROOT / "scripts" / "docs-frontier"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["docs-commands", "docs-frontier"])
def test_what_is_generated_is_what_the_code_says(script):
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_step_that_is_not_drawn_is_told(frontier_docs, monkeypatch):
    more = {**frontier_docs.TRANSITIONS, (State.ARCHIVED, Event.REQUEUE): State.QUEUED}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", more)
    with pytest.raises(frontier_docs.Drift, match=r"missing \[\(<State\.ARCHIVED"):
        frontier_docs.picture()


def test_an_arrow_that_no_step_has_is_told(frontier_docs, monkeypatch):
    less = {key: state for key, state in frontier_docs.TRANSITIONS.items() if key[1] is not Event.NACK}
    monkeypatch.setattr(frontier_docs, "TRANSITIONS", less)
    with pytest.raises(frontier_docs.Drift, match=r"too much \[\(<State\.LEASED"):
        frontier_docs.picture()


def test_a_bound_without_words_is_told(frontier_docs, monkeypatch):
    monkeypatch.delitem(frontier_docs.TOLD, "SEGMENTS_MAX")
    with pytest.raises(frontier_docs.Drift, match=r"database\.py: SEGMENTS_MAX has no words"):
        frontier_docs.limits()
