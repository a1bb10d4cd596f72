"""How benchmarks finish: output, document and exit code; a benchmark that is interrupted leaves nothing running."""

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
    "goodput.py": (["--pages", "2000", "--strategy", "lycosa"], "goodput_crawl.py"),
    "gateway.py": (["--quick"], "--role gateway"),
    "proxies.py": (["--part", "memory", "--runs", "30"], "proxies_load.py"),
}
"""The arguments of each program, and a word of the command line of the process to wait for."""


@pytest.fixture(scope="module")
def bench():
    with programs("finishing", "report") as imported:
        yield imported


@pytest.mark.parametrize(("quick", "code"), [(False, 1), (True, 0)])
def test_finish_prints_writes_and_judges(bench, capsys, monkeypatch, tmp_path, quick, code):
    document = tmp_path / "benchmarks.md"
    document.write_text("".join(f"<!-- bench:{name} -->\n<!-- /bench:{name} -->\n" for name in ("x", "x-floors")))
    monkeypatch.setattr(bench.finishing, "DOCUMENT", document)
    monkeypatch.setattr(bench.finishing, "ROOT", tmp_path)
    verdicts = [bench.report.Verdict(True, "fast enough"), bench.report.Verdict(False, "too large")]
    assert bench.finishing.finish("x", {"x": "| table |"}, verdicts, write=True, quick=quick) == code
    output = capsys.readouterr().out
    assert output == "\n\n| table |\n\n- PASS  fast enough\n- FAIL  too large\nwrote benchmarks.md\n"
    assert "| table |" in document.read_text()
    assert "- FAIL  too large" in document.read_text()


def test_the_exit_code_is_zero_if_all_floors_hold(bench, capsys):
    assert bench.finishing.finish("x", {"x": "table"}, [bench.report.Verdict(True, "well")], write=False) == 0
    assert bench.finishing.finish("x", {"x": "table"}, [], write=False) == 0
    assert "None at this size." in capsys.readouterr().out


def descendants(pid: int) -> set[int]:
    """Return the process ids of all descendants."""
    children: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            children |= {int(each) for each in file.read_text().split()}
    return children.union(*(descendants(each) for each in children))


def command_line(pid: int) -> str:
    """Return the command line of a process, "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def wait_until(condition) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.proxies
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupted_benchmark_leaves_no_process_and_no_file(tmp_path, program, sent, code):
    words, awaited = PROGRAMS[program]
    command = [sys.executable, str(ROOT / "bench" / program), *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    benchmark = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children: set[int] = set()
    try:
        wait_until(
            lambda: (
                benchmark.poll() is not None
                or any(awaited in command_line(each) for each in descendants(benchmark.pid))
            )
        )
        children = {each for each in descendants(benchmark.pid) if command_line(each)}
        assert children
        benchmark.send_signal(sent)
        _, stderr = benchmark.communicate(timeout=LONG_S)
        assert (benchmark.returncode, "Traceback" in stderr) == (code, False), stderr
        assert [command_line(each) for each in children if command_line(each)] == []
        assert list(tmp_path.iterdir()) == []
    finally:
        benchmark.kill()
        for each in children:
            if command_line(each):
                os.kill(each, signal.SIGKILL)
