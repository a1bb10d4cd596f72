"""Standard streams that are closed, full, or no longer read: one line and an exit code, never an internal error."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import LYCOSA, environment, lycosa

COMMANDS = [
    "proxies list --pool pool --limit 0",
    "proxies list --pool pool --limit 0 --json",
    "proxies export --pool pool",
    "proxies export --pool pool --format csv",
    "proxies explain shop.example --pool pool --limit 0",
    "proxies stats --pool pool",
    "proxies judge --bind 127.0.0.1:0 --no-tls",
    "proxies site --pool pool --bind 127.0.0.1:0",
    "--help",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool whose list is longer than any buffer."""
    folder = tmp_path_factory.mktemp("streams")
    lines = (f"10.0.{number // 250}.{number % 250 + 1}:80\n" for number in range(1000))
    (folder / "many.txt").write_text("".join(lines))
    assert lycosa("proxies", "add", "many.txt", "--pool", "pool", cwd=folder).returncode == 0
    return folder


def shell(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    lycosa_ = shlex.join(LYCOSA)
    command = ["bash", "-c", f"set -o pipefail; {lycosa_} {line}"]
    return subprocess.run(
        command, cwd=home, env=environment(), capture_output=True, text=True, timeout=60, check=False, input=""
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("to", "why"), [(">/dev/full", "no space left on device"), (">&-", "bad file descriptor")])
def test_output_that_cannot_be_written_is_reported(home: Path, command: str, to: str, why: str) -> None:
    done = shell(f"{command} {to}", home)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [f"lycosa: standard output cannot be written: {why}"]


@pytest.mark.parametrize("command", COMMANDS[:6])
def test_a_reader_that_closes_the_pipe_is_no_error(home: Path, command: str) -> None:
    done = shell(f"{command} | head -1", home)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_closed_standard_input_reads_as_empty(home: Path) -> None:
    done = shell("proxies add - --pool pool <&-", home)
    assert (done.returncode, done.stderr) == (2, "lycosa: there is no proxy in standard input\n")
