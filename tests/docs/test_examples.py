"""The examples run and give their results; the documents name each of them, and their code is valid Python."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import environment, items, lycosa
from tests.conftest import ROOT
from tests.servers.misbehaving import Server, running

EXAMPLES = ROOT / "examples"
TESTED_ELSEWHERE = {"queue_workers.py", "consume_stream.py", "rows_in_sqlite.py", "rows_in_postgresql.py"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(robots="sitemaps") as server:
        yield server


def spider(name: str, cwd: Path, *more: object) -> list[dict[str, object]]:
    done = lycosa("runspider", EXAMPLES / name, "-o", "items.jsonl", *more, cwd=cwd)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "ERROR" not in done.stderr
    return items(cwd / "items.jsonl")


def program(name: str, cwd: Path, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def test_the_example_callbacks_yields_an_item_for_each_kind_of_callback(server, tmp_path):
    found = spider("callbacks.py", tmp_path, "-a", f"site={server.url('/tree/4/0')}")
    assert Counter(item["by"] for item in found) == {
        "parse": 1,
        "generator": 3,
        "plain": 1,
        "coroutine": 1,
        "failed": 1,
    }
    assert {"by": "failed", "status": 404, "why": "to see it fail"} in found
    assert {"by": "coroutine", "seen": 3} in found


def test_the_example_kinds_runs_each_of_its_four_spiders(server, tmp_path):
    said = program("kinds.py", tmp_path, server.url("/"), "items.jsonl")
    found = items(tmp_path / "items.jsonl")
    assert set(Counter(item["spider"] for item in found)) == {"by rules", "from sitemaps", "news", "prices"}
    assert said.startswith(f"{len(found)} items of ")


def test_the_example_stream_prints_items_and_keeps_no_files(server, tmp_path):
    said = program("stream.py", tmp_path, server.url("/tree/100/0"), 7)
    assert len(set(said.split())) == 7
    assert list(tmp_path.iterdir()) == [], "nothing is kept"


def test_the_example_threads_runs_its_callbacks_in_threads(server, tmp_path):
    found = spider("threads.py", tmp_path, "-a", f"site={server.url('/tree/13/0')}")
    assert len(found) == 4
    assert all(str(item["thread"]).startswith("lycosa-callback-") for item in found)
    assert {item["robots"] for item in found} == {200}


def test_the_example_fed_fetches_each_url_of_its_file_once(server, tmp_path):
    (tmp_path / "urls").write_text("\n".join([server.url("/good"), server.url("/good"), server.url("/index")]))
    found = spider("fed.py", tmp_path, "-a", "urls=urls")
    assert [item["url"] for item in found] == [server.url("/good"), server.url("/index")]


def test_every_example_is_tested_and_documented():
    names = {path.name for path in EXAMPLES.glob("*.py")}
    here = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
    assert names <= here | TESTED_ELSEWHERE
    told = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in names if f"examples/{name}" not in told] == []


@pytest.mark.parametrize("page", ["spiders.md", "signals-and-stats.md"])
def test_the_code_of_a_page_is_valid(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        ast.parse(f"async def _():\n{indented(dedent(block))}")


def indented(code: str) -> str:
    return "".join(f"    {line}" for line in code.splitlines(keepends=True))
