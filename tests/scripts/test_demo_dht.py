"""make demo-dht, seen from outside: it finds all torrents, Ctrl-C ends it at any moment with one line, and it leaves no
process behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, need
from tests.queues.e2e.members import wait_until
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent

END_MAX_S = 180
MARK = b"DEMO_TEST=%d\0" % os.getpid()


def processes_of_demo() -> list[int]:
    """Return the processes that inherited the environment of the demo."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if MARK in environment:
            found.append(int(process.name))
    return found


def start_demo(**variables: str) -> subprocess.Popen[str]:
    need(LIBTORRENT, find_libtorrent())
    return subprocess.Popen(
        [sys.executable, ROOT / "scripts/demo-dht"],
        env=os.environ | {"DEMO_TEST": str(os.getpid())} | variables,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(demo: subprocess.Popen[str], line: str) -> str:
    """Read until a line that matches. Return all lines."""
    assert demo.stderr
    said = last = ""
    while not re.match(line, last):
        said += (last := demo.stderr.readline())
        assert last, said
    return said


@pytest.mark.parametrize(("line", "times"), [("Starting a private DHT", 2), ("Search site:", 1)])
def test_ctrl_c_ends_the_demo_in_one_line(line: str, times: int):
    demo = start_demo()
    said = read_until(demo, line)
    for _ in range(times):
        os.killpg(demo.pid, signal.SIGINT)  # what the terminal does
    said += demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 130, said
    assert said.endswith("\nStopped.\n")
    assert "Traceback" not in said
    assert "Warning" not in said
    wait_until(lambda: processes_of_demo() == [])


def test_all_torrents_are_found_and_searched_within_two_minutes():
    demo = start_demo(DEMO_ONCE="1", DEMO_TORRENTS="20")
    said = demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 0, said
    assert re.search(r"\n20 torrents after \d+ s\na search finds [1-9]\d* videos\n$", said), said
    wait_until(lambda: processes_of_demo() == [])


def test_a_part_of_the_torrents_is_not_enough():
    demo = start_demo(DEMO_ONCE="1", DEMO_TORRENTS="200")
    said = read_until(demo, r"  [1-9]\d* of 200 torrents found")
    [crawl] = [each for each in processes_of_demo() if b"\0crawl\0" in Path(f"/proc/{each}/cmdline").read_bytes()]
    os.kill(crawl, signal.SIGKILL)
    said += demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 1, said
    assert re.search(r"\nonly [1-9]\d* of 200 torrents were found\n$", said), said
    wait_until(lambda: processes_of_demo() == [])
