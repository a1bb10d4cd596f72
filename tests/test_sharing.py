"""Processes that share the tests run each file once (`tests/sharing.py`, scripts/test)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

CONFTEST = "from tests.conftest import pytest_addoption, pytest_configure"
TESTS = """
import os, time, pytest

@pytest.mark.parametrize("number", range(3))
def test_it(number):
    time.sleep(0.05)
    with open("ran", "a") as file:
        file.write(f"{os.getpid()} {__name__} {number}\\n")
"""


def test_each_file_is_run_once_by_one_of_them_and_fixtures_end(tmp_path: Path) -> None:
    home, taken = tmp_path / "tests", tmp_path / "taken"
    home.mkdir()
    taken.mkdir()
    (home / "conftest.py").write_text(CONFTEST)
    for folder in range(10):
        (home / f"of_{folder}").mkdir()
    files = [f"test_{number}" for number in range(30)]
    for number, file in enumerate(files):  # whoever has passed over the last of a folder goes on in another one
        (home / f"of_{number // 3}" / f"{file}.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", home, f"--rootdir={home}", f"--taken={taken}"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    begins = ((), ("--from-the-end",), ("--from-the-end",))
    shares = [subprocess.Popen([*command, *more], cwd=home, env=env) for more in begins]
    assert [share.wait(60) for share in shares] == [0, 0, 0]
    ran = [line.split() for line in (home / "ran").read_text().splitlines()]
    assert sorted(words[1:] for words in ran) == sorted([file, str(number)] for file in files for number in range(3))
    by_file = {file: {pid for pid, of, _ in ran if of == file} for file in files}
    assert {len(pids) for pids in by_file.values()} == {1}
