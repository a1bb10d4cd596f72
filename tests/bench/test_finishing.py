"""How benchmarks end: what they print, write and judge; and when they are ended, nothing that they started goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bench.conftest import programs
from tests.conftest import ROOT

LONG_S = 60.0
PROGRAMS = {
    "goodput.py": (["--pages", "2000", "--way", "lycosa"], "goodput_crawl.py"),
    "gateway.py": (["--quick"], "--role gateway"),
    "proxies.py": (["--part", "memory", "--runs", "3"], "proxies_load.py"),
}
"""With what words, and of what process to wait for."""


@pytest.fixture(scope="module")
def bench():
    with programs("finishing", "report") as imported:
        yield imported


@pytest.mark.parametrize(("quick", "code"), [(False, 1), (True, 0)])
def test_the_end_prints_writes_and_judges(bench, capsys, monkeypatch, tmp_path, quick, code):
    document = tmp_path / "benchmarks.md"
    document.write_text("".join(f"<!-- bench:{name} -->\n<!-- /bench:{name} -->\n" for name in ("x", "x-floors")))
    monkeypatch.setattr(bench.finishing, "DOCUMENT", document)
    monkeypatch.setattr(bench.finishing, "ROOT", tmp_path)
    told = [bench.report.Verdict(True, "fast enough"), bench.report.Verdict(False, "too large")]
    assert bench.finishing.finish("x", {"x": "| table |"}, told, write=True, quick=quick) == code
    said = capsys.readouterr().out
    assert said == "\n\n| table |\n\n- PASS  fast enough\n- FAIL  too large\nwrote benchmarks.md\n"
    assert "| table |" in document.read_text()
    assert "- FAIL  too large" in document.read_text()


def test_what_holds_all_floors_is_zero(bench, capsys):
    assert bench.finishing.finish("x", {"x": "table"}, [bench.report.Verdict(True, "well")], write=False) == 0
    assert bench.finishing.finish("x", {"x": "table"}, [], write=False) == 0
    assert "None at this size." in capsys.readouterr().out


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_waits_until_what_is_started_will_be_ended(bench, number, ends):
    reached = []

    def start() -> None:
        with bench.finishing.undivided():
            bench.finishing._ends(number, None)
            reached.append("the end of the block")
        reached.append("what follows")

    with pytest.raises(ends):
        start()
    assert reached == ["the end of the block"]
    with pytest.raises(ends):
        bench.finishing._ends(number, None)


def below(pid: int) -> set[int]:
    """Return the processes that this one has started, and those that they have."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            children |= {int(each) for each in file.read_text().split()}
    return children.union(*(below(each) for each in children))


def words_of(pid: int) -> str:
    """Return the command line of a process, "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def until(happened) -> None:
    deadline = time.monotonic() + LONG_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.proxies
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_ended_leaves_no_process_and_no_file(tmp_path, program, sent, code):
    words, awaited = PROGRAMS[program]
    command = [sys.executable, str(ROOT / "bench" / program), *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    left: set[int] = set()
    try:
        until(lambda: ended.poll() is not None or any(awaited in words_of(each) for each in below(ended.pid)))
        left = {each for each in below(ended.pid) if words_of(each)}
        assert left
        ended.send_signal(sent)
        _, said = ended.communicate(timeout=LONG_S)
        assert (ended.returncode, "Traceback" in said) == (code, False), said
        assert [words_of(each) for each in left if words_of(each)] == []
        assert list(tmp_path.iterdir()) == []
    finally:
        ended.kill()
        for each in left:
            if words_of(each):
                os.kill(each, signal.SIGKILL)
