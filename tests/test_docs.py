"""The documents say what the program does."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_every_command_and_flag_is_in_the_documents():
    command = [sys.executable, ROOT / "scripts" / "docs-commands", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
