"""Starts processes of `queue_members`, reads their logs, and kills them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.command import environment
from tests.conftest import ROOT

LONG_S = 60.0
INTERRUPT_EVERY_S = 2.0
POLL_S = 0.002


class Member:
    """A process with a role of `queue_members`."""

    def __init__(self, role: str, home: Path, queue: Path | str, *arguments: object) -> None:
        self.log = home / f"{role}-{len(list(home.glob('*-*')))}"
        self.log.touch()
        command = [sys.executable, "-m", "tests.queues.e2e.queue_members", role, queue, self.log, *arguments]
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]

    def wait_for(self, word: str, within_s: float = LONG_S) -> list[str]:
        """Wait for a log line that begins with this word."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            for line in self.lines():
                if line[0] == word:
                    return line
            assert self.process.poll() is None or any(line[0] == word for line in self.lines()), "the process has ended"
            time.sleep(POLL_S)
        raise AssertionError(f"{word} is not in {self.lines()}")

    def interrupt(self) -> None:
        """Send SIGINT until the process logs that it was interrupted.

        If a signal arrives just before a call that sleeps, Python notices the signal only when that call returns.
        """
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            self.process.send_signal(signal.SIGINT)
            with suppress(AssertionError):
                self.wait_for("interrupted", within_s=INTERRUPT_EVERY_S)
                return
        raise AssertionError(f"not interrupted: {self.lines()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        return self.process.wait(LONG_S)


@contextmanager
def members(home: Path) -> Iterator[Callable[..., Member]]:
    """Yield a function that starts members whose logs are in this folder. They are killed afterwards."""
    home.mkdir()
    started: list[Member] = []

    def start_member(role: str, queue: Path | str, *arguments: object) -> Member:
        started.append(Member(role, home, queue, *arguments))
        return started[-1]

    yield start_member
    for member in started:
        member.kill()
        member.process.stdin.close()
        member.process.stdout.close()


def wait_until(condition: Callable[[], bool], within_s: float = LONG_S) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
