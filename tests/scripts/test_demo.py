"""make demo, seen from outside: it crawls, stops, resumes and searches, and leaves no process behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, need
from tests.queues.e2e.members import wait_until

pytestmark = [pytest.mark.nginx, pytest.mark.site]
PAGES_MIN = 400
END_MAX_S = 120


@pytest.fixture
def project(docs_root: Path, tmp_path: Path) -> Path:
    """A project with copies of the scripts, so that the demo of this checkout stays as it is."""
    need("lycosa beside this python (pip install -e .)", Path(sys.executable).with_name("lycosa").exists())
    for name in (
        "scripts/demo",
        "scripts/docs-site",
        "scripts/packages",
        "tests/servers/nginx.py",
        "tests/servers/ports.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/site").symlink_to(docs_root.parents[2])
    return tmp_path


def start(project: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, project / "scripts/demo"],
        env=os.environ | {"DEMO_ONCE": "1", "TMPDIR": str(project)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(demo: subprocess.Popen[str]) -> str:
    said = demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 0, said
    return said


def items(project: Path) -> list[str]:
    return [line for path in project.glob(".cache/demo/*/items.jsonl") for line in path.read_text().splitlines()]


def processes_of(project: Path) -> list[str]:
    """Return the command lines of processes that name this project."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(project) in command:
            found.append(command)
    return found


def assert_all_ended(project: Path) -> None:
    """Wait until all processes have ended. A server that was just being started when the demo stopped is ended by a
    signal, a moment after the demo.
    """
    wait_until(lambda: processes_of(project) == [])


def test_ctrl_c_stops_the_demo_and_the_next_run_resumes_and_searches(project: Path):
    demo = start(project)
    assert demo.stderr
    for line in demo.stderr:
        if line.startswith("Searchable"):
            break
    while not items(project):  # until the crawl has written something
        assert demo.poll() is None
    os.killpg(demo.pid, signal.SIGINT)  # what the terminal does
    said = demo.communicate(timeout=END_MAX_S)[1]
    assert demo.returncode == 130, said
    assert_all_ended(project)
    before = items(project)

    said = finish(start(project))
    assert len(re.findall(r"[\d,]+ pages/s", said)) == 1
    assert said.count("/search?q=") == 3
    assert "words highlighted" in said
    after = items(project)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) > PAGES_MIN
    assert_all_ended(project)
    assert not list(project.glob("lycosa-nginx-*"))

    again = finish(start(project))
    assert "No new page" in again
