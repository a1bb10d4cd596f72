"""Processes of `queue_members` as a test sees them: started, read, killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import environment
from tests.conftest import ROOT

LONG_S = 60.0
POLL_S = 0.002


class Member:
    """A process with a role of `queue_members`."""

    def __init__(self, role: str, home: Path, queue: Path | str, *arguments: object) -> None:
        self.diary = home / f"{role}-{len(list(home.glob('*-*')))}"
        self.diary.touch()
        command = [sys.executable, "-m", "tests.queues.e2e.queue_members", role, queue, self.diary, *arguments]
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.diary.read_text().splitlines()]

    def until(self, word: str) -> list[str]:
        """Wait for a line that begins with this word."""
        ends = time.monotonic() + LONG_S
        while time.monotonic() < ends:
            for line in self.lines():
                if line[0] == word:
                    return line
            assert self.process.poll() is None or any(line[0] == word for line in self.lines()), "it has ended"
            time.sleep(POLL_S)
        raise AssertionError(f"{word} is not in {self.lines()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        return self.process.wait(LONG_S)


@contextmanager
def members(home: Path) -> Iterator[Callable[..., Member]]:
    """Give a function that starts members, whose diaries are in this folder; kill them afterwards."""
    home.mkdir()
    started: list[Member] = []

    def start_one(role: str, queue: Path | str, *arguments: object) -> Member:
        started.append(Member(role, home, queue, *arguments))
        return started[-1]

    yield start_one
    for member in started:
        member.kill()
        member.process.stdin.close()
        member.process.stdout.close()


def until(true: Callable[[], bool], within_s: float = LONG_S) -> None:
    """Wait until it is true."""
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends
        time.sleep(POLL_S)
