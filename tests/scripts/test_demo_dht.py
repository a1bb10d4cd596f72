"""make demo-dht, seen from outside: Ctrl-C ends it at any moment with one line, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, need
from tests.queues.e2e.members import wait_until
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent

END_MAX_S = 120
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


@pytest.mark.parametrize(("line", "times"), [("Starting a private DHT", 2), ("Search site:", 1)])
def test_ctrl_c_ends_the_demo_in_one_line(line: str, times: int):
    need(LIBTORRENT, find_libtorrent())
    demo = subprocess.Popen(
        [sys.executable, ROOT / "scripts/demo-dht"],
        env=os.environ | {"DEMO_TEST": str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert demo.stderr
    said = ""
    while not said.rpartition("\n")[0].rpartition("\n")[2].startswith(line):
        said += demo.stderr.readline()
        assert demo.poll() is None, said
    for _ in range(times):
        os.killpg(demo.pid, signal.SIGINT)  # what the terminal does
    said += demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 130, said
    assert said.endswith("\nStopped.\n")
    assert "Traceback" not in said
    assert "Warning" not in said
    wait_until(lambda: processes_of_demo() == [])
