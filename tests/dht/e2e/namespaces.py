"""Runs Python modules in a separate network namespace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

from tests.cli.command import environment
from tests.conftest import ROOT, need


def run_in_namespace(module: str) -> Any:
    """Run a module that prints JSON. Return what it printed."""
    need("network namespaces: unshare -rn and ip (apt-get install iproute2)", has_namespaces())
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-m", module],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def has_namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
