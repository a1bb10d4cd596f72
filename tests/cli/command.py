"""Runs the command `lycosa` in its own process, and checks what it wrote."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lycosa.app.search import open_index
from tests.cli import forked
from tests.conftest import PROVE, ROOT
from tests.servers.tree import Tree, word

LYCOSA = (sys.executable, "-c", "import sys; from lycosa.__main__ import main; sys.exit(main())")
PATIENT = (
    sys.executable,
    "-c",
    """import sys
from lycosa.app.crawl import crawl_run, frontier
from lycosa.crawl.engine import engine
engine.STOP_GRACE_S = crawl_run.STOP_GRACE_S = frontier.LEAVE_MAX_S = 60.0
from lycosa.__main__ import main
sys.exit(main())""",
)
"""`LYCOSA` with a minute instead of five seconds to stop after an interrupt: so that even on a busy machine a second
interrupt, which ends it within AT_ONCE_S, differs from the first.
"""
AT_ONCE_S = 30.0
END_MAX_S = 120.0
POLL_S = 0.002
HANDLED_S = 0.3
"""A delivered signal is handled within this time."""


def environment() -> dict[str, str]:
    """Return the current variables without LYCOSA_*, and with the package of this checkout first.

    There is no warning of blocking callbacks: on a busy machine, any code may take a second.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LYCOSA_")}
    return {**kept, "PYTHONPATH": str(ROOT), "LYCOSA_SLOW_CALLBACK_AFTER": "0"}


def lycosa(*arguments: object, cwd: Path, timeout_s: float = END_MAX_S) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, in a forked process if possible (`forked`)."""
    words = [*map(str, arguments)]
    if not PROVE and (done := forked.run(words, cwd, environment(), timeout_s)):
        return done
    return subprocess.run(
        [*LYCOSA, *words],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@dataclass(slots=True)
class Running:
    """A running command. `started_at` is in monotonic seconds; its standard output and error are files."""

    process: subprocess.Popen[bytes]
    started_at: float
    home: Path

    @property
    def stderr(self) -> str:
        return (self.home / "stderr").read_text(errors="replace")

    @property
    def stdout(self) -> bytes:
        return (self.home / "stdout").read_bytes()

    def until(self, happened: Callable[[], object]) -> bool:
        """Wait until this is true; False if the process ended before."""
        deadline = time.monotonic() + END_MAX_S
        while not happened():
            if self.process.poll() is not None:
                return bool(happened())
            assert time.monotonic() < deadline, f"waited too long: {self.stderr}"
            time.sleep(POLL_S)
        return True

    def cpu_s(self) -> float:
        """Return its processor time, user and system, of all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_at(self, at: float) -> bool:
        """Kill it at this monotonic time; False if it ended before."""
        try:
            self.process.wait(max(0.0, at - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self.kill()
        return False

    def kill(self) -> bool:
        """Kill it now; False if it had ended."""
        self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def end(self) -> int:
        """Wait for its end. Return the exit code."""
        return self.process.wait(END_MAX_S)


def interrupt(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> None:
    """Send a signal, and return when it is handled: before that, a second one would be merged with it."""
    process.send_signal(number)
    while process.poll() is None and _is_pending(process.pid, number):
        time.sleep(POLL_S)
    time.sleep(HANDLED_S)


def _is_pending(pid: int, number: signal.Signals) -> bool:
    masks = re.findall(r"^(?:Sig|Shd)Pnd:\s*(\S+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@contextmanager
def start_command(*arguments: object, cwd: Path, program: Sequence[str] = LYCOSA) -> Iterator[Running]:
    """Start a command line in `cwd`; kill it at the end of the block if it still runs."""
    with (cwd / "stderr").open("wb") as stderr, (cwd / "stdout").open("wb") as stdout:
        at = time.monotonic()
        process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield Running(process, at, cwd)
    finally:
        process.kill()
        process.wait()


def items(path: Path) -> list[dict[str, Any]]:
    """Return the items of a file. Asserts that every line is complete."""
    content = path.read_bytes()
    assert content.endswith(b"\n") or not content
    return [json.loads(line) for line in content.splitlines()]


def items_so_far(path: Path) -> list[dict[str, Any]]:
    """Return the items of a file that a crawl is writing; an incomplete last line is left out."""
    content = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def assert_exactly_once(found: list[str], expected: Collection[str]) -> None:
    """Assert that the expected pages are there, each once, and no others."""
    counts = Counter(found)
    twice = {url: count for url, count in counts.items() if count > 1}
    missing, foreign = set(expected) - set(counts), set(counts) - set(expected)
    assert (twice, missing, foreign) == ({}, set(), set())


def assert_indexed_once(folder: Path, tree: Tree) -> None:
    """Assert that every page of a tree is found once, by its own word, and that the index has no other pages."""
    index = open_index(folder)
    try:
        assert index.count() == tree.pages
        found = [[hit.url for hit in index.search(word(number)).hits] for number in range(tree.pages)]
    finally:
        index.close()
    base = tree.url.removesuffix("0")
    assert [(n, urls) for n, urls in enumerate(found) if urls != [f"{base}{n}"]] == []


def without_waits(stderr: str) -> str:
    """Return standard error without the reports, on a busy machine, that a command waits for the owner of a state."""
    return "".join(line for line in stderr.splitlines(keepends=True) if "has not answered for 2 s" not in line)


def assert_one_line(stderr: str) -> str:
    """Assert that standard error is one line of Lycosa. Return it without the name of the program."""
    assert stderr.startswith("lycosa: ")
    assert stderr.endswith("\n")
    assert stderr.count("\n") == 1, stderr
    assert "internal error" not in stderr
    return stderr.removeprefix("lycosa: ").strip()
