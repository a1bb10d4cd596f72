"""Lycosa with its frontier in memory, which no option offers: `python bench/peers/lycosa_memory.py crawl URL...`.

Everything else is the unchanged `lycosa` command, so the difference between the two is the cost of the durable
frontier.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lycosa.app.crawl import run
from lycosa.cli.main import main
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier


def frontier(_path: Path, policy: Policy, **_options: Any) -> Any:
    return memory_frontier(policy)


assert run.embedded_frontier, "what this replaces"
run.embedded_frontier = frontier

if __name__ == "__main__":
    sys.exit(main())
